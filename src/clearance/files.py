"""Arrays on disk: whole files or none, and nothing that is read is ever executed."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from clearance.errors import InputError


def save_npz(path: str | Path, arrays: dict[str, Any]) -> None:
    """`np.savez_compressed` that leaves either the whole file or the old one."""
    with whole(path) as f:
        np.savez_compressed(f, allow_pickle=False, **arrays)


@contextlib.contextmanager
def whole(path: str | Path) -> Iterator[BinaryIO]:
    """A file that becomes `path` when all is written; until then, and after a failure, the old one stays."""
    path = Path(path)
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; give the name of a file")
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as f:
            yield f
        partial.replace(path)
    except BaseException as e:  # Ctrl-C too must leave nothing half-written
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(e, OSError):
            raise InputError(f"{path}: cannot write: {e.strerror or e}") from None
        raise


def load_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """All arrays of an `.npz`; never executes what it reads (no pickles)."""
    try:
        with open(path, "rb") as f:
            return _arrays(path, f)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None


def _arrays(path: str | Path, f: Any) -> dict[str, NDArray[Any]]:
    what = "the zip directory"
    try:
        if not zipfile.is_zipfile(f):
            raise InputError(f"{path}: not an .npz file, or cut off; write named arrays with numpy.savez")
        f.seek(0)
        arrays = {}
        with np.load(f, allow_pickle=False) as z:
            for what in z.files:
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
