"""One process at a time writes a run folder."""

from __future__ import annotations

import os
from pathlib import Path

from clearance.core.errors import InputError


class BusyError(InputError):
    """Another process is writing this folder."""


def lock_folder(folder: Path) -> int:
    """The folder's lock, as an open file: held until it is closed, or its process ends, however it ends."""
    import fcntl  # not everywhere: reading run folders must not need it

    path = folder / "lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise BusyError(
            f"{folder}: another process (number {holder}) is writing this run: wait for it, or choose another folder"
        ) from None
    except OSError as e:
        os.close(fd)
        raise InputError(f"{folder}: cannot be locked: {e.strerror or e}; choose a folder on another disk") from None
    return fd
