"""Text that is safe to print: one line, no control characters."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return the text with control characters escaped: text from a file must not control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def first_line(e: object) -> str:
    """Return the first line of a message."""
    return (str(e).splitlines() or [""])[0]
