"""Pages of the documentation: their code blocks, their commands, and the names of the code that they mention."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import clearance
from clearance import zoo
from clearance.cli import command_line


class Block(NamedTuple):
    """A fenced block of a page: the words after the fence, the line of its first line, its text, and what a comment
    before it says of its test.
    """

    marks: list[str]
    line: int
    text: str
    test: str = ""


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text; one that is never closed is an error."""
    found: list[Block] = []
    marks: list[str] = []
    lines, fence, start = text.splitlines(), None, 0
    for n, line in enumerate(lines):
        opened = re.match(r"\s*(`{3,}|~{3,})\s*([^`]*)$", line)
        if fence is None and opened:
            fence, marks, start = opened[1], opened[2].split(), n + 1
        elif fence is not None and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            inside = "".join(f"{inner}\n" for inner in lines[start:n])
            found.append(Block(marks, start + 1, textwrap.dedent(inside), _said(lines, start - 2)))
            fence = None
    assert fence is None, f"the block opened in line {start} is never closed"
    return found


def _said(lines: list[str], n: int) -> str:
    """`no-run` of `<!-- test: no-run -->`, the line before a fence."""
    note = re.fullmatch(r"<!-- test: (.*) -->", lines[n].strip()) if n >= 0 else None
    return note[1] if note else ""


def prose(text: str) -> str:
    """The text outside fenced blocks."""
    lines = text.splitlines()
    for block in blocks(text):
        for n in range(block.line - 2, block.line + block.text.count("\n")):
            lines[n] = ""
    return "\n".join(lines)


def names(text: str) -> list[str]:
    """What stands in backticks and begins with `clearance.`, without the brackets of a call."""
    return [re.sub(r"\(.*\)$", "", span) for span in re.findall(r"`(clearance\.[^`]*)`", prose(text))]


def resolve(name: str) -> Any:
    """The object of a dotted name, by import and getattr; a field of a dataclass has no value of its own."""
    try:
        return pkgutil.resolve_name(name)
    except AttributeError:
        owner, _, last = name.rpartition(".")
        kind = pkgutil.resolve_name(owner)
        fields = {f.name: f for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
        if last not in fields:
            raise
        return fields[last]


FILE = re.compile(r"\.(npz|csv|drn|umb|tra|prism|toml)$|:")
SHELLS = ("console", "sh", "bash", "shell")


def lines_of(block: Block) -> list[str]:
    """The commands of a shell block, without prompt and comment."""
    lines = block.text.replace("\\\n", " ").splitlines() if block.marks[:1] and block.marks[0] in SHELLS else []
    return [re.sub(r"^\$ ", "", line) for line in lines if line.strip() and not line.startswith("#")]


def commands_of(block: Block) -> list[list[str]]:
    calls = (re.match(r"(?:clearance|python3? -m clearance) (.*)", line) for line in lines_of(block))
    return [split_words(call[1]) for call in calls if call]


def commands(text: str) -> list[list[str]]:
    """The arguments of every call of `clearance` in the shell blocks, up to a pipe or the like."""
    return [argv for block in blocks(text) for argv in commands_of(block)]


def split_words(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if word[0] in "|&;<>":
            break
        words.append(word)
    return words


def parse(argv: list[str]) -> None:
    """Errors if the command line would not understand these arguments."""
    try:
        args = command_line._parser().parse_args(argv)
    except SystemExit as e:  # --help and --version
        assert not e.code, argv
        return
    problem = getattr(args, "problem", None)
    assert problem is None or problem in {**zoo.MODELS, **zoo.SIMULATORS} or FILE.search(problem), (
        f"no such problem: {argv}"
    )


# ------------------------------------------------------------------------------------------------------------ names


def run_blocks(text: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python and commands, in order, in one namespace and one folder. A comment `<!-- test: no-run -->` before a block
    leaves it at a look, `exit 3` says how its commands end, `needs NAME` runs it where the library has that name.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of another page, or of another test
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(text):
        assert re.fullmatch(r"|no-run|exit \d|needs \w+", block.test), f"{name}:{block.line}: {block.test}"
        lacks = block.test.startswith("needs ") and not hasattr(clearance, block.test[6:])
        skipped = block.test == "no-run" or lacks
        if block.marks[:1] == ["python"]:
            assert block.marks == ["python"], f"{name}:{block.line}: {block.marks}"
            source = "\n" * (block.line - 1) + block.text  # so that a traceback has the page's line
            code = compile(source, name, "exec", dont_inherit=True)
            if not skipped:
                exec(code, namespace)
        elif not skipped:
            expected = int(block.test[5:]) if block.test.startswith("exit ") else 0
            for argv in commands_of(block):
                assert command_line.main(argv) == expected, f"{name}:{block.line}: {argv}"
