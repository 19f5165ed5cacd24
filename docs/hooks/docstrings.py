"""Docstrings for the web: prose stays prose; what is laid out by hand (equations, aligned lists) keeps its layout."""

from __future__ import annotations

import re
from typing import Any

import griffe

ALIGNED = re.compile(r"^\S.*?\S? {2,}\S", re.MULTILINE)


def markdown(text: str) -> str:
    """A docstring of this library as Markdown."""
    return "\n\n".join(_part(p) for p in re.split(r"\n\s*\n", text.strip("\n")))


def _part(text: str) -> str:
    if text.lstrip().startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if text.startswith("    ") or ALIGNED.search(text):
        return f"```text\n{text}\n```"
    return text.replace("*", r"\*").replace("<", "&lt;")


class Plain(griffe.Extension):
    """Turns every docstring that is shown."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
