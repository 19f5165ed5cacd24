"""Episodes of a rule of the user's own, and of networks in lanes that may depend on each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.episode_source import Batch, join
from clearance.certificates.rule_watch import WatchedRule
from clearance.core.arrays import Array
from clearance.core.random_streams import fold, key_of
from clearance.simulator.gymnasium_envs.gymnasium_problem import Gym
from clearance.simulator.gymnasium_envs.lane_independence import DIFFERENT
from clearance.simulator.gymnasium_envs.lane_rollout import follow_rule
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.jax_envs.jax_rule import follow_jax_rule
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.samplers.simulator_episodes import NetworkEpisodes
from clearance.simulator.simulator import Simulator


def follow_any_rule(
    simulator: Any, rule: Callable[[Any], Any], seed: int, T: int, seen: list[Any] | None = None
) -> Array:
    """Signals h [t, 1+I] of one episode of a rule in this process; `seen` gets (observation, action) of each step."""
    if isinstance(simulator, Environment):
        return follow_jax_rule(simulator, rule, key_of(seed), T, seen)
    return follow_rule(simulator, rule, seed, T, seen)


@dataclass(frozen=True, eq=False)
class OwnRuleEpisodes(NetworkEpisodes):
    """Episodes of a rule `observation -> action`, one after the other in one lane of this process.

    The rule is never copied: copies of a rule that draws its own random numbers would all draw the same ones. It sees
    observations as the environment gives them, and the environment gets its actions as they are. Its method `reset`,
    if there is one, is called at the beginning of every episode.
    """

    simulator: Gym | Environment
    mixture: Any = None
    rule: Callable[[Any], Any] | None = None

    @cached_property
    def _watched(self) -> WatchedRule:
        assert self.rule is not None
        return WatchedRule(self.rule)

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        return join([self._episode(fold(key, begin + i)) for i in range(n)])

    def _episode(self, key: np.uint64) -> Batch:
        rng = np.random.default_rng(int(key))
        length, seed = int(self.lengths(rng, 1)[0]), int(rng.integers(2**31))
        self._watched.begin()
        h = follow_any_rule(self.simulator, self._watched.choose, seed, length)
        X: Array = np.sum(self.factor ** np.arange(len(h))[:, None] * h, axis=0) + self.statement.offset
        return X[None], np.zeros(1, np.int64), len(h)


@dataclass(frozen=True, eq=False)
class RoundEpisodes(NetworkEpisodes):
    """One sample is the mean over all lanes of one round, which follow one component: whatever the lanes share, rounds
    are independent, and the mean is as bounded as one episode.
    """

    @property
    def episode_steps(self) -> float:
        return self.simulator.n * super().episode_steps

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        return join([self._round(key, begin + i) for i in range(n)])

    def _round(self, key: np.uint64, k: int) -> Batch:
        X, component, steps = self._block(key, k, self.simulator.n)
        return X.mean(axis=0, keepdims=True), component[:1], steps

    def _components(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        return np.full(n, self.mixture.components(rng, 1)[0], np.int64)


def network_episodes(simulator: Simulator, mixture: NetworkMixture) -> NetworkEpisodes:
    """Episodes of a mixture that are independent, whatever the lanes of the simulator share.

    In many lanes where each is a function of its own seed; else in one lane, or as means over lanes that cannot run
    alone or are not all the same.
    """
    near: Any = getattr(simulator, "near", simulator)
    if not simulator.shared_randomness:
        return NetworkEpisodes(simulator, mixture)
    if _needs_rounds(simulator):
        return RoundEpisodes(near, mixture)
    return NetworkEpisodes(near.first_lane, mixture)


def describe_lanes(simulator: Simulator) -> str:
    """What is assumed of the lanes of a simulator, and what was done because it was not."""
    if not simulator.shared_randomness:
        return "lanes are independent, as a short check confirmed"
    how = f"the mean over the {simulator.n} lanes is one sample" if _needs_rounds(simulator) else "one lane was used"
    return f"nothing of how lanes depend on each other: {how}, because {simulator.shared_randomness}"


def _needs_rounds(simulator: Simulator) -> bool:
    near: Any = getattr(simulator, "near", simulator)
    return simulator.shared_randomness == DIFFERENT or near.first_lane is None
