"""Checkpoints: nested tuples of arrays and numbers as one `.npz`, and back; torn or altered ones are recognised.

The structure is JSON beside the arrays, and is rebuilt in the likeness of a template (the beginning of the same run),
so that no name of a class is ever taken from a file. A digest over structure and arrays is kept with them.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.atomic_files import digest, load_npz, save_npz
from clearance.core.errors import InputError
from clearance.learning.trace import Trace

SCHEMA = "clearance/checkpoint/1"
Arrays = dict[str, NDArray[Any]]


class Checkpoint(NamedTuple):
    """What a file holds: a description of the structure, its arrays, and the sha256 of the files that it rests on."""

    tree: Any
    arrays: Arrays
    files: dict[str, dict[str, Any]]

    def rebuilt(self, template: Any, part: str) -> Any:
        """One part of the tree, in the likeness of `template`."""
        return _rebuild(template, self.tree["dict"][part], self.arrays)


def save(path: Path, tree: dict[str, Any], files: dict[str, dict[str, Any]]) -> None:
    arrays: Arrays = {}
    meta = {"tree": _describe(tree, arrays), "files": files}
    sealed = json.dumps(meta | {"sha256": digest(meta, arrays)})
    save_npz(path, {"schema": np.array(SCHEMA), "meta": np.array(sealed), **arrays}, compressed=False)


def load(path: Path) -> Checkpoint:
    """A checkpoint that is as it was written; else an error that names the file."""
    arrays = load_npz(path)
    if str(arrays.pop("schema", None)) != SCHEMA or "meta" not in arrays:
        raise InputError(f"{path}: is no checkpoint of schema {SCHEMA}")
    try:
        meta = json.loads(str(arrays.pop("meta")))
        found = meta.pop("sha256")
        checkpoint = Checkpoint(meta["tree"], arrays, meta["files"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path}: is altered, its description cannot be read") from None
    if found != digest(meta, arrays):
        raise InputError(f"{path}: is altered, its sha256 is not that of its content")
    return checkpoint


def tail_of(found: Checkpoint) -> Trace | None:
    """The iterations that a checkpoint holds beyond those in the files of the trace."""
    tail = found.rebuilt(None, "tail")
    return None if tail is None else Trace(**{f.name: tail[f.name] for f in fields(Trace)})


def _describe(x: Any, arrays: Arrays) -> Any:
    """The structure of x as JSON data; its arrays are put aside under numbers."""
    if x is None or (isinstance(x, bool | int | str) and not isinstance(x, np.generic)):
        return {"value": x}
    if isinstance(x, float) and not isinstance(x, np.generic):
        return {"float": x.hex()}  # also what JSON has no word for: inf
    if isinstance(x, dict):
        return {"dict": {str(name): _describe(value, arrays) for name, value in x.items()}}
    if isinstance(x, tuple | list):
        return {type_name(x): [_describe(value, arrays) for value in x]}
    a = np.asarray(x)
    if a.dtype.hasobject:
        raise InputError(f"a {type(x).__name__} cannot be saved in a checkpoint: carry arrays, numbers and tuples")
    name = f"a{len(arrays)}"
    arrays[name] = a
    return {"scalar" if isinstance(x, np.generic) else "array": name}


def type_name(x: tuple[Any, ...] | list[Any]) -> str:
    return "list" if isinstance(x, list) else "tuple"


def _rebuild(template: Any, tree: Any, arrays: Arrays) -> Any:
    """What `_described` was given; tuples of the template's types, which a file cannot name."""
    (kind, inside), *_ = tree.items()
    if kind == "value":
        return inside
    if kind == "float":
        return float.fromhex(inside)
    if kind == "dict":
        like = template if isinstance(template, dict) else {}
        return {name: _rebuild(like.get(name), value, arrays) for name, value in inside.items()}
    if kind in ("tuple", "list"):
        fits = isinstance(template, tuple | list) and len(template) == len(inside)
        likes = template if fits else [None] * len(inside)
        parts = [_rebuild(like, value, arrays) for like, value in zip(likes, inside, strict=True)]
        make = getattr(template, "_make", None) if fits else None  # a NamedTuple
        return make(parts) if make is not None else parts if kind == "list" else tuple(parts)
    found = arrays[inside]
    if type(template).__module__.partition(".")[0] in ("jax", "jaxlib"):
        import jax.numpy

        return jax.numpy.asarray(found)
    return found[()] if kind == "scalar" else found
