"""Runs on simulators that are short, for the tests of run folders; a script too, to be killed: learners.py KIND RUN."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import clearance as cl
from clearance.simulator.method import PracticalCNPGPD
from clearance.simulator.natural import Natural
from clearance.simulator.practical import Practical


class Pole(gymnasium.Wrapper):
    """CartPole with a cost; breaks at step `breaks`, counted over all of them; `moody`: never twice the same."""

    breaks = 0
    steps = 0

    def __init__(self, moody: bool = False) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.moody = moody

    def step(self, action: Any) -> Any:
        Pole.steps += 1
        if Pole.steps == Pole.breaks:
            raise RuntimeError("a bearing is worn out")
        obs, reward, terminated, truncated, info = super().step(action)
        obs = obs + np.float32(1e-3 * time.perf_counter() % 1e-3) if self.moody else obs
        return obs, reward, terminated, truncated, info | {"cost": float(abs(obs[2]) > 0.05)}


def pole(name: str = "tilt", limit: float = 15.0, moody: bool = False, horizon: int = 20) -> Any:
    asked = {"limits": {name: limit}, "constraints": lambda obs, action, after, info: {name: info["cost"]}}
    return cl.gymnasium(lambda: Pole(moody), horizon=horizon, num_envs=2, bounds=(0.0, 1.0), name="pole", **asked)


def point() -> Any:
    """A point on a line that is pushed to and fro; beyond 0.5 it costs."""

    def step(key: Any, x: Any, action: Any) -> Any:
        x = x + 0.2 * (action - 0.5) + 0.05 * jax.random.normal(key)
        return x, jnp.stack([x, (x > 0.5).astype(x.dtype)]), jnp.abs(x) > 3

    asked = {"gamma": 1.0, "horizon": 20, "limits": [6.0], "bounds": ([-4.0, 0.0], [4.0, 1.0]), "name": "point"}
    return cl.environment(
        lambda key: 0.5 * jax.random.normal(key), step, lambda x: x[None], action=cl.Discrete(2), lanes=32, **asked
    )


KINDS: dict[str, Callable[[], Any]] = {"JAX": point, "Gymnasium": pole}


def small(simulator: Any, *_: Any) -> Practical:
    policy = cl.categorical(hidden=(), normalise=True).fitted(simulator.obs_shape, simulator.action, 3)
    return Practical(simulator, policy, hidden=(4,), epochs=1)


def learn(simulator: Any, out: str | Path | None, **more: Any) -> Any:
    method = PracticalCNPGPD(K=8, N=120, direction=Natural(iterations=2))
    how = {"method": method, "budget": 6e3, "seed": 5, "delta": 0.1, "checkpoint_every": 2} | more
    return cl.solve(simulator, sampler=small(simulator), out=out, **how)


def slowly(*_: Any) -> None:
    """Time enough to be killed between two iterations."""
    time.sleep(0.1)


if __name__ == "__main__":
    made, folder = KINDS[sys.argv[1]](), sys.argv[2]
    if Path(folder).exists():
        cl.resume(folder, made, checkpoint_every=2, progress=slowly)
    else:
        learn(made, folder, progress=slowly)
