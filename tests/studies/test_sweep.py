"""Grids without a cluster: what they are, what is refused, what a table holds, and going on."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import Bomb, bits, cli

import clearance as cl
from clearance.learning import loop
from clearance.runs.field_values import to_text
from clearance.studies.sweep_grid import Grid, axis, from_toml

SMALL = "--method cnpgpd --K 30 --N 5"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def impossible() -> cl.CMDP:
    two = cl.zoo.two_state()
    return two.replace(b=two.b + 100)


# ------------------------------------------------------------------------------------------------ what a grid is


def test_axes() -> None:
    assert axis("seed=0:4") == ("seed", ("0", "1", "2", "3")) and axis("K=5:20:10") == ("K", ("5", "15"))
    assert axis("kappa=0, .01,auto") == ("kappa", ("0", ".01", "auto"))
    assert axis("kappa=.1,.2;.3,.4") == ("kappa", (".1,.2", ".3,.4"))
    assert axis("problem=a.b:make,queue") == ("problem", ("a.b:make", "queue"))


def test_points_are_the_product_and_the_last_axis_varies_fastest() -> None:
    points = Grid.of({"seed": range(2), "kappa": [0, (0.1, 0.2)]}, {"problem": "two-state", "printed": True}).points()
    assert [p.name for p in points] == ["000", "001", "002", "003"]
    assert points[1].values == {"seed": "0", "kappa": "0.1,0.2"}
    assert points[2].settings == {"problem": "two-state", "printed": "true", "seed": "1", "kappa": "0"}
    assert points[2].spec.words()[2:] == ["two-state", "--seed", "1", "--kappa", "0.0", "--printed"]


def test_values_as_the_command_line_takes_them() -> None:
    given = (np.int64(3), np.float64(0.1), True, "auto", (1, 2.5), 1e-9)
    assert [to_text("x", v) for v in given] == ["3", "0.1", "true", "auto", "1,2.5", "1e-09"]
    spec = Grid.of({"eta1": [-1]}, {"problem": "p", "printed": False, "limits": {"heat": 2}}).points()[0].spec
    assert spec.flags() == {"eta1": -1.0, "limits": {"heat": 2.0}} and not spec.printed


def test_a_grid_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    fixed = 'problem = "two-state"\nmethod = "cnpgpd"\nK = 30\nN = 5\n'
    Path("g.toml").write_text(fixed + '[grid]\nseed = "0:2"\nkappa = [0, 0.01]\n')
    same = {"problem": "two-state", "method": "cnpgpd", "K": 30, "N": 5}
    assert from_toml("g.toml") == Grid.of({"seed": range(2), "kappa": "0,0.01"}, same)
    status, out, _ = cli("sweep g.toml --out grid --json", capsys)
    assert status == 0 and json.loads(out)["certified"] == 4


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "argv, said",
    [
        ("--grid seed=0:2 --out g", "PROBLEM is missing: give one, or --resume RUN"),
        ("two-state --grid seed --out g", "--grid must be NAME=VALUES"),
        ("two-state --grid seed=3:3 --out g", "is an empty or too long range"),
        ("two-state --grid seed=1,1 --out g", "grid seed: needs at least one value, each once"),
        ("two-state --grid seed=0:2 --grid seed=4 --out g", "the same axis is given twice"),
        ("two-state --grid seed=0:2 --seed 3 --out g", "grid seed: is given as a setting too"),
        ("two-state --grid colour=red --out g", "grid colour: is no setting of solve"),
        ("two-state --grid out=a,b --out g", "grid out: is no setting of solve"),
        ("two-state --grid K=1.5 --out g", "grid K: must be a whole number"),
        ("two-state --grid nu=1,2 --method crpo --out g", "--nu is not for --method crpo"),
        ("two-state --grid seed=0:9 --grid K=1:99999 --out g", "points, at most 100000 are allowed"),
        ("nonsense --grid seed=0:2 --out g", "PROBLEM 'nonsense' is not a model file"),
        ("two-state --grid seed=0:2", "--out is missing"),
        ("two-state --grid seed=0:2 --out g --tensorboard t", "--tensorboard is for a single run"),
        ("--resume g", "there is no grid to resume"),
        ("g.toml --out g", "g.toml: cannot read"),
        ("two-state --grid seed=0:2 --cluster here --out g", "argument --cluster: must be local, ray"),
    ],
)
def test_bad_grids_are_refused_before_anything_is_made(
    argv: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = cli(f"sweep {argv}", capsys)
    assert (status, out) == (2, "") and said in err and err.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_bad_files_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (("x = [", "is no TOML"), ("K = 3", "a table [grid] with the axes is missing"),
                       ('problem = "two-state"\n[grid]\nseed = 3', "grid seed: must be a list of values")):  # fmt: skip
        Path("g.toml").write_text(text)
        status, _, err = cli("sweep g.toml --out g", capsys)
        assert status == 2 and said in err
    assert not Path("g").exists()


def test_another_grid_in_the_same_folder_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(f"sweep two-state --grid seed=0:2 {SMALL} --out g", capsys)[0] == 0
    assert "choose another, or --resume it" in cli(f"sweep two-state --grid seed=0:2 {SMALL} --out g", capsys)[2]
    assert "holds another grid" in cli(f"sweep two-state --grid seed=0:3 {SMALL} --resume g", capsys)[2]
    assert cli(f"sweep two-state --grid seed=0:2 {SMALL} --resume g", capsys)[0] == 0
    assert "holds another grid (K differs)" in cli("sweep --K 3 --resume g", capsys)[2]
    assert cli("sweep --K 30 --resume g", capsys)[0] == 0
    data = json.loads(Path("g/grid.json").read_text())
    Path("g/grid.json").write_text(json.dumps(data | {"axes": {"seed": [0]}}))
    assert "grid.json: is altered" in cli("sweep --resume g", capsys)[2]


def test_a_model_that_has_changed_is_refused() -> None:
    cl.zoo.two_state().save("m.npz")
    cl.sweep("m.npz", {"seed": [0]}, out="g", method="cnpgpd", K=30, N=5)
    cl.zoo.altman_queue_discounted().save("m.npz")
    with pytest.raises(cl.InputError, match=r"m\.npz: is not the model that the grid in .* was begun with"):
        cl.sweep(out="g")


# ------------------------------------------------------------------------------------------------ what is found


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Every point is the run that solve makes; points that are infeasible or fail leave the others alone."""
    impossible().save("no.npz")
    status, out, _ = cli(f"sweep two-state --grid delta=.01,.02 --grid seed=0:2 {SMALL} --resume g --json", capsys)
    assert status == 0 and len(json.loads(out)["table"]) == 4
    found = cl.sweep(None, {"problem": ["two-state", "no.npz"], "seed": [0, 1]}, out="h", method="cnpgpd", K=30, N=5)
    assert [r["status"] for r in found.rows] == ["done", "done", "infeasible", "infeasible"] and found.finished
    assert "no policy meets the limits" in found.rows[2]["message"]
    one = cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=30, N=5), seed=1, out="one")
    assert found.rows[1]["J_r"] == one.certificate.J_r
    names = ("policy.npz", "certificate.json", "trace/000001.npz", "margin.npz", "method.json")
    assert [bits("h/001")[n] for n in names] == [bits("one")[n] for n in names]
    with open("h/table.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert [r["status"] for r in rows] == ["done", "done", "infeasible", "infeasible"]
    assert float(rows[1]["J_r"]) == one.certificate.J_r and rows[1]["seed"] == "1"


def test_going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is finished, feasible or not, is not computed again; what failed is; what was begun goes on."""
    impossible().save("no.npz")
    asked: dict[str, Any] = {"grid": {"problem": ["no.npz", "two-state"], "seed": [0, 1]}, "out": "g"}
    how: dict[str, Any] = {"method": "cnpgpd", "K": 60, "N": 5, "direction": "least-squares", "checkpoint_every": 5}
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 4, ZeroDivisionError("somebody's defect")))
        first = cl.sweep(**asked, **how, executor=cl.Local(1))
    assert [r["status"] for r in first.rows] == ["infeasible", "infeasible", "failed", "done"] and not first.finished
    assert first.rows[2]["message"] == "ZeroDivisionError: somebody's defect" and 0 < cl.run.load("g/002").k < 60
    before = Path("g/003/manifest.json").stat().st_mtime_ns
    with monkeypatch.context() as m:
        m.setattr(
            "clearance.runs.worlds.finite_margin.exact_margin", Bomb(lambda: None, 1, AssertionError("computed again"))
        )
        second = cl.sweep(out="g")
    assert [r["status"] for r in second.rows] == ["infeasible", "infeasible", "done", "done"] and second.finished
    assert Path("g/003/manifest.json").stat().st_mtime_ns == before
    calm = cl.sweep(**asked | {"out": "calm"}, **how)
    assert bits("g/002") == bits("calm/002") and second.rows[2]["J_r"] == calm.rows[2]["J_r"]


def test_a_model_of_ones_own() -> None:
    found = cl.sweep(cl.zoo.two_state(), {"seed": [5]}, out="g", method="cnpgpd", K=30, N=5)
    assert found.finished and cl.sweep(out="g").rows == found.rows


def test_one_process_at_a_time() -> None:
    from clearance.studies.sweep_folder import opened

    cl.sweep("two-state", {"seed": [5]}, out="g", method="cnpgpd", K=30, N=5)
    with opened(Path("g").absolute(), None), pytest.raises(cl.InputError, match="another process"):
        cl.sweep(out="g")


@pytest.mark.slow
def test_simulators(capsys: pytest.CaptureFixture[str]) -> None:
    argv = "carts:cart --budget 6000 --K 3 --N 250"
    status, out, err = cli(f"sweep {argv} --grid seed=0:2 --out g --json", capsys)
    assert status in (0, 4), err
    assert [row["status"] for row in json.loads(out)["table"]] == ["done", "done"]
    cli(f"solve {argv} --seed 1 --out one", capsys)
    assert Path("g/001/policy.npz").read_bytes() == Path("one/policy.npz").read_bytes()


# ----------------------------------------------------------------------------------------------- code of the user's own

OWN = """
from dataclasses import dataclass

import clearance as cl

open("imported", "w").close()


def make() -> cl.CMDP:
    return cl.zoo.two_state()


@dataclass(frozen=True)
class Own(cl.CNPGPD):
    K: int = 30
    N: int = 5
    slowness: float = 1.0
"""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user's, and the file that importing it leaves behind."""
    Path("own_sweep.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own_sweep", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Path("imported")


@pytest.mark.parametrize(
    ("begun", "again", "missing"),
    [
        ("own_sweep:make --grid seed=0:2 --method cnpgpd", "own_sweep:make", "PROBLEM own_sweep:make is code"),
        ("two-state --grid slowness=1,2 --method own_sweep:Own", "--method own_sweep:Own", "--method own_sweep:Own is"),
        (
            "two-state --grid method=cnpgpd,own_sweep:Own",
            "--grid method=cnpgpd,own_sweep:Own",
            "name it again to resume: --grid method=…",
        ),
    ],
)
def test_code_of_a_stored_grid_must_be_named_again(
    begun: str, again: str, missing: str, own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = cli(f"sweep {begun} --K 30 --N 5 --out g --json", capsys)
    assert status == 0 and json.loads(out)["certified"] == 2 and own.exists(), err
    own.unlink()
    sys.modules.pop("own_sweep")
    status, out, err = cli("sweep --resume g", capsys)
    assert (status, out) == (2, "") and missing in err and err.count("\n") == 1
    with pytest.raises(cl.InputError, match="is code that the grid in"):
        cl.sweep(out="g")
    assert not own.exists() and "own_sweep" not in sys.modules
    status, _, err = cli(f"sweep {again} --resume g --json", capsys)
    assert status == 2 and "own_sweep" in err and not own.exists(), "the current folder is not searched"
    status, out, err = cli(f"sweep {again} --resume g --json --allow-import .", capsys)
    assert status == 0 and json.loads(out)["certified"] == 2, err


@pytest.mark.parametrize(
    "settings",
    [
        {"problem": "gym:own_sweep:Env-v0"},
        {"problem": "own_sweep:make"},
        {"problem": "two-state", "method": "own_sweep:Own"},
        {"problem": "crpo-cartpole", "constraints": "own_sweep:make"},
    ],
)
def test_a_forged_grid_imports_nothing(settings: dict[str, str], own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cl.sweep("two-state", {"seed": [5]}, out="g", method="cnpgpd", K=30, N=5)
    data = json.loads(Path("g/grid.json").read_text())
    Path("g/grid.json").write_text(json.dumps(data | {"fixed": settings}))
    for again in ("", "two-state", "--seed 5"):
        status, out, err = cli(f"sweep {again} --resume g", capsys)
        assert (status, out) == (2, "") and err.count("\n") == 1
    assert not own.exists() and "own_sweep" not in sys.modules


def test_a_resumed_grid_with_a_method_of_ones_own(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unfinished point is resumed, bit-identical, with the class that was named again."""
    asked: dict[str, Any] = {"method": "own_sweep:Own", "K": 60, "slowness": 2.0, "direction": "least-squares"}
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 4, ZeroDivisionError("somebody's defect")))
        first = cl.sweep("two-state", {"seed": [0]}, out="g", checkpoint_every=5, **asked)
    assert first.rows[0]["status"] == "failed" and 0 < cl.run.load("g/000").k < 60
    assert cl.sweep(out="g", method="own_sweep:Own").finished
    assert cl.sweep("two-state", {"seed": [0]}, out="calm", checkpoint_every=5, **asked).finished
    assert bits("g/000") == bits("calm/000")


def test_flags_of_an_environment_are_not_for_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = cli("sweep two-state --grid seed=0:2 --num_envs 3 --out g", capsys)
    assert status == 2 and "--num_envs is for environments; two-state is a model" in err and not Path("g").exists()


def test_problems_as_an_axis_need_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = cli(f"sweep --grid problem=two-state,ding2023 {SMALL} --out g --json", capsys)
    assert status in (0, 4) and len(json.loads(out)["table"]) == 2
