"""Three simulators whose limits no policy meets: a drift that nothing stops, two limits that conflict, noise alone."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import clearance as cl

NEVER = np.zeros((), bool)


def drift() -> Any:
    """A boat drifts over a line whatever its weak motor does: the least cost is about 20 of 40 steps, the limit 5."""

    def step(key: Any, x: Any, a: Any) -> Any:
        x = x + 0.05 + 0.02 * jnp.clip(a, -1.0, 1.0) + 0.01 * jax.random.normal(key, (1,))
        return x, (x[0], x[0] > 0.6), NEVER

    facts = {"limits": {"over the line": 5.0}, "bounds": ([-5.0, 0.0], [5.0, 1.0]), "name": "drift"}
    reset, action = (lambda key: jnp.zeros(1)), cl.Box([-1.0], [1.0])
    return cl.environment(reset, step, lambda x: x, action=action, gamma=1.0, horizon=40, **facts)


def conflict() -> Any:
    """Heat and cold each cost; a wandering temperature cannot avoid both as often as the limits ask."""

    def step(key: Any, x: Any, a: Any) -> Any:
        x = 0.8 * x + 0.1 * jnp.clip(a, -1.0, 1.0) + 0.5 * jax.random.normal(key, (1,))
        return x, (-jnp.abs(x[0]), x[0] > 0.3, x[0] < -0.3), NEVER

    facts = {"limits": {"heat": 4.0, "cold": 4.0}, "bounds": ([-20.0, 0.0, 0.0], [0.0, 1.0, 1.0]), "name": "conflict"}
    reset, action = (lambda key: jnp.zeros(1)), cl.Box([-1.0], [1.0])
    return cl.environment(reset, step, lambda x: x, action=action, gamma=1.0, horizon=30, **facts)


def noise() -> Any:
    """The cost has nothing to do with the actions: 10 of 50 steps on average, the limit 8."""

    def step(key: Any, x: Any, a: Any) -> Any:
        cost = jax.random.bernoulli(key, 0.2)
        return x, (a / 3.0, cost), NEVER

    facts = {"limits": {"bad luck": 8.0}, "bounds": ([0.0, 0.0], [1.0, 1.0]), "name": "noise"}
    reset = lambda key: jnp.zeros(1)  # noqa: E731
    return cl.environment(reset, step, lambda x: x, action=cl.Discrete(4), gamma=1.0, horizon=50, **facts)
