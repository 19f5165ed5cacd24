"""Write arrays and JSON atomically (a file is complete or absent), and read JSON without executing anything.

Arrays are read by `clearance.core.array_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath, Inside, Place, folder_of, open_to_read

LARGEST = 16 * 2**20  # the largest size of a JSON file in bytes; the file of a long run has some 100 kB
PARTS, DEPTH = 10**6, 100  # the largest number of brackets and commas in a JSON file, and the largest depth of nesting


def save_npz(path: AnyPath, arrays: dict[str, Any], *, compressed: bool = True) -> None:
    """Write arrays as an `.npz` file atomically: after a crash, the file is either the complete new one or the old one.

    `compressed` says whether the arrays are compressed.
    """
    save = np.savez_compressed if compressed else np.savez
    with write_whole(path) as f:
        save(f, allow_pickle=False, **arrays)


def save_json(path: AnyPath, data: dict[str, Any]) -> None:
    """Write JSON atomically: after a crash, the file is either the complete new one or the old one.

    NumPy numbers and arrays are written as JSON numbers and lists.
    """
    text = json.dumps(data, indent=1, allow_nan=False, default=plain) + "\n"
    with write_whole(path) as f:
        f.write(text.encode())


def plain(x: Any) -> Any:
    """Return a NumPy number as a Python number, and an array as nested lists."""
    return x.item() if np.ndim(x) == 0 else np.asarray(x).tolist()


def without_non_finite(x: Any) -> Any:
    """Return a copy of nested dicts and lists in which None replaces NaN and infinite numbers, which JSON lacks."""
    if isinstance(x, dict):
        return {k: without_non_finite(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [without_non_finite(v) for v in x]
    return None if isinstance(x, float) and not np.isfinite(x) else x


def sha256(path: AnyPath) -> str:
    return fingerprint(path)["sha256"]


def fingerprint(path: AnyPath) -> dict[str, Any]:
    """Return the sha256 and the size in bytes of a file."""
    with open_to_read(path) as f:
        return {"sha256": hashlib.file_digest(f, "sha256").hexdigest(), "bytes": os.fstat(f.fileno()).st_size}


def digest(data: object, arrays: dict[str, Any] | None = None) -> str:
    """Return one sha256 of JSON data (keys sorted, no spaces) and of arrays with their names, types and shapes."""
    found = hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":"), default=plain).encode())
    for name, value in sorted((arrays or {}).items()):
        a = np.ascontiguousarray(value)
        found.update(f"{name} {a.dtype.str} {np.shape(value)} ".encode())
        found.update(a.tobytes())
    return found.hexdigest()


@contextlib.contextmanager
def write_whole(path: AnyPath) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces `path` once it is written completely; if writing fails, the old file stays.

    The temporary file is flushed to disk and renamed, and the folder is flushed too, so the result survives a crash.
    All steps use the open handle of the folder. A symbolic link in place of one of the two files is not followed.
    """
    if not isinstance(path, Inside) and os.path.isdir(path):
        raise InputError(f"{path}: is a folder; give the name of a file")
    try:
        with folder_of(path, make=True) as place, _write_in(place, path) as f:
            yield f
    except OSError as e:
        raise InputError(f"{path}: cannot write: {e.strerror or e}") from None


@contextlib.contextmanager
def _write_in(place: Place, path: AnyPath) -> Iterator[BinaryIO]:
    name = os.path.basename(os.fspath(path))
    partial = f"{name}.partial"
    for part in (partial, *([name] if isinstance(path, Inside) else [])):  # outside of a run folder, a link is replaced
        place.refuse_link(part)
    with contextlib.suppress(FileNotFoundError):  # remove the file of a process that was killed
        os.unlink(place.at(partial), dir_fd=place.handle)
    try:
        with open(place.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL), "w+b") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        os.replace(place.at(partial), place.at(name), src_dir_fd=place.handle, dst_dir_fd=place.handle)
    except BaseException:  # no incomplete file may stay, not even after Ctrl-C
        with contextlib.suppress(OSError):
            os.unlink(place.at(partial), dir_fd=place.handle)
        raise
    flush_folder(place.path if place.handle is None else place.handle)


def flush_folder(folder: AnyPath | int) -> None:
    """Flush the entries of a folder to disk, if its file system can do that."""
    with contextlib.suppress(OSError):
        if isinstance(folder, int):
            return os.fsync(folder)
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


# -------------------------------------------------------------------------------------------------- JSON and schemas


def load_json(path: AnyPath, schema: str, largest: int = LARGEST) -> dict[str, Any]:
    """Load the JSON object in a file of the given schema.

    Raise InputError if the file has other content, another schema, or more than `largest` bytes.
    """
    try:
        with open_to_read(path) as f:
            text = f.read(min(os.fstat(f.fileno()).st_size, largest) + 1)
        if len(text) > largest:
            raise InputError(f"{path}: is too large, a file of schema {schema} has at most {largest:.0e} bytes")
        data = parse_json(text, largest * PARTS // LARGEST)
    except InputError:  # caught first, since InputError is a ValueError too
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None
    except (ValueError, RecursionError) as e:
        why = f" ({e})" if isinstance(e, _RefusedJSON) else ""
        raise InputError(f"{path}: is no JSON, or cut off{why}") from None
    check_schema(path, data.get("schema") if isinstance(data, dict) else None, schema)
    return data


class _RefusedJSON(ValueError):
    """Raised for JSON that Python can parse, but that this library never writes."""


def parse_json(text: str | bytes, parts: int = PARTS) -> Any:
    """Parse JSON; raise ValueError if the JSON is nested too deeply, repeats a key, or has more than `parts` values."""
    marks = (b"[", b"{", b",") if isinstance(text, bytes) else ("[", "{", ",")
    if sum(text.count(mark) for mark in marks) > parts:  # type: ignore[arg-type]
        raise _RefusedJSON(f"more than {parts:.0e} parts")
    data = json.loads(text, object_pairs_hook=_once)
    if _is_deep(data, DEPTH):
        raise _RefusedJSON(f"more than {DEPTH} levels deep")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise _RefusedJSON("a key occurs twice")
    return data


def _is_deep(x: Any, left: int) -> bool:
    inside = x.values() if isinstance(x, dict) else x if isinstance(x, list) else ()
    return bool(inside) and (left == 0 or any(_is_deep(v, left - 1) for v in inside))


def check_schema(path: AnyPath, found: object, wanted: str) -> None:
    """Raise InputError unless `found` is the schema `wanted`; a schema has the form clearance/NAME/VERSION."""
    if found is not None and str(found) == wanted:
        return
    name, _, version = str(found).rpartition("/")
    kind, _, own = wanted.rpartition("/")
    if name == kind and version.isdecimal() and int(version[:9]) > int(own):
        raise InputError(f"{path}: has schema {found}, this clearance reads {wanted}: install a newer one")
    raise InputError(f"{path}: has schema {str(found)[:60]!r}, expected {wanted!r}")
