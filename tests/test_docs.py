"""The documentation is held to the code: names resolve, examples run, documented commands exist."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import clearance
from clearance import cli, theory, zoo
from clearance.errors import InputError

ROOT = Path(__file__).resolve().parents[1]
PAGES = [p for p in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))) if p.exists()]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
MODULES = ["clearance", *(m.name for m in pkgutil.walk_packages(clearance.__path__, "clearance."))]
MODULES.remove("clearance.__main__")  # runs the command line when it is imported

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


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


SHELLS = ("console", "sh", "bash", "shell")


def lines_of(block: Block) -> list[str]:
    """The commands of a shell block, without prompt and comment."""
    lines = block.text.replace("\\\n", " ").splitlines() if block.marks[:1] and block.marks[0] in SHELLS else []
    return [re.sub(r"^\$ ", "", line) for line in lines if line.strip() and not line.startswith("#")]


def commands_of(block: Block) -> list[list[str]]:
    calls = (re.match(r"(?:clearance|python3? -m clearance) (.*)", line) for line in lines_of(block))
    return [_arguments(call[1]) for call in calls if call]


def commands(text: str) -> list[list[str]]:
    """The arguments of every call of `clearance` in the shell blocks, up to a pipe or the like."""
    return [argv for block in blocks(text) for argv in commands_of(block)]


def _arguments(text: str) -> list[str]:
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
        args = cli._parser().parse_args(argv)
    except SystemExit as e:  # --help and --version
        assert not e.code, argv
        return
    problem = getattr(args, "problem", None)
    assert problem is None or problem in {**zoo.MODELS, **zoo.SIMULATORS} or re.search(r"\.npz$|\.toml$|:", problem), (
        f"no such problem: {argv}"
    )


# ------------------------------------------------------------------------------------------------------------ names


@each_page
def test_names_of_the_code_resolve(page: Path) -> None:
    wrong = []
    for name in names(page.read_text(encoding="utf-8")):
        try:
            resolve(name)
        except (ImportError, AttributeError, ValueError) as e:
            wrong.append(f"{name}: {e}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["clearance.nothing", "clearance.problem.evaluat", "clearance.problm.evaluate",
                                  "clearance.oracle.Optimum.lamb", "clearance.a page"])  # fmt: skip
def test_a_wrong_name_is_noticed(name: str) -> None:
    assert names(f"see `{name}` and `{name}(x)`") == [name, name]
    with pytest.raises((ImportError, AttributeError, ValueError)):
        resolve(name)


def test_the_map_from_paper_to_code_is_complete() -> None:
    """Every public function of `theory`, every direction, sampler and step of the algorithm stands in it."""
    mapped = [resolve(name) for name in names((ROOT / "docs/paper_to_code.md").read_text(encoding="utf-8"))]
    public = [f for name, f in inspect.getmembers(theory, inspect.isfunction)
              if f.__module__ == theory.__name__ and not name.startswith("_")]  # fmt: skip
    assert len(public) > 20
    missing = [f.__name__ for f in public if f not in mapped]
    assert not missing, f"docs/paper_to_code.md lacks theory's {missing}"
    wanted = [clearance.CMDP, clearance.evaluate, clearance.occupancy, clearance.optimum, clearance.slater_margin,
              clearance.SGD, clearance.Table, clearance.Mixture, clearance.solve, clearance.CNPGPD.step,
              clearance.CNPGPD.init]  # fmt: skip
    assert not [w for w in wanted if w not in mapped]


@each_page
def test_links_and_cited_tests_exist(page: Path) -> None:
    text = prose(page.read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]
    for file, test in re.findall(r"`(tests/\w+\.py)::(\w+)`", text):
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"


# ----------------------------------------------------------------------------------------------------------- blocks


@each_page
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks(page.read_text(encoding="utf-8"), page.name, tmp_path, monkeypatch)


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
                assert cli.main(argv) == expected, f"{name}:{block.line}: {argv}"


@each_page
def test_other_commands_could_run(page: Path) -> None:
    """`make TARGET`, `python FILE`, `pip install .[EXTRA]`: what they name exists."""
    makefile, extras = (ROOT / "Makefile").read_text(), (ROOT / "pyproject.toml").read_text()
    for block in blocks(page.read_text(encoding="utf-8")):
        for line in lines_of(block):
            words = _arguments(line)
            if words[0] == "make":
                assert all(f"\n{target}:" in makefile for target in words[1:]), line
            elif words[0].startswith("python") and words[1:2] != ["-m"]:
                assert (ROOT / words[1]).exists(), line
            elif words[:2] == ["pip", "install"]:
                for extra in ",".join(re.findall(r"\[(.*?)\]", line)).split(","):
                    assert not extra or f"\n{extra} = [" in extras, line
            else:
                assert words[0] in ("clearance", "python", "git", "cd", "ls"), line


@each_page
def test_documented_commands_exist(page: Path) -> None:
    for argv in commands(page.read_text(encoding="utf-8")):
        parse(argv)


def test_the_readme_shows_python_and_the_command_line() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert any(block.marks == ["python"] for block in blocks(text)) and commands(text)


PAGE = """\
Text with `clearance.problem` and ``` no fence.
<!-- test: exit 4 -->
```console
$ clearance optimum two-state --json | head
clearance solve bai2023 --K 2000 \\
    --kappa 0.05
$ ls
```

<!-- test: no-run -->
   ~~~python
   if True:
       x = 1
   ~~~
```
`clearance.not_a_name`
```
```
```
"""


def test_the_reader_of_pages_reads() -> None:
    """What finds nothing would pass everything."""
    found = blocks(PAGE)
    assert [(b.marks, b.line, b.test) for b in found] == [
        (["console"], 4, "exit 4"), (["python"], 12, "no-run"), ([], 16, ""), ([], 19, "")
    ]  # fmt: skip
    assert found[1].text == "if True:\n    x = 1\n"
    assert names(PAGE) == ["clearance.problem"]
    solve = ["solve", "bai2023", "--K", "2000", "--kappa", "0.05"]
    assert commands(PAGE) == [["optimum", "two-state", "--json"], solve]
    parse(solve)
    parse(["--version"])
    with pytest.raises(AssertionError, match="never closed"):
        blocks("```python\nx = 1\n")


@pytest.mark.parametrize("argv", ["solve bai2023 --kapa 0.1", "optimize bai2023", "solve", "solve two-state --K many"])
def test_an_invented_command_is_noticed(argv: str) -> None:
    with pytest.raises(InputError):
        parse(argv.split())
    with pytest.raises(AssertionError, match="no such problem"):
        parse(["optimum", "no-such-model"])


# --------------------------------------------------------------------------------------------- docstrings, examples


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name: str) -> None:
    """All of them: an example that doctest does not find would be a silent pass."""
    module = importlib.import_module(name)
    written = re.findall(r"^\s*>>> ", inspect.getsource(module), re.MULTILINE)
    result = doctest.testmod(module)
    assert (result.failed, result.attempted) == (0, len(written))


def python(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"MPLBACKEND": "Agg", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, timeout=300)


def test_there_are_examples() -> None:
    assert EXAMPLES, "examples/ is missing or empty"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    """From another folder, with warnings as errors; an example must say something."""
    done = python("-W", "error", str(example), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_import_loads_next_to_nothing(tmp_path: Path) -> None:
    code = "import sys, clearance; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "clearance" in loaded
    assert not loaded & {"scipy", "numba", "matplotlib"}
