"""Compile the kernels of this package, and cache the machine code on disk under a hash of all its sources.

numba's own cache checks only one source file. But the machine code of a kernel also contains the functions that it
calls in other files, and numba's cache would not notice changes in them. Here the name of the cache folder is a hash of
all sources of the package and of the versions of Python and numba. The folder holds one file for each kernel, signature
and processor. Processes share no index, so processes that compile at the same time cannot mix up each other's files.

The folder is the first of these that can be used:

    $NUMBA_CACHE_DIR             if it is set; then the next two are skipped
    __pycache__ of this package
    the user's cache folder      $XDG_CACHE_HOME, or ~/.cache, on Linux
    a folder of this user in the temporary directory

Cached code is executed. So a folder or a file is trusted only if it belongs to this user, to the owner of these
sources, or to root, and if nobody else can write to it; these three could also change the sources. If no folder can be
written, kernels are compiled in every process, since a cache that fails must never stop a run.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, config
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps, loads
from numba.misc.appdirs import AppDirs

HERE = Path(__file__).parent
NAME = "clearance-kernels"  # the name of every folder that holds caches; other programs do not write there
KEPT = 8  # the number of caches of other sources or versions that are kept, the most recently used ones
RECENT = 24 * 3600.0  # a cache is never removed if it was used within this number of seconds


def hash_sources(folder: Path) -> str:
    """Return a hash of the Python sources in a folder and of the Python and numba versions; "" if it has no sources."""
    files = sorted(folder.glob("*.py"))
    found = hashlib.sha256(f"{sys.implementation.cache_tag}{sys.abiflags if os.name == 'posix' else ''}".encode())
    found.update(numba.__version__.encode())
    for file in files:
        found.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return found.hexdigest()[:32] if files else ""


HASH = hash_sources(HERE)  # of the imported sources: the files on disk may change while the process runs


def kernel(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Decorate a function so that numba compiles it at its first call, or loads its machine code from the cache.

    The compiled function releases the GIL. Use `@kernel` or, with options of `numba.njit`,
    `@kernel(error_model="numpy")`.
    """
    if function is None:
        return partial(kernel, **options)
    compile_later: Any = numba.njit
    dispatcher = compile_later(nogil=True, no_cfunc_wrapper=True, **options)(function)
    dispatcher._cache = KernelCache(function, options)
    return dispatcher


def piece(function: Callable[..., Any]) -> Any:
    """Decorate a function that only kernels call, so that numba compiles it without a wrapper for Python.

    This saves a third of the compile time. A call from Python raises TypeError (numba itself would crash); tests call
    `kernel(f.py_func)` instead.
    """

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"{function.__qualname__} can be called by compiled code only")

    dispatcher = kernel(function, no_cpython_wrapper=True)
    dispatcher._insert = lambda *_, **__: None  # so that a call does not find that the wrapper is missing
    dispatcher._compile_for_args = refuse
    return dispatcher


class KernelCache(caching._Cache):
    """The cache of one kernel for numba's dispatcher: one file for each signature and processor."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        plain = {name: sorted(value) if isinstance(value, set) else value for name, value in options.items()}
        self.options = sorted(f"{name}={value}" for name, value in plain.items())
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"

    @property
    def cache_path(self) -> Any:
        folder = writable_folder()
        return None if folder is None else str(folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the cached code of a signature; if there is none, announce the compilation and return None."""
        target_context.refresh()
        key = sig, target_context.codegen().magic_tuple(), self.options
        for folder in folders():
            with suppress(Exception):  # treat a damaged file as missing, whatever unpickling its bytes raises
                stored, payload = loads(read_trusted(folder / self._file(key)))
                if stored == key:
                    mark_used(folder)
                    return CompileResult._rebuild(target_context, *payload)
        announce_compilation()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the compiled code of a signature, if some folder can be written."""
        folder = writable_folder()
        if folder is None or data.library.has_dynamic_globals:
            return
        key = sig, data.codegen.magic_tuple(), self.options
        with suppress(OSError):  # for example, the disk is full
            write_whole(folder / self._file(key), dumps((key, data._reduce())))

    def _file(self, key: Any) -> str:
        return f"{self.name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.bin"

    def enable(self) -> None: ...

    def disable(self) -> None: ...

    def flush(self) -> None: ...


def roots(make: bool = False) -> Iterator[Path]:
    """Yield the folders that may hold caches, in order of preference; the temporary one comes last.

    The temporary one is the user's folder in the temporary directory. If it is missing, it is created if `make` is
    true, else left out.
    """
    chosen = getattr(config, "CACHE_DIR", "")
    if chosen:
        yield Path(chosen) / NAME
    else:
        yield HERE / "__pycache__" / NAME
        user = Path(AppDirs(appname=NAME, appauthor=False).user_cache_dir)
        if user.is_absolute():  # "~/.cache" for a user without a home
            yield user
    with suppress(OSError):  # no temporary folder at all
        temporary = temporary_root()
        if make:
            temporary.mkdir(mode=0o700, exist_ok=True)
        if temporary.exists():
            yield temporary


def temporary_root() -> Path:
    """Return this user's cache folder inside the temporary folder, which is used if no other folder can be written."""
    return Path(tempfile.gettempdir()) / f"{NAME}-{os.getuid() if os.name == 'posix' else 'user'}"


def is_trusted(status: os.stat_result) -> bool:
    """Return whether only this user, root or the owner of the sources can write a file or folder with this status."""
    if os.name != "posix":
        return True
    return status.st_uid in (os.getuid(), 0, HERE.stat().st_uid) and not status.st_mode & 0o022


def is_trusted_folder(folder: Path) -> bool:
    """Return whether this path is a folder, not a link, that only this user, root or the sources' owner can write."""
    with suppress(OSError):
        status = folder.lstat()
        return stat.S_ISDIR(status.st_mode) and is_trusted(status)
    return False


def read_trusted(file: Path) -> bytes:
    """Return the content of a file that only this user, root or the sources' owner can write.

    Raise OSError for a file that others can write, and for links and pipes.
    """
    flags = (getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
    with open(os.open(file, os.O_RDONLY | sum(flags)), "rb") as opened:
        status = os.fstat(opened.fileno())
        if not (stat.S_ISREG(status.st_mode) and is_trusted(status)):
            raise PermissionError(f"{file}: others can write it")
        return opened.read()


def folders(make: bool = False) -> Iterator[Path]:
    """Yield the trusted cache folders for the present sources. With `make`, first create the missing ones."""
    for root in roots(make) if HASH else ():
        folder = root / HASH
        with suppress(OSError):
            if make:
                root.parent.mkdir(parents=True, exist_ok=True)
                root.mkdir(mode=0o755, exist_ok=True)
                folder.mkdir(mode=0o755, exist_ok=True)
        if is_trusted_folder(root) and is_trusted_folder(folder):
            yield folder


@cache
def writable_folder() -> Path | None:
    """Return the first cache folder for the present sources that can be created and written; None if there is none.

    If the folder is new, `remove_stale` removes caches of other versions from its parent folder.
    """
    known = set(folders())
    for folder in folders(make=True):
        with suppress(OSError):
            if os.access(folder, os.W_OK | os.X_OK):
                if folder not in known:
                    remove_stale(folder.parent)
                return folder
    return None


@cache
def mark_used(folder: Path) -> None:
    """Set the modification time of a cache folder to now, at most once per process."""
    with suppress(OSError):
        os.utime(folder)


def remove_stale(root: Path) -> None:
    """Remove caches of other versions from the folder `root`.

    Three kinds are kept: the present version, the `KEPT` most recently used other versions, and every version used
    during the last day.
    """
    used: list[tuple[float, Path]] = []
    for folder in root.iterdir():
        with suppress(OSError):  # another process has removed it
            status = folder.lstat()
            if folder.name != HASH and re.fullmatch("[0-9a-f]{32}", folder.name) and stat.S_ISDIR(status.st_mode):
                used.append((status.st_mtime, folder))
    for last, folder in sorted(used, reverse=True)[KEPT:]:
        if time.time() - last > RECENT:
            shutil.rmtree(folder, ignore_errors=True)


def write_whole(file: Path, data: bytes) -> None:
    """Write a file under a temporary name and rename it, so that no process reads an incomplete file."""
    part = file.with_name(f"{file.name}.{uuid.uuid4().hex[:12]}")
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o644), "wb") as new:
            new.write(data)
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


@cache
def announce_compilation() -> None:
    """Print, once per process, that kernels are being compiled, and if the next start will compile them again."""
    folder = writable_folder()
    often = (
        "once on this machine for each part of the library"
        if folder
        else "at every start, for want of a folder that can be written"
    )
    if folder is not None and folder.parent == temporary_root():
        often += f", into {folder.parent}, for want of another folder that can be written"
    print(f"clearance: compiling, {often} (2 to 10 s) …", file=sys.stderr, flush=True)
