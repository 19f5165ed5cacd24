"""Read arrays from `.npz` files without letting a small file exhaust the memory.

A few kilobytes can unpack to many gigabytes. So the headers (shapes and types) are read first. Only the requested
arrays are unpacked, and only if their total size is below a limit. The option `--max-memory` (environment variable
CLEARANCE_MAX_MEMORY) sets this limit. By default it is half of the free memory, but at most 64 times the size of the
file or 1 GiB, whichever of these two is larger.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath, open_to_read

VARIABLE = "CLEARANCE_MAX_MEMORY"  # bytes; worker processes inherit it
RATIO, PLENTY = 64, 2**30
UNPACKED = 8  # memory for an uncompressed file, as a multiple of its size: a truth value of one byte becomes 8 bytes
SMALL = 2**17  # the number of entries up to which a wrong shape is not reported here: later checks say it better
CHUNK = 2**20
# Files with the memory use and the memory limit of a container.
GROUPS = (("memory.current", "memory.max"), ("memory/memory.usage_in_bytes", "memory/memory.limit_in_bytes"))
HEADERS: dict[tuple[int, int], Any] = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
Bounds = Callable[[dict[str, tuple[int, ...]]], Mapping[str, int]]


class Member(NamedTuple):
    """An array in an `.npz` file: the header was read, but the data were not unpacked."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def numbers(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """The number of bytes that the array needs in memory. A number counts as at least 8 bytes, as a float64 has."""
        return self.numbers * max(self.dtype.itemsize, 8)


def read_arrays(
    path: AnyPath, names: Iterable[str] | None = None, bounds: Bounds | None = None, *, packed: bool = True
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` file by name: all of them, or those in `names` that exist.

    Pickled objects are refused.

    bounds  a function from the shapes of the arrays {name: shape} to their largest allowed numbers of entries
            {name: number}
    packed  False for files that are written without compression; compressed arrays are then refused
    """
    try:
        with open_to_read(path) as f:
            return _read(path, f, names, bounds, packed)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None


def _read(
    path: AnyPath, f: BinaryIO, names: Iterable[str] | None, bounds: Bounds | None, packed: bool
) -> dict[str, NDArray[Any]]:
    what = "the zip directory"
    try:
        if not zipfile.is_zipfile(f):
            raise InputError(f"{path}: not an .npz file, or cut off; write named arrays with numpy.savez")
        with zipfile.ZipFile(f) as z:
            infos = _listed(path, z)
            wanted = infos if names is None else {name: infos[name] for name in names if name in infos}
            members = {}
            for what, info in wanted.items():
                members[what] = _member(path, what, z, info, packed)
            on_disk = os.fstat(f.fileno()).st_size
            _check_sizes(path, members, bounds, max_memory(on_disk) if packed else UNPACKED * on_disk)
            arrays = {}
            for what, member in members.items():
                arrays[what] = _unpack(z, member)
        return arrays
    except (InputError, OSError):
        raise
    except Exception as e:  # zipfile, zlib and NumPy raise many types of exception on corrupt bytes
        raise InputError(
            f"{path}: {what} cannot be read ({type(e).__name__}: {e}); write plain arrays with numpy.savez"
        ) from None


def _listed(path: AnyPath, z: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    infos: dict[str, zipfile.ZipInfo] = {}
    for info in z.infolist():
        name = info.filename.removesuffix(".npy")
        if name in infos:
            raise InputError(f"{path}: {name} is in it twice; write each array once")
        infos[name] = info
    return infos


def _member(path: AnyPath, name: str, z: zipfile.ZipFile, info: zipfile.ZipInfo, packed: bool) -> Member:
    """Return the entry, shape and type of one array in an `.npz` file, from its header; do not unpack the data.

    `z` is the open archive of the file `path`, and `info` its entry for the array `name`. Raise an error if the array
    does not have exactly as many bytes as its header says, or if `packed` is false and the array is compressed.
    """
    if info.compress_type not in (zipfile.ZIP_STORED, *([zipfile.ZIP_DEFLATED] if packed else [])):
        raise InputError(f"{path}: {name} is packed in another way than clearance does; the file was altered")
    with z.open(info) as stream:
        if stream.read(len(npy.MAGIC_PREFIX)) != npy.MAGIC_PREFIX:
            raise InputError(f"{path}: {name} is not an array; write plain arrays with numpy.savez")
        version: Any = tuple(stream.read(2))
        if version not in HEADERS:
            raise ValueError(f"its version {version} is not known")
        shape, fortran, dtype = HEADERS[version](stream)
        begin = stream.tell()
    if dtype.hasobject:
        why = "it holds Python objects, which are never loaded"
        raise InputError(f"{path}: {name} cannot be read ({why}); write plain arrays with numpy.savez")
    if any(n < 0 for n in shape) or begin + math.prod(shape) * dtype.itemsize != info.file_size:
        raise ValueError(f"its header asks for other data than the file has, shape {shape}")
    return Member(info, tuple(map(int, shape)), fortran, dtype)


def _check_sizes(path: AnyPath, members: dict[str, Member], bounds: Bounds | None, limit: float) -> None:
    most = {} if bounds is None else bounds({name: m.shape for name, m in members.items()})
    for name, m in members.items():
        if name in most and m.numbers > max(most[name], SMALL):
            raise InputError(f"{path}: {name} has shape {m.shape}, too large for what the other arrays declare")
        if m.dtype.kind in "SU" and m.dtype.itemsize > 64 * SMALL:
            raise InputError(f"{path}: {name} has texts of {m.dtype.itemsize} bytes, which is too long")
    total = sum(m.size for m in members.values())
    if total > limit:
        sizes = f"its arrays need {total / 1e9:.3g} GB of memory, a file of its size may take {limit / 1e9:.3g} GB"
        raise InputError(f"{path}: {sizes}: raise the limit with --max-memory, or write a smaller file")


def _unpack(z: zipfile.ZipFile, member: Member) -> NDArray[Any]:
    a = np.empty(member.numbers, member.dtype)
    flat: Any = a.view(np.uint8) if a.nbytes else b""
    view, at = memoryview(flat), 0
    with z.open(member.info) as opened:
        stream: Any = opened
        stream.read(member.info.file_size - a.nbytes)
        while at < len(view) and (n := stream.readinto(view[at : at + CHUNK])):
            at += n
        if at < len(view):
            raise EOFError("it is cut off")
        stream.read(1)  # at the end of the stream, zipfile compares the checksum
    return a.reshape(member.shape[::-1]).T if member.fortran else a.reshape(member.shape)


def max_memory(on_disk: int) -> float:
    """Return how many bytes the arrays of a file of `on_disk` bytes may take in memory."""
    given = os.environ.get(VARIABLE, "")
    if given:
        return read_size(given)
    return min(free_memory() / 2, max(PLENTY, RATIO * on_disk))


def read_size(text: str) -> float:
    """Return the number of bytes for a text such as 500MB, 4GB or a plain number.

    >>> read_size("1.5GB")
    1500000000.0
    """
    units = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    number, unit = (text[:-2], units[text[-2:].upper()]) if text[-2:].upper() in units else (text, 1.0)
    try:
        size = float(number) * unit
    except ValueError:
        size = math.nan
    if not 1 <= size < math.inf:
        raise InputError(f"must be a size as 500MB or 4GB, got {text!r}")
    return size


def free_memory() -> float:
    """Return how many bytes this process can still allocate; in a container, its memory limit counts too."""
    found = [_machine_memory()]
    for usage, limit in GROUPS:
        used, most = (_number(f"/sys/fs/cgroup/{name}") for name in (usage, limit))
        found += [] if used is None or most is None else [max(most - used, 0)]
    return min(found)


def _machine_memory() -> float:
    try:
        with open("/proc/meminfo") as f:
            return next(1024.0 * int(line.split()[1]) for line in f if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 8.0 * 2**30


def _number(path: str) -> float | None:
    try:
        with open(path) as f:
            return float(f.read(32))
    except (OSError, ValueError):
        return None
