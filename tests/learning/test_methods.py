"""What every method must show, on a ladder of probe problems whose constrained optimum is known by hand."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from models import random_cmdp

import clearance as cl
from clearance.certificates.best_mixture import best_weights
from clearance.core.random_streams import key_of
from clearance.finite.evaluation import values_from_occupancy
from clearance.finite.samplers.exact_sampler import append_signal
from clearance.learning.loop import Run, iterate
from clearance.learning.methods.opgpd import on_simplex

# ------------------------------------------------------------------------------------ the ladder, solved by hand


def bandit(b: Any = 0.4) -> cl.CMDP:
    """One state, two actions: r = (1, 0), g = (0, 1). J_r = 2p, J_g = 2(1−p) ≥ 2b: p* = 1 − b, λ* = 1."""
    P = np.ones((1, 2, 1))
    return cl.CMDP(P, [[1.0, 0.0]], [[[0.0, 1.0]]], 2 * b, gamma=0.5)


def free(b: float = 0.1) -> cl.CMDP:
    """One state, r = (1, 0), g = (1/2, 1): the best action keeps the limit by itself. J* = 2, λ* = 0."""
    return cl.CMDP(np.ones((1, 2, 1)), [[1.0, 0.0]], [[[0.5, 1.0]]], 2 * b, gamma=0.5)


def triangle() -> cl.CMDP:
    """One state, three actions, two limits: r = (1, 0, 0), g₁ = (0, 1, 0) ≥ .3, g₂ = (0, 0, 1) ≥ .2: π* = (.5, .3, .2).

    λ* = (1, 1): a unit of either limit takes its probability from the first action.
    """
    g = [[[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]]
    return cl.CMDP(np.ones((1, 3, 1)), [[1.0, 0.0, 0.0]], g, [0.6, 0.4], gamma=0.5)


def unlimited() -> cl.CMDP:
    """The same without limits: J* = 2."""
    return cl.CMDP(np.ones((1, 3, 1)), [[1.0, 0.0, 0.0]], None, gamma=0.5)


# name → (model, J*)
LADDER: dict[str, tuple[cl.CMDP, float]] = {
    "unlimited": (unlimited(), 2.0),
    "free": (free(), 2.0),
    "bandit": (bandit(), 1.2),
    "two-state": (cl.zoo.two_state(), 2 / 3),
    "triangle": (triangle(), 1.0),
}


@pytest.mark.parametrize("name", LADDER)
def test_the_ladder_is_solved_right_by_hand(name: str) -> None:
    model, J = LADDER[name]
    assert cl.optimum(model).J_r == pytest.approx(J, abs=1e-8)


# --------------------------------------------------------------------------------------------------- the methods

K = 3000
# In the exact setting: a method, and which output its theory speaks of.
METHODS: dict[str, tuple[Any, str]] = {
    "regularised": (cl.RegularisedCNPGPD(K=K, N=1, kappa=0.0), "best"),
    "C-NPG-PD": (cl.CNPGPD(K=K, kappa=0.0, eta1=0.05, eta2=0.05, direction=cl.Tabular()), "average"),
    "NPG-PD": (cl.NPGPD(K=K, eta1=0.05, eta2=0.05, direction=cl.Tabular()), "average"),
    "CRPO": (cl.CRPO(K=K, alpha=0.03, tolerance=0.01), "average"),
    "PMD-PD": (cl.PMDPD(K=K, alpha=4.0, eta=0.25), "average"),
    "PMD-PD, 3 inner steps": (cl.PMDPD(K=K // 3, alpha=4.0, eta=0.25, inner=3), "average"),
    "PD-NAC": (cl.PDNAC(K=K, alpha=0.05, eta=0.05), "average"),
    "RPG-PD": (cl.RPGPD(K=2 * K, eta=0.1, tau=0.03), "last"),
    "OPG-PD": (cl.OPGPD(K=K, eta=0.1), "last"),
    "OMWU-PD": (cl.OPGPD(K=K, eta=0.1, geometry="entropic"), "last"),
    "model-based": (cl.ModelBased(K=K, eta=0.06, kappa=0.0), "average"),
    "model-based, LP": (cl.ModelBased(K=2, kappa=0.0, solver="lp"), "average"),
}


@cache
def ladder_run(name: str, rung: str) -> Run:
    return exact_run(LADDER[rung][0], METHODS[name][0])


def exact_run(model: cl.CMDP, method: Any, lam_max: float = 50.0) -> Run:
    policy = cl.softmax(model.S, model.A)
    known = isinstance(method, cl.ModelBased)
    sampler: Any = cl.Generative(model, policy, exact=True) if known else cl.Exact(model, policy)
    return iterate(sampler, method, key_of(0), lam_max, d_sum=np.zeros((model.S, model.A)))


def output(run: Run, which: str, b: Any) -> np.ndarray:
    trace = run.trace
    if which == "average":
        return trace.counts @ trace.J / trace.counts.sum()
    if which == "last":
        return trace.J[-1]
    w = best_weights(trace.J, b)
    assert w is not None
    return w @ trace.J


@pytest.mark.parametrize("rung", LADDER)
@pytest.mark.parametrize("name", METHODS)
def test_converges_to_the_constrained_optimum_in_the_exact_setting(name: str, rung: str) -> None:
    (_, which), (model, J_star) = METHODS[name], LADDER[rung]
    J = output(ladder_run(name, rung), which, model.b)
    close = 0.07 if name == "RPG-PD" else 0.02  # its last iterate is within O(τ): τλ* for each limit
    assert J[0] == pytest.approx(J_star, abs=close)
    assert np.all(J[1:] >= model.b - close)


@pytest.mark.parametrize("name", METHODS)
def test_a_limit_that_is_kept_anyway_costs_nothing(name: str) -> None:
    run = ladder_run(name, "free")
    assert output(run, METHODS[name][1], free().b)[0] == pytest.approx(2.0, abs=0.02)
    assert np.all(run.state.lam <= 1e-6), "λ → 0"


# How each is sampled: the method's own sampler, a budget of about 2·10⁵ steps.
SAMPLED: dict[str, Any] = {
    "regularised": cl.RegularisedCNPGPD(K=300, N=100, kappa=0.0),
    "C-NPG-PD": cl.CNPGPD(K=300, N=100, kappa=0.0),
    "NPG-PD": cl.NPGPD(K=300, N=100),
    "NPG-PD, weighted": cl.NPGPD(K=300, N=100, direction=cl.WeightedSGD()),
    "PD-ANPG": cl.PDANPG(K=300, N=100),
    "CRPO": cl.CRPO(K=300, N=100, alpha=0.02),
    "PMD-PD": cl.PMDPD(K=300, N=100, alpha=4.0, eta=0.25),
    "PMD-PD, 2 inner steps": cl.PMDPD(K=300, N=50, alpha=4.0, eta=0.25, inner=2),
    "PD-NAC": cl.PDNAC(K=300, N=300, alpha=0.05, eta=0.05),
    "RPG-PD": cl.RPGPD(K=300, N=100),
    "OPG-PD": cl.OPGPD(K=300, N=100),
    "OMWU-PD": cl.OPGPD(K=300, N=100, geometry="entropic"),
    "model-based": cl.ModelBased(K=50, N=1000, eta=0.02),
    "model-based, LP": cl.ModelBased(K=2, N=1000, solver="lp"),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(name: str) -> None:
    model = random_cmdp(3, I=2)
    first, again, other = (cl.solve(model, SAMPLED[name], seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.trace.theta, again.trace.theta) and np.array_equal(first.lam, again.lam)
    assert np.array_equal(first.policy.pi, again.policy.pi)
    assert not np.array_equal(first.trace.J_hat, other.trace.J_hat)


@pytest.mark.parametrize("name", SAMPLED)
def test_sampled_runs_end_with_a_proven_policy(name: str) -> None:
    """Two limits, one of which binds: the best mixture is certified and near the optimum."""
    model = triangle()
    solution = cl.solve(model, SAMPLED[name], seed=0)
    assert solution.certificate.verdict == "CERTIFIED"
    assert solution.certificate.J_r >= 0.9


def test_networks_learn_as_critic_and_as_policy() -> None:
    model = cl.zoo.two_state()
    policy = cl.two_layer(2, 2, m=16)
    method = cl.CRPO(K=400, N=50, alpha=0.05)
    solution = cl.solve(model, method, policy=policy, seed=0)
    J = values_from_occupancy(model, np.einsum("k,ksa->sa", solution.trace.counts, _occupancies(model, solution)))
    average = J / solution.trace.counts.sum()
    assert average[0] == pytest.approx(2 / 3, abs=0.08) and average[1] >= 1 - 0.05


def _occupancies(model: cl.CMDP, solution: Any) -> Any:
    return cl.occupancy(model, solution.policy_class.pi(solution.trace.theta))


def test_without_limits_crpo_is_the_natural_gradient() -> None:
    run = exact_run(unlimited(), cl.CRPO(K=50, alpha=0.1))
    other = exact_run(unlimited(), cl.NPGPD(K=50, eta1=0.1, direction=cl.Tabular()))
    assert np.allclose(run.trace.theta, other.trace.theta) and np.all(run.trace.counts == 1)


def test_crpo_counts_the_iterates_of_reward_steps_only() -> None:
    model = bandit()
    run = exact_run(model, cl.CRPO(K=200, alpha=0.1))
    kept = run.trace.J[:, 1] >= model.b[0]
    assert np.array_equal(run.trace.counts == 1, kept) and 0 < kept.sum() < 200


def test_pmdpd_with_one_inner_step_is_npg_with_the_optimistic_multiplier() -> None:
    model = random_cmdp(0, I=1)
    run = exact_run(model, cl.PMDPD(K=3, alpha=2.0, eta=0.5))
    theta, lam, pi = run.trace.theta, run.state.lam, cl.softmax(model.S, model.A).pi
    at = [cl.evaluate(model, pi(t)) for t in theta]
    s = [0.5 * (e.J[1:] - model.b) for e in at]
    lam_0 = np.maximum(0, s[0])
    lam_1 = np.maximum(s[1], lam_0 - s[1])
    lam_2 = np.maximum(s[2], lam_1 - s[2])
    assert np.allclose(lam, lam_2 - s[2]) and np.all(lam >= 0)
    assert np.allclose(pi(theta[1]), pi(theta[0] + (at[0].A[0] + (lam_0 - s[0]) * at[0].A[1]).ravel() / 2.0))


def test_inner_steps_of_pmdpd_solve_the_regularised_problem() -> None:
    """With many inner steps p is the fixed point p ∝ π_k exp(A'/α): its regularised advantage vanishes."""
    model, alpha = random_cmdp(1, I=1), 3.0
    run = exact_run(model, cl.PMDPD(K=1, alpha=alpha, eta=0.5, inner=60))
    policy = cl.softmax(model.S, model.A)
    p, anchor = policy.log_pi(run.state.theta), policy.log_pi(run.trace.theta[0])
    at = cl.evaluate(append_signal(model, anchor - p), np.exp(p))
    assert np.abs(at.A[0] + float(run.state.lam[0]) * at.A[1] + alpha * at.A[2]).max() < 1e-6


def test_rpgpd_stops_at_the_regularised_saddle_point() -> None:
    """λ = −(J_g − b)/τ where that is positive, and the advantage of r + λg − τ log π vanishes."""
    model, tau = cl.zoo.two_state(), 0.1
    run = exact_run(model, cl.RPGPD(K=6000, eta=0.1, tau=tau))
    policy = cl.softmax(model.S, model.A)
    at = cl.evaluate(append_signal(model, -policy.log_pi(run.state.theta)), policy.pi(run.state.theta))
    lam = float(run.state.lam[0])
    assert lam == pytest.approx((1.0 - at.J[1]) / tau, abs=1e-6)
    assert np.abs(at.A[0] + lam * at.A[1] + tau * at.A[2]).max() < 1e-6


def test_optimism_is_linear_where_npgpd_circles() -> None:
    """On the matching-pennies-like bandit NPG-PD's last iterate keeps away; OPG-PD's error falls by orders."""
    model = bandit()
    npg = exact_run(model, cl.NPGPD(K=2000, eta1=0.1, eta2=0.1, direction=cl.Tabular())).trace.J[:, 0]
    opg = exact_run(model, cl.OPGPD(K=2000, eta=0.1)).trace.J[:, 0]
    assert np.abs(npg[-500:] - 1.2).max() > 0.1
    assert np.abs(opg[-500:] - 1.2).max() < 1e-3


# The order in K that the papers claim for the exact average, with the steps that they ask for.
ORDERS: dict[str, tuple[Any, float]] = {
    "NPG-PD": (lambda K: cl.NPGPD(K=K, eta1=2 * np.log(2), eta2=1 / np.sqrt(K), direction=cl.Tabular()), 0.5),
    "CRPO": (lambda K: cl.CRPO(K=K, alpha=1 / np.sqrt(K), tolerance=0.5 / np.sqrt(K)), 0.5),
    "PMD-PD": (lambda K: cl.PMDPD(K=K, alpha=4.0, eta=0.25), 1.0),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_average_converges_at_the_order_that_its_paper_claims(name: str) -> None:
    """Gap and violation, times K to the order, stay bounded over five doublings of K."""
    (make, order), model = ORDERS[name], bandit()
    scaled = []
    for K in (100, 200, 400, 800, 1600, 3200):
        J = output(exact_run(model, make(K)), "average", model.b)
        scaled.append(np.abs(J - [1.2, model.b[0]]).max() * K**order)
    assert max(scaled[3:]) < 1.05 * max(scaled[:3]) if name != "CRPO" else max(scaled) < 0.6


# ------------------------------------------------------------------------------------------------- the pieces


def test_projection_on_the_simplex_is_the_nearest_point() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)) * 3
    p = on_simplex(x)
    assert np.allclose(p.sum(1), 1) and np.all(p >= 0)
    for q in rng.dirichlet(np.ones(4), size=50):  # (x − p)·(q − p) ≤ 0 for every q of the simplex
        assert np.all(np.sum((x - p) * (q - p), axis=1) <= 1e-9)
    assert np.array_equal(on_simplex(np.array([[0.3, -np.inf, 0.3]])), [[0.5, 0.0, 0.5]])


def test_separate_weighted_regressions_add_up() -> None:
    """SGD from 0 is linear in the targets: the regressions of r and g add up to that of r + λg."""
    model = random_cmdp(5, I=2)
    draws, *_ = cl.Table(model, cl.softmax(model.S, model.A)).batch(key_of(0), None, np.zeros(model.S * model.A), 200)
    lam, direction = np.array([0.7, 1.3]), cl.WeightedSGD()
    joint = draws._replace(A=(draws.A[:, 0] + draws.A[:, 1:] @ lam)[:, None])
    assert np.allclose(direction(draws, lam, 0.8), direction(joint, np.zeros(0), 0.8))


@pytest.mark.parametrize("direction", [cl.WeightedSGD(sigma_F=0.05), cl.AcceleratedSGD(mu_F=0.02)])
def test_stochastic_regressions_come_near_the_minimiser(direction: Any) -> None:
    """On many draws without noise in Â, in F-norm: the part of ω that the policy feels."""
    model = random_cmdp(2, S=3, A=2, I=1)
    policy = cl.softmax(3, 2)
    exact, *_ = cl.Exact(model, policy).batch(key_of(0), None, np.zeros(6), 1)
    rng, lam = np.random.default_rng(0), np.array([0.5])
    rows = rng.choice(6, size=20_000, p=exact.weight / exact.weight.sum())
    score = np.asarray(exact.score)
    draws = exact._replace(weight=np.full(len(rows), 1 / len(rows)), score=score[rows], A=exact.A[rows], pair=rows)
    best = cl.LeastSquares()(exact, lam, model.gamma)
    error = score @ (direction(draws, lam, model.gamma) - best)
    size = exact.weight @ (score @ best) ** 2
    assert exact.weight @ error**2 < 0.01 * size


def test_the_trajectory_never_resets_and_learns_the_value_of_its_policy() -> None:
    model = random_cmdp(7, I=1)
    sampler = cl.Trajectory(model, cl.softmax(model.S, model.A), beta=0.01, explore=0.0)
    theta = np.zeros(model.S * model.A)
    draws, J_hat, world, steps = sampler.batch(np.uint64(0), sampler.begin(), theta, 20_000)
    for k in range(1, 20):
        draws, J_hat, world, steps = sampler.batch(np.uint64(k), world, theta, 20_000)
        assert steps == 20_000 and 0 <= world.s < model.S
    at = cl.evaluate(model, sampler.policy.pi(theta))
    assert np.allclose(world.Q.T.reshape(at.Q.shape), at.Q, atol=0.5)
    assert np.allclose(J_hat, at.J, atol=0.3) and np.allclose(draws.A.T.reshape(at.A.shape), at.A, atol=0.5)


def test_the_trajectory_starts_again_where_an_episode_ends() -> None:
    model = cl.zoo.frozen_lake()
    sampler = cl.Trajectory(model, cl.softmax(model.S, model.A))
    assert sampler.ends.sum() == 5  # four holes and the goal
    _, _, world, _ = sampler.batch(np.uint64(3), sampler.begin(), np.zeros(model.S * model.A), 5000)
    assert (world.visits > 0).sum() > 8


def test_the_empirical_model_is_unbiased() -> None:
    model = random_cmdp(9)
    sampler = cl.Generative(model, cl.softmax(model.S, model.A))
    world, steps = sampler.collect(key_of(4), sampler.begin(), 4000)
    assert steps == 4000 * model.S * model.A
    P, P_hat = model.P, sampler.model(world).P
    z = (P_hat - P) / np.sqrt(P * (1 - P) / 4000 + 1e-12)
    assert np.abs(z[P > 1e-3]).max() < 4.5 and 0.6 < np.mean(z[P > 1e-3] ** 2) < 1.5


def test_the_score_of_a_network_is_its_gradient() -> None:
    policy = cl.two_layer(3, 2, m=8)
    theta = policy.init() + 0.1 * np.random.default_rng(0).normal(size=policy.d)
    s, a, e = np.array([0, 1, 2]), np.array([1, 0, 1]), 1e-6
    step = np.random.default_rng(1).normal(size=policy.d)
    change = (policy.log_pi(theta + e * step)[s, a] - policy.log_pi(theta - e * step)[s, a]) / (2 * e)
    assert np.allclose(policy.score(theta, s, a) @ step, change, atol=1e-6)
    assert np.allclose(policy.pi(policy.init()), 0.5)


def test_an_extra_signal_is_seen_by_every_sampler() -> None:
    """Its advantage is that of the signal, and Ĵ does not hold it."""
    model = random_cmdp(11, I=1)
    policy, extra = cl.softmax(model.S, model.A), np.arange(model.S * model.A, dtype=float).reshape(model.S, model.A)
    truth = cl.evaluate(append_signal(model, extra), policy.pi(policy.init())).A[2].ravel()
    samplers: Any = (
        (cl.Exact(model, policy), 1, 1e-9),
        (cl.Critic(model, policy, explore=0.0, gain=1.0), 200_000, 1.5),
        (cl.Trajectory(model, policy, beta=0.002, explore=0.0), 2_000_000, 1.5),
    )
    for sampler, N, close in samplers:
        draws, J_hat, _, _ = sampler.batch(key_of(1), sampler.begin(), policy.init(), N, extra)
        assert draws.A.shape[1] == 3 and len(J_hat) == 2
        assert np.abs(draws.A[:, 2] - truth).max() < close
    draws, J_hat, _, _ = cl.Table(model, policy).batch(key_of(1), None, policy.init(), 200_000, extra)
    sums, n = np.bincount(draws.pair, draws.A[:, 2]), np.bincount(draws.pair)
    squares = np.bincount(draws.pair, draws.A[:, 2] ** 2)
    z = (sums / n - truth) / np.sqrt((squares / n - (sums / n) ** 2) / n)
    assert np.abs(z).max() < 4.5 and len(J_hat) == 2


@pytest.mark.parametrize("direction", [cl.WeightedSGD(), cl.AcceleratedSGD()])
def test_regressions_on_a_table_are_those_on_its_scores(direction: Any) -> None:
    model = random_cmdp(6, I=1)
    theta = np.random.default_rng(2).normal(size=model.S * model.A)
    draws, *_ = cl.Table(model, cl.softmax(model.S, model.A)).batch(key_of(3), None, theta, 300)
    s, a = np.divmod(draws.pair, model.A)
    score = cl.softmax(model.S, model.A).score(theta, s, a)
    assert np.allclose(draws.score.toarray(), score) and np.allclose(draws.score @ theta, score @ theta)
    assert np.allclose(draws.score.T @ draws.A[:, 0], score.T @ draws.A[:, 0])
    lam = np.array([0.4])
    assert np.allclose(direction(draws, lam, 0.8), direction(draws._replace(score=score), lam, 0.8))
