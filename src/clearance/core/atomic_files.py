"""Arrays and JSON on disk: whole files or none, and nothing that is read is ever executed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clearance.core.errors import InputError


def save_npz(path: str | Path, arrays: dict[str, Any], *, compressed: bool = True) -> None:
    """`np.savez` that leaves either the whole file or the old one."""
    save = np.savez_compressed if compressed else np.savez
    with write_whole(path) as f:
        save(f, allow_pickle=False, **arrays)


def save_json(path: str | Path, data: dict[str, Any]) -> None:
    """JSON that leaves either the whole file or the old one; NumPy's numbers as plain ones."""
    text = json.dumps(data, indent=1, allow_nan=False, default=plain) + "\n"
    with write_whole(path) as f:
        f.write(text.encode())


def plain(x: Any) -> Any:
    """NumPy's numbers as plain ones."""
    return x.item() if np.ndim(x) == 0 else np.asarray(x).tolist()


def without_non_finite(x: Any) -> Any:
    """The same with null for numbers that JSON has no word for."""
    if isinstance(x, dict):
        return {k: without_non_finite(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [without_non_finite(v) for v in x]
    return None if isinstance(x, float) and not np.isfinite(x) else x


def sha256(path: str | Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def digest(data: object, arrays: dict[str, Any] | None = None) -> str:
    """sha256 of JSON data (keys sorted, no spaces), and of arrays with their names, types and shapes."""
    found = hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":"), default=plain).encode())
    for name, value in sorted((arrays or {}).items()):
        a = np.ascontiguousarray(value)
        found.update(f"{name} {a.dtype.str} {np.shape(value)} ".encode())
        found.update(a.tobytes())
    return found.hexdigest()


@contextlib.contextmanager
def write_whole(path: str | Path) -> Iterator[BinaryIO]:
    """A file that becomes `path` when all is written; until then, and after a failure, the old one stays.

    Written under another name, flushed to the disk, renamed, and the folder flushed too: so it holds after a crash.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; give the name of a file")
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
        partial.replace(path)
        flush_folder(path.parent)
    except BaseException as e:  # Ctrl-C too must leave nothing half-written
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(e, OSError):
            raise InputError(f"{path}: cannot write: {e.strerror or e}") from None
        raise


def flush_folder(folder: Path) -> None:
    """The names in a folder to the disk, where its file system can."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def load_npz(path: str | Path, only: str | None = None) -> dict[str, NDArray[Any]]:
    """All arrays of an `.npz`, or only one of them; never executes what it reads (no pickles)."""
    try:
        with open(path, "rb") as f:
            return _arrays(path, f, only)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None


def _arrays(path: str | Path, f: Any, only: str | None) -> dict[str, NDArray[Any]]:
    what = "the zip directory"
    try:
        if not zipfile.is_zipfile(f):
            raise InputError(f"{path}: not an .npz file, or cut off; write named arrays with numpy.savez")
        f.seek(0)
        arrays = {}
        with np.load(f, allow_pickle=False) as z:
            for what in z.files if only is None else [only]:
                arrays[what] = _array(path, what, z[what])
        return arrays
    except (InputError, OSError):
        raise
    except Exception as e:  # zipfile, zlib and NumPy raise a dozen types on bytes that are not what they should be
        why = "it holds Python objects, which are never loaded" if "pickle" in str(e) else f"{type(e).__name__}: {e}"
        raise InputError(f"{path}: {what} cannot be read ({why}); write plain arrays with numpy.savez") from None


def _array(path: str | Path, name: str, value: Any) -> NDArray[Any]:
    if not isinstance(value, np.ndarray):
        raise InputError(f"{path}: {name} is not an array; write plain arrays with numpy.savez")
    return value


# ------------------------------------------------------------------------------------------------------------- schemas


def load_json(path: str | Path, schema: str) -> dict[str, Any]:
    """A JSON object of this schema, or one line that says what is there instead."""
    try:
        with open(path, "rb") as f:
            data = json.loads(f.read())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is no JSON, or cut off") from None
    check_schema(path, data.get("schema") if isinstance(data, dict) else None, schema)
    return data


def check_schema(path: str | Path, found: object, wanted: str) -> None:
    """The schema `clearance/NAME/VERSION` that a file carries is the one wanted."""
    if found is not None and str(found) == wanted:
        return
    name, _, version = str(found).rpartition("/")
    kind, _, own = wanted.rpartition("/")
    if name == kind and version.isdecimal() and int(version[:9]) > int(own):
        raise InputError(f"{path}: has schema {found}, this clearance reads {wanted}: install a newer one")
    raise InputError(f"{path}: has schema {str(found)[:60]!r}, expected {wanted!r}")
