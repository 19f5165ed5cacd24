"""Names from strangers in files for other programs: spreadsheets, shells, TensorBoard, terminals."""

from __future__ import annotations

import csv
import html
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import seal, solved
from runs import cli, events

import clearance as cl
from clearance.core.csv_files import plain_cell, write_csv
from clearance.core.text import distinct
from clearance.runs.progress import clean_tags
from clearance.studies import frontier, sweep_table
from clearance.studies.sweep_grid import Grid

FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "x;=1", "a; =1"]
COMMANDS = ["a\x1b[31m", "a\x1b]0;title\x07", "a\nb", "a\x00b", "a\u202eb", "a\x9b2J"]
HOSTILE = "=cmd|' /C calc'!A0\x1b[31m\r\n"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def named(*names: str) -> cl.CMDP:
    """two_state with its limit once for each name."""
    two, n = cl.zoo.two_state(), len(names)
    g = np.repeat(np.asarray(two.g), n, axis=0)
    return cl.CMDP(two.P, two.r, g, np.repeat(two.b, n), rho=two.rho, gamma=two.gamma, names=list(names))


def table(path: str | Path) -> list[list[str]]:
    text = Path(path).read_bytes().decode()
    assert all(c.isprintable() for c in text.replace("\n", "")), text
    return list(csv.reader(text.splitlines()))


def is_formula(cell: str) -> bool:
    """Whether a spreadsheet might compute it; it may split cells at semicolons."""
    return any(re.match(r"\s*[=+\-@＝＋－＠]", part) for part in cell.split(";"))


# --------------------------------------------------------------------------------------------------- spreadsheets


@pytest.mark.parametrize("text", [*FORMULAS, *COMMANDS], ids=repr)
def test_no_cell_is_a_formula_or_a_command(text: str) -> None:
    write_csv("t.csv", [text, f"J.{text}"], [[text, -1.5]])
    heads, (cell, number) = table("t.csv")
    assert not any(is_formula(x) for x in (*heads, cell)) and number == "-1.5"


@pytest.mark.parametrize("value", [-1.5, 0, np.float64(-1e-300), "-1.5", "+2", "-.5e-3", "1e9"])
def test_numbers_stay_numbers(value: Any) -> None:
    assert plain_cell(value) is value
    write_csv("t.csv", ["x"], [[value]])
    assert float(table("t.csv")[1][0]) == float(value)


@pytest.mark.parametrize("value", ["-1.5+A1", "-cmd", "+-1", "-1.5 ", "-٣", "--1", "-inf|x"])
def test_what_only_begins_like_a_number_is_text(value: str) -> None:
    assert plain_cell(value) == f"'{value}"


def test_the_trace_keeps_one_column_for_each_name(capsys: pytest.CaptureFixture[str]) -> None:
    names = (HOSTILE, HOSTILE.encode("unicode_escape").decode(), "reward")  # alike once they are cleaned
    solved(named(*names), Path("run"), K=10, N=5)
    assert cli("export run --to t.csv", capsys)[0] == 0
    heads, *rows = table("t.csv")
    t = cl.run.load("run").trace
    assert len(heads) == len(set(heads)) == len(t.columns(names)) and not any(map(is_formula, heads))
    J = [i for i, head in enumerate(heads) if head.startswith("J.")]
    assert [[float(row[i]) for i in J] for row in rows] == t.J.tolist()


def test_the_table_of_a_grid_holds_no_formula() -> None:
    """Messages have names in them; a stored table of a stranger is written again."""
    Path("g").mkdir()
    grid = Grid({"kappa": ("-1", "=1+1")}, {"problem": "two-state"})
    rows = [{"point": i, "status": "failed", "kappa": k, "message": HOSTILE} for i, k in enumerate(grid.axes["kappa"])]
    sweep_table.write(Path("g"), grid, dict(enumerate(rows)))
    _, first, second = table("g/table.csv")
    assert first[2] == "-1" and second[2] == "'=1+1" and first[-1].startswith("'=cmd") and len(first) == 11


def test_the_tables_of_studies_hold_no_formula() -> None:
    """Those of `frontier`, `compare` and `reproduce`: nothing but `write_csv` writes a table."""
    frontier.frontier(named(HOSTILE), points=3).save("frontier.csv")
    assert not any(is_formula(row[0]) for row in table("frontier.csv"))
    sources = Path(cl.__file__).parent.rglob("*.py")
    found = {p.name for p in sources if re.search(r"csv\.(writer|DictWriter)", p.read_text())}
    assert found == {"csv_files.py", "table_format.py"}  # models, whose names must read back as they are


# ------------------------------------------------------------------------------------------------------ TensorBoard


def test_two_limits_never_share_a_curve(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboardX")
    named("=a\x1b", "?a/", "../a", "x" * 5000).save("model.npz")
    assert cli("solve model.npz --K 5 --N 2 --tensorboard board", capsys)[0] in (0, 4)
    tags = [tag for tag in events("board") if tag.startswith("lam/")]
    assert len(tags) == 4 and all(re.fullmatch(r"lam/[-\w.]{1,110}", tag) for tag in tags), tags


@pytest.mark.parametrize("names", [["a", "a_2", "a"], ["a", "a", "a_2"], ["=", "?", "_", "_2"], ["é", "ü"]])
def test_cleaned_names_stay_distinct(names: list[str]) -> None:
    assert len(set(clean_tags(names))) == len(set(distinct(names))) == len(names)


# ----------------------------------------------------------------------------------------------- shells, terminals


def shown_command(command: list[str]) -> str:
    """What the report of a run with this stored command shows below "Repeat this run"."""
    path = Path("run/settings.json")
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"command": command}))
    seal(Path("run"))
    page = cl.report("run", price=False).read_text("utf-8")
    return html.unescape(page.partition("Repeat this run</h4>")[2].partition("<details>")[0])


def test_a_stored_command_is_quoted_or_not_shown() -> None:
    solved(cl.zoo.two_state(), Path("run"), K=10, N=5)
    begin = ["clearance", "solve"]
    for evil in ("$(touch x)", "`id`", "; rm -rf ~", "a b", "*", "'; id; '", "&& id"):
        shown = re.search(r"<code>(.*)</code>", shown_command([*begin, evil, "--K", "5"]))
        assert shown is not None and shlex.split(shown[1]) == [*begin, evil, "--K", "5"]
    for evil in ("two-state\nid", "two-state\r", "two\x1b[2Jstate", "two\u202estate"):
        text = shown_command([*begin, evil])
        assert all(c.isprintable() for c in text) and "read it before you run it" in text
    for command in (
        ["rm", "-rf", "/"],
        ["clearance", "; id"],
        ["clearance"],
        ["CLEARANCE", "solve"],
        ["sh", "-c", "id"],
    ):
        assert "<code>" not in shown_command(command), command


@pytest.mark.parametrize(
    "argv",
    ["solve model.npz --K 5 --N 2", "optimum model.npz", "check model.npz", "plan model.npz --epsilon .1",
     "frontier model.npz", "certify model.npz policy.npz",
     "certify model.npz policy.npz --evidence samples --budget 2e4",
     "certify --check run", "report run --no-price", "export run --to t.csv", "optimum hard.npz", "frontier hard.npz"],
)  # fmt: skip
def test_no_command_prints_control_characters(argv: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = named(HOSTILE, "b\x1b]0;x\x07")
    model.save("model.npz")
    model.replace(b=[1.9, 9.0]).save("hard.npz")
    solved(model, Path("run"), K=5, N=2)
    Path("policy.npz").write_bytes(Path("run/policy.npz").read_bytes())
    status, out, err = cli(argv, capsys)
    assert status in (0, 3, 4), err
    assert all(c.isprintable() or c == "\n" for c in out + err)
