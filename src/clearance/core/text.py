"""Text that is safe to print: one line, no control characters."""

from __future__ import annotations

import difflib
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


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a question about the known word that comes closest, to be appended to an error; nothing if none is near.

    >>> suggest("taxii", ["taxi", "cliff"])
    '; did you mean taxi?'
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def first_line(e: object) -> str:
    """Return the first line of a message."""
    return (str(e).splitlines() or [""])[0]
