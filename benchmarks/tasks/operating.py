"""Development tasks in which something is operated, in JAX: stock, heat, queues, bids, a reactor."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import clearance as cl

NEVER = np.zeros((), bool)


def stock() -> Any:
    """Order goods that arrive three days later; two named costs: orders placed, and customers sent away."""

    def reset(key: Any) -> Any:
        return jnp.concatenate([jnp.full(1, 10.0), jnp.full(3, 4.0)])

    def step(key: Any, s: Any, a: Any) -> Any:
        order = 5.0 * (1 + jnp.clip(a[0], -1.0, 1.0))
        demand = jax.random.poisson(key, 5.0).astype(float)
        have = jnp.minimum(s[0] + s[1], 40.0)
        sold = jnp.minimum(have, demand)
        left = have - sold
        h = (3.0 * sold - 0.1 * left - order, left / 40.0, jnp.minimum((demand - sold) / 40.0, 1.0))
        return jnp.concatenate([jnp.stack([left, s[2], s[3]]), order[None]]), h, NEVER

    return cl.environment(
        reset,
        step,
        lambda s: s / 10.0,
        action=cl.Box([-1.0], [1.0]),
        gamma=1.0,
        horizon=60,
        limits={"storage": 6.0, "turned away": 1.0},
        bounds=([-14.0, 0.0, 0.0], [120.0, 1.0, 1.0]),
        name="stock",
    )


def heating() -> Any:
    """Keep a room warm, discounted by .97 without end; energy is the cost, and comfort asks for all of it."""

    def reset(key: Any) -> Any:
        return jnp.stack([15 + 2 * jax.random.normal(key), jax.random.uniform(key, minval=0.0, maxval=6.28)])

    def step(key: Any, s: Any, a: Any) -> Any:
        power = 0.5 * (1 + jnp.clip(a[0], -1.0, 1.0))
        outside = 5 + 5 * jnp.sin(s[1])
        warm = s[0] + 0.1 * (outside - s[0]) + 2.0 * power + 0.2 * jax.random.normal(key)
        r = -jnp.minimum(jnp.abs(warm - 21.0), 30.0) / 10.0
        return jnp.stack([warm, s[1] + 0.26]), (r, power), NEVER

    def observe(s: Any) -> Any:
        return jnp.stack([(s[0] - 18) / 5, jnp.sin(s[1]), jnp.cos(s[1])])

    return cl.environment(
        reset,
        step,
        observe,
        action=cl.Box([-1.0], [1.0]),
        gamma=0.97,
        limits={"energy": 16.0},
        bounds=([-3.0, 0.0], [0.0, 1.0]),
        name="heating",
    )


def four_queues() -> Any:
    """One server, four queues with a limit each: which one is served, or none, which saves money."""
    rates = np.array([0.12, 0.15, 0.18, 0.2], np.float32)

    def reset(key: Any) -> Any:
        return jax.random.randint(key, (4,), 0, 3)

    def step(key: Any, q: Any, a: Any) -> Any:
        arrive = jax.random.bernoulli(key, rates).astype(int)
        served = (jnp.arange(4) == a) & (q > 0)
        q = jnp.clip(q + arrive - served, 0, 10)
        r = -1.0 * (a < 4)
        return q, jnp.concatenate([r[None], q / 10.0]), NEVER

    return cl.environment(
        reset,
        step,
        lambda q: q / 5.0,
        action=cl.Discrete(5),
        gamma=1.0,
        horizon=80,
        limits={"a": 14.0, "b": 18.0, "c": 18.0, "d": 22.0},
        bounds=([-1.0] + [0.0] * 4, [0.0] + [1.0] * 4),
        name="four-queues",
    )


def bidding() -> Any:
    """Ten auctions, amounts in tens of thousands: win value, spend at most 40,000 on average."""

    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (2,))

    def step(key: Any, s: Any, a: Any) -> Any:
        bid = 5000.0 * (1 + jnp.clip(a[0], -1.0, 1.0))
        price = 10000.0 * jax.random.uniform(key) * (0.5 + 0.5 * s[1])
        won = bid > price
        spent = jnp.where(won, 0.5 * (bid + price), 0.0)
        return jax.random.uniform(jax.random.fold_in(key, 1), (2,)), (1e4 * s[0] * won, spent), NEVER

    return cl.environment(
        reset,
        step,
        lambda s: s,
        action=cl.Box([-1.0], [1.0]),
        gamma=1.0,
        horizon=10,
        limits={"spent": 2.0e4},
        bounds=([0.0, 0.0], [1e4, 1e4]),
        name="bidding",
    )


def reactor() -> Any:
    """An exothermic reaction in small units: yield of 10⁻³ a step, emissions of 10⁻⁵ beyond a temperature."""

    def reset(key: Any) -> Any:
        return 0.3 + 0.05 * jax.random.normal(key, (2,))

    def step(key: Any, s: Any, a: Any) -> Any:
        cool = 0.5 * (1 + jnp.clip(a, -1.0, 1.0))
        heat = 0.2 * s[1] * jnp.exp(jnp.clip(2 * s[0] - 1, -3, 3))
        warm = jnp.clip(s[0] + heat - 0.12 * cool[0] - 0.02 + 0.02 * jax.random.normal(key), 0.0, 2.0)
        feed = jnp.clip(s[1] + 0.1 * (cool[1] - s[1]), 0.0, 1.0)
        return jnp.stack([warm, feed]), (1e-3 * heat, 1e-5 * jnp.clip(2 * (warm - 0.6), 0.0, 1.0)), NEVER

    return cl.environment(
        reset,
        step,
        lambda s: s,
        action=cl.Box([-1.0] * 2, [1.0] * 2),
        gamma=0.98,
        horizon=100,
        limits={"emissions": 8e-5},
        bounds=([0.0, 0.0], [4.1e-3, 1e-5]),
        name="reactor",
    )
