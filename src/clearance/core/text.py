"""Text that is safe to print: one line, no control characters."""

from __future__ import annotations

from collections.abc import Iterable


def visible(text: str) -> str:
    """Return the text with control characters escaped: text from a file must not control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def distinct(texts: Iterable[str]) -> list[str]:
    """Return the texts with numbers where one occurs again, so that no column or curve replaces another.

    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a_2']
    """
    found: list[str] = []
    for text in texts:
        copies = (text, *(f"{text}_{n}" for n in range(2, len(found) + 3)))
        found.append(next(copy for copy in copies if copy not in found))
    return found


def first_line(e: object) -> str:
    """Return the first line of a message."""
    return (str(e).splitlines() or [""])[0]
