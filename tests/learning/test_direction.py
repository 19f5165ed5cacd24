"""The natural direction against closed forms, finite differences and its own readable path."""

from __future__ import annotations

import numpy as np
import pytest
from models import random_cmdp, random_theta

import clearance as cl
from clearance.core.random_streams import fold, key_of
from clearance.finite.evaluation import evaluate
from clearance.learning import dual
from clearance.learning.direction import SGD, LeastSquares, fisher, lagrangian


def exact_draws(cmdp: cl.CMDP, policy, theta: np.ndarray):
    return cl.Exact(cmdp, policy).batch(np.uint64(0), None, theta, 1)[0]


def test_softmax_direction_is_the_advantage() -> None:
    """ω = A_L/(1−γ) up to a constant per state (notes of the paper, and Agarwal et al. 2021, Lemma 15)."""
    cmdp = random_cmdp(0, I=2)
    policy = cl.softmax(cmdp.S, cmdp.A)
    theta, lam = random_theta(0, policy.d), np.array([0.7, 2.0])
    omega = LeastSquares()(exact_draws(cmdp, policy, theta), lam, cmdp.gamma).reshape(cmdp.S, cmdp.A)
    A_L = lagrangian(np.moveaxis(evaluate(cmdp, policy.pi(theta)).A, 0, -1), lam)
    assert np.ptp(omega - A_L / (1 - cmdp.gamma), axis=1) == pytest.approx(0, abs=1e-8)
    closed = cl.Tabular()(exact_draws(cmdp, policy, theta), lam, cmdp.gamma).reshape(cmdp.S, cmdp.A)
    assert closed == pytest.approx(A_L / (1 - cmdp.gamma), abs=1e-12)


@pytest.mark.parametrize("tabular", [True, False])
def test_direction_solves_F_omega_equals_the_gradient(tabular: bool) -> None:
    """F ω = ∇J_L with the gradient by central differences of the exact J."""
    cmdp = random_cmdp(1, I=2)
    policy = cl.softmax(6, 3) if tabular else cl.linear_softmax(np.random.default_rng(3).normal(size=(6, 3, 4)))
    theta, lam, step = random_theta(1, policy.d), np.array([0.5, 1.5]), 1e-5
    weights = np.array([1.0, *lam])

    def J_L(t: np.ndarray) -> float:
        return float(weights @ evaluate(cmdp, policy.pi(t)).J)

    gradient = [(J_L(theta + step * e) - J_L(theta - step * e)) / (2 * step) for e in np.eye(policy.d)]
    draws = exact_draws(cmdp, policy, theta)
    F = fisher(draws)
    assert pytest.approx(F.T) == F and np.linalg.eigvalsh(F).min() > -1e-12
    for direction, tolerance in ((LeastSquares(), 1e-6), (LeastSquares(ridge=1e-9), 1e-6)):
        assert F @ direction(draws, lam, cmdp.gamma) == pytest.approx(np.array(gradient), abs=tolerance)


def test_score_is_the_gradient_of_log_pi() -> None:
    policy, step = cl.linear_softmax(np.random.default_rng(3).normal(size=(5, 3, 4))), 1e-6
    theta, s, a = random_theta(0, 4), np.array([0, 2, 4]), np.array([1, 2, 0])
    numeric = [
        (policy.log_prob(theta + step * e, s, a) - policy.log_prob(theta - step * e, s, a)) / (2 * step)
        for e in np.eye(4)
    ]
    assert policy.score(theta, s, a) == pytest.approx(np.array(numeric).T, abs=1e-8)


def test_a_parameter_that_no_draw_knows_of_stays_where_it_is() -> None:
    """Draws from states 0..2 say nothing of states 3..5."""
    cmdp = random_cmdp(2)
    policy = cl.softmax(6, 3)
    draws = exact_draws(cmdp, policy, random_theta(4, 18))
    seen = np.arange(18) < 9
    omega = LeastSquares()(draws._replace(weight=draws.weight * seen), np.ones(1), cmdp.gamma)
    assert np.all(omega[9:] == 0) and np.all(omega[:9] != 0)


@pytest.mark.parametrize("printed", [False, True])
def test_averaged_sgd_converges_to_least_squares(printed: bool) -> None:
    """Both forms of the paper's SGD reach the same ω as N grows; the error of w falls like 1/√N or faster."""
    cmdp = random_cmdp(3, S=3, A=2, I=1, gamma=0.5)
    policy = cl.softmax(3, 2)
    theta, lam = random_theta(5, 6, 0.3), np.array([0.5])
    target = LeastSquares()(exact_draws(cmdp, policy, theta), lam, cmdp.gamma)
    sampler, direction = cl.Table(cmdp, policy), SGD(alpha=0.125, printed=printed)
    error = {}
    for N in (400, 6400):
        draws = [sampler.batch(fold(key_of(1), i), None, theta, N)[0] for i in range(8)]
        estimates = [direction(d, lam, cmdp.gamma) for d in draws]
        error[N] = np.sqrt(np.mean([np.sum((e - target) ** 2) for e in estimates]))
    assert error[6400] < error[400] / 2.5
    assert error[6400] < 0.25 * np.linalg.norm(target)


def test_printed_form_is_the_w_form_with_a_smaller_step() -> None:
    """ω-form with α equals the w-form with 2α(1−γ)²: the time constant is longer by 1/(2(1−γ)²)."""
    cmdp = random_cmdp(0, I=1)
    policy = cl.softmax(6, 3)
    draws = cl.Table(cmdp, policy).batch(key_of(0), None, random_theta(0, 18), 100)[0]
    lam = np.array([1.0])
    printed = SGD(alpha=0.1, printed=True)(draws, lam, cmdp.gamma)
    w_form = SGD(alpha=2 * 0.1 * (1 - cmdp.gamma) ** 2)(draws, lam, cmdp.gamma)
    assert printed == pytest.approx(w_form, rel=1e-10)


def test_dual_step_projects_on_the_closed_interval() -> None:
    lam = np.array([0.0, 1.0, 4.9])
    slack = np.array([1.0, -2.0, -50.0])
    assert dual.step(lam, slack, 0.1, 0.0, 5.0).tolist() == [0.0, 1.2, 5.0]
    assert dual.step(lam, slack, 0.1, 2.0, 5.0).tolist() == [0.1, 1.4, 5.0]


def test_path_bound_holds_for_any_sequence_and_is_void_when_clipped() -> None:
    rng = np.random.default_rng(0)
    slack, lam = rng.normal(0.1, 1, (500, 2)), [np.zeros(2)]
    for s in slack:
        lam.append(dual.step(lam[-1], s, 0.05, 0.2, 1e9))
    bound = dual.path_bound(np.array(lam[:-1]), lam[-1], 0.05, 0.2, 1e9)
    assert bound is not None and np.all(slack.mean(0) >= bound - 1e-12)
    assert dual.path_bound(np.array(lam[:-1]), lam[-1], 0.05, 0.2, float(np.max(lam))) is None


def test_a_saturated_policy_still_finds_its_way_back() -> None:
    """Where every state is deterministic to 1e-217, ω is still A_L/(1−γ): not lost in rounding, and not noise."""
    cmdp = random_cmdp(2)
    policy = cl.softmax(6, 3)
    theta = 500.0 * np.eye(3)[np.arange(6) % 3].ravel()
    omega = cl.Tabular()(exact_draws(cmdp, policy, theta), np.ones(1), cmdp.gamma).reshape(6, 3)
    A_L = evaluate(cmdp, policy.pi(theta)).A.sum(0)
    assert np.ptp(omega - A_L / (1 - cmdp.gamma), axis=1) == pytest.approx(0, abs=1e-8)
    shortest = LeastSquares()(exact_draws(cmdp, policy, theta), np.ones(1), cmdp.gamma)
    assert np.linalg.norm(shortest) < 1e3, "rounding errors must not be divided by 1e-200"


def test_large_features_stay_sparse_and_mean_the_same(monkeypatch) -> None:
    from clearance.finite import softmax_policy as module

    policy = cl.linear_softmax(np.random.default_rng(3).normal(size=(5, 3, 4)) * (np.arange(4) != 2))
    theta, s, a = random_theta(0, 4), np.array([0, 2, 4]), np.array([1, 2, 0])
    small = policy.score(theta, s, a)
    monkeypatch.setattr(module, "DENSE", 0)
    large = policy.score(theta, s, a)
    assert large.toarray() == pytest.approx(small, abs=1e-15)
