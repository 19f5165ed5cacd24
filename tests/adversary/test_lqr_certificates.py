"""Exact certificates of linear-quadratic problems at and beyond the edge of stability: none may lie."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from lqr_enclosures import draw_loop, judge

import clearance as cl
from clearance.cli import main
from clearance.core.errors import InputError
from clearance.core.rational_algebra import round_down, round_up
from clearance.simulator.linear_quadratic import LQR, LinearPolicy, enclose_variance
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Normaliser
from clearance.zoo import simulated

ONE = np.eye(1)
SEEN = (-0.06748741, 0.51956677, 0.0)  # √γ·ρ of its loop is 1 to 15 digits; it was certified with J_g = −3.5e13 ≥ −2
UNSTABLE = (5.0, 5.0, 0.0)


def scalar(a: float, gamma: float, budget: float = 1.0, W: float = 1.0) -> tuple[LQR, LinearPolicy]:
    """x' = (a + 1)x + u + w with u = −x, so that the loop is x' = ax + w."""
    return LQR((a + 1) * ONE, ONE, ONE, ONE, W * ONE, ONE, gamma, budget), LinearPolicy(ONE, np.zeros(1), 0 * ONE)


def linear_mixture(*thetas: Any, weights: Any = (1.0,), scale: Any = "fixed") -> tuple[Any, NetworkMixture]:
    env = simulated.double_integrator(2.0)
    policy = cl.gaussian(hidden=(), scale=scale, std=0.1).fitted(env.obs_shape, env.action)
    with np.errstate(over="ignore"):  # θ is rounded to float32
        return env, NetworkMixture(policy, np.array(weights), np.array(thetas), Normaliser.identity(2))


# ------------------------------------------------------------------------------------------------ near-critical loops


def test_the_loop_that_was_certified_is_violated() -> None:
    found = cl.certify(*linear_mixture(SEEN))
    assert found.verdict == "VIOLATED" and found.evidence == "exact"
    assert np.all(np.array(found.J_lower) <= found.J_upper) and found.J_upper[1] < -1e13
    assert np.allclose(found.J_g, -37806299517652.97, rtol=1e-14)


@pytest.mark.parametrize("part", range(4))
def test_no_near_critical_loop_is_outside_its_enclosure(part: int) -> None:
    """The study of benchmarks/lqr_enclosures.py in small, against 400 digits."""
    for i in range(10):
        rng = np.random.default_rng([7, part, i])
        row = judge(draw_loop(rng), rng)
        assert not row["outside"] and not row["wrong"], (part, i, row)
        assert row["width"] is None or row["width"] < 1e-14


@pytest.mark.parametrize("gamma", [0.25, 0.95, 1 - 1e-9, 1 - 2.0**-53])
@pytest.mark.parametrize("a", [0.0, 0.5, -0.999999, 1 - 2.0**-53])
def test_a_scalar_loop_has_its_closed_form(a: float, gamma: float) -> None:
    problem, policy = scalar(a, gamma)
    loop, g = Fraction(a + 1) - 1, Fraction(gamma)  # a + 1 is what is stored
    J = (1 + g / (1 - g)) / (1 - g * loop**2)
    found = problem.enclose(policy)
    assert found.lower.tolist() == [round_down(J)] * 2 and found.upper.tolist() == [round_up(J)] * 2


def test_a_well_behaved_regulator_has_a_tight_enclosure() -> None:
    problem = LQR.double_integrator(2.0)
    best = problem.optimum()
    verdict, found = problem.certify(LinearPolicy(0.999999 * best.K, np.zeros(1), 0 * ONE))
    assert verdict == "CERTIFIED"
    assert np.all(found.upper - found.lower <= 2 * np.spacing(found.J))
    assert np.isclose(best.J[0], 45.9353890718, rtol=1e-11)


# ------------------------------------------------------------------------------------------------ sums that diverge


@pytest.mark.parametrize(("a", "gamma"), [(2.0, 0.25), (-2.0, 0.25), (1.5, 0.95), (1e100, 0.5)])
def test_critical_and_unstable_loops_diverge(a: float, gamma: float) -> None:
    """At γa² = 1 the equation is singular."""
    problem, policy = scalar(a, gamma, budget=1e300)
    verdict, found = problem.certify(policy)
    assert verdict == "VIOLATED" and np.all(found.lower == np.inf) and np.all(found.upper == np.inf)


def test_a_critical_jordan_block_diverges_and_the_one_below_does_not() -> None:
    def block(x: float) -> LQR:
        F = np.array([[x, 1.0], [0.0, x]])
        return LQR(F + np.eye(2), np.eye(2), np.eye(2), np.eye(2), 0 * F, np.eye(2), 0.25, 1.0)

    policy = LinearPolicy(np.eye(2), np.zeros(2), np.zeros((2, 2)))
    assert np.all(block(2.0).enclose(policy).lower == np.inf)
    below = block(2 - 2.0**-45).enclose(policy)
    assert np.all(np.isfinite(below.upper)) and np.all(below.lower > 1e30)


def test_a_policy_that_does_nothing_spends_nothing_while_the_state_diverges() -> None:
    problem = LQR(3 * ONE, ONE, ONE, ONE, ONE, ONE, 0.95, 0.0)
    verdict, found = problem.certify(LinearPolicy(0 * ONE, np.zeros(1), 0 * ONE))
    assert verdict == "CERTIFIED" and found.J.tolist() == [np.inf, 0.0]


def test_noise_and_bias_have_a_finite_effort_while_the_state_diverges() -> None:
    """J_u = (c'Rc + tr RΣ)/(1 − γ) if K = 0, whatever the state does."""
    problem = LQR(3 * ONE, ONE, ONE, 0.25 * ONE, ONE, ONE, 0.75, 1.0)
    verdict, found = problem.certify(LinearPolicy(0 * ONE, np.array([0.5]), 0.75 * ONE))
    assert verdict == "CERTIFIED" and found.lower.tolist() == found.upper.tolist() == [np.inf, 1.0]


def test_an_unstable_mode_counts_only_if_something_excites_it() -> None:
    still, B = np.diag([1.0, 0.0]), np.eye(2)
    policy = LinearPolicy(np.array([[0.5, 0.0], [0.0, 0.5]]), np.zeros(2), np.zeros((2, 2)))
    problem = LQR(np.diag([1.0, 9.0]), B, np.eye(2), np.eye(2), still, still, 0.5, 10.0)
    found = problem.enclose(policy)
    assert np.allclose(found.J, np.array([1.0, 0.25]) * 2 / (1 - 0.5 * 0.25))
    noisy = problem.enclose(policy._replace(Sigma=1e-300 * np.eye(2)))  # the policy's own noise excites it
    shifted = problem.enclose(policy._replace(c=np.array([0.0, 1e-300])))  # and so does its bias
    assert np.all(noisy.lower == np.inf) and np.all(shifted.lower == np.inf)


def test_a_value_beyond_floating_point_is_not_certified() -> None:
    problem, policy = scalar(0.5, 0.95, budget=1e308, W=1e308)
    assert problem.enclose(policy).upper.tolist() == [np.inf, np.inf]
    assert problem.certify(policy)[0] == "VIOLATED"


# ------------------------------------------------------------------------------------------------ policies


@pytest.mark.parametrize("theta", [(1e150, 0.0, 0.0), (0.0, -1e39, 0.0), (0.0, 0.0, 1e150)])
def test_numbers_that_float32_cannot_hold_are_undecided(theta: tuple[float, ...]) -> None:
    found = cl.certify(*linear_mixture(theta))
    assert found.verdict == "UNDECIDED"
    assert found.J_lower == [-np.inf, -np.inf] and found.J_upper == [np.inf, np.inf]


def test_one_diverging_component_violates_whatever_its_weight() -> None:
    found = cl.certify(*linear_mixture((-0.1, -0.3, 0.0), UNSTABLE, weights=(1 - 1e-12, 1e-12)))
    assert found.verdict == "VIOLATED" and found.J_g == [-np.inf] and found.J_upper == [-np.inf, -np.inf]
    unused = cl.certify(*linear_mixture((-0.1, -0.3, 0.0), UNSTABLE, weights=(1.0, 0.0)))
    alone = cl.certify(*linear_mixture((-0.1, -0.3, 0.0)))
    assert unused.verdict == "CERTIFIED" and unused.J_lower == alone.J_lower and unused.J_upper == alone.J_upper


def test_the_command_line_reports_a_sum_that_diverges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    linear_mixture(UNSTABLE)[1].save(tmp_path / "policy.npz")
    problem = "clearance.zoo.simulated.motion:double_integrator"
    assert main(["certify", problem, str(tmp_path / "policy.npz")]) == 4
    said = capsys.readouterr()
    assert "VIOLATED" in said.out and "-inf" in said.out and "infinite" in said.out and not said.err


def test_a_mixture_is_enclosed_though_its_weights_do_not_sum_to_one() -> None:
    thetas, weights = [(-0.1, -0.3, 0.0), (-0.12, -0.3, 0.01), (-0.11, -0.2, 0.0)], (0.1, 0.2, 0.7)
    parts = [cl.certify(*linear_mixture(theta)) for theta in thetas]
    found = cl.certify(*linear_mixture(*thetas, weights=weights))
    w = [Fraction(x) for x in weights]
    low, high = (
        sum(x * Fraction(end(p)) for x, p in zip(w, parts, strict=True)) / sum(w)
        for end in (lambda p: p.J_lower[1], lambda p: p.J_upper[1])
    )
    assert found.J_lower[1] <= low <= high <= found.J_upper[1] < found.J_lower[1] + 1e-14


@pytest.mark.parametrize("changed", [{"mean": [0.5, 0.0]}, {"var": [4.0, 1.0]}, {"count": 1.0}, {"count": np.nan}])
def test_a_normaliser_that_moves_observations_is_refused(changed: dict[str, Any]) -> None:
    env, mixture = linear_mixture((-0.1, -0.3, 0.0))
    moved = mixture.normaliser._replace(**{k: np.array(x, np.float32) for k, x in changed.items()})
    with pytest.raises(InputError, match="observations as they are"):
        cl.certify(env, NetworkMixture(mixture.policy, mixture.weights, mixture.theta, moved))


@pytest.mark.parametrize("log_std", [-5.0, float(np.float32(np.log(0.1))), 0.0, -1e-45, 2.0])
def test_the_variance_is_enclosed(log_std: float) -> None:
    variance, error = enclose_variance(log_std)
    with mpmath.workdps(60):
        assert abs(mpmath.exp(2 * mpmath.mpf(log_std)) - mpmath.mpf(variance)) <= mpmath.mpf(error)
    assert error <= np.spacing(variance)


def test_the_learned_scale_enters_the_enclosure() -> None:
    """σ beyond its largest value e² is cut off there, as in the policy."""
    at, beyond = (cl.certify(*linear_mixture((-0.1, -0.3, 0.0, x), scale="free")) for x in (2.0, 50.0))
    assert at.verdict == "VIOLATED" and at.J_g == beyond.J_g
    assert np.isclose(at.J_g[0], -np.exp(4.0) * 20, rtol=0.5)


# ------------------------------------------------------------------------------------------------ bad problems


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"Q": [[1.0, 2.0], [2.0, 1.0]]}, "Q must be symmetric and positive semidefinite"),
        ({"W": [[1.0, 0.1], [0.2, 1.0]]}, "W must be symmetric"),
        ({"X0": [[0.0, 1e-300], [1e-300, 1.0]]}, "X0 must be symmetric and positive semidefinite"),
        ({"R": [[-1.0]]}, "R must be symmetric and positive semidefinite"),
        ({"A": [[np.nan, 0.0], [0.0, 1.0]]}, "A must be a matrix of finite numbers"),
        ({"B": [0.0, 0.1]}, "B must be a matrix"),
        ({"Q": [[1.0]]}, "Q must be a matrix of finite numbers of shape"),
        ({"gamma": 1.0}, "gamma must be above 0 and below 1"),
        ({"gamma": np.nan}, "gamma must be above 0 and below 1"),
    ],
)
def test_a_problem_that_is_none_is_refused(changed: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        LQR(**{**vars(LQR.double_integrator()), **changed})


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (LinearPolicy(np.zeros((1, 3)), np.zeros(1), ONE), "must have shapes"),
        (LinearPolicy(np.zeros((1, 2)), np.zeros(1), -ONE), "Sigma must be symmetric and positive semidefinite"),
        (LinearPolicy(np.zeros((1, 2)), np.zeros(1), ONE, np.array([2.0])), "Sigma must be"),
        (LinearPolicy(np.zeros((1, 2)), np.zeros(1), ONE, np.array([-0.1])), "Sigma_error must hold"),
    ],
)
def test_a_policy_that_is_none_is_refused(policy: LinearPolicy, match: str) -> None:
    with pytest.raises(InputError, match=match):
        LQR.double_integrator().enclose(policy)


def test_what_takes_too_long_and_what_has_no_regulator_is_refused() -> None:
    n = np.eye(9)
    with pytest.raises(InputError, match="up to 8 states, got 9"):
        LQR(0.5 * n, n, n, n, n, n, 0.9, 1.0).enclose(LinearPolicy(0 * n, np.zeros(9), 0 * n))
    with pytest.raises(InputError, match="no regulator"):  # nothing moves an unstable mode that costs
        LQR(2 * np.eye(2), np.array([[1.0], [0.0]]), np.eye(2), ONE, np.eye(2), np.eye(2), 0.95, 1.0).optimum()
