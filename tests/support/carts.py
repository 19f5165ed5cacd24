"""A cart with a cost, for fleets: alone, and with whatever can befall its worker. Imported by workers, too."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import clearance as cl

LENGTH = 25


def far(obs: Any, action: Any, after: Any, info: Any) -> float:
    """The cost: pushing to the right."""
    return float(action)


class Cart(gymnasium.Wrapper):
    """CartPole that does something bad, so often, from its k-th step on, as the file `how` says: "kill 2 30"."""

    def __init__(self, how: str = "") -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.how, self.steps = Path(how) if how else None, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.how is not None:
            self._suffer(*self.how.read_text().split())
        return super().step(action)

    def _suffer(self, what: str, times: str, at: str) -> None:
        if self.steps < int(at):
            return
        done = list(self.how.parent.glob("suffered*"))  # type: ignore[union-attr]
        if len(done) >= int(times):
            return
        (self.how.parent / f"suffered-{time.time_ns()}-{os.getpid()}").touch()  # type: ignore[union-attr]
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "hang":
            time.sleep(1000)
        if what == "raise":
            raise ValueError("the pole is made of glass")


class Made:
    """A factory that can be sent anywhere."""

    def __init__(self, how: str = "") -> None:
        self.how = how

    def __call__(self) -> Cart:
        return Cart(self.how)


def cart(how: str = "", num_envs: int = 2) -> Any:
    """E Σ cost ≤ 9 over episodes of 25 steps."""
    asked: dict[str, Any] = {"limits": 9.0, "horizon": LENGTH, "bounds": (0.0, 1.0), "num_envs": num_envs}
    return cl.gymnasium(Made(how), constraints=far, name="cart", **asked)


def learned(simulator: Any, K: int = 5, **more: Any) -> Any:
    """A short run: K iterations of five groups of two lanes."""
    method = cl.PracticalCNPGPD(K=K, N=10 * LENGTH)
    return cl.solve(simulator, method, budget=6000, policy=cl.categorical((8,)), seed=3, **more)


def bits(solution: Any) -> tuple[Any, ...]:
    """Everything that a run has found."""
    t = solution.trace
    arrays = (t.theta, t.lam, t.J_hat, t.steps, solution.state.theta, solution.policy.theta, solution.policy.weights)
    return *(np.asarray(x).tobytes() for x in arrays), solution.certificate, solution.env_steps
