"""Lay out tables and sentences as lines of text that fit the terminal, without cutting numbers."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

BETWEEN = "  "


def lay_out(heads: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return a table as lines of text, with the first column aligned left and the others aligned right.

    A table that is wider than `width` becomes one block per row, with a line for each column.

    >>> lay_out(["limit", "value"], [["waiting", "39.5"]], 20)
    ['limit    value', 'waiting   39.5']
    >>> lay_out(["limit", "value"], [["waiting", "39.5"]], 10)
    ['waiting', '  value  39.5']
    """
    sizes = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    if sum(sizes) + len(BETWEEN) * (len(sizes) - 1) > width:
        return [line for row in rows for line in _block(heads, row)]
    return [_line(row, sizes) for row in (heads, *rows) if any(row)]


def pairs(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return pairs (label, value) as lines of text in two columns; long values are wrapped.

    >>> pairs([("states", "6"), ("discount", "0.95")], 80)
    ['states    6', 'discount  0.95']
    """
    size = max((len(label) for label, _ in rows), default=0)
    found = []
    for label, value in rows:
        first, *more = wrap(value, max(width - size - len(BETWEEN), 20)) or [""]
        found.append(f"{label:{size}}{BETWEEN}{first}".rstrip())
        found += [f"{'':{size}}{BETWEEN}{line}" for line in more]
    return found


def wrap(text: str, width: int) -> list[str]:
    """Return the text in lines of at most `width` characters; words and numbers are not split."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _line(row: Sequence[str], sizes: Sequence[int]) -> str:
    cells = zip("<" + ">" * len(row), row, sizes, strict=False)
    return BETWEEN.join(f"{cell:{side}{size}}" for side, cell, size in cells).rstrip()


def _block(heads: Sequence[str], row: Sequence[str]) -> list[str]:
    size = max(map(len, heads[1:]), default=0)
    cells = zip(heads[1:], row[1:], strict=True)
    return [row[0], *(f"{BETWEEN}{head:{size}}{BETWEEN}{cell}" for head, cell in cells)]
