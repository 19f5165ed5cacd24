"""Open files inside an untrusted folder, relative to the folder's handle and without following links.

The user chooses the path of the folder itself, so this path may contain links. But the files inside may come from an
attacker: a link to a file elsewhere, a pipe that blocks, an endless device, a file of another user. None of these is
opened or written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from clearance.core.errors import InputError

AnyPath = str | os.PathLike[str]
HANDLES = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")  # not on Windows: names are checked there
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
BINARY = getattr(os, "O_BINARY", 0)


@dataclass(frozen=True)
class Inside(os.PathLike[str]):
    """The path of the file `name` in `folder`; `name` may have subfolders, such as "trace/000001.npz".

    `handle` is the file descriptor of the folder if the folder is already open, else None.
    """

    folder: Path
    name: str
    handle: int | None = None

    def __fspath__(self) -> str:
        return str(self.folder / self.name)

    def __str__(self) -> str:
        return self.__fspath__()

    @property
    def stem(self) -> str:
        return Path(self.name).stem


class Place(NamedTuple):
    """A folder that is accessed by its file descriptor `handle`, or by its path on systems without such handles."""

    path: Path
    handle: int | None

    def at(self, name: str) -> str:
        return name if self.handle is not None else str(self.path / name)

    def lstat(self, name: str) -> os.stat_result | None:
        """Return the status of the entry with this name, without following links; None if there is no such entry."""
        try:
            return os.stat(self.at(name), dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def refuse_link(self, name: str) -> None:
        """Raise InputError if the entry with this name is a link, a device, a pipe or a folder."""
        found = self.lstat(name)
        _refuse_unless(found is None or stat.S_ISREG(found.st_mode), self.path / name)

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """Open the plain file `name` like `os.open`; raise InputError for a link, a device, a pipe or a folder."""
        self.refuse_link(name)
        try:
            fd = os.open(self.at(name), flags | NO_FOLLOW | BINARY, mode, dir_fd=self.handle)
        except OSError as e:
            _refuse_unless(e.errno not in (errno.ELOOP, errno.EMLINK, errno.ENXIO), self.path / name)
            raise
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise _refusal(self.path / name)

    def enter(self, name: str) -> int | None:
        """Open the subfolder `name`, and return its handle (None on systems without folder handles).

        Raise InputError if the name belongs to a link or a file.
        """
        found = self.lstat(name)
        _refuse_unless(found is None or stat.S_ISDIR(found.st_mode), self.path / name, "folder")
        return None if self.handle is None else _open_folder(name, self.handle, os.O_NOFOLLOW)


@contextlib.contextmanager
def folder_of(path: AnyPath, *, make: bool = False) -> Iterator[Place]:
    """Yield the folder that contains the file `path`, open for the duration of a `with` block.

    If `path` is an `Inside` (a file in an untrusted folder), links below that folder are refused, and `make` creates
    missing subfolders. A plain path may contain links.
    """
    if not isinstance(path, Inside):
        with _closing(_open_folder(os.path.dirname(os.fspath(path)) or ".") if HANDLES else None) as handle:
            yield Place(Path(path).parent, handle)
        return
    *parts, _ = path.name.split("/")
    with contextlib.ExitStack() as stack:
        opened = path.handle
        if opened is None and HANDLES:
            opened = stack.enter_context(_closing(_open_folder(path.folder)))
        place = Place(path.folder, opened)
        for part in parts:
            if make and place.lstat(part) is None:
                os.mkdir(place.at(part), dir_fd=place.handle)
            place = Place(place.path / part, stack.enter_context(_closing(place.enter(part))))
        yield place


def open_to_read(path: AnyPath) -> BufferedReader:
    """Open a file for reading; a path in an untrusted folder (`Inside`) must lead to a plain file."""
    if not isinstance(path, Inside):
        return open(path, "rb")
    with folder_of(path) as place:
        return open(place.open(Path(path.name).name, os.O_RDONLY), "rb")


def names_in(folder: Path, name: str, handle: int | None = None) -> list[str]:
    """Return the sorted names in the subfolder `name` of `folder`; an empty list if there is no such subfolder.

    `handle` is the file descriptor of `folder` if it is open already.
    """
    try:
        with folder_of(Inside(folder, f"{name}/", handle)) as place:
            return sorted(os.listdir(place.path if place.handle is None else place.handle))
    except FileNotFoundError:
        return []


def exists_inside(path: Inside) -> bool:
    """Return whether `path` leads to an existing plain file that is not a link."""
    try:
        with folder_of(path) as place:
            found = place.lstat(Path(path.name).name)
            return found is not None and stat.S_ISREG(found.st_mode)
    except (OSError, InputError):
        return False


def remove(path: Inside) -> None:
    """Remove a file if it exists. If the path is a link, the link is removed and its target stays."""
    with contextlib.suppress(FileNotFoundError), folder_of(path) as place:
        os.unlink(place.at(Path(path.name).name), dir_fd=place.handle)


def refuse_strange(folder: Path, below: tuple[str, ...] = ()) -> None:
    """Raise InputError if a folder holds links, devices, pipes or files of another user.

    The subfolders named in `below` are checked too, if they exist.
    """
    owners = {os.stat(folder).st_uid, *([os.geteuid()] if hasattr(os, "geteuid") else [])}
    for part in (folder, *(folder / name for name in below if (folder / name).is_dir())):
        with os.scandir(part) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                plain = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
                _refuse_unless(plain, Path(entry.path))
                if found.st_uid not in owners:
                    whose = f"belongs to another user (number {found.st_uid})"
                    raise InputError(f"{entry.path}: {whose}: nothing is written beside it; copy the folder first")


@contextlib.contextmanager
def _closing(handle: int | None) -> Iterator[int | None]:
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _open_folder(path: AnyPath, inside: int | None = None, more: int = 0) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | more, dir_fd=inside)


def _refuse_unless(right: bool, path: Path, kind: str = "file") -> None:
    if not right:
        raise _refusal(path, kind)


def _refusal(path: Path, kind: str = "file") -> InputError:
    return InputError(f"{path}: is a link, a device or a pipe where a plain {kind} belongs: remove it first")
