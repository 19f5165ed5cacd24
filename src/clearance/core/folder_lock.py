"""Locks that let only one process at a time write a run folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from clearance.core.errors import InputError
from clearance.core.inside_folder import Inside, folder_of


class BusyError(InputError):
    """Raised when another process is writing this folder."""


class Lock(NamedTuple):
    """A lock by which only this process may write a folder: the handles of the open folder and of its file `lock`.

    The folder itself is locked, so that a second process stays out even if someone removes the file. The file is also
    locked, because some file systems (NFS) can only lock files.
    """

    handle: int
    file: int

    def close(self) -> None:
        os.close(self.file)
        os.close(self.handle)


def lock_folder(folder: Path) -> Lock:
    """Lock a folder until the lock is closed or this process ends; raise BusyError if another process has locked it."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as e:
        raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None
    try:
        return Lock(handle, _lock(folder, handle))
    except BaseException:
        os.close(handle)
        raise


def _lock(folder: Path, handle: int) -> int:
    fd = _open_file(folder, handle)
    try:
        _take(handle, fd)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return fd
    except BlockingIOError:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(fd)
        raise BusyError(
            f"{folder}: another process (number {holder}) is writing this run: wait for it, or choose another folder"
        ) from None
    except OSError as e:
        os.close(fd)
        raise InputError(f"{folder}: cannot be locked: {e.strerror or e}; choose a folder on another disk") from None


def _open_file(folder: Path, handle: int) -> int:
    """Open the file `lock`; refuse a hard link, since writing to it would change a file elsewhere."""
    try:
        with folder_of(Inside(folder, "lock", handle)) as place:
            fd = place.open("lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as e:
        raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None
    if os.fstat(fd).st_nlink > 1:
        os.close(fd)
        raise InputError(f"{folder / 'lock'}: is a hard link to a file elsewhere: remove it first")
    return fd


def _take(handle: int, fd: int) -> None:
    import fcntl  # missing on some systems, which must still be able to read run folders

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
        if isinstance(e, BlockingIOError):
            raise
        # This disk cannot lock folders; then the lock on the file suffices, as long as nobody removes the file.
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
