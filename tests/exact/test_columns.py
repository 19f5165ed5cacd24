"""Column generation against the whole linear program, its bounds, its proofs; sparse solves; ragged action sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_cmdp, with_limits
from scipy import sparse

import clearance as cl
from clearance.core.compiled import iterative
from clearance.exact.column_generation import best_mixture, columns_of
from clearance.exact.enclosure import dual_function
from clearance.finite.evaluation import evaluate, occupancy, values_from_occupancy
from clearance.zoo import garnet


def same_optimum(cmdp: cl.CMDP, tolerance: float = 1e-6) -> tuple[cl.Optimum, cl.Optimum]:
    whole, columns = (cl.optimum(cmdp, method=m) for m in ("lp", "columns"))
    scale = np.abs(cmdp.h).max() / (1 - cmdp.gamma)
    assert columns.status == whole.status
    assert columns.J_r == pytest.approx(whole.J_r, abs=tolerance * scale)
    assert np.all(columns.slack >= 0) and -1e-12 * scale <= columns.gap <= tolerance * scale
    return whole, columns


@pytest.mark.parametrize("I", [0, 1, 2, 5])
@pytest.mark.parametrize("seed", range(6))
def test_agrees_with_the_linear_program(seed: int, I: int) -> None:
    gamma = [0.5, 0.9, 0.99][seed % 3]
    cmdp = random_cmdp(seed, S=12, A=3, I=I, gamma=gamma, concentration=0.2)
    cmdp = with_limits(cmdp, 0.05 / (1 - gamma)) if I else cmdp
    whole, columns = same_optimum(cmdp)
    assert columns.mixture.M <= I + 1, "a vertex of the master mixes at most I + 1 policies"
    assert set(np.unique(columns.mixture.pi)) <= {0.0, 1.0}, "of deterministic policies"
    assert columns.mixture.J(cmdp) == pytest.approx(columns.J, abs=1e-7 / (1 - gamma))
    assert cl.certify(cmdp, columns.policy, best=columns).verdict == "CERTIFIED"
    assert columns.complementarity == pytest.approx(np.zeros(I), abs=1e-5 / (1 - gamma))
    assert whole.bound == pytest.approx(columns.bound, abs=1e-6 / (1 - gamma))


def test_whole_zoo_both_ways() -> None:
    for name in (
        "bai2023",
        "ding2020",
        "ding2023",
        "altman-queue-discounted",
        "frozen-lake",
        "inventory",
        "queue-power",
        "maintenance-discounted",
    ):
        same_optimum(cl.zoo.MODELS[name](), 1e-7)


@pytest.mark.slow
def test_many_constraints_are_stabilised() -> None:
    """I = 50 on a model of 200 states: far fewer oracle calls than columns of an unstabilised Kelley method take."""
    cmdp = garnet(200, I=50, gamma=0.9, level=0.0, seed=3)
    start, _ = cl.slater_margin(cmdp.replace(b=np.zeros(50)))
    cmdp = cmdp.replace(b=np.full(50, 0.99 * start))
    _, columns = same_optimum(cmdp, 1e-6)
    assert np.sum(columns.lam > 1e-6) >= 5, "several limits bind"
    assert columns.mixture.M <= 51
    found = columns_of(cmdp)
    found.b = cmdp.b - 1.0
    assert best_mixture(found, 1e-7, 10.0).calls < 400


@pytest.mark.parametrize("method", ["lp", "columns"])
def test_infeasibility_comes_with_its_proof(method) -> None:
    """λ ≥ 0, Σλ = 1, and max_π Σ_i λ_i (J_gi − b_i) < 0: no policy can meet all limits."""
    for seed in range(5):
        cmdp = with_limits(random_cmdp(seed, S=8, A=3, I=3), -0.3)
        best = cl.optimum(cmdp, method=method)
        assert best.status == "infeasible" and best.attained_margin == pytest.approx(-0.3, abs=1e-5)
        assert np.all(best.lam >= 0) and best.lam.sum() == pytest.approx(1, abs=1e-9)
        farkas = cmdp.replace(h=np.concatenate([np.zeros((1, 8, 3)), cmdp.g]))
        assert dual_function(farkas, best.lam)[0] < 0
        assert np.min(evaluate(cmdp, best.policy).J[1:] - cmdp.b) == pytest.approx(best.attained_margin, abs=1e-9)


@pytest.mark.parametrize("method", ["lp", "columns"])
def test_a_limit_at_the_maximum_is_decided_to_the_last_bit(method) -> None:
    """Two states: max J_g = 5/3, attained by always acting safely. The float above it cannot be met, the one below can;
    no solver sees the difference, and neither limit is called infeasible for rounding.
    """
    above = 5 / 3
    for b, status in ((above, "borderline"), (np.nextafter(above, 0), "optimal")):
        best = cl.optimum(cl.zoo.two_state().replace(b=np.array([b])), method=method)
        assert best.status == status and best.J_r == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("method", ["lp", "columns"])
@pytest.mark.parametrize("units", [(1e-12, 1e-9, 1.0), (1e9, 1e-3, 1e6), (1.0, 1e12, 1e-12), (1e-6, 1e-6, 1e9)])
def test_units_do_not_matter(units: tuple[float, float, float], method) -> None:
    """The same problem in other units of r, g₁ and g₂ has the same status, the same values and a certificate."""
    for seed in range(3):
        base = with_limits(random_cmdp(seed, S=8, A=3, I=2, gamma=0.9), 0.3)
        size = np.array(units)
        other = base.replace(h=base.h * size[:, None, None], b=base.b * size[1:])
        a, b = cl.optimum(base, method="lp"), cl.optimum(other, method=method)
        assert b.status == "optimal" and b.J / size == pytest.approx(a.J, abs=1e-5)
        assert b.lam * size[1:] / size[0] == pytest.approx(a.lam, abs=1e-4)
        assert cl.certify(other, b.policy, best=b).verdict == "CERTIFIED"
        assert cl.optimum(other.replace(b=other.b + 0.5 * size[1:]), method=method).status == "infeasible"


def test_a_large_constraint_does_not_hide_a_small_one() -> None:
    """g₁ ≡ 1e9 with room, g₂ ∈ {0, 1} that cannot reach its limit: infeasible, whatever the size of the other."""
    for method in ("lp", "columns"):
        g = [[[1e9, 1e9]], [[0.0, 1.0]]]
        assert (
            cl.optimum(cl.CMDP([[[1.0], [1.0]]], [[0.0, 0.0]], g, [0.0, 10.5], gamma=0.9), method=method).status
            == "infeasible"
        )


def test_signals_of_missing_actions_do_not_count() -> None:
    available = [[True, True, False]]
    P, g = [[[1.0], [1.0], [np.nan]]], [[[0.0, 1.0, -1e10]]]
    cmdp = cl.CMDP(P, [[0.0, 1.0, -1e9]], g, 10.5, gamma=0.9, available=available)
    assert cl.optimum(cmdp).status == "infeasible"
    assert cl.solve(cmdp.replace(b=np.array([5.0])), cl.CNPGPD(K=1, N=1, kappa=0.0)).lam_max == pytest.approx(4.0)


def test_a_margin_near_zero_is_decided_not_guessed() -> None:
    """φ = 1.8e-7 on a model whose values are of size 10: feasible, by both methods."""
    P = np.zeros((3, 2, 3))
    P[0, 0, 1] = P[0, 1, 2] = P[1, :, 1] = P[2, :, 2] = 1.0
    x = np.array([[0.01, 0.0], [0.0, 0.0], [1.0, 1.0]])
    free = cl.CMDP(P, np.zeros((3, 2)), 1 + 4e-8 * x, 0.0, rho=[1.0, 0, 0], gamma=0.9)
    ends = [evaluate(free, np.eye(2)[[a, 0, 0]]).J[1] for a in (0, 1)]
    cmdp = free.replace(b=np.array([np.mean(ends)]))
    for method in ("lp", "columns"):
        assert cl.optimum(cmdp, method=method).status == "optimal"
        assert cl.slater_margin(cmdp, method=method)[0] == pytest.approx(np.ptp(ends) / 2, rel=1e-3)


@pytest.mark.parametrize("gamma", [0.9999, 0.99999])
def test_optimum_is_certified_close_to_one(gamma: float) -> None:
    cmdp = garnet(400, gamma=gamma)
    best = cl.optimum(cmdp)
    assert cl.certify(cmdp, best.policy, best=best).verdict == "CERTIFIED" and 0 <= best.gap <= 1e-5 * best.J_r


def test_slater_margin_both_ways() -> None:
    for seed in range(4):
        cmdp = random_cmdp(seed, S=10, A=4, I=3, gamma=0.9)
        a, b = (cl.slater_margin(cmdp, method=m)[0] for m in ("lp", "columns"))
        assert a == pytest.approx(b, abs=1e-5)


@pytest.mark.parametrize("gamma", [0.9, 0.999])
def test_large_random_model_is_solved_and_certified(gamma: float) -> None:
    cmdp = garnet(3000, I=2, gamma=gamma)
    best = cl.optimum(cmdp)
    certificate = cl.certify(cmdp, best.policy, best=best)
    assert certificate.verdict == "CERTIFIED" and best.mixture.M <= 3
    assert certificate.gap is not None and certificate.gap <= 2e-7 * best.J_r


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([0.1, 0.9, 0.9999]))
def test_sparse_solves(seed: int, S: int, gamma: float) -> None:
    """(I − γM) x = y to rounding, for chains with absorbing states, cycles and unreachable states."""
    rng = np.random.default_rng(seed)
    M = rng.dirichlet(np.full(S, 0.05), size=S)
    M[rng.random(S) < 0.2] = np.eye(S)[0]
    y, x = rng.normal(size=S), np.zeros(S)
    residual = iterative.linear_solve(sparse.csr_array(M), gamma, y, x, 0.0)
    assert residual <= 1e-12 / (1 - gamma)
    assert x == pytest.approx(np.linalg.solve(np.eye(S) - gamma * M, y), rel=1e-6, abs=1e-8 / (1 - gamma))


def test_gauss_seidel_takes_over_where_bicgstab_cannot_start() -> None:
    """A start whose residual is orthogonal to its own image under (I − γM): BiCGStab divides by zero at once."""
    n, gamma = 4, 0.5
    M = sparse.csr_array(np.roll(np.eye(n), 1, axis=1))
    y, x = np.array([1.0, 2.0, 0.0, -1.0]), np.zeros(n)
    assert iterative.sweeps(M.indptr, M.indices, M.data, gamma, y, x, 1e-13, 1000) <= 1e-13
    assert x == pytest.approx(np.linalg.solve(np.eye(n) - gamma * M.toarray(), y), abs=1e-12)


# ------------------------------------------------------------------------------------------------- ragged action sets


def ragged(seed: int, I: int = 1) -> cl.CMDP:
    """A model in which some states lack some actions (their rows of P are rubbish, which must not matter)."""
    base = random_cmdp(seed, S=7, A=4, I=I)
    rng = np.random.default_rng(seed)
    available = rng.random((7, 4)) < 0.6
    available[:, 0] |= ~available.any(axis=1)
    P = np.where(available[:, :, None], base.P, 7.0)
    return cl.CMDP(P, base.r, base.g, base.b, rho=base.rho, gamma=base.gamma, available=available)


def by_copies(cmdp: cl.CMDP) -> cl.CMDP:
    """The same problem without gaps: a missing action is a copy of one that exists."""
    first = np.argmax(cmdp.available, axis=1)
    choice = np.where(cmdp.available, np.arange(cmdp.A), first[:, None])
    s = np.arange(cmdp.S)[:, None]
    return cl.CMDP(cmdp.P[s, choice], cmdp.r[s, choice], cmdp.g[:, s, choice], cmdp.b, rho=cmdp.rho, gamma=cmdp.gamma)


@pytest.mark.parametrize("seed", range(5))
def test_missing_actions_are_never_taken_and_change_nothing_else(seed: int, tmp_path: Path) -> None:
    cmdp = with_limits(ragged(seed), 0.2)
    full = by_copies(cmdp)
    for method in ("lp", "columns"):
        best = cl.optimum(cmdp, method=method)
        assert best.J_r == pytest.approx(cl.optimum(full).J_r, abs=1e-6)
        assert np.all(best.policy[~cmdp.available] == 0)
        assert cl.certify(cmdp, best.policy, best=best).verdict == "CERTIFIED"
    thin = cl.CMDP(
        sparse.csr_array(cmdp.rows), cmdp.r, cmdp.g, cmdp.b, rho=cmdp.rho, gamma=cmdp.gamma, available=cmdp.available
    )
    assert cl.optimum(thin).J_r == pytest.approx(best.J_r, abs=1e-6)
    for model in (cmdp, thin):
        model.save(tmp_path / "m.npz")
        assert np.array_equal(cl.CMDP.load(tmp_path / "m.npz").available, cmdp.available)


def test_learning_with_missing_actions() -> None:
    cmdp = with_limits(ragged(1), 0.5)
    solution = cl.solve(cmdp, cl.CNPGPD(K=200, N=50, kappa=0.05), seed=0)
    assert np.all(solution.mixture.pi[:, ~cmdp.available] == 0) and np.all(solution.policy.pi[0][~cmdp.available] == 0)
    pi = solution.policy_class.pi(solution.trace.theta)
    assert pytest.approx(values_from_occupancy(cmdp, occupancy(cmdp, pi)), abs=1e-12) == solution.trace.J
    z = (solution.trace.J_hat - solution.trace.J).mean(0) / (
        (solution.trace.J_hat - solution.trace.J).std(0) / np.sqrt(200)
    )
    assert np.abs(z).max() < 4.5, "the sampler sees the same actions"


def test_class_of_a_ragged_or_restricted_policy() -> None:
    """A class that may take fewer actions than the model has is judged by what it may take; blind states average what
    they have.
    """
    restricted = cl.softmax(2, 2, [[True, False], [True, True]])
    with pytest.raises(cl.InfeasibleError, match=r"-0\.666"):
        cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=1), policy=restricted)
    cmdp = ragged(3)
    policy = cl.linear_softmax(np.full((7, 4, 1), 0.1), cmdp.available)  # blind everywhere: uniform over what exists
    uniform = cmdp.available / cmdp.available.sum(1, keepdims=True)
    assert pytest.approx(evaluate(cmdp, uniform).J, abs=1e-8) == cl.optimum(cl.class_model(cmdp, policy)).J


def test_ragged_mistakes_are_named() -> None:
    cmdp = ragged(0)
    s, a = np.argwhere(~cmdp.available)[0]
    pi = np.full((7, 4), 0.25)
    with pytest.raises(cl.InputError, match=f"takes action {a} at state {s}, which has no such action"):
        cl.evaluate(cmdp, pi)
    with pytest.raises(cl.InputError, match="available leaves no action at state 2"):
        available = np.ones((7, 4), bool)
        available[2] = False
        cl.CMDP(cmdp.P, cmdp.r, gamma=0.9, available=available)
    with pytest.raises(cl.InputError, match=r"available=cmdp\.available"):
        cl.solve(cmdp, cl.CNPGPD(K=1), policy=cl.softmax(7, 4))
    with pytest.raises(cl.InputError, match="available must be true or false"):
        cl.CMDP(cmdp.P, cmdp.r, gamma=0.9, available=np.ones((7, 3), bool))


# ---------------------------------------------------------------------------------------- the accuracy of multipliers


def priced(signals: list[tuple[float, ...]], limit: list[float], units: tuple[float, ...]) -> cl.CMDP:
    """One state for ever, γ = 1/2: action n earns and costs 2·signals[n] = (reward, costs …), in these units."""
    r, *costs = np.array(signals).T * np.array(units)[:, None]
    P, cost = np.ones((1, len(r), 1)), np.array(costs)[:, None]
    return cl.CMDP(P, r[None], cost=cost, limit=np.array(limit) * units[1:], gamma=0.5)


@pytest.mark.parametrize("units", [(1.0, 1.0), (1e3, 1e-2)])
@pytest.mark.parametrize("limit, lowest, highest", [(1.0, 3.0, 3.0), (3.0, 1.0, 1.0), (2.0, 1.0, 3.0), (5.0, 0.0, 0.0)])
def test_lam_range_encloses_the_price_by_hand(
    limit: float, lowest: float, highest: float, units: tuple[float, float]
) -> None:
    """J_r over the limit l is 3l up to 2, then 4 + l up to 4, then 8: its slopes are the prices, both at the kink."""
    best = cl.optimum(priced([(0, 0), (3, 1), (4, 2)], [limit], units), method="columns")
    assert best.lam_range is not None and best.lam_range.shape == (2, 1)
    (low,), (high,) = best.lam_range * units[1] / units[0]
    assert (
        low <= lowest + 1e-9
        and highest - 1e-9 <= high
        and low - 1e-9 <= best.lam[0] * units[1] / units[0] <= high + 1e-9
    )
    assert low == pytest.approx(lowest, abs=1e-5) and high == pytest.approx(highest, abs=1e-5)


def test_lam_range_of_two_limits_by_hand() -> None:
    """Two switches, 3 and 5 per unit of cost, both costs limited: each has its own price, whatever the other's is."""
    model = priced([(0, 0, 0), (3, 1, 0), (5, 0, 1), (8, 1, 1)], [1.0, 0.5], (1.0, 1.0, 1.0))
    best = cl.optimum(model, method="columns")
    assert best.lam_range is not None
    low, high = best.lam_range
    assert np.all(low <= [3, 5]) and np.all(high >= [3, 5])
    assert low == pytest.approx([3, 5], abs=1e-4) and high == pytest.approx([3, 5], abs=1e-4)
    assert cl.optimum(model, method="lp").lam_range is None
