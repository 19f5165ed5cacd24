"""Optima and certificates under every criterion, against programs and formulas of the tests' own."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.exact.feasibility import decide_feasibility
from clearance.exact.infeasibility import diagnose
from clearance.exact.never import never_words
from clearance.exact.policy_bounds import bound_policy
from clearance.exact.rational import at_start, exact_values
from clearance.finite.evaluation import evaluate
from tests.support.criterion_truths import average_optimum, horizon_optimum, random_model, total_optimum

KINDS: dict[str, dict[str, Any]] = {
    "average": {"criterion": "average"},
    "total": {"criterion": "total", "ends": True},
    "horizon": {"horizon": 4},
    "discounted horizon": {"horizon": 5, "gamma": 0.9},
}


def truth_of(cmdp: cl.CMDP) -> float | None:
    if cmdp.kind == "total":
        return total_optimum(cmdp, np.arange(cmdp.S) == cmdp.S - 1)
    return (average_optimum if cmdp.kind == "average" else horizon_optimum)(cmdp)


def with_binding_limit(cmdp: cl.CMDP) -> cl.CMDP | None:
    """The same with a limit in the middle of what can be had; None where the best policy has the most of it anyway."""
    free = float(cl.optimum(cmdp).J[1])
    most = cl.optimum(cmdp.replace(h=cmdp.h[::-1])).J_r
    return None if most - free < 1e-6 else cmdp.replace(b=[(free + most) / 2])


@pytest.mark.parametrize("kind", KINDS)
def test_optimum_is_that_of_a_linear_program(kind: str) -> None:
    compared = 0
    for seed in range(16):
        cmdp = with_binding_limit(random_model(seed, **KINDS[kind]))
        if cmdp is None:
            continue
        best, truth = cl.optimum(cmdp), truth_of(cmdp)
        assert truth is not None and best.status == "optimal", seed
        assert best.J_r == pytest.approx(truth, rel=1e-7, abs=1e-7) and best.bound >= truth - 1e-9, seed
        found = cl.certify(cmdp, best, best=best)
        assert found.verdict == "CERTIFIED" and found.gap is not None and found.gap < 1e-6, seed
        compared += 1
    assert compared >= 6


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_contain_the_rational_values(kind: str) -> None:
    for seed in range(20):
        cmdp = random_model(seed, **KINDS[kind])
        rng = np.random.default_rng(seed)
        pi = rng.dirichlet(np.ones(cmdp.A), size=cmdp.S)
        pi = np.where(rng.random(pi.shape) < 0.4, 0.0, pi) + 1e-6 * np.eye(cmdp.A)[0]
        check_against_rationals(cmdp, pi / pi.sum(-1, keepdims=True))


def check_against_rationals(cmdp: cl.CMDP, pi: Any, *, close: bool = True) -> None:
    mixture = cl.Mixture.single(pi)
    seen = bound_policy(cmdp, mixture)
    exact = exact_values(cmdp, mixture.tables(cmdp)[0])
    assert exact is not None
    for k, values in enumerate(at_start(cmdp, exact)):
        J = sum(Fraction(float(p)) * v for p, v in zip(cmdp.rho, values, strict=True))
        assert Fraction(float(seen.lower[k])) <= J <= Fraction(float(seen.upper[k]))
        assert not close or seen.upper[k] - seen.lower[k] <= 1e-9 * (1 + abs(float(J)))


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_that_rounding_swallows_lead_to_no_false_bound(kind: str) -> None:
    for seed, tiny in ((0, 1e-300), (1, 1e-18), (2, 1e-15), (3, 1e-12)):
        cmdp = random_model(seed, **KINDS[kind])
        pi = np.tile([1 - tiny, tiny, *[0.0] * (cmdp.A - 2)], (cmdp.S, 1))
        check_against_rationals(cmdp, pi, close=False)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_certificates_against_rational_arithmetic_on_250_models(kind: str) -> None:
    """With the four kinds 1,000 models; no bound is wrong, neither of a policy nor of the optimum."""
    for seed in range(1000, 1250):
        cmdp = with_binding_limit(random_model(seed, **KINDS[kind])) or random_model(seed, **KINDS[kind])
        best = cl.optimum(cmdp)
        for pi in cl.Mixture.of(best.policy).pi:
            check_against_rationals(cmdp, pi)
        truth = truth_of(cmdp)
        assert truth is None or best.bound >= truth - 1e-9 * (1 + abs(truth)), seed


def test_average_by_hand_with_several_classes() -> None:
    """Stay (reward 1, cost 1 per step) or leave for ever (0 and 0): half of each is a choice made once."""
    P = np.zeros((2, 2, 2))
    P[0, 0, 0] = P[0, 1, 1] = P[1, :, 1] = 1
    stay = np.array([[1.0, 0.0], [0.0, 0.0]])
    cmdp = cl.CMDP(P, stay, cost=stay, limit=0.5, rho=[1, 0], criterion="average")
    best = cl.optimum(cmdp)
    assert best.status == "optimal" and best.J_r == pytest.approx(0.5, abs=1e-8) and best.lam == pytest.approx([1])
    assert isinstance(best.policy, cl.Mixture) and best.policy.M == 2 and "choice made once" in best.note
    assert cl.certify(cmdp, best).verdict == "CERTIFIED"
    for leave in (0.0, 1e-9, 0.5):  # a stationary policy stays for ever or surely leaves
        J = evaluate(cmdp, [[1 - leave, leave], [1.0, 0.0]]).J
        assert J[0] == (1.0 if leave == 0 else 0.0)


def test_total_by_hand() -> None:
    """A walk on 0..4 with absorption at both ends, up with probability p: the formulas of the gambler's ruin."""
    P, p = np.zeros((5, 1, 5)), 0.6
    P[0, 0, 0] = P[4, 0, 4] = 1
    for s in (1, 2, 3):
        P[s, 0, s + 1], P[s, 0, s - 1] = p, 1 - p
    r, steps = P[:, :, 4] * (np.arange(5) < 4)[:, None], np.array([[0.0], [1], [1], [1], [0]])
    cmdp = cl.CMDP(P, r, cost=steps, limit=10, rho=np.eye(5)[2], criterion="total")
    q = (1 - p) / p
    up = (1 - q**2) / (1 - q**4)
    length = (2 - 4 * up) / (1 - 2 * p)
    best = cl.optimum(cmdp)
    assert best.J_r == pytest.approx(up, rel=1e-12) and -best.J[1] == pytest.approx(length, rel=1e-12)
    assert "undiscounted sum of each cost or utility until absorption" in cl.certify(cmdp, best).scope


@pytest.mark.parametrize("kind", KINDS)
def test_infeasible_limits_are_diagnosed(kind: str) -> None:
    cmdp = random_model(3, **KINDS[kind])
    most = cl.optimum(cmdp.replace(h=cmdp.h[::-1])).J_r
    tight = cmdp.replace(b=[most + 0.25])
    assert cl.optimum(tight).status == "infeasible"
    found = diagnose(tight)
    assert found.relax_all == pytest.approx(0.25, abs=1e-7) and found.certificate.verdict == "CERTIFIED"


@pytest.mark.parametrize("kind", KINDS)
def test_frontier_under_every_criterion(kind: str) -> None:
    cmdp = next(x for x in map(with_binding_limit, (random_model(s, **KINDS[kind]) for s in range(9))) if x is not None)
    curve = cl.frontier(cmdp, points=5)
    assert curve.certified.all() and np.all(np.diff(curve.J_r) <= 1e-9)


def test_what_cannot_end_or_gains_for_ever_is_an_error() -> None:
    P, one = np.ones((1, 1, 1)), np.ones((1, 1))
    with pytest.raises(cl.InputError, match="no policy ends surely from state 0"):
        cl.optimum(cl.CMDP(P, -one, criterion="total"))
    P = np.zeros((3, 2, 3))
    P[0, 0, 1] = P[1, 0, 0] = P[0, 1, 2] = P[1, 1, 2] = P[2, :, 2] = 1
    r = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])  # to and fro between 0 and 1: no sum
    with pytest.raises(cl.InputError, match="stay for ever in states 0, 1"):
        cl.optimum(cl.CMDP(P, r, rho=[1, 0, 0], criterion="total"))


def test_gains_that_no_run_reaches_do_not_matter() -> None:
    """States 0 and 1 could add up utility for ever, but runs start and stay in state 2. Before: a singular system."""
    P = np.zeros((4, 3, 4))
    P[0] = [[0.25, 0, 0.75, 0], [0.25, 0.5, 0, 0.25], [0, 1, 0, 0]]
    P[1] = [[0.5, 0, 0.25, 0.25], [1, 0, 0, 0], [0, 0, 1, 0]]
    P[2, :, 2] = P[3, :, 3] = 1.0
    r, g = np.zeros((4, 3)), np.zeros((1, 4, 3))
    r[:2], g[0, :2] = [[-1, 0, 0], [0, -2, 0]], [[1, 1, 0], [0, 1, 1]]
    for b in (0.0, -1.0):
        cmdp = cl.CMDP(P, r, g, b, rho=[0, 0, 1.0, 0], criterion="total")
        best = cl.optimum(cmdp)
        assert best.J_r == 0 and cl.certify(cmdp, best.policy).verdict == "CERTIFIED"
    with pytest.raises(cl.InputError, match="can stay for ever in states 0, 1"):
        cl.optimum(cl.CMDP(P, r, g, 0.0, rho=[1.0, 0, 0, 0], criterion="total"))


def test_sums_without_a_value_where_no_run_starts_do_not_matter() -> None:
    """The policy circles between states 0 and 1, with both signs, but runs start in state 2 and end at once."""
    P = np.zeros((4, 1, 4))
    P[0, 0, 1] = P[1, 0, 0] = P[2, 0, 3] = P[3, 0, 3] = 1.0
    r = [[1.0], [-1.0], [2.0], [0.0]]
    cmdp = cl.CMDP(P, r, rho=[0, 0, 1.0, 0], criterion="total")
    assert cl.evaluate(cmdp, np.ones((4, 1))).J[0] == 2.0
    assert cl.certify(cmdp, np.ones((4, 1))).J_r == pytest.approx(2.0)
    with pytest.raises(cl.InputError, match="has both signs"):
        cl.evaluate(cmdp.replace(rho=[1.0, 0, 0, 0]), np.ones((4, 1)))


def test_limits_on_the_border_do_not_stall_the_solver() -> None:
    """One policy alone attains the limit 2 of the second utility; lowered by 1e-9, the program stalled."""
    P = np.zeros((3, 3, 3))
    P[0] = [[0.5, 0.25, 0.25], [0, 0.5, 0.5], [0, 1, 0]]
    P[1, 1], P[2] = [0.75, 0.25, 0], [[0, 0, 1], [0, 0, 1], [0.5, 0.25, 0.25]]
    r = [[0.0, 0, -2], [0, 1, 0], [0, 0, 1]]
    g = [[[0.0, -2, 2], [0, 0, 0], [1, -2, 1]], [[1, 0, 0], [0, 2, 0], [0, 2, 2]]]
    available = [[True] * 3, [False, True, False], [True] * 3]
    cmdp = cl.CMDP(P, r, g, [-2.0, 2.0], rho=[0, 1.0, 0], available=available, criterion="average")
    best = cl.optimum(cmdp)
    assert best.status in ("optimal", "borderline") and best.J_r == pytest.approx(0.0, abs=1e-6)
    assert cl.certify(cmdp, best.policy).verdict != "VIOLATED"


def test_statements_name_the_right_criterion() -> None:
    P, one = np.ones((1, 1, 1)), np.ones((1, 1))
    statements: list[dict[str, Any]] = [{"gamma": 1}, {}]
    for wrong in statements:
        with pytest.raises(cl.InputError, match=r"criterion='average'.*criterion='total'.*horizon=H"):
            cl.CMDP(P, one, **wrong)
    with pytest.raises(cl.InputError, match="leave out gamma"):
        cl.CMDP(P, one, gamma=0.9, criterion="average")
    with pytest.raises(cl.InputError, match="act greedily ever longer"):
        cl.CMDP(P, one, cost=one, limit=1, gamma=0.9, criterion={"g0": "average"})


@pytest.mark.parametrize(
    "how", [{"criterion": "average"}, {"criterion": "total"}, {"horizon": 7}, {"horizon": 7, "gamma": 0.9}]
)
def test_criteria_are_kept_in_files(how: dict[str, Any], tmp_path: Path) -> None:
    P = np.zeros((2, 1, 2))
    P[:, 0, 1] = 1
    cmdp = cl.CMDP(P, [[1.0], [0.0]], rho=[1, 0], **how)
    cmdp.save(tmp_path / "model.npz")
    again = cl.CMDP.load(tmp_path / "model.npz")
    assert again.full_criterion == cmdp.full_criterion
    best = cl.optimum(again)
    best.mixture.save(tmp_path / "policy.npz")
    assert np.array_equal(cl.Mixture.load(tmp_path / "policy.npz", again).pi, best.mixture.pi)


# ---------------------------------------------------------------------------------------------------------- never

EVERY = [{"gamma": 0.9}, {"criterion": "total"}, {"horizon": 30}, {"criterion": "average"}]


@pytest.mark.parametrize("how", EVERY)
def test_never_is_proven_by_support(how: dict[str, Any]) -> None:
    """A road 0 → 1 → 2 (goal) past a cliff (3): the short way falls with a probability that no float sees beside 1."""
    P = np.zeros((4, 2, 4))
    P[0, 0, 1], P[0, 0, 3] = 1 - 1e-18, 1e-18  # the short way
    P[0, 1, 0], P[0, 1, 1] = 0.5, 0.5  # the long way
    P[1, :, 2] = P[2, :, 2] = P[3, :, 3] = 1
    fall = P[:, :, 3] * (np.arange(4) < 3)[:, None]
    goal = P[:, :, 2] * (np.arange(4) < 2)[:, None] - np.array([[0.1], [0.0], [0.0], [0.0]])
    cmdp = cl.CMDP(P, goal, cost=fall, limit=0.0, rho=[1, 0, 0, 0], names=["fall"], **how)
    best = cl.optimum(cmdp)
    sure = cl.certify(cmdp, best, best=best)
    assert best.status == "optimal" and sure.verdict == "CERTIFIED" and sure.J_upper[1] == 0.0
    short = cl.certify(cmdp, np.eye(2)[[0, 0, 0, 0]])
    assert short.verdict == ("CERTIFIED" if how == {"criterion": "average"} else "VIOLATED")
    if how != {"criterion": "average"}:  # a mean of 0 allows a fall on the way
        assert "no run can have fall" in sure.message
        assert np.all(np.asarray(cl.Mixture.of(best.policy).pi)[..., 0, 0] == 0)


@pytest.mark.parametrize("how", EVERY[:3])
def test_where_never_is_impossible_the_states_are_named(how: dict[str, Any]) -> None:
    P = np.zeros((3, 2, 3))
    P[0, 0, 1] = P[0, 1, 1] = P[2, :, 2] = 1
    P[1, 0, 2], P[1, 1, 0], P[1, 1, 2] = 1, 1 - 1e-17, 1e-17
    cost = P[:, :, 2] * (np.arange(3) < 2)[:, None]
    cmdp = cl.CMDP(P, np.zeros((3, 2)), cost=cost, limit=0.0, rho=[1, 0, 0], names=["end"], **how)
    assert cl.optimum(cmdp).status == "infeasible"
    assert never_words(cmdp) == "end cannot be avoided from states 0, 1"
    assert decide_feasibility(cmdp).verdict == "infeasible"


def test_never_within_a_horizon_may_end_in_what_comes_later() -> None:
    """A fuse of three steps: within two nothing happens, within four it cannot be helped."""
    P = np.zeros((4, 1, 4))
    for s in range(4):
        P[s, 0, min(s + 1, 3)] = 1
    cost = np.array([[0.0], [0.0], [1.0], [0.0]])
    for H, status in ((2, "optimal"), (3, "infeasible")):
        assert cl.optimum(cl.CMDP(P, 0 * cost, cost=cost, limit=0.0, rho=[1, 0, 0, 0], horizon=H)).status == status
