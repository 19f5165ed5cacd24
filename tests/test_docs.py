"""The documentation is held to the code: names resolve, examples run, documented commands exist."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import (
    blocks,
    commands,
    commands_of,
    difference,
    lines_of,
    names,
    parse,
    prose,
    resolve,
    run_blocks,
    split_words,
)

import clearance
from clearance.cli import main
from clearance.core.errors import InputError
from clearance.exact import theory
from clearance.finite import evaluation

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    p
    for p in (*(ROOT / f"{n}.md" for n in ("README", "CONTRIBUTING", "SECURITY")), *sorted(ROOT.glob("docs/**/*.md")))
    if p.exists()
]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
MODULES = ["clearance", *(m.name for m in pkgutil.walk_packages(clearance.__path__, "clearance."))]
MODULES.remove("clearance.__main__")  # runs the command line when it is imported

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


@each_page
def test_names_of_the_code_resolve(page: Path) -> None:
    wrong = []
    for name in names(page.read_text(encoding="utf-8")):
        try:
            resolve(name)
        except (ImportError, AttributeError, ValueError) as e:
            wrong.append(f"{name}: {e}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["clearance.nothing", "clearance.finite.cmdp.evaluat", "clearance.problm.evaluate",
                                  "clearance.exact.optimum.Optimum.lamb", "clearance.a page"])  # fmt: skip
def test_a_wrong_name_is_noticed(name: str) -> None:
    assert names(f"see `{name}` and `{name}(x)`") == [name, name]
    with pytest.raises((ImportError, AttributeError, ValueError)):
        resolve(name)


def test_the_map_from_paper_to_code_is_complete() -> None:
    """Every public function of `theory`, every direction, sampler and step of the algorithm stands in it."""
    mapped = [resolve(name) for name in names((ROOT / "docs/concepts/paper_to_code.md").read_text(encoding="utf-8"))]
    public = [f for name, f in inspect.getmembers(theory, inspect.isfunction)
              if f.__module__ == theory.__name__ and not name.startswith("_")]  # fmt: skip
    assert len(public) > 20
    missing = [f.__name__ for f in public if f not in mapped]
    assert not missing, f"docs/concepts/paper_to_code.md lacks theory's {missing}"
    wanted = [clearance.CMDP, evaluation.evaluate, clearance.occupancy, clearance.optimum, clearance.slater_margin,
              clearance.SGD, clearance.Table, clearance.Mixture, clearance.solve, clearance.CNPGPD.step,
              clearance.CNPGPD.init]  # fmt: skip
    assert not [w for w in wanted if w not in mapped]


@each_page
def test_links_and_cited_tests_exist(page: Path) -> None:
    text = prose(page.read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    assert not [link for link in links if not (page.parent / link).exists()]
    for file, test in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {test}"


# ------------------------------------------------------------------------------------------------------ the guarantee

CLAIMS, SHOWN = ROOT / "docs/concepts/certificates.md", ROOT / "docs/research/guarantee_tests.md"


def sentences(text: str) -> list[str]:
    """The sentences and table rows of a page, without headings, code and rulers."""
    kept = [line for line in prose(text).splitlines() if not line.startswith(("#", "    "))]
    found: list[str] = []
    for part in re.split(r"\n\s*\n|\n(?=- |\| )", "\n".join(kept)):
        line = " ".join(part.split())
        if line.startswith("|"):
            found += [line.strip("| ")] if "**" in line else []
        elif line:
            found += re.split(r"(?<=[.:!?])(?:\*\*)? (?=[A-Z`*\[])", line)
    return found


def test_every_sentence_of_the_guarantee_is_shown() -> None:
    """docs/research/guarantee_tests.md has a row for each, by its first words, and no row is left over."""
    rows = re.findall(r"^\| (.+?) \| .+ \|$", SHOWN.read_text(encoding="utf-8"), re.MULTILINE)[1:]
    claimed = sentences(CLAIMS.read_text(encoding="utf-8"))
    assert len(claimed) > 70
    assert [claim for claim in claimed if not claim.startswith(tuple(rows))] == []
    assert [row for row in rows if not any(claim.startswith(row) for claim in claimed)] == []


def test_the_verdict_that_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    shown = next(block.text for block in blocks(CLAIMS.read_text(encoding="utf-8")) if "CERTIFIED:" in block.text)
    main(["solve", "inventory", "--K", "1000", "--N", "20"])
    said = " ".join(capsys.readouterr().out.split())
    assert [words for words in re.split(r"\n(?=[A-Z])", shown) if " ".join(words.split()) not in said] == []


# ----------------------------------------------------------------------------------------------------------- blocks


@each_page
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_blocks(page.read_text(encoding="utf-8"), page.name, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        ("J 1.23 of 5\n", "J 1.2301 of 5\n", True),
        ("J 1.23\n", "J 1.5\n", False),
        ("CERTIFIED\n", "VIOLATED\n", False),
        ("a\n…\nd 3\n", "a\nb\nc\nd 3\n", True),
        ("a\n…\nd 3\n", "a\nb\nc\nd 4\n", False),
        ("a\n…\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("slack 3.3e-09\n", "slack 1.1e-08\n", True),
        ("steps 396,107\n", "steps 396,200\n", True),
        ("a\nb\n", "a\n", False),
    ],
)
def test_outputs_are_compared(shown: str, said: str, same: bool) -> None:
    assert (difference(shown, said) == "") == same


# Pages for users: every block that runs is followed by what it prints.
USER_PAGES = [p for p in PAGES if p.parent.name in ("docs", "tutorials", "how_to", "concepts") or p.name == "README.md"]


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda p: p.name)
def test_every_block_shows_what_it_prints(page: Path) -> None:
    """A block that only defines something says so: `<!-- test: silent -->`."""
    found, silent = blocks(page.read_text(encoding="utf-8")), []
    for block, following in zip(found, [*found[1:], None], strict=False):
        runs = block.marks == ["python"] or bool(commands_of(block))
        shown = following is not None and following.marks == ["output"]
        if runs and not shown and block.test not in ("no-run", "silent"):
            silent.append(block.line)
    assert not silent, f"{page.name}: no output below the blocks of lines {silent}"


@pytest.mark.parametrize("page", USER_PAGES, ids=lambda p: p.name)
def test_pages_for_users_are_short(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").count("\n")
    assert lines <= (150 if page.name == "README.md" else 250), lines


@each_page
def test_other_commands_could_run(page: Path) -> None:
    """`make TARGET`, `python FILE`, `pip install .[EXTRA]`: what they name exists."""
    makefile, extras = (ROOT / "Makefile").read_text(), (ROOT / "pyproject.toml").read_text()
    for block in blocks(page.read_text(encoding="utf-8")):
        for line in lines_of(block):
            words = split_words(line)
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
Text with `clearance.finite.cmdp` and ``` no fence.
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
    assert names(PAGE) == ["clearance.finite.cmdp"]
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
