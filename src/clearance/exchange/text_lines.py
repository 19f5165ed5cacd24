"""Read lines of text files and numbers in them; errors name the file, the line and the field."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from clearance.core.errors import InputError

# More states or choices than this are a mistake in a header, and must not be allocated.
MOST = 10**8


class TextFile:
    """A text file that is read line by line.

    `path` is the file, and `line` the number of the current line, for error messages.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.line = str(path), 0
        self._text = read_bytes(path)

    def __iter__(self) -> Iterator[str]:
        """Yield the lines without surrounding spaces; empty lines are left out."""
        for number, raw in enumerate(self._text.splitlines(), 1):
            self.line = number
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
            except UnicodeDecodeError:
                raise self.error("text", "is not UTF-8") from None
            if text:
                yield text

    def error(self, field: str, what: str) -> InputError:
        return InputError(f"{self.path}, line {self.line}: {field} {what}")

    def number(self, field: str, text: str) -> float:
        """Return `text` as a finite number, where fractions such as 1/3 are accepted; `field` is for error messages."""
        try:
            value = float(Fraction(text)) if "/" in text else float(text)
        except (ValueError, ZeroDivisionError, OverflowError):
            raise self.error(field, f"must be a number, got {text[:40]!r}") from None
        if not math.isfinite(value):
            raise self.error(field, f"must be finite, got {text[:40]!r}")
        return value

    def whole(self, field: str, text: str, below: int = MOST) -> int:
        """Return `text` as an integer from 0 to `below` − 1; `field` is for error messages."""
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise self.error(field, f"must be a whole number, got {text[:40]!r}")
        if int(text) >= below:
            raise self.error(field, f"must be in 0..{below - 1}, got {text}")
        return int(text)


def read_bytes(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None
    except ValueError as e:  # a NUL in the name
        raise InputError(f"{str(path)!r}: cannot read: {e}") from None
