"""Docstrings for the web: prose stays prose; what is laid out by hand (equations, aligned lists) keeps its layout."""

from __future__ import annotations

import re
from typing import Any

import griffe

ALIGNED = re.compile(r"^\S.*?\S? {2,}\S", re.MULTILINE)
ENTRY = re.compile(r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*) {2,}(\S.*)$")


def markdown(text: str) -> str:
    """A docstring of this library as Markdown: lists of arguments become tables."""
    return "\n\n".join(_part(p) for p in re.split(r"\n\s*\n", text.strip("\n")))


def _part(text: str) -> str:
    if text.lstrip().startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if ENTRY.match(text.splitlines()[0]):
        return _arguments(text)
    if text.startswith("    ") or ALIGNED.search(text):
        return f"```text\n{text}\n```"
    return _plain(text)


def _arguments(text: str) -> str:
    """`name  meaning` with indented lines that continue the meaning; a line at the margin ends the list."""
    rows: list[list[str]] = []
    lines, first = text.splitlines(), ENTRY.match(text.splitlines()[0])
    assert first is not None
    column = first.start(2)  # where the meanings begin; a long name leaves one space before it
    while lines:
        line = lines[0]
        entry = ENTRY.match(line) or re.match(rf"^(\w[\w., *]{{{column - 2}}}) (\S.*)$", line)
        if entry:
            rows.append([entry[1].strip(), entry[2]])
        elif line.startswith(" "):
            rows[-1][1] += " " + " ".join(line.split())
        else:
            break
        lines.pop(0)
    cells = (f"| {', '.join(f'`{n}`' for n in name.split(', '))} | {_cell(told)} |" for name, told in rows)
    rest = _plain("\n".join(lines))
    return "\n".join(["| argument | meaning |", "|---|---|", *cells]) + (f"\n\n{rest}" if rest else "")


def _cell(text: str) -> str:
    return _plain(text).replace("|", r"\|")


def _plain(text: str) -> str:
    return text.replace("*", r"\*").replace("<", "&lt;")


class Plain(griffe.Extension):
    """Turns every docstring that is shown."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
