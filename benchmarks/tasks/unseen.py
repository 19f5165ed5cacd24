"""Held-out tasks, written before any result and run only with settings that are frozen.

Nothing here was changed after the first run; docs/simulator_study.md says when that was.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import clearance as cl

NEVER = np.zeros((), bool)


def two_rooms() -> Any:
    """A point with little inertia goes from one room through a door into the other; touching the wall costs."""

    def reset(key: Any) -> Any:
        place = jax.random.uniform(key, (2,), minval=jnp.array([-0.9, -0.9]), maxval=jnp.array([-0.4, 0.9]))
        return jnp.concatenate([place, jnp.zeros(2)])

    def step(key: Any, s: Any, a: Any) -> Any:
        v = 0.6 * s[2:] + 0.04 * jnp.clip(a, -1.0, 1.0) + 0.005 * jax.random.normal(key, (2,))
        x = jnp.clip(s[:2] + v, -1.0, 1.0)
        crossing = (jnp.sign(s[0]) != jnp.sign(x[0])) & (jnp.abs(x[1] - 0.5) > 0.15)
        x = jnp.where(crossing, jnp.stack([s[0], x[1]]), x)
        goal = jnp.array([0.7, -0.5])
        far, near = jnp.linalg.norm(s[:2] - goal), jnp.linalg.norm(x - goal)
        touch = (jnp.abs(x[0]) < 0.08) & (jnp.abs(x[1] - 0.5) > 0.15)
        return jnp.concatenate([x, v]), (far - near + 0.1 * (near < 0.2), touch), NEVER

    return cl.environment(
        reset,
        step,
        lambda s: s * jnp.array([1.0, 1.0, 10.0, 10.0]),
        action=cl.Box([-1.0] * 2, [1.0] * 2),
        gamma=1.0,
        horizon=100,
        limits={"wall": 4.0},
        bounds=([-2.0, 0.0], [2.0, 1.0]),
        name="two-rooms",
    )


def docking() -> Any:
    """Dock at a station: near it the speed must be low, and fuel is limited."""

    def reset(key: Any) -> Any:
        angle = jax.random.uniform(key, maxval=6.2831)
        return jnp.concatenate([2.0 * jnp.stack([jnp.cos(angle), jnp.sin(angle)]), jnp.zeros(2)])

    def step(key: Any, s: Any, a: Any) -> Any:
        thrust = jnp.clip(a, -1.0, 1.0)
        v = s[2:] + 0.02 * thrust
        x = s[:2] + v
        far, near, speed = jnp.linalg.norm(s[:2]), jnp.linalg.norm(x), jnp.linalg.norm(v)
        docked = (near < 0.15) & (speed < 0.08)
        h = (far - near + 5.0 * docked, (near < 0.7) & (speed > 0.06), jnp.mean(jnp.abs(thrust)))
        return jnp.concatenate([jnp.clip(x, -4, 4), v]), h, docked

    return cl.environment(
        reset,
        step,
        lambda s: s * jnp.array([1.0, 1.0, 10.0, 10.0]),
        action=cl.Box([-1.0] * 2, [1.0] * 2),
        gamma=1.0,
        horizon=120,
        limits={"fast": 5.0, "fuel": 30.0},
        bounds=([-12.0, 0.0, 0.0], [16.0, 1.0, 1.0]),
        name="docking",
    )


def epidemic() -> Any:
    """Restrict contacts in five degrees: what is restricted is lost, and the infected may not be many."""

    def reset(key: Any) -> Any:
        ill = jax.random.uniform(key, minval=0.01, maxval=0.05)
        return jnp.stack([1 - ill, ill])

    def step(key: Any, s: Any, a: Any) -> Any:
        contacts = 1 - a / 5.0
        noise = 1 + 0.1 * jax.random.normal(key)
        new = jnp.clip(0.4 * contacts * noise * s[0] * s[1], 0.0, s[0])
        ill = s[1] + new - 0.15 * s[1] + 0.0005
        return jnp.stack([s[0] - new, jnp.clip(ill, 0, 1)]), (contacts, ill > 0.1), NEVER

    return cl.environment(
        reset,
        step,
        lambda s: jnp.stack([s[0], 10 * s[1]]),
        action=cl.Discrete(5),
        gamma=1.0,
        horizon=100,
        limits={"days above a tenth": 10.0},
        bounds=([0.0, 0.0], [1.0, 1.0]),
        name="epidemic",
    )


def crossing() -> Any:
    """Wait, creep or go at a crossing with random traffic; a collision ends the episode and costs 1."""

    def reset(key: Any) -> Any:
        return jnp.append(jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0), -1.0)

    def step(key: Any, s: Any, a: Any) -> Any:
        x = s[2] + 0.1 * a
        cars = s[:2] + 0.08
        again = jax.random.uniform(key, (2,), minval=-2.0, maxval=-1.0)
        cars = jnp.where(cars > 1.0, again, cars)
        hit = (jnp.abs(x) < 0.15) & jnp.any(jnp.abs(cars) < 0.15)
        over = x > 0.5
        return jnp.append(cars, x), (1.0 * over - 0.01, hit), hit | over

    return cl.environment(
        reset,
        step,
        lambda s: s,
        action=cl.Discrete(3),
        gamma=0.99,
        horizon=30,
        limits={"collision": 0.15},
        bounds=([-0.01, 0.0], [1.0, 1.0]),
        name="crossing",
    )


def reservoir() -> Any:
    """Sell water power: the flow below must not be low, and the level not high; discounted by .98 without end."""

    def reset(key: Any) -> Any:
        return jnp.stack([jax.random.uniform(key, minval=0.3, maxval=0.7), jax.random.uniform(key, maxval=6.28)])

    def step(key: Any, s: Any, a: Any) -> Any:
        release = jnp.minimum(0.05 * (1 + jnp.clip(a[0], -1.0, 1.0)), s[0])
        price = 1 + 0.8 * jnp.sin(s[1])
        rain = 0.1 * jax.random.beta(key, 1.0, 1.5)
        level = s[0] - release + rain
        h = (10 * price * release * (0.5 + 0.5 * s[0]), level > 0.9, release < 0.02)
        return jnp.stack([jnp.clip(level, 0.0, 1.2), s[1] + 0.52]), h, NEVER

    return cl.environment(
        reset,
        step,
        lambda s: jnp.stack([s[0], jnp.sin(s[1]), jnp.cos(s[1])]),
        action=cl.Box([-1.0], [1.0]),
        gamma=0.98,
        limits={"flood": 4.0, "dry": 8.0},
        bounds=([0.0, 0.0, 0.0], [2.5, 1.0, 1.0]),
        name="reservoir",
    )


def pricing() -> Any:
    """Prices of three goods with a common stock for thirty days; each good has a share of customers to keep."""
    liking = np.array([1.0, 1.5, 2.0], np.float32)

    def reset(key: Any) -> Any:
        return jnp.stack([20.0 + 5 * jax.random.uniform(key), jnp.zeros(())])

    def step(key: Any, s: Any, a: Any) -> Any:
        price = 1.5 * (1 + jnp.clip(a, -1.0, 1.0))
        want = jax.random.bernoulli(key, jax.nn.sigmoid(2 * (liking - price)))
        sold = want * (s[0] >= 3)
        lost = 1.0 - sold
        new = jnp.stack([jnp.minimum(s[0] - jnp.sum(sold) + 1.2, 30.0), s[1] + 1])
        return new, jnp.concatenate([jnp.sum(price * sold)[None], lost]), NEVER

    return cl.environment(
        reset,
        step,
        lambda s: s / 15 - 1,
        action=cl.Box([-1.0] * 3, [1.0] * 3),
        gamma=1.0,
        horizon=30,
        limits=[20.0, 19.0, 18.0],
        bounds=([0.0] * 4, [9.0, 1.0, 1.0, 1.0]),
        name="pricing",
    )


def scheduling() -> Any:
    """Two machines, three speeds each: jobs want speed, heat wants none; one limit each on heat and on waiting."""

    def reset(key: Any) -> Any:
        return jnp.concatenate([jax.random.uniform(key, (2,)), jnp.full(2, 2.0)])

    def step(key: Any, s: Any, a: Any) -> Any:
        heat, jobs = s[:2], s[2:]
        heat = jnp.clip(0.9 * heat + 0.08 * a, 0.0, 2.0)
        done = jnp.minimum(jobs, a.astype(float))
        jobs = jnp.minimum(jobs - done + jax.random.bernoulli(key, 0.5, (2,)) * 1.5, 12.0)
        h = jnp.concatenate([(jnp.sum(done) - 0.3 * jnp.sum(a))[None], 1.0 * (heat > 0.8), jnp.sum(jobs)[None] / 24])
        return jnp.concatenate([heat, jobs]), h, NEVER

    return cl.environment(
        reset,
        step,
        lambda s: s,
        action=cl.MultiDiscrete((3, 3)),
        gamma=1.0,
        horizon=100,
        limits={"left": 15.0, "right": 15.0, "waiting": 20.0},
        bounds=([-2.0, 0.0, 0.0, 0.0], [4.0, 1.0, 1.0, 1.0]),
        name="scheduling",
    )


def field() -> Any:
    """Fly through three obstacles that are elsewhere in every episode; short, and a hit costs 1 per step."""

    def reset(key: Any) -> Any:
        rocks = jax.random.uniform(key, (3,), minval=-0.8, maxval=0.8)
        return jnp.concatenate([jnp.array([0.0, 0.0, 0.0]), rocks])

    def step(key: Any, s: Any, a: Any) -> Any:
        v = 0.8 * s[2] + 0.05 * jnp.clip(a[1], -1.0, 1.0)
        x, y = s[0] + 0.03 * (1.5 + 0.5 * jnp.clip(a[0], -1.0, 1.0)), jnp.clip(s[1] + v, -1.0, 1.0)
        rocks = jnp.array([0.5, 1.0, 1.5])
        hit = jnp.any((jnp.abs(x - rocks) < 0.12) & (jnp.abs(y - s[3:]) < 0.35))
        r = x - s[0] - 0.02 * jnp.abs(y)
        return jnp.concatenate([jnp.stack([x, y, v]), s[3:]]), (r, hit), NEVER

    return cl.environment(
        reset,
        step,
        lambda s: s * jnp.array([1.0, 1.0, 10.0, 1.0, 1.0, 1.0]),
        action=cl.Box([-1.0] * 2, [1.0] * 2),
        gamma=1.0,
        horizon=40,
        limits={"hit": 1.0},
        bounds=([-1.0, 0.0], [1.0, 1.0]),
        name="field",
    )


def swing() -> Any:
    """Gymnasium's Pendulum-v1 with a limit on fast steps, |θ̇| > 5: swinging up needs some of them."""
    return cl.gymnasium(
        "Pendulum-v1",
        constraints={"fast": lambda obs, action, after, info: float(abs(after[2]) > 5.0)},
        limits={"fast": 15.0},
        horizon=200,
        bounds=(0.0, 1.0),
        num_envs=8,
    )


def cheetah() -> Any:
    """Gymnasium's HalfCheetah-v5 over 200 steps with a limit on Σ mean a²: a torque budget."""
    return cl.gymnasium(
        "HalfCheetah-v5",
        constraints={"torque": lambda obs, action, after, info: float(np.mean(np.square(action)))},
        limits={"torque": 40.0},
        horizon=200,
        bounds=(0.0, 1.0),
        num_envs=8,
    )
