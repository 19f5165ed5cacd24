"""Functions for text that is safe to print: one line, without control characters."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def visible(text: str) -> str:
    """Return the text with control characters escaped, so that text from a file cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def distinct(texts: Iterable[str]) -> list[str]:
    """Return the texts with a number appended to repeated ones, for column names or labels that must be distinct.

    >>> distinct(["a", "b", "a"])
    ['a', 'b', 'a_2']
    """
    found: list[str] = []
    for text in texts:
        copies = (text, *(f"{text}_{n}" for n in range(2, len(found) + 3)))
        found.append(next(copy for copy in copies if copy not in found))
    return found


def split_unit(name: str) -> tuple[str, str]:
    """Return (name without unit, unit). The unit is in brackets at the end of the name; it is "" if there is none.

    >>> split_unit("energy [kWh]"), split_unit("energy")
    (('energy', 'kWh'), ('energy', ''))
    """
    found = re.fullmatch(r"(.*\S)\s*\[([^\[\]]+)\]", name)
    return (found[1], found[2]) if found else (name, "")


def find_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that equals `name` or, if there is exactly one, that equals `name` without its unit.

    Return None if there is no such name.

    >>> find_name("energy", ["energy [kWh]", "wear"])
    'energy [kWh]'
    """
    known = list(known)
    near = [other for other in known if split_unit(other)[0] == name]
    return name if name in known else near[0] if len(near) == 1 else None


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a question that suggests the closest known word, for the end of an error message; "" if none is close.

    >>> suggest("taxii", ["taxi", "cliff"])
    '; did you mean taxi?'
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def first_line(e: object) -> str:
    """Return the first line of the text of e, an exception or a message."""
    return (str(e).splitlines() or [""])[0]
