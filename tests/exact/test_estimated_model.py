"""The model that counted transitions make: counts against the law, spreads against simulation, and plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.core.random_streams import fold, key_of
from clearance.exact.estimated_model import EstimatedModel, estimate_model
from clearance.exact.planning import plan_best, plan_exploration, plan_safest
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
from clearance.finite.samplers.td_critic import Critic
from clearance.finite.samplers.transition_counts import TransitionCounts
from clearance.runs.worlds.explored_model import FiniteExplored

GARNET = cl.zoo.garnet(seed=3)


def explored(cmdp: cl.CMDP, walks: int, seed: int = 0) -> FiniteExplored:
    found = FiniteExplored(cmdp, cl.softmax(cmdp.S, cmdp.A), TransitionCounts.none(cmdp))
    uniform = np.full((cmdp.S, cmdp.A), 1 / cmdp.A)
    found.counts.walk(cmdp, key_of(seed), uniform, walks)
    return found


@pytest.mark.parametrize("cmdp", [cl.zoo.bai2023(), cl.zoo.random_cmdp(1), GARNET], ids=["paper", "random", "garnet"])
def test_counts_are_of_the_law_that_is_walked(cmdp: cl.CMDP) -> None:
    """n(s, a, s')/n(s, a) is P within five standard errors, starts are ρ, and every step is counted once."""
    counts = TransitionCounts.none(cmdp)
    steps = counts.walk(cmdp, key_of(0), np.full((cmdp.S, cmdp.A), 1 / cmdp.A), 20_000)
    n = counts.transitions(cmdp).toarray()
    assert n.sum() == steps and counts.starts.sum() == 20_000
    P = np.asarray(cmdp.rows.toarray() if cmdp.is_sparse else cmdp.rows)
    total = n.sum(1, keepdims=True)
    assert np.all(np.abs(n - total * P) <= 5 * np.sqrt(total * P * (1 - P)) + 5)
    assert np.all(n[P == 0] == 0)
    assert np.all(np.abs(counts.starts - 20_000 * cmdp.rho) <= 5 * np.sqrt(20_000 * cmdp.rho) + 1)


def test_learning_and_tests_count_too_and_counting_changes_nothing() -> None:
    cmdp = cl.zoo.bai2023()
    policy, theta = cl.softmax(cmdp.S, cmdp.A), np.zeros(cmdp.S * cmdp.A)
    counting, plain = Critic(cmdp, policy, counting=True), Critic(cmdp, policy)
    found = [s.batch(key_of(1), s.begin(), theta, 50) for s in (counting, plain)]
    assert np.array_equal(found[0][2].Q, found[1][2].Q) and found[0][2].hits.sum() == found[0][3]
    assert len(found[1][2].hits) == 0
    counts, uniform = TransitionCounts.none(cmdp), Mixture.single(np.full((cmdp.S, cmdp.A), 1 / cmdp.A))
    X, _, steps = MixtureEpisodes(cmdp, uniform, counts=counts).draw(key_of(2), 0, 100)
    assert counts.hits.sum() == steps and counts.starts.sum() == 100
    assert np.array_equal(X, MixtureEpisodes(cmdp, uniform).draw(key_of(2), 0, 100)[0])


def test_doubt_is_the_spread_of_the_estimate() -> None:
    """Ĵ of 60 independent estimated models spreads about J as `doubt` says: within a third, for every signal."""
    cmdp = cl.zoo.random_cmdp(1)
    pi = cl.optimum(cmdp).policy
    seen = [explored(cmdp, 2000, seed).model().evaluate(pi) for seed in range(60)]
    off = np.array([s.J for s in seen]) - cl.evaluate(cmdp, pi).J
    ratio = np.sqrt((off**2).mean(0)) / np.mean([s.doubt for s in seen], axis=0)
    assert np.all((ratio > 0.67) & (ratio < 1.5))


@pytest.mark.parametrize("power", [0.5, 0.85])
def test_spread_is_that_of_an_episode_with_the_control_variate(power: float) -> None:
    cmdp = cl.zoo.bai2023()
    pi = cl.optimum(cmdp).policy
    seen = EstimatedModel(cmdp, np.full(cmdp.S * cmdp.A, 1e12), 1e12).evaluate(pi)
    source = MixtureEpisodes(cmdp, Mixture.single(pi), seen.V, power=power)
    X = source.draw(key_of(0), 0, 20_000)[0]
    assert X.std(0) == pytest.approx(seen.spread(power), rel=0.05)
    assert np.all(np.abs(X.mean(0) - seen.J) < 5 * X.std(0) / np.sqrt(len(X))), "unbiased for every power"
    low, high = source.bounds
    assert np.all((X - low >= 0) & (high - X >= 0))


def test_plans_of_the_true_model_are_the_optimum() -> None:
    cmdp = cl.zoo.bai2023()
    plan, best = plan_best(cmdp, cmdp.b), cl.optimum(cmdp)
    J = cl.evaluate(cmdp, plan.pi).J
    assert J[0] == pytest.approx(best.J_r, rel=1e-6) and np.allclose(plan.lam, best.lam, rtol=1e-4)
    slater = cl.slater_margin(cmdp)[0]
    assert np.min(cl.evaluate(cmdp, plan_safest(cmdp).pi).J[1:] - cmdp.b) == pytest.approx(slater, rel=1e-6)
    assert not plan_best(cmdp, cmdp.b + slater + 1.0).room


def test_no_plan_uses_a_pair_that_was_never_seen_and_exploration_goes_there() -> None:
    """One action was never taken: plans avoid it, and the curious policy takes it wherever it can."""
    cmdp = cl.zoo.random_cmdp(1)
    counts, pi = TransitionCounts.none(cmdp), np.ones((cmdp.S, cmdp.A)) / (cmdp.A - 1)
    pi[:, 0] = 0.0
    for i in range(3):
        counts.walk(cmdp, fold(key_of(5), i), pi, 2000)
    low, high = cmdp.h.min((1, 2)), cmdp.h.max((1, 2))
    model = estimate_model(counts.transitions(cmdp), counts.starts, cmdp, low)
    plan = plan_best(model.cmdp, cmdp.b)
    assert np.all(plan.pi[:, 0] < 1e-9)
    curious = plan_exploration(model, model.evaluate(plan.pi).V, np.append(1.0, plan.lam), high)
    assert np.all(curious[:, 0] == 1.0)


@pytest.mark.parametrize("single", ["prefer", "require", "never"])
def test_solve_from_samples_comes_near_the_optimum(single: Any) -> None:
    """Three problems, 10⁶ steps: certified, truly feasible, one policy or two as asked, above 97 % of the gain."""
    for seed in (1, 2, 3):
        cmdp = cl.zoo.random_cmdp(seed)
        best, uniform = cl.optimum(cmdp).J_r, cl.evaluate(cmdp, np.full((cmdp.S, cmdp.A), 1 / cmdp.A)).J[0]
        found = cl.solve(cmdp, evidence="samples", budget=1e6, seed=seed, single=single)
        J = found.policy.J(cmdp)
        assert found.certificate.verdict == "CERTIFIED" and np.all(J[1:] >= cmdp.b)
        most = 1 if single == "require" else 2
        assert most >= found.policy.M and (J[0] - uniform) / (best - uniform) > 0.9
