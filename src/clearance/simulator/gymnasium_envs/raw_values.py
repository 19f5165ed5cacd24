"""Convert observations and actions to JSON data and back, with the same types and the same bits.

Environments may run in a separate process under another Python interpreter, in which clearance is not installed. Both
processes use this file, so it imports nothing of clearance. Nothing received is executed.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

NUMBERS = "biuf"


def pack(x: Any) -> Any:
    """Convert numbers, texts, arrays of numbers, and dicts, lists and tuples of these to JSON data.

    Raise TypeError for other types.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        a = np.ascontiguousarray(x)
        if a.dtype.kind not in NUMBERS:
            raise TypeError(f"an array of {a.dtype} cannot go to or from a side process")
        kind = "scalar" if isinstance(x, np.generic) else "array"
        return {kind: a.dtype.str, "shape": list(np.shape(x)), "data": base64.b64encode(a.tobytes()).decode()}
    if isinstance(x, dict):
        return {"dict": [[k, pack(v)] for k, v in x.items()]}
    if isinstance(x, (list, tuple)):
        return {"tuple" if isinstance(x, tuple) else "list": [pack(v) for v in x]}
    if x is None or isinstance(x, (bool, int, float, str)):
        return {"value": x}
    raise TypeError(f"{type(x).__name__} cannot go to or from a side process")


def unpack(data: Any) -> Any:
    """Convert JSON data from `pack` back to the original value, with the same types and bits."""
    if "value" in data:
        return data["value"]
    if "dict" in data:
        return {k: unpack(v) for k, v in data["dict"]}
    if "list" in data or "tuple" in data:
        parts = [unpack(v) for v in data.get("list", data.get("tuple"))]
        return tuple(parts) if "tuple" in data else parts
    dtype = np.dtype(data.get("array", data.get("scalar")))
    if dtype.kind not in NUMBERS:
        raise TypeError(f"an array of {dtype} cannot go to or from a side process")
    a = np.frombuffer(base64.b64decode(data["data"]), dtype).reshape(data["shape"]).copy()
    return a[()] if "scalar" in data else a
