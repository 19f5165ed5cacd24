"""Checkpoints: save nested tuples of arrays and numbers as one `.npz` file, and load them again.

The same file stores the structure as JSON. When it is rebuilt, the types come from a template (the first state
of the same run), so no class name is ever taken from a file. A sha256 over structure and arrays reveals damaged files.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.array_files import read_arrays
from clearance.core.atomic_files import digest, parse_json, save_npz
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath, names_in
from clearance.learning.trace import Trace
from clearance.runs.schema import parse_files

SCHEMA = "clearance/checkpoint/1"
Arrays = dict[str, NDArray[Any]]


class Checkpoint(NamedTuple):
    """A checkpoint as it was read from its file.

    tree    the nested structure as JSON data; arrays are referred to by name
    arrays  the arrays by name
    files   name, size and sha256 of the other files that this checkpoint needs
    run     the id of the run; None in version 0.1
    """

    tree: Any
    arrays: Arrays
    files: dict[str, dict[str, Any]]
    run: str | None

    def rebuilt(self, template: Any, part: str) -> Any:
        """Return the entry `part` of the stored structure, as an object with the types of `template`.

        `template` is an object with the same nested tuples. A stored array must have as many axes as the array in the
        template, and none of its axes may be shorter.
        """
        return _rebuild(template, self.tree["dict"][part], self.arrays)


def save(path: AnyPath, tree: dict[str, Any], files: dict[str, dict[str, Any]], run: str) -> None:
    arrays: Arrays = {}
    meta = {"tree": _describe(tree, arrays), "files": files, "run": run}
    sealed = json.dumps(meta | {"sha256": digest(meta, arrays)})
    save_npz(path, {"schema": np.array(SCHEMA), "meta": np.array(sealed), **arrays}, compressed=False)


def load(path: AnyPath, run: str | None = None) -> Checkpoint:
    """Load a checkpoint; raise InputError if its sha256 is wrong, or if its run id is not `run` (None: any run)."""
    arrays = read_arrays(path, packed=False)
    if str(arrays.pop("schema", None)) != SCHEMA or "meta" not in arrays:
        raise InputError(f"{path}: is no checkpoint of schema {SCHEMA}")
    try:
        meta = parse_json(str(arrays.pop("meta")))
        found = meta.pop("sha256")
        checkpoint = Checkpoint(meta["tree"], arrays, parse_files(meta["files"]), meta.get("run"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{path}: is altered, its description cannot be read") from None
    if found != digest(meta, arrays):
        raise InputError(f"{path}: is altered, its sha256 is not that of its content")
    if run is not None and checkpoint.run != run:
        raise InputError(f"{path}: belongs to another run")
    return checkpoint


def names(folder: Path, handle: int | None = None) -> list[str]:
    """Return the paths of the checkpoints in a run folder, oldest first; symbolic links are not followed.

    `handle` is an open file descriptor of the folder, or None.
    """
    found = (Path(name) for name in names_in(folder, "checkpoint", handle))
    return [f"checkpoint/{name}" for name in found if name.suffix == ".npz" and name.stem.isdecimal()]


def tail_of(found: Checkpoint) -> Trace | None:
    """Return the iterations that a checkpoint stores because no trace file has them yet; None if there are none."""
    tail = found.rebuilt(None, "tail")
    return None if tail is None else Trace(**{f.name: tail[f.name] for f in fields(Trace)})


def _describe(x: Any, arrays: Arrays) -> Any:
    """Return the structure of x (nested tuples, dicts, arrays and numbers) as JSON data.

    The arrays in x are added to the dict `arrays`. The JSON data refers to them by name.
    """
    if x is None or (isinstance(x, bool | int | str) and not isinstance(x, np.generic)):
        return {"value": x}
    if isinstance(x, float) and not isinstance(x, np.generic):
        return {"float": x.hex()}  # exact, and JSON has no infinity
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
    """Rebuild an object from the JSON data `tree` and the arrays `arrays`, which `_describe` made from it.

    The types of tuples come from `template`, an object of the same structure, because a file must not name classes.
    """
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
    if isinstance(template, np.ndarray | np.generic) and not _fits(found, template):
        raise ValueError(f"an array has shape {found.shape} in place of {template.shape}")
    if type(template).__module__.partition(".")[0] in ("jax", "jaxlib"):
        import jax.numpy

        return jax.numpy.asarray(found)
    return found[()] if kind == "scalar" else found


def _fits(found: NDArray[Any], template: Any) -> bool:
    """Return whether compiled code accepts the array `found` in place of the array `template`.

    `found` must have the same dtype and number of axes, and none of its axes may be shorter.
    """
    same = found.dtype == template.dtype and found.ndim == template.ndim
    return same and all(n >= least for n, least in zip(found.shape, template.shape, strict=True))
