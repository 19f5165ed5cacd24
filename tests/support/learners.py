"""Runs on simulators that are short, for the tests of run folders; a script too, to be killed: learners.py KIND RUN."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import clearance as cl
from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
from clearance.learning.natural_direction import Natural
from clearance.simulator.policies.network_policy import Design
from clearance.simulator.samplers.actor_critic import Practical
from clearance.zoo import simulated


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
    """As in tests/simulator/test_simulators.py, so that what is compiled there serves here too."""
    return simulated.navigation(horizon=40)


KINDS: dict[str, Callable[[], Any]] = {"JAX": point, "Gymnasium": pole}


def small(simulator: Any) -> Practical:
    hidden = (8,) if simulator.action.shape else ()
    policy = Design(hidden=hidden).fitted(simulator.obs_shape, simulator.action, 3)
    return Practical(simulator, policy, hidden=hidden or (4,), epochs=1)


def small_of(world: Any, *_: Any, **__: Any) -> Practical:
    """In place of the sampler that a world would make."""
    return small(world.problem)


def learn(simulator: Any, out: str | Path | None, **more: Any) -> Any:
    size = 400 if simulator.action.shape else 120
    method = PracticalCNPGPD(K=8, N=size, kappa=0.5, direction=Natural(iterations=4))
    how = {"method": method, "budget": 50 * size, "seed": 5, "delta": 0.1, "checkpoint_every": 2} | more
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
