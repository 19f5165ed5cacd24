"""Network policies, their scores and Fisher matrices, advantages and critics: against closed forms and differences."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from clearance.core.errors import InputError
from clearance.core.spaces import Box, Discrete, MultiDiscrete, describe_space, restore_space
from clearance.core.statement import Statement
from clearance.learning.methods.natural_step import CLIP, clipped
from clearance.learning.natural_direction import Natural, bound_step, conjugate_gradients
from clearance.simulator.jax_backend import real
from clearance.simulator.policies import network_score
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import NetworkPolicy, Normaliser, categorical, gaussian
from clearance.simulator.policies.network_score import NetworkRows, NetworkScore
from clearance.simulator.samplers.gae import episode_times, first_returns, gae, occupancy_weights
from clearance.simulator.samplers.value_networks import Critics
from clearance.simulator.simulator import Steps

BOX = Box(np.array([-1.0, -np.inf, 0.0]), np.array([2.0, np.inf, np.inf]))
CASES = {
    "categorical": (categorical(hidden=(5,)), Discrete(4)),
    "linear": (categorical(hidden=()), Discrete(3)),
    "multi": (categorical(hidden=(4,)), MultiDiscrete((2, 3))),
    "gaussian": (gaussian(hidden=(5, 4)), BOX),
    "state": (gaussian(hidden=(5,), scale="state"), BOX),
    "fixed": (gaussian(hidden=(), scale="fixed", std=0.3), BOX),
}
each = pytest.mark.parametrize("case", CASES)


def policy_of(case: str) -> NetworkPolicy:
    design, space = CASES[case]
    return design.fitted((3,), space)


def drawn(policy: NetworkPolicy, N: int = 40) -> tuple[Any, Any, Any, Any]:
    """θ away from its start, observations, and latents drawn from the policy."""
    rng = np.random.default_rng(0)
    theta = policy.init() + 0.3 * rng.normal(size=policy.d)
    z = real(rng.normal(size=(N, 3)))
    net = policy.net(theta)
    outs = jax.vmap(partial(policy.out, net))(z)
    return theta, z, outs, policy.head.latent(outs, policy.head.noise(jax.random.key(1), (N,)))


@each
def test_score_is_the_derivative_of_log_pi(case: str) -> None:
    with jax.enable_x64(True):
        policy = policy_of(case)
        theta, z, _, u = drawn(policy)
        score: Any = NetworkScore(policy, theta, z, u, jnp.ones(len(z)) / len(z))
        v, w = np.random.default_rng(1).normal(size=policy.d), np.random.default_rng(2).normal(size=len(z))
        ahead, behind = (network_score._log_probs(policy, z, u, real(theta + e * v)) for e in (1e-5, -1e-5))
        np.testing.assert_allclose(score @ v, (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-7)
        assert np.isclose((score @ v) @ w, v @ (score.T @ w), rtol=1e-10)


def part_of(policy: Any, theta: Any, z: Any, weight: Any) -> NetworkRows:
    return NetworkRows(policy, real(theta), z, weight)


@each
def test_mean_score_is_zero_and_its_square_the_fisher_matrix(case: str) -> None:
    """E score = 0 and E score scoreᵀ = F at one observation, over drawn actions; z-scores."""
    policy = policy_of(case)
    theta, z, _, _ = drawn(policy, 1)
    N = 3000
    z = jnp.repeat(z, N, axis=0)
    outs = jax.vmap(partial(policy.out, policy.net(theta)))(z)
    u = policy.head.latent(outs, policy.head.noise(jax.random.key(2), (N,)))
    v = np.random.default_rng(3).normal(size=policy.d)
    score: Any = NetworkScore(policy, theta, z, u, jnp.ones(N))
    along = score @ v
    quad = float(v @ part_of(policy, theta, z[:1], jnp.ones(1)).fisher(v))
    assert abs(along.mean()) < 5 * along.std() / np.sqrt(N)
    assert abs((along**2).mean() - quad) < 5 * (along**2).std() / np.sqrt(N)


@each
def test_fisher_is_the_curvature_of_kl(case: str) -> None:
    with jax.enable_x64(True):
        policy = policy_of(case)
        theta, z, _, _ = drawn(policy)
        rows = part_of(policy, theta, z, jnp.linspace(1, 2, len(z)))
        v = np.random.default_rng(4).normal(size=policy.d)
        assert np.isclose(rows.kl_to(theta + 1e-4 * v), 0.5e-8 * float(v @ rows.fisher(v)), rtol=1e-3)
        assert rows.kl_to(theta) == 0


def test_conjugate_gradient_solves_and_a_step_keeps_its_bound() -> None:
    with jax.enable_x64(True):
        policy = policy_of("gaussian")
        theta, z, _, u = drawn(policy, 200)
        weight = jnp.ones(200) / 200
        F = part_of(policy, theta, z, weight).fisher
        dense = np.array([F(v) for v in np.eye(policy.d)]) + 0.1 * np.eye(policy.d)
        g = np.random.default_rng(5).normal(size=policy.d)
        x, rest = conjugate_gradients(lambda v: F(v) + 0.1 * v, g, 3 * policy.d)
        np.testing.assert_allclose(rest, g - dense @ x, atol=1e-10)
        np.testing.assert_allclose(x, np.linalg.solve(dense, g), rtol=1e-5, atol=1e-8)
        score = NetworkScore(policy, theta, z, u, weight)
        A = np.random.default_rng(6).normal(size=200)
        omega, quad, rows = Natural(3 * policy.d)(score, A)
        np.testing.assert_allclose(dense @ omega, score.T @ (A / 200), rtol=1e-4, atol=1e-7)
        assert np.isclose(quad, omega @ (dense - 0.1 * np.eye(policy.d)) @ omega)
        for kl in (1e-3, 0.5):
            step = bound_step(rows, omega, quad, 1e9, kl)
            assert 0.2 * kl < rows.kl_to(theta + step) <= 1.5 * kl


@each
def test_a_reused_batch_gives_the_gradient_of_the_clipped_objective(case: str) -> None:
    """Σ w min(ratio·A, clip(ratio)·A) at other parameters than the sampling ones, by automatic differentiation."""
    with jax.enable_x64(True):
        policy = policy_of(case)
        theta, z, _, u = drawn(policy, 150)
        weight, rng = jnp.linspace(1, 2, 150) / 225, np.random.default_rng(9)
        A, new = rng.normal(size=150), theta + 0.1 * rng.normal(size=policy.d)
        score = NetworkScore(policy, theta, z, u, weight)
        old = network_score._log_probs(policy, z, u, real(theta))

        def objective(th: Any) -> Any:
            ratio = jnp.exp(network_score._log_probs(policy, z, u, th) - old)
            return weight @ jnp.minimum(ratio * A, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * A)

        there, ratio = score.at(new)
        assert np.any(clipped(A, ratio) == 0) and np.any(clipped(A, ratio) != 0)
        found = there.gradient(clipped(A, ratio))
        np.testing.assert_allclose(found, jax.grad(objective)(real(new)), rtol=1e-8, atol=1e-10)
        same, ones = score.at(theta)
        assert np.array_equal(ones, np.ones(150)) and np.array_equal(same.gradient(A), score.gradient(A))


@each
def test_products_by_hand_are_those_of_automatic_differentiation(case: str) -> None:
    """J v, Jᵀu and F v of the tape against JAX's own, over a number of rows that fills no group."""
    with jax.enable_x64(True):
        policy = policy_of(case)
        theta, z, _, u = drawn(policy, 300)
        score = NetworkScore(policy, theta, z, u, jnp.linspace(1, 2, 300) / 450)
        A = np.random.default_rng(7).normal(size=300)
        np.testing.assert_allclose(score.gradient(A), score.T @ (score.weight * A), rtol=1e-9, atol=1e-12)

        np.testing.assert_allclose(score.toarray().T @ A, score.T @ A, rtol=1e-9, atol=1e-10)

        def outs(th: Any) -> Any:
            return jax.vmap(partial(policy.out, policy.net(th)))(z)

        out, push = jax.linearize(outs, real(theta))
        v = np.random.default_rng(8).normal(size=policy.d)
        Mv = score.weight[:, None] * jax.vmap(policy.head.fisher)(out, push(real(v)))
        by_jax = jax.linear_transpose(push, real(theta))(Mv)[0]
        np.testing.assert_allclose(score.every(1).fisher(v), by_jax, rtol=1e-9, atol=1e-12)


def test_the_numpy_policy_is_the_compiled_one() -> None:
    for case in CASES:
        policy = policy_of(case)
        theta, _, _, _ = drawn(policy)
        normaliser = Normaliser(np.array([1.0, 0, -1], np.float32), np.array([4.0, 1, 0.25], np.float32), np.float32(9))
        obs = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
        outs = jax.vmap(partial(policy.out, policy.net(theta)))(normaliser(jnp.asarray(obs)))
        np.testing.assert_allclose(policy.plain(theta, normaliser)(obs), outs, rtol=2e-5, atol=2e-6)


def test_actions_lie_in_their_space() -> None:
    head = policy_of("gaussian").head
    u = 30 * np.random.default_rng(0).normal(size=(1000, 3))
    a = head.action(u, np)
    assert a[:, 0].min() == -1 and a[:, 0].max() == 2 and a[:, 2].min() == 0
    assert np.array_equal(a[:, 1], u[:, 1])
    np.testing.assert_allclose(head.action(jnp.asarray(u)), a, rtol=1e-5, atol=1e-5)
    parts = policy_of("multi").head
    drawn = parts.latent(np.zeros((500, 5)), parts.plain_noise(np.random.default_rng(0), 500), np)
    assert {tuple(x) for x in drawn.tolist()} == {(i, j) for i in range(2) for j in range(3)}


def steps_of(h: Any, terminated: Any, truncated: Any, valid: Any = None) -> Steps:
    """Steps of one lane; observations do not matter."""
    h = jnp.asarray(h, float)[:, None, None]
    flags = [jnp.asarray(x, bool)[:, None] for x in (terminated, truncated, [1] * len(h) if valid is None else valid)]
    return Steps(h, h, h, flags[0], flags[1], h, flags[2])


def test_gae_by_hand() -> None:
    """Three steps that terminate, a reset row, two steps that are cut off: γ = .5, λ = .5, V = 1 before, 2 after."""
    steps = steps_of([1, 2, 3, 9, 4, 5], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1], [1, 1, 1, 0, 1, 1])
    V, after = jnp.ones((6, 1, 1)), 2 * jnp.ones((6, 1, 1))
    # δ = h + .5·2 − 1 = h, but 3 − 1 = 2 where the episode terminates
    third, second = 2.0, 2 + 0.25 * 2
    fifth = 5.0
    expected = [1 + 0.25 * second, second, third, 0.0, 4 + 0.25 * fifth, fifth]
    np.testing.assert_allclose(gae(steps, V, after, 0.5, 0.5)[:, 0, 0], expected, rtol=1e-6)
    assert episode_times(steps)[:, 0].tolist() == [0, 1, 2, 0, 0, 1]
    weight = np.array([1, 0.5, 0.25, 0, 1, 0.5])
    np.testing.assert_allclose(occupancy_weights(episode_times(steps), steps, 0.5)[:, 0], weight, rtol=1e-6)
    assert np.isclose(first_returns(steps, after, 0.5)[0, 0], 1 + 0.5 * 2 + 0.25 * 3)


def test_gae_with_decay_one_is_the_return_less_the_value() -> None:
    rng = np.random.default_rng(0)
    h, V = rng.normal(size=7), jnp.asarray(rng.normal(size=(8, 1, 1)), jnp.float32)
    steps = steps_of(h, [0] * 7, [0] * 6 + [1])
    R = [sum(0.9**i * x for i, x in enumerate(h[t:])) + 0.9 ** (7 - t) * float(V[7, 0, 0]) for t in range(7)]
    np.testing.assert_allclose(gae(steps, V[:7], V[1:], 0.9, 1.0)[:, 0, 0], R - np.ravel(V[:7]), rtol=2e-5, atol=1e-5)
    open_end = steps_of(h, [0] * 7, [0] * 7)
    assert np.isclose(first_returns(open_end, V[1:], 0.9)[0, 0], R[0], rtol=1e-5)


def test_critics_keep_their_values_when_rescaled_and_fit_what_they_see() -> None:
    critics = Critics(2, 2, (32,), rate=1e-2, epochs=30, batch=64)
    values = critics.begin(0)
    rng = np.random.default_rng(0)
    z = real(rng.normal(size=(512, 2)))
    R = real(np.stack([1000 + 50 * np.asarray(z)[:, 0], -0.001 * np.asarray(z)[:, 1]], axis=1))
    moved = critics.rescaled(values, R, jnp.ones(512))
    np.testing.assert_allclose(critics(moved, z), critics(values, z), atol=1e-3)  # of targets near 1000, in float32
    fitted = critics.fit(critics.order(np.uint64(0), 512), values, z, R, jnp.ones(512))
    assert np.all(np.mean((critics(fitted, z) - R) ** 2, axis=0) < 0.02 * np.var(R, axis=0))


def test_normaliser_joins_batches_into_the_moments_of_all() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(3, 2, size=(n, 2)) for n in (10, 200, 31)]
    normaliser = Normaliser.identity(2)
    for x in parts:
        rows = np.concatenate([x, [[1e6, 1e6]]])
        normaliser = normaliser.joined(real(rows), real(np.append(np.ones(len(x)), 0)))
    both = np.concatenate(parts)
    np.testing.assert_allclose(normaliser.mean, both.mean(0), rtol=1e-4)
    np.testing.assert_allclose(normaliser.var, both.var(0), rtol=1e-4)
    assert int(normaliser.count) == len(both)
    far = np.array([[1e9, 0.0]], np.float32)
    assert np.asarray(normaliser(far))[0, 0] == 10
    assert np.asarray(Normaliser.identity(2)(far))[0, 0] == 1e9  # as it is


def test_a_saved_mixture_acts_as_before(tmp_path: Any) -> None:
    policy = policy_of("gaussian")
    theta = np.stack([drawn(policy)[0], policy.init()])
    normaliser = Normaliser(np.ones(3), 2 * np.ones(3), np.ones(()))
    mixture = NetworkMixture(policy, np.array([0.25, 0.75]), theta, normaliser)
    mixture.save(tmp_path / "policy.npz")
    again = NetworkMixture.load(tmp_path / "policy.npz")
    assert np.array_equal(again.theta, mixture.theta) and np.array_equal(again.weights, mixture.weights)
    obs = np.array([0.3, -1, 2])
    for seed in range(5):
        a, b = (m.reset(np.random.default_rng(seed)).act(obs) for m in (mixture, again))
        assert np.array_equal(a, b) and a.shape == (3,)
    np.savez(tmp_path / "other.npz", weights=np.ones(1))
    with pytest.raises(InputError, match="theta is missing"):
        NetworkMixture.load(tmp_path / "other.npz")
    with pytest.raises(InputError, match="description asks for"):
        NetworkMixture(policy, np.ones(1), np.zeros((1, 3)), normaliser)


def test_spaces_and_statements_refuse_what_is_wrong() -> None:
    for space in (Discrete(3), MultiDiscrete((2, 5)), BOX):
        again = restore_space(describe_space(space))
        assert describe_space(again) == describe_space(space)
    with pytest.raises(InputError, match="below high"):
        Box(np.array([1.0]), np.array([1.0]))
    with pytest.raises(InputError, match="1 with a horizon"):
        Statement("x", 1.0, np.zeros(1))
    with pytest.raises(InputError, match=r"bounds\[1\]"):
        Statement("x", 0.9, np.zeros(1), bounds=(np.array([0.0, 2.0]), np.array([1.0, 1.0])))
    with pytest.raises(InputError, match="use gaussian"):
        categorical().fitted((3,), BOX)
    assert Statement("x", 1.0, np.zeros(1), horizon=7).length == 7
    assert np.isclose(Statement("x", 0.9, np.zeros(1)).length, 10)
