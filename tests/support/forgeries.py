"""Folders and files as a stranger would forge them: made from an honest run, with hashes that fit."""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from folders import seal

from clearance.core.atomic_files import digest

WRONG: tuple[Any, ...] = (None, -1, 1e308, "x" * 50, [], {}, [[[]]], True)
TEXTS = ("manifest.json", "settings.json", "method.json", "certificate.json")
ARRAYS = ("problem.npz", "policy.npz", "margin.npz", "trace/000001.npz", "checkpoint/*.npz")
PLANTED = (
    "manifest.json", "manifest.json.partial", "settings.json", "lock", "policy.npz", "policy.npz.partial",
    "certificate.json.partial", "margin.npz.partial", "method.json.partial", "checkpoint", "trace",
    "report.html", "report.html.partial", "checkpoint/000009.npz", "trace/000001.npz",
)  # fmt: skip
LARGE = 3 * 10**7  # numbers: 240 MB
Forgery = Callable[[Path], None]


def npy(a: Any) -> bytes:
    f = io.BytesIO()
    np.save(f, a)
    return f.getvalue()


def npz(path: Path, members: list[tuple[str, bytes]], packed: int = zipfile.ZIP_DEFLATED) -> None:
    """Write members as they are, the same name twice if so asked."""
    with zipfile.ZipFile(path, "w", packed) as z:
        for name, data in members:
            if name in z.NameToInfo:
                del z.NameToInfo[name]  # zipfile would warn
            z.writestr(name, data)


def members(path: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as z:
        return [(name, z.read(name)) for name in z.namelist()]


def zeros(shape: tuple[int, ...], dtype: str = "<f8") -> bytes:
    """The header of an array of zeros, without its data."""
    f = io.BytesIO()
    np.lib.format.write_array_header_1_0(f, {"shape": shape, "fortran_order": False, "descr": dtype})
    return f.getvalue()


def bomb(path: Path, name: str, numbers: int = 10**6) -> None:
    """Replace or add an array of zeros that packs well; what is in the file otherwise stays."""
    kept = [(n, data) for n, data in members(path) if n != f"{name}.npy"]
    npz(path, [*kept, (f"{name}.npy", zeros((numbers,)) + bytes(8 * numbers))])


def first(folder: Path, pattern: str) -> Path:
    return sorted(folder.glob(pattern))[-1]


def keys_of(data: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all keys in JSON data; of a list, its first entry."""
    items = data.items() if isinstance(data, dict) else list(enumerate(data))[:1] if isinstance(data, list) else ()
    for key, value in items:
        yield (*before, key)
        yield from keys_of(value, (*before, key))


def put(data: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        data = data[key]
    data[path[-1]] = value


def wrong_type(name: str, path: tuple[Any, ...], value: Any) -> Forgery:
    def forge(folder: Path) -> None:
        file = folder / name
        data = json.loads(file.read_text())
        put(data, path, value)
        if name == "manifest.json":
            data.pop("sha256", None)
            data |= {"sha256": digest(data)}
        file.write_text(json.dumps(data))
        if name != "manifest.json":
            seal(folder)

    return forge


def planted(name: str, kind: str, outside: Path) -> Forgery:
    def forge(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "loop":
            path.symlink_to(path.name)
        else:
            path.symlink_to(outside if kind == "folder" else outside / "precious")

    return forge


def spoiled_array(pattern: str, how: Callable[[Path], None]) -> Forgery:
    def forge(folder: Path) -> None:
        how(first(folder, pattern))
        seal(folder)

    return forge


def twice(path: Path) -> None:
    old = members(path)
    npz(path, [*old, old[-1]])


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def packed_alike(path: Path) -> None:
    npz(path, members(path))


def huge_header(path: Path) -> None:
    old = members(path)
    npz(path, [*old[:-1], (old[-1][0], zeros((10**12,)))], zipfile.ZIP_STORED)


def pickled(path: Path) -> None:
    old = members(path)
    f = io.BytesIO()
    np.save(f, np.array([print], dtype=object), allow_pickle=True)
    npz(path, [*old[:-1], (old[-1][0], f.getvalue())])


def all_forgeries(folder: Path, other: Path, outside: Path) -> Iterator[tuple[str, Forgery]]:
    """Every forgery of a run folder on a model, finished or not; `other` is a run with another seed."""
    for name in (name for name in TEXTS if (folder / name).exists()):
        for path in keys_of(json.loads((folder / name).read_text())):
            for value in WRONG[:: 1 if len(path) == 1 else 4]:
                yield f"{name} {'.'.join(map(str, path))}={str(value)[:8]}", wrong_type(name, path, value)
        for text in (b"[" * 10**5, b'{"a":' * 10**5, b'{"schema": 1, "schema": 1}', b"\xff\xfe", b"[]" + b" " * 2**25):
            yield f"{name} {text[:9]!r}", lambda f, n=name, t=text: overwrite(f / n, t)
    for name in PLANTED:
        for kind in ("link", "folder", "pipe", "device", "loop"):
            yield f"{kind} {name}", planted(name, kind, outside)
    for pattern in (pattern for pattern in ARRAYS if list(folder.glob(pattern))):
        for how in (twice, cut, packed_alike, huge_header, pickled):
            yield f"{how.__name__} {pattern}", spoiled_array(pattern, how)
        for name in (*(n[:-4] for n, _ in members(first(folder, pattern))), "junk"):
            yield f"bomb {pattern} {name}", spoiled_array(pattern, lambda p, n=name: bomb(p, n, LARGE))
    parts = ("checkpoint", "trace", "policy.npz", "margin.npz", *TEXTS)
    for part in (part for part in parts if (other / part).exists()):
        for sealed in (False, True):
            yield f"other {part} {sealed}", lambda f, p=part, s=sealed: foreign_part(f, other, p, sealed=s)


def overwrite(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def foreign_part(folder: Path, other: Path, part: str, *, sealed: bool = False) -> None:
    """Put a part of another run in the place of this run's own; with hashes that fit, if `sealed`."""
    if (other / part).is_dir():
        shutil.rmtree(folder / part)
        shutil.copytree(other / part, folder / part)
    else:
        shutil.copy(other / part, folder / part)
    if sealed:
        seal(folder)
