"""Probe environments whose every number is known: what a walk must record can be written down."""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

TERMINAL = 7.0  # the cost of the step that ends an episode
RESET = 999.0  # the cost in the info of a reset: never to be counted


class Line(gymnasium.Env):
    """Step t of an episode that began at x0 = seed mod 100: obs (x0, t+1), reward t + action, cost t/10.

    The episode ends after `length` steps, by termination or (`cut`) by truncation; its last step costs TERMINAL. `kind`
    says how the cost is told: float, vector, dict, six (the value of Safety-Gymnasium's step) or none.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, length: int = 4, *, cut: bool = False, kind: str = "float") -> None:
        self.length, self.cut, self.kind, self.x0, self.t = length, cut, kind, 0, 0
        self.observation_space = Box(-1000.0, 1000.0, (2,), np.float64)
        self.action_space = Box(-1.0, 1.0, (1,), np.float32)

    def obs(self) -> Any:
        return np.array([self.x0, self.t], float)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x0 = int(seed) % 100 if seed is not None else int(self.np_random.integers(100))
        self.t = 0
        return self.obs(), {"cost": RESET}

    def step(self, action: Any) -> Any:
        cost, reward = self.t / 10, self.t + float(action[0])
        self.t += 1
        over = self.t >= self.length
        cost = TERMINAL if over else cost
        flags = over and not self.cut, over and self.cut
        if self.kind == "six":
            return self.obs(), reward, cost, *flags, {}
        told = {"float": cost, "vector": np.array([cost, 2 * cost]), "dict": {"a": cost, "b": 2 * cost}}
        return self.obs(), reward, *flags, {"cost": told[self.kind]} if self.kind in told else {"x": 1.0}


class Faulty(Line):
    """A Line that does something wrong at one step of every episode."""

    def __init__(self, what: str, at: int = 2) -> None:
        super().__init__(length=1000)
        self.what, self.at = what, at

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        if self.t == self.at + 1:
            return self.wrong(obs, reward, terminated, truncated, info)
        return obs, reward, terminated, truncated, info

    def wrong(self, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> Any:
        if self.what == "raises":
            raise RuntimeError("joint 3 is broken\nsecond line")
        if self.what == "dies":
            os._exit(3)
        bad = {
            "nan observation": (obs * np.nan, reward, terminated, truncated, info),
            "nan reward": (obs, np.nan, terminated, truncated, info),
            "nan cost": (obs, reward, terminated, truncated, {"cost": np.nan}),
            "wrong shape": (np.zeros(3), reward, terminated, truncated, info),
            "array reward": (obs, np.zeros(2), terminated, truncated, info),
            "large cost": (obs, reward, terminated, truncated, {"cost": 12.5}),
            "no cost": (obs, reward, terminated, truncated, {}),
            "wrong cost": (obs, reward, terminated, truncated, {"cost": np.zeros(3)}),
            "number as flag": (obs, reward, 0.0, truncated, info),
            "four values": (obs, reward, terminated, info),
        }
        return bad[self.what]


class Noisy(Line):
    """Not deterministic given its seed: the clock gets in."""

    def obs(self) -> Any:
        return np.array([self.x0, time.perf_counter_ns() % 997], float)


class Gymnaxlike(Line):
    """Six values that are not Safety-Gymnasium's: obs, state, reward, terminated, truncated, info."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, {"x": self.x0}, reward, terminated, truncated, info


class Choices(gymnasium.Env):
    """Observations 3..6 and actions 1..3; the reward tells which action arrived."""

    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.observation_space, self.action_space, self.s = Discrete(4, start=3), Discrete(3, start=1), 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.s = 3
        return self.s, {}

    def step(self, action: Any) -> Any:
        self.s = 3 + (self.s - 2) % 4
        return self.s, float(action), False, False, {}


def line(kind: str = "float", length: int = 4, cut: bool = False) -> Line:
    """For side processes, which take names and JSON."""
    return Line(length, cut=cut, kind=kind)


def faulty(what: str) -> Faulty:
    return Faulty(what)


def tilt(obs: Any, action: Any, after: Any, info: Any) -> float:
    """A cost for CartPole: the pole's angle."""
    return abs(float(after[2]))
