"""Pages of the documentation: their code blocks, their commands, and the names of the code that they mention."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pkgutil
import re
import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import clearance
from clearance import zoo
from clearance.cli import command_line

if TYPE_CHECKING:
    import pytest


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
    leaves it at a look, `exit 3` says how its commands end, `needs NAME` runs it where the library has that name,
    `silent` says that it prints nothing, and `slow` blocks run with CLEARANCE_SLOW_BLOCKS=1. A block of Python with
    title="mine.py" is written to that file.

    What a block prints is compared with the block `output` below it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # of another page, or of another test
    namespace: dict[str, Any] = {"__name__": "__main__"}
    all_blocks = blocks(text)
    for block, following in zip(all_blocks, [*all_blocks[1:], None], strict=False):
        if not is_skipped(block, name):
            said = run_block(block, name, namespace)
            if following is not None and following.marks == ["output"]:
                wrong = difference(following.text, said)
                assert not wrong, f"{name}:{following.line}: {wrong}"
            assert block.test != "silent" or not said, f"{name}:{block.line}: prints, and is called silent"


def is_skipped(block: Block, name: str) -> bool:
    """Whether a block is only looked at."""
    assert re.fullmatch(r"|no-run|slow|silent|exit \d|needs \w+", block.test), f"{name}:{block.line}: {block.test}"
    lacks = block.test.startswith("needs ") and not hasattr(clearance, block.test[6:])
    slow = block.test == "slow" and not os.environ.get("CLEARANCE_SLOW_BLOCKS")
    return block.test == "no-run" or lacks or slow


def run_block(block: Block, name: str, namespace: dict[str, Any]) -> str:
    """Run a block of Python or of commands, and return what it printed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        if block.marks[:1] == ["python"] and (file := titled(block)):
            Path(file).write_text(block.text, encoding="utf-8")
        elif block.marks[:1] == ["python"]:
            assert block.marks == ["python"], f"{name}:{block.line}: {block.marks}"
            source = "\n" * (block.line - 1) + block.text  # so that a traceback has the page's line
            exec(compile(source, name, "exec", dont_inherit=True), namespace)
        expected = int(block.test[5:]) if block.test.startswith("exit ") else 0
        for argv in commands_of(block):
            assert command_line.main(argv) == expected, f"{name}:{block.line}: {argv}"
    return said.getvalue()


def titled(block: Block) -> str:
    """Return the file that a block is the content of: ```python title="mine.py"."""
    found = re.fullmatch(r'title="([\w.]+)"', " ".join(block.marks[1:]))
    return found[1] if found else ""


NUMBER = re.compile(r"[-+−]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?")
TOLERANCE = 0.02  # of a number in an output: pages show what is typical, not the last digit of one machine


def difference(shown: str, said: str) -> str:
    """Return how a shown output differs from what was printed; empty if it does not.

    Words are compared as they are, numbers to a tolerance; a line `…` stands for any number of lines.
    """
    shown_parts = re.split(r"^…$", shown, flags=re.MULTILINE)
    parts = [[line.split() for line in part.splitlines() if line.strip()] for part in shown_parts]
    lines, at = [line.split() for line in said.splitlines() if line.strip()], 0
    for n, part in enumerate(parts):
        starts = [at] if n == 0 else range(at, len(lines) - len(part) + 1)
        fits = (s for s in starts if len(lines) - s >= len(part) and all(map(_same, part, lines[s : s + len(part)])))
        start = next(fits, None)
        if start is None:
            return (
                f"shown {[' '.join(x) for x in part]}, printed {[' '.join(x) for x in lines[at : at + len(part) + 1]]}"
            )
        at = start + len(part)
    left = [] if parts[-1] == [] and len(parts) > 1 else lines[at:]
    return f"not shown: {[' '.join(x) for x in left]}" if left else ""


def _same(shown: list[str], said: list[str]) -> bool:
    one, two = " ".join(shown), " ".join(said)
    if one.startswith("seconds ") and two.startswith("seconds "):
        return True
    if NUMBER.sub("#", one) != NUMBER.sub("#", two):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(two), strict=True)
    return all(_near(_value(a), _value(b)) for a, b in pairs)


def _value(text: str) -> float:
    return float(text.replace("−", "-").replace(",", "").rstrip("."))


def _near(a: float, b: float) -> bool:
    """Numbers of one size; those below 1e-5 are rounding errors, which differ from machine to machine."""
    return abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-5
