"""Read the files of a UMB archive and check them against its index; errors name the archive and the file."""

from __future__ import annotations

import io
import itertools
import json
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from clearance.core.array_files import max_memory
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.text import first_line
from clearance.exchange.text_lines import MOST, read_bytes

LARGEST_INDEX = 64 * 2**20
WHERE = ("states", "choices", "branches")
BROKEN = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


class Archive:
    """A UMB archive: a tar file, which may be compressed by gzip, bzip2 or xz.

    system   the object `transition-system` of its index
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        data = read_bytes(path)
        try:
            self._tar = tarfile.open(fileobj=io.BytesIO(data), mode="r:*")  # noqa: SIM115 (read from memory)
            self._members = {m.name.removeprefix("./"): m for m in self._tar.getmembers() if m.isfile()}
        except BROKEN as e:
            raise InputError(f"{self.path}: is no tar archive, or cut off ({first_line(e)})") from None
        unpacked, limit = sum(m.size for m in self._members.values()), max_memory(len(data))
        if unpacked > limit:
            raise InputError(f"{self.path}: unpacks to {unpacked:.2g} bytes, more than the limit of {limit:.2g}")
        self.index = self._read_index()
        self.system = self._object(self.index, "transition-system")

    def error(self, what: str, file: str = "index.json") -> InputError:
        return InputError(f"{self.path}, {file}: {what}")

    # ----------------------------------------------------------------------------------------------------- the index

    def _read_index(self) -> dict[str, Any]:
        found = self.json("index.json")
        version = found.get("format-version")
        if version not in (0, 1):
            raise self.error(f"format-version must be 0 or 1, got {version!r}")
        return found

    def has(self, file: str) -> bool:
        return file in self._members

    def json(self, file: str) -> dict[str, Any]:
        """Return the JSON object in a file; NaN and infinities are refused."""
        try:
            found = json.loads(self._bytes(file, most=LARGEST_INDEX), parse_constant=_refuse_constant)
        except InputError:
            raise
        except (ValueError, RecursionError) as e:
            line = f", line {e.lineno}" if isinstance(e, json.JSONDecodeError) else ""
            raise InputError(f"{self.path}, {file}{line}: is no JSON, or cut off") from None
        if not isinstance(found, dict):
            raise self.error("must be an object", file)
        return found

    def _object(self, inside: dict[str, Any], key: str, *, needed: bool = True) -> dict[str, Any]:
        found = inside.get(key, None if needed else {})
        if not isinstance(found, dict):
            raise self.error(f"{key} must be an object, got {type(found).__name__}")
        return found

    def check_kind(self) -> None:
        if self.system.get("time") != "discrete":
            raise self.error(f"time must be 'discrete', got {self.system.get('time')!r}")
        if self.count("#players") > 1:
            raise self.error(f"#players must be at most 1, got {self.system['#players']}")
        if self.system.get("#observations", 0) != 0:
            raise self.error("#observations must be 0: a partially observable model is no MDP")

    def count(self, key: str, least: int = 0) -> int:
        value = self.system.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
            raise self.error(f"{key} must be a whole number in {least}..{MOST}, got {value!r}")
        return value

    def annotations(self, group: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield (key, name, description) of each annotation in a group of the index, such as "rewards"."""
        listed = self._object(self._object(self.index, "annotations", needed=False), group, needed=False)
        seen: set[str] = set()
        for key in listed:
            about = self._object(listed, key)
            name = about.get("alias", key)
            if not isinstance(name, str) or name in seen:
                raise self.error(f"annotations/{group}/{key}: alias must be a name that no other has, got {name!r}")
            seen.add(name)
            yield key, name, about

    def applies_to(self, path: str, about: dict[str, Any]) -> list[str]:
        found = about.get("applies-to")
        if (
            not isinstance(found, list)
            or not found
            or any(x not in WHERE for x in found)
            or len(set(found)) < len(found)
        ):
            raise self.error(f"{path}: applies-to must list some of {', '.join(WHERE)}, got {found!r}")
        return found

    # ----------------------------------------------------------------------------------------------------- its arrays

    def _bytes(self, file: str, size: int | None = None, most: int = 2**40) -> bytes:
        """Return the content of a file; raise InputError if its size is not `size` bytes, or more than `most`."""
        member = self._members.get(file)
        if member is None:
            raise self.error("is missing in the archive", file)
        if size is not None and member.size != size:
            raise self.error(f"has {member.size} bytes, the index asks for {size}", file)
        if member.size > most:
            raise self.error(f"has {member.size} bytes, more than {most}", file)
        try:
            stream = self._tar.extractfile(member)
            return b"" if stream is None else stream.read()
        except BROKEN as e:
            raise self.error(f"cannot be read, or is cut off ({first_line(e)})", file) from None

    def whole(self, file: str, n: int, kind: str, below: int) -> Any:
        found = np.frombuffer(self._bytes(file, n * np.dtype(kind).itemsize), kind)
        bad = np.flatnonzero(found >= below)
        if len(bad):
            raise self.error(f"entry {bad[0]} must be in 0..{below - 1}, got {found[bad[0]]}", file)
        return found.astype(np.int64)

    def offsets(self, file: str, n: int, last: int) -> Any:
        """Return n + 1 offsets, which say where each of n lists of entries begins and ends.

        They must increase strictly from 0 to `last`.
        """
        found = self.whole(file, n + 1, "<u8", below=last + 1)
        if found[0] != 0 or found[-1] != last:
            raise self.error(f"must go from 0 to {last}, goes from {found[0]} to {found[-1]}", file)
        bad = np.flatnonzero(np.diff(found) <= 0)
        if len(bad):
            raise self.error(f"entry {bad[0] + 1} must be above entry {bad[0]}, {found[bad[0]]}", file)
        return found

    def bits(self, file: str, n: int) -> Any:
        """Return n bits as booleans; the file may be padded to whole bytes or to words of 64 bits."""
        data = self._bytes(file)
        if not (n + 7) // 8 <= len(data) <= (n + 63) // 64 * 8:
            raise self.error(f"has {len(data)} bytes for {n} bits", file)
        return np.unpackbits(np.frombuffer(data, np.uint8), count=n, bitorder="little").astype(bool)

    def numbers(self, file: str, kind: Any, n: int) -> Array:
        """Return n numbers from a file; `kind` is their type in the index: double, int, uint or rational."""
        name = kind.get("type") if isinstance(kind, dict) else None
        size = kind.get("size", 128 if name == "rational" else 64) if isinstance(kind, dict) else None
        if name == "double" and size == 64:
            found = np.frombuffer(self._bytes(file, 8 * n), "<f8")
        elif name in ("int", "uint") and size in (8, 16, 32, 64):
            found = np.frombuffer(self._bytes(file, n * size // 8), f"<{name[0]}{size // 8}").astype(float)
        elif name == "rational" and isinstance(size, int) and size > 0 and size % 16 == 0:
            found = self._rationals(file, n, size // 8)
        else:
            raise self.error(f"{file}: type must be double, int, uint or rational of a whole size, got {kind!r}")
        bad = np.flatnonzero(~np.isfinite(found))
        if len(bad):
            raise self.error(f"entry {bad[0]} must be finite, got {found[bad[0]]}", file)
        return np.array(found, float)

    def _rationals(self, file: str, n: int, size: int) -> Array:
        """Return n rational numbers as floats; each is stored in `size` bytes.

        The first half of the bytes is the signed numerator, the second half the unsigned denominator.
        """
        data, half, found = self._bytes(file, n * size), size // 2, np.empty(n)
        for i in range(n):
            top = int.from_bytes(data[i * size : i * size + half], "little", signed=True)
            bottom = int.from_bytes(data[i * size + half : (i + 1) * size], "little")
            if bottom == 0:
                raise self.error(f"entry {i} has the denominator 0", file)
            found[i] = float(Fraction(top, bottom))
        return found

    def strings(self, folder: str, n: int) -> list[str]:
        file = f"{folder}/strings.bin"
        data = self._bytes(file)
        ends = self.whole(f"{folder}/string-mapping.bin", n + 1, "<u8", below=len(data) + 1)
        if np.any(np.diff(ends) < 0):
            raise self.error("must not decrease", f"{folder}/string-mapping.bin")
        try:
            return [data[i:j].decode() for i, j in itertools.pairwise(ends)]
        except UnicodeDecodeError:
            raise self.error("is not UTF-8", file) from None

    def labels(self, C: int) -> list[str]:
        """Return the label of each of the C choices; empty texts if the archive has none."""
        n = self.count("#choice-actions")
        if n == 0 or not self.has("actions/choices/values.bin"):
            return [""] * C
        action = self.whole("actions/choices/values.bin", C, "<u4", below=n)
        named = self.has("actions/choices/strings.bin")
        names = self.strings("actions/choices", n) if named else [str(i) for i in range(n)]
        return [names[i] for i in action.tolist()]

    def valuations(self, S: int) -> tuple[str, ...] | None:
        """Return a name for each state, made of the values of its variables.

        Return None if the archive has no such values, if a variable is not of a plain type, or if two names are equal.
        """
        about = self.index.get("valuations")
        states = about.get("states") if isinstance(about, dict) else None
        classes = states.get("classes") if isinstance(states, dict) else None
        fields = classes[0].get("variables") if isinstance(classes, list) and len(classes) == 1 else None
        layout = _layout(fields) if isinstance(fields, list) else None
        if not layout or not self.has("valuations/states/valuations.bin"):
            return None
        size = layout[-1][1] // 8
        data = self._bytes("valuations/states/valuations.bin", S * size)
        rows = (int.from_bytes(data[i * size : (i + 1) * size], "little") for i in range(S))
        names = tuple(",".join(_value(row, *field) for field in layout if field[2]) for row in rows)
        return names if len(set(names)) == S else None


def _refuse_constant(text: str) -> None:
    raise ValueError(text)


def _layout(fields: list[Any]) -> list[tuple[int, int, str, str, int]] | None:
    """Return (first bit, last bit + 1, name, type, offset) of each variable in the bits of a state.

    `offset` is the number that is added to the stored integer.

    Return None if a variable is not of a plain type (boolean or integer).
    """
    at, found = 0, []
    for field in fields:
        kind = field.get("type") if isinstance(field, dict) else None
        if isinstance(field, dict) and isinstance(field.get("padding"), int) and field["padding"] > 0:
            name, sort, size, offset = "", "", field["padding"], 0
        elif isinstance(kind, dict) and kind.get("type") in ("bool", "int", "uint") and not field.get("is-optional"):
            name, sort, size, offset = field.get("name"), kind["type"], kind.get("size", 64), field.get("offset") or 0
            if not isinstance(name, str) or not name or not isinstance(offset, int):
                return None
        else:
            return None
        if not isinstance(size, int) or not 0 < size <= 4096:
            return None
        found.append((at, at + size, name, sort, offset))
        at += size
    return found if at and at % 8 == 0 else None


def _value(row: int, start: int, end: int, name: str, sort: str, offset: int) -> str:
    """Return the text `name=value` for the variable in bits start .. end − 1 of the number `row`, as Storm writes it.

    `sort` is the type of the variable; `offset` is added to an integer. A boolean is written `done` or `!done`.
    """
    raw = (row >> start) & ((1 << (end - start)) - 1)
    if sort == "bool":
        return name if raw else f"!{name}"
    if sort == "int" and raw >> (end - start - 1):
        raw -= 1 << (end - start)
    return f"{name}={raw + offset}"
