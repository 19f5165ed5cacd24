"""`optimum` is never contradicted by `certify`, and no gap is negative: also on limits that leave no room."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import optimum_honesty as honesty
import pytest
from models import random_cmdp, with_limits

import clearance as cl
from clearance.exact import rational
from clearance.exact.enclosure import enclose
from clearance.exact.policy_bounds import bound_policy

LIES = {"contradictions", "negative gaps", "false infeasible", "no diagnosis", "lost"}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [*honesty.USUAL, *honesty.DEGENERATE], ids=lambda kind: kind.__name__)
def test_no_claim_contradicts_another(kind, seed: int) -> None:
    assert not LIES & set(honesty.examine(kind(np.random.default_rng([99, seed]))))


@pytest.mark.parametrize("seed", range(10))
def test_a_chain_in_whole_numbers_meets_its_limit_exactly(seed: int) -> None:
    """Deterministic moves, g in whole numbers, γ = 1/2 and start at one state: J_g is a dyadic number where the chain
    stops in a state that pays nothing, and the limit is put on the largest one.
    """
    rng = np.random.default_rng(seed)
    S, A = 5, 3
    P = np.zeros((S, A, S))
    for s in range(S - 1):
        P[s, np.arange(A), rng.integers(s + 1, S, A)] = 1.0
    P[-1, :, -1] = 1.0
    g = rng.integers(-3, 4, (1, S, A)).astype(float)
    g[:, -1] = 0.0
    free = cl.CMDP(P, rng.normal(size=(S, A)), g, 0.0, rho=np.eye(S)[0], gamma=0.5)
    most = cl.evaluate(free, honesty.greedy(free, 0)).J[1]
    best = cl.optimum(free.replace(b=[most]))
    certificate = cl.certify(free.replace(b=[most]), best.policy, best=best)
    assert best.status == "optimal" and certificate.verdict == "CERTIFIED" and certificate.J_g_lower == [most]
    beyond = cl.optimum(free.replace(b=[np.nextafter(most, np.inf)]))
    assert beyond.status != "optimal" and beyond.gap == np.inf


@pytest.mark.parametrize("method", ["lp", "columns"])
def test_where_all_policies_are_alike_the_richest_is_returned(method) -> None:
    """J_g = 2 whatever one does, and 2 is the limit: nothing is lost to it."""
    rng = np.random.default_rng(1)
    P, r = rng.dirichlet(np.ones(4), size=(4, 3)), rng.random((4, 3))
    P = np.round(P * 64) / 64
    P[:, :, 0] += 1 - P.sum(-1)  # rows that sum to 1 exactly
    free = cl.CMDP(P, r, rho=np.full(4, 0.25), gamma=0.5)
    same = cl.CMDP(P, r, np.ones((1, 4, 3)), 2.0, rho=np.full(4, 0.25), gamma=0.5)
    best = cl.optimum(same, method=method)
    assert best.status == "optimal" and best.J_r == pytest.approx(cl.optimum(free).J_r, abs=1e-8)
    assert 0 <= best.gap < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_that_breaks_a_limit_has_no_gap(seed: int) -> None:
    """It may earn more than every policy that meets them: a negative gap would mean nothing."""
    cmdp = with_limits(random_cmdp(seed), 1e-3)
    greedy = cl.optimum(cl.CMDP(cmdp.P, cmdp.r, rho=cmdp.rho, gamma=cmdp.gamma)).policy
    certificate = cl.certify(cmdp, greedy)
    assert certificate.bound is not None and (certificate.gap is None) == (certificate.verdict == "VIOLATED")
    assert certificate.gap is None or certificate.gap >= 0


@pytest.mark.parametrize("gamma", [1e-12, 1 - 1e-9, 1 - 2.0**-53])
def test_discounts_at_the_ends_end_in_a_word(gamma: float) -> None:
    """Solved, or refused in one line: no raw error of a linear solver."""
    cmdp = random_cmdp(3, S=4, gamma=0.5)
    far = cl.CMDP(cmdp.P, cmdp.r, cmdp.g, -2 / (1 - gamma), rho=cmdp.rho, gamma=gamma)
    try:
        best = cl.optimum(far)
    except (cl.SolverError, cl.InputError) as e:
        assert "gamma" in str(e)
    else:
        assert best.status == "optimal" and best.gap >= 0
        assert cl.certify(far, best.policy, best=best).verdict == "CERTIFIED"


# --------------------------------------------------------------------------------------------- rational arithmetic


@pytest.mark.parametrize("seed", range(6))
def test_exact_values_solve_their_equations_and_lie_in_the_enclosure(seed: int) -> None:
    cmdp = random_cmdp(seed, S=5, gamma=[0.3, 0.99, 1 - 1e-7][seed % 3], concentration=0.1)
    pi = np.random.default_rng(seed).dirichlet(np.full(3, 0.3), size=5)
    V = rational.exact_values(cmdp, pi)
    assert V is not None
    gamma, P = Fraction(cmdp.gamma), [[[Fraction(float(x)) for x in row] for row in rows] for rows in cmdp.P]
    for h, values in enumerate(V):
        for s in range(5):
            Q = [Fraction(float(cmdp.h[h, s, a])) + gamma * rational.expect(cmdp.P[s, a], values) for a in range(3)]
            assert values[s] == rational.expect(pi[s], Q) and len(P[s]) == 3
    _, lower, upper = enclose(cmdp, pi[None])
    J = [rational.expect(cmdp.rho, v) for v in V]
    assert all(Fraction(float(lo)) <= x <= Fraction(float(up)) for lo, x, up in zip(lower[0], J, upper[0], strict=True))


@pytest.mark.parametrize(
    "x", [Fraction(1, 3), Fraction(-1, 3), Fraction(1, 2), Fraction(10**400, 3 * 10**399), Fraction(0)]
)
def test_fractions_are_rounded_outwards(x: Fraction) -> None:
    low, high = rational.round_outwards(x)
    assert Fraction(low) <= x <= Fraction(high) and (low == high) == (Fraction(float(x)) == x)
    assert high <= np.nextafter(low, np.inf)


def test_a_mixture_on_its_limit_is_decided_by_its_weights() -> None:
    """J_g = w·5/3 + (1−w)/3 ≥ 1 ⇔ w ≥ 1/2, to the last bit of w."""
    cmdp = cl.zoo.two_state()
    parts = np.array([[[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
    for w, verdict in ((0.5, "CERTIFIED"), (0.5 + 2.0**-52, "CERTIFIED"), (0.5 - 2.0**-52, "VIOLATED")):
        seen = bound_policy(cmdp, cl.Mixture([w, 1 - w], parts))
        assert seen.verdict == verdict and seen.fractions is not None
        assert cl.certify(cmdp, cl.Mixture([w, 1 - w], parts)).verdict == verdict


def test_a_large_model_on_its_limit_stays_undecided() -> None:
    """Beyond a few states exact values take too long: the answer is that it is not known."""
    S = rational.MOST_STATES + 1
    cmdp = random_cmdp(0, S=S, I=1)
    pi = np.full((S, 3), 1 / 3)
    at = cmdp.replace(b=cl.evaluate(cmdp, pi).J[1:])
    assert cl.certify(at, pi).verdict == "UNDECIDED"
