"""Infeasibility as an answer: recognised on both sides of the border, conflicts irreducible, relaxations minimal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import clearance as cl
from clearance.cli.command_line import main
from clearance.exact.enclosure import enclose
from clearance.exact.feasibility import decide_feasibility, farkas_bound
from clearance.exact.infeasibility import select_signals

MARGINS = 10.0 ** np.linspace(-6, 0, 100)


def placed(seed: int, margin: float, I: int | None = None) -> cl.CMDP:
    """A random model whose limits leave this margin, relative to the scale of each J_gi: scales from 1e-2 to 1e2,
    actions that are missing in some states.
    """
    rng = np.random.default_rng(seed)
    S, A, I = int(rng.integers(2, 9)), int(rng.integers(2, 5)), int(rng.integers(1, 5)) if I is None else I
    gamma = float(rng.choice([0.5, 0.9, 0.98]))
    available = (rng.random((S, A)) < 0.8) | (np.arange(A) == rng.integers(A, size=(S, 1)))
    P, g = rng.dirichlet(np.full(S, 0.4), size=(S, A)), rng.uniform(-1, 1, (I, S, A))
    kind = {"rho": rng.dirichlet(np.ones(S)), "gamma": gamma, "available": available}
    unit = cl.CMDP(P, rng.normal(size=(S, A)), g, 0.0, **kind)
    b = cl.slater_margin(unit)[0] - margin / (1 - gamma)
    size = np.concatenate([[1.0], 10.0 ** rng.uniform(-2, 2, I)])
    return unit.replace(h=unit.h * size[:, None, None], b=b * size[1:])


def feasible(cmdp: cl.CMDP) -> bool:
    """Not proven to be infeasible: limits that were relaxed by no more than needed are on the border."""
    return cl.optimum(cmdp).status != "infeasible"


def keeping(cmdp: cl.CMDP, keep: list[int]) -> cl.CMDP:
    return select_signals(cmdp, [0, *(1 + i for i in keep)], cmdp.b[keep])


def lowered(cmdp: cl.CMDP, amount: float, i: int | None = None) -> cl.CMDP:
    return cmdp.replace(b=cmdp.b - amount * (1.0 if i is None else np.arange(cmdp.I) == i))


def assert_right(cmdp: cl.CMDP, found: cl.Infeasibility) -> None:
    """Everything an `Infeasibility` claims, measured again."""
    assert found.slater < 0 and found.bound < 0 and found.lam.min() >= 0 and found.lam.sum() == pytest.approx(1)
    assert farkas_bound(cmdp, found.lam) == found.bound
    _, lower, _ = enclose(cmdp, found.policy[None])
    assert np.all(lower[0, 1:] >= cmdp.b - found.relax_all), "relaxed by so much, a policy is known"
    assert feasible(lowered(cmdp, found.relax_all)) and not feasible(lowered(cmdp, 0.999 * found.relax_all))
    conflict = list(found.conflict)
    assert not feasible(keeping(cmdp, conflict))
    assert all(feasible(keeping(cmdp, [j for j in conflict if j != i])) for i in conflict)
    for i, amount in enumerate(found.relax_each):
        others = keeping(cmdp, [j for j in range(cmdp.I) if j != i])
        assert (amount is not None) == feasible(others)
        if amount is not None:
            assert feasible(lowered(cmdp, amount, i)) and not feasible(lowered(cmdp, 0.999 * amount, i))
    assert found.certificate.verdict == "CERTIFIED"
    assert found.relaxed.b == pytest.approx(cmdp.b - found.relax_all, abs=1e-5 * np.abs(cmdp.h).max())


@pytest.mark.parametrize("seed", range(100))
def test_a_hundred_infeasible_problems(seed: int) -> None:
    cmdp = placed(seed, -MARGINS[seed])
    assert cl.optimum(cmdp).status == decide_feasibility(cmdp).verdict == "infeasible"
    assert_right(cmdp, cl.diagnose(cmdp))


@pytest.mark.parametrize("seed", range(100))
def test_a_hundred_feasible_problems(seed: int) -> None:
    cmdp = placed(seed, MARGINS[seed])
    best = cl.optimum(cmdp)
    assert best.status == "optimal" and decide_feasibility(cmdp).verdict == "feasible"
    assert cl.certify(cmdp, best.policy, best=best).verdict == "CERTIFIED"
    with pytest.raises(cl.InputError, match="the limits can be met"):
        cl.diagnose(cmdp)


# ------------------------------------------------------------------------------------------------------ solved by hand


def one_step(g: list[list[float]], b: list[float], gamma: float = 0.5, names: list[str] | None = None) -> cl.CMDP:
    """One state for ever: J_gi = Σ_a π(a) g_i(a)/(1−γ), so that limits are half-planes of a simplex."""
    A = len(g[0])
    return cl.CMDP(np.ones((1, A, 1)), np.eye(1, A), np.array(g)[:, None], b, gamma=gamma, names=names)


def test_two_states_by_hand() -> None:
    """J_g = 5/3 − 4p/3 ≤ 5/3 < 2: relax by 1/3, and then nothing is earned."""
    cmdp = cl.zoo.two_state().replace(b=[2.0])
    found = cl.diagnose(cmdp)
    assert found.slater == pytest.approx(-1 / 3) and found.lam.tolist() == [1.0] and found.names == ("utility",)
    assert found.relax_all == pytest.approx(1 / 3, abs=1e-12) and found.relax_each == (found.relax_all,)
    assert found.relaxed.J_r == pytest.approx(0, abs=1e-8)


def test_two_of_three_limits_conflict() -> None:
    """J_a + J_b = 2 whatever the policy, and 1.5 is asked of each: half of what is missing from both, or all from one.

    The third limit is met by every policy.
    """
    cmdp = one_step([[1, 0], [0, 1], [1, 1]], [1.5, 1.5, 1.0], names=["a", "b", "c"])
    found = cl.diagnose(cmdp)
    assert found.conflict == (0, 1) and found.names == ("a", "b")
    assert found.lam == pytest.approx([0.5, 0.5, 0]) and found.slater == pytest.approx(-0.5)
    assert found.relax_all == pytest.approx(0.5) and found.relax_each[:2] == pytest.approx([1.0, 1.0])
    assert found.relax_each[2] is None
    assert found.relaxed.J_r == pytest.approx(1.0, abs=1e-7)
    assert_right(cmdp, found)


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (1, 2)])
def test_the_conflict_is_found_wherever_it_stands(pair: tuple[int, int]) -> None:
    b = np.full(3, 0.3)
    b[list(pair)] = 1.2  # J_1 + J_2 + J_3 = 2
    found = cl.diagnose(one_step(np.eye(3).tolist(), b.tolist()))
    assert found.conflict == pair


def test_three_limits_of_which_any_two_can_be_met() -> None:
    """J_1 + J_2 + J_3 = 2 and 0.9 is asked of each."""
    found = cl.diagnose(one_step(np.eye(3).tolist(), [0.9] * 3))
    assert found.conflict == (0, 1, 2) and found.relax_all == pytest.approx(0.7 / 3)
    assert found.relax_each == pytest.approx([0.7] * 3)


def test_a_single_impossible_limit() -> None:
    found = cl.diagnose(one_step([[1, 0], [0, 1]], [0.5, 2.25], names=["easy", "impossible"]))
    assert found.names == ("impossible",)
    assert found.relax_each[0] is None and found.relax_each[1] == pytest.approx(0.75)  # easy leaves J = 1.5 to it


def test_two_impossible_limits_cannot_be_mended_one_at_a_time() -> None:
    found = cl.diagnose(one_step([[1, 0], [0, 1]], [2.5, 3.0]))
    assert len(found.conflict) == 1 and found.relax_each == (None, None)
    assert found.relax_all == pytest.approx(1.75)  # J_1 + J_2 = 2 for limits that sum to 5.5


def test_scales_far_apart() -> None:
    """The same conflict in units of 1e5 and 1e-5: named, and relaxed alone in the units of each."""
    found = cl.diagnose(one_step([[1e5, 0], [0, 1e-5], [1, 1]], [1.5e5, 1.5e-5, 1.0]))
    assert found.conflict == (0, 1)
    assert found.relax_each[:2] == pytest.approx([1e5, 1e-5], rel=1e-6) and found.relax_each[2] is None


@pytest.mark.parametrize("size", [1.0, 1e4, 1e8])
def test_one_relaxation_for_limits_of_all_scales(size: float) -> None:
    """J_1 = 2·size·p ≥ 1.5·size − t and J_2 = 2(1−p) ≥ 1.5 − t: t = size/(1 + size)."""
    found = cl.diagnose(one_step([[size, 0], [0, 1.0]], [1.5 * size, 1.5]))
    assert found.relax_all == pytest.approx(size / (1 + size), rel=1e-5) and -found.bound <= found.relax_all
    assert found.relax_each == pytest.approx([size, 1.0], rel=1e-6)


@pytest.mark.parametrize("gamma", [0.99, 0.999])
def test_discounts_near_one(gamma: float) -> None:
    rng = np.random.default_rng(0)
    P, g = rng.dirichlet(np.full(30, 0.2), size=(30, 3)), rng.uniform(-1, 1, (3, 30, 3))
    free = cl.CMDP(P, rng.normal(size=(30, 3)), g, 0.0, gamma=gamma)
    cmdp = lowered(free, -cl.slater_margin(free)[0] - 1e-4 / (1 - gamma))
    assert_right(cmdp, cl.diagnose(cmdp))


def test_fifty_limits() -> None:
    cmdp = placed(3, -0.01, I=50)
    found = cl.diagnose(cmdp)
    assert 1 <= len(found.conflict) < 10
    assert_right(cmdp, found)


@pytest.mark.parametrize("I", [1, 3])
def test_large_models_by_column_generation(I: int) -> None:
    free = cl.zoo.garnet(600, 5, 5, I=I, gamma=0.95, seed=I)
    cmdp = lowered(free.replace(b=np.zeros(I)), -cl.slater_margin(free.replace(b=np.zeros(I)))[0] - 0.5)
    assert_right(cmdp, cl.diagnose(cmdp))


def test_no_constraints_no_diagnosis() -> None:
    two = cl.zoo.two_state()
    with pytest.raises(cl.InputError, match="nothing to diagnose"):
        cl.diagnose(cl.CMDP(two.P, two.r, gamma=0.5))


def test_the_error_carries_its_diagnosis() -> None:
    with pytest.raises(cl.InfeasibleError) as e:
        cl.solve(cl.zoo.two_state().replace(b=[2.0]))
    assert e.value.diagnosis is not None and e.value.diagnosis.names == ("utility",)
    assert cl.InfeasibleError("by somebody else", -1.0).diagnosis is None


# -------------------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize("command", ["optimum", "check", "solve", "plan --epsilon 1"])
def test_command_line(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "m.npz")
    one_step([[1, 0], [0, 1], [1, 1]], [1.5, 1.5, 1.0], names=["a", "b", "c"]).save(path)
    assert main([*command.split(), path, "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["conflict"] == ["a", "b"] and said["relax_all"] == pytest.approx(0.5)
    assert said["relax_each"][:2] == pytest.approx([1.0, 1.0]) and said["relax_each"][2] is None
    assert ("relaxed_J_r" in said) == (command == "optimum")
    assert main([*command.split(), path]) == 3
    shown = capsys.readouterr().out
    assert "INFEASIBLE" in shown and re.search(r"conflict +a, b\b", shown) and "cannot help" in shown


def test_the_amount_that_is_printed_is_enough(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, cmdp = str(tmp_path / "m.npz"), cl.zoo.two_state().replace(b=[2.0])
    cmdp.save(path)
    assert main(["check", path, "--json"]) == 3
    amount = float(json.loads(capsys.readouterr().out)["message"].split("relax the limit by ")[1].split()[0])
    assert 1 / 3 < amount < 1 / 3 + 1e-5 and feasible(lowered(cmdp, amount))


def test_each_limit_is_relaxed_in_its_own_unit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Two limits, each impossible alone: energy at least 60, leaks at least 0.2. A common amount would be 50."""
    both = one_step([[-30, -40], [-0.1, -0.05]], [-10.0, -0.01], names=["energy [kWh]", "leaks"])
    both = cl.CMDP(both.P, both.r, cost=-both.g, limit=-both.b, gamma=both.gamma, names=both.names)
    found = cl.diagnose(both)
    assert found.relax_each == (None, None) and found.helps_alone == ()
    assert found.relax_together == pytest.approx([50.0, 0.19], abs=1e-4)
    assert feasible(both.replace(b=both.b - np.array(found.relax_together)))
    energy, leaks = (float(x) for x in re.findall(r"≤ ([\d.]+)", found.advice))
    assert 60 <= energy < 60.001 and 0.2 <= leaks < 0.2001 and "together: energy ≤ 60" in found.advice
    assert feasible(both.replace(limit=[energy, leaks]))
    both.save(tmp_path / "m.npz")
    for command in ("check", "optimum", "solve"):
        assert main([command, str(tmp_path / "m.npz")]) == 3
        shown = capsys.readouterr().out
        assert found.advice in " ".join(shown.split()) and "met together" in shown
    with pytest.raises(cl.InfeasibleError, match=r"cl\.diagnose says which ones to relax"):
        cl.solve(both)


def test_one_limit_is_relaxed_where_that_is_enough() -> None:
    model = one_step([[1, 0], [0, 1], [1, 1]], [1.5, 1.5, 1.0], names=["a", "b", "c"])
    said = repr(cl.diagnose(model)).split("; relax ")
    assert said[0] == "<Infeasibility: cannot be met together: a ≥ 1.5; b ≥ 1.5"
    assert re.fullmatch(r"one of these limits: a ≥ 0\.(5|499999); or b ≥ 0\.(5|499999)>", said[1])
