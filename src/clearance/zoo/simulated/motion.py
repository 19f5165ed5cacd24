"""Environments with continuous actions: a pendulum with a torque budget, a double integrator, and navigation."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.core.errors import InputError
from clearance.core.spaces import Box
from clearance.core.statement import Statement
from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.jax_envs.jax_environment import LANES, Environment, environment
from clearance.simulator.linear_quadratic import LQR, LinearPolicy, enclose_variance
from clearance.simulator.policies.network_policy import NetworkPolicy, Normaliser


def pendulum(budget: float = 30.0, horizon: int = 200, lanes: int = LANES) -> Environment:
    """Return the task of swinging a pendulum up and holding it, with a limit on the torque: Σ |u|/2 ≤ budget.

    u is the torque, and the undiscounted sum is over the `horizon` steps of an episode. The dynamics are those of
    Gymnasium's Pendulum-v1 (g = 10, m = l = 1, dt = .05, |u| ≤ 2, |θ̇| ≤ 8). The reward is divided by 16.2736, so that
    it is in [−1, 0]. `lanes` is the number of parallel episodes.
    """

    def reset(key: Any) -> Any:
        most = jnp.array([jnp.pi, 1.0])
        return jax.random.uniform(key, (2,), minval=-most, maxval=most)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        angle, speed = state
        u = jnp.clip(action[0], -2.0, 2.0)
        upright = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        r = -(upright**2 + 0.1 * speed**2 + 0.001 * u**2) / 16.2736044
        speed = jnp.clip(speed + (15.0 * jnp.sin(angle) + 3.0 * u) * 0.05, -8.0, 8.0)
        return jnp.stack([angle + 0.05 * speed, speed]), jnp.stack([r, jnp.abs(u) / 2]), jnp.zeros((), bool)

    def observe(state: Any) -> Any:
        return jnp.stack([jnp.cos(state[0]), jnp.sin(state[0]), state[1]])

    return environment(
        reset,
        step,
        observe,
        action=Box(np.array([-2.0]), np.array([2.0])),
        gamma=1.0,
        limits=[budget],
        horizon=horizon,
        names=["torque"],
        bounds=([-1.0, 0.0], [0.0, 1.0]),
        name="pendulum",
        lanes=lanes,
    )


def double_integrator(budget: float = 2.0, lanes: int = LANES) -> Environment:
    """Return the task of bringing a mass to rest with little effort: max −E Σγ^t x'Qx subject to E Σγ^t u'Ru ≤ budget.

    In each step with force u, the state x = (position, v) changes by .1 (v, u) plus noise of variance .01. Q = diag(1,
    .1), R = 1, γ = .95, and x_0 ~ N(0, 1), as in `LQR.double_integrator`. The signals have no bounds, so samples cannot
    certify policies; linear policies are certified exactly (`simulator.linear_quadratic`). `lanes` is the number of
    parallel episodes.
    """
    lqr = LQR.double_integrator(budget)
    A, B, Q, R = (jnp.asarray(x, jnp.zeros(0).dtype) for x in (lqr.A, lqr.B, lqr.Q, lqr.R))
    noise, start = (jnp.asarray(np.linalg.cholesky(x), jnp.zeros(0).dtype) for x in (lqr.W, lqr.X0))

    def reset(key: Any) -> Any:
        return start @ jax.random.normal(key, (len(lqr.A),))

    def step(key: Any, x: Any, u: Any) -> tuple[Any, Any, Any]:
        h = -jnp.stack([x @ Q @ x, u @ R @ u])
        return A @ x + B @ u + noise @ jax.random.normal(key, x.shape), h, jnp.zeros((), bool)

    statement = Statement("double-integrator", lqr.gamma, np.array([-budget]), ("effort",), costs=(True,))
    free = np.full(lqr.B.shape[1], np.inf)

    def exact(policy: NetworkPolicy, theta: Any, normaliser: Normaliser) -> tuple[Any, Any, Any]:
        found = lqr.enclose(linear_policy(policy, theta, normaliser))
        return -found.J, -found.upper, -found.lower

    return Environment(statement, reset, step, lambda x: x, Box(-free, free), lanes, exact)


def navigation(limit: float = 5.0, horizon: int = 100, lanes: int = LANES) -> Environment:
    """Return the task of driving a point through [−1, 1]² to the goal at (.8, .8), past two round hazards.

    Each step in a hazard costs 1. The speed is ≤ .1 per step in each direction, with noise of standard deviation .01.
    The start is within .1 of (−.8, −.8) in each direction. The reward is the decrease of the distance to the goal, plus
    .1 for each step that ends within .15 of the goal. `limit` is on the number of steps in hazards per episode of
    `horizon` steps, undiscounted. `lanes` is the number of parallel episodes.
    """
    goal = np.array([0.8, 0.8], np.float32)
    centres, radii = np.array([[-0.2, -0.2], [0.35, 0.2]], np.float32), np.array([0.35, 0.25], np.float32)

    def reset(key: Any) -> Any:
        return jnp.full(2, -0.8) + jax.random.uniform(key, (2,), minval=-0.1, maxval=0.1)

    def step(key: Any, x: Any, action: Any) -> tuple[Any, Any, Any]:
        move = 0.1 * jnp.clip(action, -1.0, 1.0) + 0.01 * jax.random.normal(key, (2,))
        new = jnp.clip(x + move, -1.0, 1.0)
        far, near = jnp.linalg.norm(x - goal), jnp.linalg.norm(new - goal)
        cost = jnp.any(jnp.linalg.norm(new - centres, axis=1) < radii)
        return new, jnp.stack([far - near + 0.1 * (near < 0.15), cost.astype(x.dtype)]), jnp.zeros((), bool)

    most = float(np.hypot(2.0, 2.0)) + 0.1
    return environment(
        reset,
        step,
        lambda x: x,
        action=Box(-np.ones(2), np.ones(2)),
        gamma=1.0,
        limits=[limit],
        horizon=horizon,
        names=["hazard"],
        bounds=([-most, 0.0], [most, 1.0]),
        name="navigation",
        lanes=lanes,
    )


def linear_policy(policy: NetworkPolicy, theta: Any, normaliser: Normaliser) -> LinearPolicy:
    """Return a Gaussian policy network as the linear policy u = −Kx + c + ξ of observations x, with normal noise ξ.

    The network must not have hidden layers, its scale must not depend on the state, and the normaliser must leave the
    observations unchanged.
    """
    if policy.design.hidden or policy.design.scale == "state":
        raise InputError("exact values need a linear policy: gaussian(hidden=()), with scale 'free' or 'fixed'")
    if any(np.any(np.asarray(x) != same) for x, same in zip(normaliser, (0, 1, 0), strict=True)):
        raise InputError("exact values need observations as they are: gaussian(hidden=(), normalise=False)")
    net = policy.net(theta)
    W, c = (np.asarray(x) for x in (net.layers[0].weight, net.layers[0].bias))
    log_std = policy.complete(c, None if net.log_std is None else np.asarray(net.log_std), np)[len(c) :]
    variance, error = np.transpose([enclose_variance(float(x)) for x in log_std])
    return LinearPolicy(-W.astype(float), c.astype(float), np.diag(variance), error)
