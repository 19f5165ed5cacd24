"""Development tasks in which something moves, in JAX: hazards, a hill, a corridor, a launch, a road, a bridge."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import clearance as cl

NEVER = np.zeros((), bool)
HAZARDS = np.array([[0.0, 0.0], [1.0, 0.9], [-1.0, 0.8], [0.9, -1.0], [-0.8, -1.0]], np.float32)
RADIUS = 0.45


def _pairs(name: str, most: float, **limits: Any) -> dict[str, Any]:
    """Bounds of a reward in ±most and of costs of 0 or 1, with the limits by name."""
    n = len(limits)
    return {"name": name, "limits": limits, "bounds": ([-most] + [0.0] * n, [most] + [1.0] * n)}


def hazards() -> Any:
    """A robot with inertia drives to a goal among five round hazards; start and goal are random.

    Costs 1 per step inside a hazard, at most 1 per episode of 150 steps: the shortest way leads through them.
    """

    def reset(key: Any) -> Any:
        place = jax.random.uniform(key, (4,), minval=-1.8, maxval=1.8)
        return jnp.concatenate([outside(place[:2]), jnp.zeros(2), outside(place[2:])])

    def outside(x: Any) -> Any:
        """The place itself, or the next one beside the hazard that it lies in."""
        away = x - HAZARDS
        far = jnp.linalg.norm(away, axis=1)
        i = jnp.argmin(far)
        return jnp.where(far[i] < 1.2 * RADIUS, x - away[i] + away[i] * 1.2 * RADIUS / jnp.maximum(far[i], 1e-3), x)

    def step(key: Any, s: Any, a: Any) -> Any:
        x, v, goal = s[:2], s[2:4], s[4:]
        v = 0.9 * v + 0.03 * jnp.clip(a, -1.0, 1.0)
        new = jnp.clip(x + v, -2.0, 2.0)
        far, near = jnp.linalg.norm(x - goal), jnp.linalg.norm(new - goal)
        r = 2.0 * (far - near) + 0.05 * (near < 0.3)
        inside = jnp.any(jnp.linalg.norm(new - HAZARDS, axis=1) < RADIUS)
        return jnp.concatenate([new, v, goal]), (r, inside), NEVER

    def observe(s: Any) -> Any:
        away = HAZARDS - s[:2]
        nearest = away[jnp.argmin(jnp.linalg.norm(away, axis=1))]
        return jnp.concatenate([s[:2], 10 * s[2:4], s[4:] - s[:2], nearest])

    facts = _pairs("hazards", 2.0, hazard=1.0)
    return cl.environment(reset, step, observe, action=cl.Box([-1.0] * 2, [1.0] * 2), gamma=1.0, horizon=150, **facts)


def mountain_car() -> Any:
    """MountainCarContinuous as Gymnasium has it, with at most 60 of Σ a²: doing nothing earns 0, the hill 100."""

    def reset(key: Any) -> Any:
        return jnp.stack([jax.random.uniform(key, (), minval=-0.6, maxval=-0.4), jnp.zeros(())])

    def step(key: Any, s: Any, a: Any) -> Any:
        force = jnp.clip(a[0], -1.0, 1.0)
        v = jnp.clip(s[1] + 0.0015 * force - 0.0025 * jnp.cos(3 * s[0]), -0.07, 0.07)
        x = jnp.clip(s[0] + v, -1.2, 0.6)
        v = jnp.where((x <= -1.2) & (v < 0), 0.0, v)
        there = x >= 0.45
        return jnp.stack([x, v]), (100.0 * there - 0.1 * force**2, force**2), there

    facts = _pairs("mountain-car", 101.0, energy=60.0)
    return cl.environment(reset, step, lambda s: s, action=cl.Box([-1.0], [1.0]), gamma=1.0, horizon=999, **facts)


def corridor() -> Any:
    """Fetch a key at one end of a corridor and open the door at the other; leaning on the walls costs.

    The reward is seen after both alone; nothing leads there. Costs 1 per step at a wall, at most 8 of 60 steps.
    """

    def reset(key: Any) -> Any:
        return jnp.concatenate([jax.random.uniform(key, (2,), minval=-0.2, maxval=0.2), jnp.zeros(1)])

    def step(key: Any, s: Any, a: Any) -> Any:
        move = 0.15 * jnp.clip(a, -1.0, 1.0) + 0.03 * jax.random.normal(key, (2,))
        x = jnp.clip(s[:2] + move, jnp.array([-1.0, -0.3]), jnp.array([1.0, 0.3]))
        has = jnp.maximum(s[2], 1.0 * (x[0] < -0.7))
        opened = (has > 0) & (x[0] > 0.8)
        r = 0.2 * (has - s[2]) + 1.0 * opened
        return jnp.append(x, has), (r, jnp.abs(x[1]) >= 0.28), opened

    facts = _pairs("corridor", 1.2, walls=8.0)
    action = cl.Box([-1.0] * 2, [1.0] * 2)
    return cl.environment(reset, step, lambda s: s, action=action, gamma=1.0, horizon=60, **facts)


def launch() -> Any:
    """A rocket climbs; what counts as a cost is thrust in the first ten steps alone, while people are near."""

    def reset(key: Any) -> Any:
        return jnp.concatenate([0.1 * jax.random.normal(key, (2,)) ** 2, jnp.zeros(1)])

    def step(key: Any, s: Any, a: Any) -> Any:
        height, v, t = s
        thrust = 0.5 * (1 + jnp.clip(a[0], -1.0, 1.0))
        v = v + 0.1 * (thrust - 0.4) + 0.01 * jax.random.normal(key)
        height = jnp.maximum(height + v, 0.0)
        r = -jnp.abs(height - 5.0) / 5.0
        return (
            jnp.stack([height, jnp.where(height <= 0, 0.0, v), t + 1]),
            (jnp.clip(r, -20, 0), thrust * (t < 10)),
            NEVER,
        )

    def observe(s: Any) -> Any:
        return jnp.stack([s[0] / 5, s[1], s[2] / 40])

    facts = _pairs("launch", 20.0, thrust=3.0)
    return cl.environment(reset, step, observe, action=cl.Box([-1.0], [1.0]), gamma=1.0, horizon=40, **facts)


def cruise() -> Any:
    """Drive 1000 steps along a ring road; a fifth of it has a speed limit, and 40 steps per episode may be too fast."""

    def reset(key: Any) -> Any:
        return jnp.stack([jax.random.uniform(key), jnp.zeros(())])

    def step(key: Any, s: Any, a: Any) -> Any:
        v = jnp.clip(s[1] + 0.05 * jnp.clip(a[0], -1.0, 1.0) + 0.005 * jax.random.normal(key), 0.0, 1.0)
        x = (s[0] + 0.02 * v) % 1.0
        return jnp.stack([x, v]), (v, (x > 0.8) & (v > 0.4)), NEVER

    def observe(s: Any) -> Any:
        angle = 2 * jnp.pi * s[0]
        return jnp.stack([jnp.cos(angle), jnp.sin(angle), s[1]])

    facts = _pairs("cruise", 1.0, speeding=40.0)
    return cl.environment(reset, step, observe, action=cl.Box([-1.0], [1.0]), gamma=1.0, horizon=1000, **facts)


def bridge() -> Any:
    """A grid of 7 × 7 with a short slippery bridge over water and a long way around it; four moves.

    Each step in the water costs 1, at most .5 per episode of 40 steps; a tenth of the moves go astray.
    """
    ways = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def reset(key: Any) -> Any:
        return jnp.stack([jnp.zeros((), int), jax.random.randint(key, (), 2, 5)])

    def step(key: Any, s: Any, a: Any) -> Any:
        astray, other = jax.random.bernoulli(key, 0.1), jax.random.randint(jax.random.fold_in(key, 1), (), 0, 4)
        new = jnp.clip(s + jnp.asarray(ways)[jnp.where(astray, other, a)], 0, 6)
        wet = (new[0] >= 2) & (new[0] <= 4) & (new[1] >= 1) & (new[1] <= 5) & (new[1] != 3)
        there = (new[0] == 6) & (new[1] == 3)
        return new, (10.0 * there - 0.2, wet), there

    def observe(s: Any) -> Any:
        return jnp.concatenate([jax.nn.one_hot(s[0], 7), jax.nn.one_hot(s[1], 7)])

    facts = _pairs("bridge", 10.0, water=0.5)
    return cl.environment(reset, step, observe, action=cl.Discrete(4), gamma=1.0, horizon=40, **facts)


def icy_road() -> Any:
    """Choose a speed in every bend; a crash is rare, costs 20 and ends the drive. At most 1.6 of expected damage."""

    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (2,))

    def step(key: Any, s: Any, a: Any) -> Any:
        speed = 0.5 * (1 + jnp.clip(a[0], -1.0, 1.0))
        chance = 0.03 * speed**2 * s[0]
        crash = jax.random.bernoulli(key, chance)
        return jax.random.uniform(jax.random.fold_in(key, 1), (2,)), (speed, 20.0 * crash), crash

    facts = {"name": "icy-road", "limits": {"damage": 1.6}, "bounds": ([0.0, 0.0], [1.0, 20.0])}
    return cl.environment(reset, step, lambda s: s, action=cl.Box([-1.0], [1.0]), gamma=1.0, horizon=20, **facts)
