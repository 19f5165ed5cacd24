"""The price of safety: concave, with slope −λ, between the right ends, for people and for programs."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from models import random_cmdp, with_limits

import clearance as cl
from clearance.cli import frontier_command, study_tables
from clearance.cli.command_line import main
from clearance.studies import frontier as price

Case = tuple[cl.CMDP, int | None]


def cases() -> dict[str, Case]:
    """Over one limit of one or several, and over κ."""
    three = with_limits(random_cmdp(5, I=3), 0.3)
    names = ("inventory", "bai2023", "lazar-discounted", "altman-queue-discounted", "sutton-barto")
    known = {f"{n} {i}": (cl.zoo.MODELS[n](), i) for n in names for i in (0, None)}
    return known | {f"three {i}": (three, i) for i in (0, 1, 2, None)}


CASES = cases()
each_case = pytest.mark.parametrize("name", CASES)


def curve_of(case: Case, points: int = 15) -> cl.Frontier:
    cmdp, i = case
    return cl.frontier(cmdp, i, over="kappa" if i is None else "b", points=points)


def at(case: Case, x: float) -> cl.CMDP:
    cmdp, i = case
    return cmdp.tightened(x) if i is None else cmdp.replace(b=np.where(np.arange(cmdp.I) == i, x, cmdp.b))


@each_case
def test_concave_falling_and_proven(name: str) -> None:
    curve = curve_of(CASES[name])
    assert len(curve.b) == 15 and np.all(np.diff(curve.b) > 0) and curve.certified.all()
    slopes = np.diff(curve.J_r) / np.diff(curve.b)
    rounding = 1e-8 * np.abs(slopes).max()
    assert np.all(slopes <= rounding) and np.all(np.diff(slopes) <= rounding)
    assert np.all(np.diff(curve.lam) >= -rounding), "a later unit costs no less"
    # λ at a point lies between the slopes before and after it.
    assert np.all(curve.lam[1:] >= -slopes - rounding) and np.all(curve.lam[:-1] <= -slopes + rounding)
    assert np.all(curve.bound >= curve.J_r - 1e-10 * np.abs(curve.J_r).max())
    assert curve.bound == pytest.approx(curve.J_r, rel=1e-6, abs=1e-6)
    assert np.array_equal(curve.paid, curve.J_r[0] - curve.J_r)


@each_case
def test_the_slope_is_minus_lambda(name: str) -> None:
    """Finite differences of the optimum itself, between the points of the curve, where it is straight."""
    case = CASES[name]
    curve = curve_of(case, points=31)
    straight = 0
    for x, y in zip(curve.b[:-1], curve.b[1:], strict=True):
        middle, h = (x + y) / 2, (y - x) / 8
        left, here, right = (cl.optimum(at(case, z)) for z in (middle - h, middle, middle + h))
        left_slope, right_slope = (here.J_r - left.J_r) / h, (right.J_r - here.J_r) / h
        lam = here.lam.sum() if case[1] is None else here.lam[case[1]]
        rounding = 1e-6 * curve.lam.max() + 1e-8 / h
        if abs(left_slope - right_slope) <= rounding:
            straight += 1
            assert (right.J_r - left.J_r) / (2 * h) == pytest.approx(-lam, abs=2 * rounding)
    assert straight >= 15


@each_case
def test_both_ends(name: str) -> None:
    case = CASES[name]
    cmdp, i = case
    curve = curve_of(case, points=5)
    assert cl.optimum(at(case, curve.b[-1])).status == "optimal"
    beyond = curve.b[-1] + 1e-5 * np.abs(cmdp.g).max() / (1 - cmdp.gamma)
    assert cl.optimum(at(case, beyond)).status == "infeasible"
    if i is None:
        assert curve.b[0] == 0 and curve.b[-1] == pytest.approx(cl.slater_margin(cmdp)[0], abs=1e-5)
        return
    free = cl.optimum(at(case, -1e3 * np.abs(cmdp.g).max()))
    scale = np.ptp(curve.J_r)
    assert curve.J_r[0] == pytest.approx(free.J_r, abs=1e-6 * scale), "the first limit costs nothing"
    later = curve.b[0] + 1e-2 * np.ptp(curve.b)
    assert cl.optimum(at(case, later)).J_r < free.J_r - 1e-6 * scale, "and any later one does"


def test_two_states_by_hand() -> None:
    """J_r = 4p/3 and J_g = 5/3 − 4p/3: J_r = 5/3 − b from b = 1/3, where p = 1, to 5/3, where p = 0."""
    two = cl.zoo.two_state()
    curve = cl.frontier(two, "utility")
    assert (curve.over, curve.constraint, curve.name) == ("b", 0, "utility")
    assert curve.b[[0, -1]] == pytest.approx([1 / 3, 5 / 3], abs=1e-7)
    assert curve.J_r == pytest.approx(5 / 3 - curve.b, abs=1e-7) and curve.lam == pytest.approx(np.ones(21))
    assert curve.own[:3] == pytest.approx((1.0, 2 / 3, 1.0))
    tight = cl.frontier(two, over="kappa", points=3)
    assert tight.b == pytest.approx([0, 1 / 3, 2 / 3], abs=1e-7)
    assert tight.J_r == pytest.approx([2 / 3, 1 / 3, 0], abs=1e-7)


def test_among_equally_good_policies_the_safest_begins_the_curve() -> None:
    """Two actions earn 1, one of them with utility 1; a third earns 0 with utility 2."""
    cmdp = cl.CMDP(np.ones((1, 3, 1)), [[1.0, 1.0, 0.0]], [[[0.0, 1.0, 2.0]]], 0.0, gamma=0.5)
    curve = cl.frontier(cmdp, points=3)
    assert curve.b == pytest.approx([2.0, 3.0, 4.0], abs=1e-6) and curve.J_r == pytest.approx([2, 1, 0], abs=1e-6)
    assert curve.own.b == 0 and curve.own.J_r == pytest.approx(2) and curve.own.lam == 0


def test_kinks_are_found() -> None:
    """Utility 0, 1, 1.5 for reward 4, 3, 0: kinks at b = 2, with slopes −1 and −6."""
    cmdp = cl.CMDP(np.ones((1, 3, 1)), [[4.0, 3.0, 0.0]], [[[0.0, 1.0, 1.5]]], 0.0, gamma=0.5)
    curve = cl.frontier(cmdp, points=6)
    assert np.abs(curve.b - 2.0).min() < 1e-6
    assert np.interp(2.0, curve.b, curve.J_r) == pytest.approx(6.0, abs=1e-5)
    assert curve.lam[[0, -1]] == pytest.approx([1, 6])


def test_where_safety_is_free_the_curve_is_one_point() -> None:
    cmdp = cl.CMDP(np.ones((1, 2, 1)), [[1.0, 0.0]], [[[1.0, 0.0]]], 0.5, gamma=0.5)
    curve = cl.frontier(cmdp)
    assert len(curve.b) == 1 and curve.b[0] == pytest.approx(2.0, abs=1e-6) and curve.paid.tolist() == [0.0]


def test_large_models_by_column_generation() -> None:
    cmdp = cl.zoo.garnet(500, 5, 5, I=2, gamma=0.9, seed=2)
    curve = cl.frontier(cmdp, 1, points=6)
    slopes = np.diff(curve.J_r) / np.diff(curve.b)
    assert curve.certified.all() and np.all(np.diff(slopes) <= 1e-5) and np.all(curve.lam[1:] >= -slopes - 1e-4)


def test_learned_points_are_certified_and_never_above_the_curve() -> None:
    curve = cl.frontier(cl.zoo.bai2023(), points=9, learned=3, seed=1)
    assert [p.b for p in curve.learned] == pytest.approx(np.quantile(curve.b[[0, -1]], [1 / 6, 1 / 2, 5 / 6]))
    for p in curve.learned:
        best = cl.optimum(at((cl.zoo.bai2023(), 0), p.b))
        assert p.verdict in ("CERTIFIED", "VIOLATED") and (p.verdict == "CERTIFIED") == (p.J_g[0] >= p.b)
        assert p.J_r <= best.bound or p.verdict != "CERTIFIED"
    again = cl.frontier(cl.zoo.bai2023(), points=2, learned=3, seed=1)
    assert again.learned == curve.learned, "the same seed, the same policies"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"points": 1}, "points must be a whole number in 2"),
        ({"points": 2.5}, "points must be a whole number"),
        ({"learned": -1}, "learned must be a whole number in 0"),
        ({"over": "gamma"}, "over must be one of b, kappa"),
        ({"constraint": "cost"}, "constraint 'cost' is none of utility"),
        ({"constraint": -1}, "constraint -1 is none of utility, nor an index in 0..0"),
        ({"constraint": 0, "over": "kappa"}, "constraint goes with over b"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(cl.InputError, match=says):
        cl.frontier(cl.zoo.two_state(), **arguments)  # pyright: ignore[reportArgumentType]


def test_a_name_goes_before_an_index() -> None:
    two = cl.zoo.two_state()
    cmdp = cl.CMDP(two.P, two.r, [two.g[0], two.g[0]], [0.5, 1.0], rho=two.rho, gamma=0.5, names=["1", "x"])
    assert [price.check_arguments(cmdp, c) for c in ("1", "x", "0", 0, 1, None)] == [0, 1, 0, 0, 1, 0]


def test_infeasible() -> None:
    with pytest.raises(cl.InfeasibleError, match="no policy meets the limits") as e:
        cl.frontier(cl.zoo.two_state().replace(b=[2.0]))
    assert e.value.diagnosis is not None and e.value.diagnosis.relax_all == pytest.approx(1 / 3)


# -------------------------------------------------------------------------------------------------------- command line


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", "altman-queue-discounted", "--constraint", "flow", "--points", "4", "--json"]) == 0
    said = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    expected = cl.frontier(cl.zoo.altman_queue_discounted(), "flow", points=4)
    assert (said["status"], said["over"], said["constraint"], said["out"]) == ("done", "b", "flow", None)
    for key in ("limit", "J_r", "lam", "bound", "paid"):
        assert said[key] == getattr(expected, key).tolist()
    assert said["certified"] == [True] * 4 and said["learned"] == [] and said["own"]["limit"] == 0


def test_people_see_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", "two-state", "--points", "3", "--learned", "1"]) == 0
    said = capsys.readouterr()
    for part in (
        "best reward against the lower limit of utility",
        "price λ",
        "0.333333",
        "1.33333",
        "learned at",
        "utility",
    ):
        assert part in said.out
    assert "limit by one unit costs at least 1 reward; lowering it gains at most 1." in said.out and said.err == ""
    assert main(["frontier", "two-state", "--points", "3", "--over", "kappa"]) == 0
    said = capsys.readouterr().out
    assert "best reward against kappa" in said and "The problem as it is: kappa = 0, reward 0.666667." in said


@pytest.mark.parametrize(("name", "begins"), [("o.png", b"\x89PNG"), ("o.svg", b"<?xml"), ("o.csv", b"row,limit,J_r")])
@pytest.mark.parametrize("flags", ["--learned 2 --points 5", "--over kappa --points 2"])
def test_files(
    name: str, begins: bytes, flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(f"frontier two-state {flags} --out {name} --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["out"] == name
    assert Path(name).read_bytes().startswith(begins) and [p.name for p in Path().iterdir()] == [name]


def test_the_table_on_disk(tmp_path: Path) -> None:
    curve = cl.frontier(cl.zoo.two_state(), points=3, learned=1)
    curve.save(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="") as f:
        rows = list(csv.DictReader(f))
    assert [r["row"] for r in rows] == ["optimum"] * 3 + ["own", "learned"]
    assert [float(r["J_r"]) for r in rows[:3]] == curve.J_r.tolist()
    assert rows[0]["verdict"] == "CERTIFIED" and rows[4]["verdict"] == curve.learned[0].verdict


@pytest.mark.parametrize("name", ["$x", "$x$", "a\nb", "\\alpha", "“q”", "{", "_^"])
def test_names_in_figures_are_text(name: str, tmp_path: Path) -> None:
    from clearance.reporting import plots

    two = cl.zoo.two_state()
    cmdp = cl.CMDP(two.P, two.r, two.g, 1.0, rho=two.rho, gamma=0.5, names=[name])
    plots.frontier(cl.frontier(cmdp, points=2), tmp_path / "o.png", title=name)
    assert (tmp_path / "o.png").stat().st_size > 5000


def test_infeasible_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cl.zoo.two_state().replace(b=[2.0]).save("m.npz")
    assert main(["frontier", "m.npz", "--out", "o.png", "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "INFEASIBLE" and said["conflict"] == ["utility"]
    assert not Path("o.png").exists()


def test_a_missing_extra_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr(price, "frontier", pytest.fail)
    assert main(["frontier", "two-state", "--out", "o.png"]) == 2
    assert "pip install '.[report]'" in capsys.readouterr().err and not list(Path().iterdir())


def test_the_command_line_knows_the_most_points() -> None:
    assert frontier_command.MOST == price.MOST
    assert callable(study_tables.frontier) and callable(cl.frontier), "no module of this name hides the function"
