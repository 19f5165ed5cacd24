"""Arrays on disk: whole files or none, and nothing that is read is ever executed."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.errors import InputError


def save_npz(path: str | Path, arrays: dict[str, Any]) -> None:
    """`np.savez_compressed` that leaves either the whole file or the old one."""
    path = Path(path)
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as f:
            np.savez_compressed(f, allow_pickle=False, **arrays)
        partial.replace(path)
    except OSError as e:
        partial.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot write: {e.strerror or e}") from None


def load_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """All arrays of an `.npz`; never executes what it reads (no pickles)."""
    try:
        with np.load(path, allow_pickle=False) as z:
            if not isinstance(z, np.lib.npyio.NpzFile):
                raise InputError(f"{path}: not an .npz file with named arrays")
            return {k: z[k] for k in z.files}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError, MemoryError) as e:
        if isinstance(e, InputError):
            raise
        raise InputError(f"{path}: not a readable .npz file ({str(e).splitlines()[0] if str(e) else e!r})") from None
