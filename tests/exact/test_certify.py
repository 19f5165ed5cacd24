"""A certificate never lies: enclosures against exact rational arithmetic, verdicts on both sides of the limit."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_cmdp, with_limits

import clearance as cl
from clearance.exact.enclosure import dual_function, enclose
from clearance.finite.evaluation import occupancy, values_from_occupancy


def exact_J(cmdp: cl.CMDP, pi: np.ndarray) -> list[Fraction]:
    """J in rational arithmetic, of the numbers as stored: Gauss–Jordan on (I − γ P_π) V = h_π."""
    S, A, H = cmdp.S, cmdp.A, 1 + cmdp.I
    P, g = np.asarray(cmdp.P), Fraction(cmdp.gamma)
    rows = []
    for s in range(S):
        p = [Fraction(float(x)) for x in pi[s]]
        left = [Fraction(int(s == t)) - g * sum(p[a] * Fraction(float(P[s, a, t])) for a in range(A)) for t in range(S)]
        rows.append(left + [sum(p[a] * Fraction(float(cmdp.h[h, s, a])) for a in range(A)) for h in range(H)])
    for i in range(S):
        pivot = next(r for r in range(i, S) if rows[r][i] != 0)
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for r in range(S):
            if r != i and rows[r][i] != 0:
                rows[r] = [x - rows[r][i] * y for x, y in zip(rows[r], rows[i], strict=True)]
    rho = [Fraction(float(x)) for x in cmdp.rho]
    return [sum((rho[s] * rows[s][S + h] for s in range(S)), Fraction(0)) for h in range(H)]


def assert_encloses(cmdp: cl.CMDP, pi: np.ndarray, width: float) -> None:
    _, lower, upper = enclose(cmdp, pi[None])
    scale = np.abs(cmdp.h).max() / (1 - cmdp.gamma)
    for J, lo, up in zip(exact_J(cmdp, pi), lower[0], upper[0], strict=True):
        assert Fraction(float(lo)) <= J <= Fraction(float(up))
        assert up - lo <= width * max(scale, 1e-300)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([0.1, 0.9, 0.999, 1 - 1e-6]),
)
def test_enclosure_holds_in_rational_arithmetic(seed: int, S: int, A: int, I: int, gamma: float) -> None:
    cmdp = random_cmdp(seed, S, A, I, gamma, concentration=0.2)
    pi = np.random.default_rng(seed).dirichlet(np.full(A, 0.3), size=S)
    assert_encloses(cmdp, pi, 1e-12 / (1 - gamma))


@pytest.mark.parametrize("scale", [1e-200, 1e-8, 1.0, 1e150])
def test_enclosure_on_nasty_numbers(scale: float) -> None:
    """Absorbing and unreachable states, tiny probabilities, rows that sum to 1 ± 1e-16, signals of any size."""
    P = np.zeros((4, 2, 4))
    P[0] = [[1 / 3, 1 / 3, 1 - 2 / 3, 0], [1e-300, 1 - 1e-16, 0, 1e-17]]
    P[1, :, 1] = 1.0
    P[2] = [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]]
    P[3, :, 3] = 1.0
    h = scale * np.array([[[1.0, -2.0], [0, 0], [3, 0.1], [1, 1]], [[0.1, 0.2], [0, 0], [-0.3, 1e-9], [1, 1]]])
    cmdp = cl.CMDP(P, h[0], h[1:], -10 * scale, rho=[1.0, 0, 0, 0], gamma=0.97)
    assert_encloses(cmdp, np.array([[1 / 3, 2 / 3], [0.5, 0.5], [1.0, 0.0], [1e-12, 1 - 1e-12]]), 1e-10)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_no_feasible_policy_beats_the_bound(seed: int, I: int) -> None:
    cmdp = with_limits(random_cmdp(seed, S=5, A=3, I=I), 0.5)
    bound = dual_function(cmdp, cl.optimum(cmdp).lam)[0]
    pi = np.random.default_rng(seed).dirichlet(np.full(3, 0.2), size=(300, 5))
    J = values_from_occupancy(cmdp, occupancy(cmdp, pi))
    feasible = np.all(J[:, 1:] >= cmdp.b, axis=1)
    assert np.all(J[feasible, 0] <= bound + 1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_enclosure_of_sparse_ragged_mixtures(seed: int) -> None:
    """Rows of few entries, missing actions, weights that are off by rounding: Σ w_m J_m in rational arithmetic."""
    from scipy import sparse

    base, rng = random_cmdp(seed, S=5, A=3, I=1, gamma=0.97), np.random.default_rng(seed)
    available = rng.random((5, 3)) < 0.7
    available[:, 1] |= ~available.any(1)
    P = np.where(rng.random((5, 3, 5)) < 0.5, base.P, 0.0) + 0.1 * np.eye(5)[:, None]
    P /= P.sum(-1, keepdims=True)
    args = (base.r, base.g, base.b)
    thin = cl.CMDP(sparse.csr_array(P.reshape(15, 5)), *args, rho=base.rho, gamma=0.97, available=available)
    dense = cl.CMDP(P, *args, rho=base.rho, gamma=0.97, available=available)
    pi = rng.dirichlet(np.ones(3), size=(3, 5)) * available
    mixture = cl.Mixture(np.array([0.1, 0.2, 0.7]) * (1 + 5e-10), pi / pi.sum(-1, keepdims=True))
    exact = [
        sum(Fraction(float(w)) * exact_J(dense, p)[h] for w, p in zip(mixture.weights, mixture.pi, strict=True))
        for h in (0, 1)
    ]
    for model in (thin, dense):
        c = cl.certify(model, mixture)
        for J, lo, up in zip(exact, c.J_lower, c.J_upper, strict=True):
            assert Fraction(lo) <= J <= Fraction(up) and up - lo < 1e-10


def test_what_is_certified_is_what_is_executed() -> None:
    """Probabilities that are off by 1e-9 are divided away when they are read: no slack comes from a sum above 1."""
    cmdp = cl.zoo.two_state()
    p = 0.5 + 1e-10
    over = 1 + 9e-10
    table = np.array([[p, 1 - p], [1.0, 0.0]])
    assert cl.certify(cmdp, table).verdict == "VIOLATED"
    assert cl.certify(cmdp, cl.Mixture([over], table[None])).verdict == "VIOLATED"
    assert cl.certify(cmdp, table * over).verdict == "VIOLATED"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.99, 1 - 1e-5]), st.floats(0, 5))
def test_bound_holds_in_rational_arithmetic(seed: int, gamma: float, lam: float) -> None:
    """D(λ) of all deterministic policies, each exactly, is below the bound and close to it."""
    cmdp = random_cmdp(seed, S=3, A=2, I=1, gamma=gamma)
    bound = dual_function(cmdp, np.array([lam]))[0]
    b, weight = Fraction(float(cmdp.b[0])), Fraction(lam)
    best = max(
        J[0] + weight * (J[1] - b) for J in (exact_J(cmdp, np.eye(2)[list(act)]) for act in product(range(2), repeat=3))
    )
    assert best <= Fraction(bound)
    assert bound - float(best) <= 1e-13 * (1 + lam) / (1 - gamma) ** 2


def test_verdicts_on_both_sides_and_at_the_limit() -> None:
    """Two states by hand: J_g ≥ 1 ⇔ p ≤ 1/2."""
    cmdp = cl.zoo.two_state()

    def verdict(p: float) -> str:
        return cl.certify(cmdp, [[p, 1 - p], [1.0, 0.0]]).verdict

    assert verdict(0.5 - 1e-12) == "CERTIFIED"
    assert verdict(0.5 + 1e-12) == "VIOLATED"
    assert verdict(0.5) == verdict(0.5 - 2.0**-52) == "CERTIFIED", "by rational arithmetic, to the last bit"
    assert verdict(0.5 + 2.0**-52) == "VIOLATED"
    c = cl.certify(cmdp, [[0.25, 0.75], [1.0, 0.0]])
    assert c.J_r == pytest.approx(1 / 3) and c.slack == pytest.approx([1 / 3]) and c.gap == pytest.approx(1 / 3)
    assert c.lam == pytest.approx([1.0]) and c.complementarity == pytest.approx([1 / 3]) and c.evidence == "exact"
    assert c.J_lower[0] <= c.J_r <= c.J_upper[0]


def test_mixture_is_certified_as_drawn_once_and_names_its_worst_component() -> None:
    cmdp = cl.zoo.two_state()
    safe, risky = [[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]
    c = cl.certify(cmdp, cl.Mixture([0.6, 0.4], [safe, risky]))
    assert c.verdict == "CERTIFIED" and c.components == 2
    assert c.J_g == pytest.approx([0.6 * 5 / 3 + 0.4 / 3]) and c.worst_component_slack == pytest.approx(-2 / 3)
    assert cl.certify(cmdp, cl.Mixture([0.4, 0.6], [safe, risky])).verdict == "VIOLATED"


def test_the_optimum_is_certified_and_optimal_on_the_whole_zoo() -> None:
    for make in cl.zoo.MODELS.values():
        cmdp = make()
        best = cl.optimum(cmdp)
        c = cl.certify(cmdp, best.policy, best=best)
        assert c.verdict == "CERTIFIED", make
        assert c.gap is not None and 0 <= c.gap < 1e-7


def test_an_infeasible_problem_is_said_to_be_one() -> None:
    c = cl.certify(cl.zoo.bai2023().tightened(1.0), np.full((10, 5), 0.2))
    assert c.verdict == "VIOLATED" and c.bound is None and "no policy meets the limits" in c.message


def test_certificates_of_a_sparse_model() -> None:
    from scipy import sparse

    dense = cl.zoo.bai2023()
    thin = cl.CMDP(sparse.csr_array(dense.rows), dense.r, dense.g, dense.b, gamma=0.8)
    pi = cl.optimum(dense).policy
    a, b = cl.certify(dense, pi), cl.certify(thin, pi)
    assert a.verdict == b.verdict == "CERTIFIED" and a.J_lower == pytest.approx(b.J_lower, abs=1e-10)


def test_episodes_of_a_mixture_follow_one_component(tmp_path) -> None:
    mixture = cl.Mixture([0.25, 0.75], [[[1.0, 0.0]], [[0.0, 1.0]]])
    rng = np.random.default_rng(0)
    actors = [mixture.reset(rng) for _ in range(2000)]
    episodes = np.array([[actor.act(0) for _ in range(3)] for actor in actors])
    assert np.all(episodes == episodes[:, :1]), "drawn once per episode"
    assert abs(episodes[:, 0].mean() - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 2000)
    mixture.save(tmp_path / "policy.npz")
    again = cl.Mixture.load(tmp_path / "policy.npz")
    assert np.array_equal(again.pi, mixture.pi) and np.array_equal(again.weights, mixture.weights)
