"""Sources of episodes for certificates: of a user's rule, and of networks in lanes that may depend on each other."""

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
    """Run one episode of a rule in this process and return its signals h [t, 1+I].

    seen  a list to which (observation, action) of each step is appended
    """
    if isinstance(simulator, Environment):
        return follow_jax_rule(simulator, rule, key_of(seed), T, seen)
    return follow_rule(simulator, rule, seed, T, seen)


@dataclass(frozen=True, eq=False)
class OwnRuleEpisodes(NetworkEpisodes):
    """Episodes of a rule `observation -> action`, one after the other in one lane of this process.

    The rule is never copied, because copies of a rule with its own random generator would all draw the same numbers. It
    gets the environment's own observations, and its actions go to the environment unchanged. Its method `reset`, if it
    has one, is called at the beginning of every episode.
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
    """Samples that are means over all lanes of one round, in which all lanes follow the same mixture component.

    Rounds are independent even if lanes depend on each other, and a mean has the same bounds as one episode.
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
    """Return a source of independent episodes of a mixture, even if the lanes of the simulator depend on each other.

    Independent lanes are all used. Otherwise one lane is used, or means over lanes that cannot run alone or that
    differ.
    """
    near: Any = getattr(simulator, "near", simulator)
    if not simulator.shared_randomness:
        return NetworkEpisodes(simulator, mixture)
    if _needs_rounds(simulator):
        return RoundEpisodes(near, mixture)
    return NetworkEpisodes(near.first_lane, mixture)


def describe_lanes(simulator: Simulator) -> str:
    """Return the assumption about the lanes that a certificate makes, or what was done without it, in words."""
    if not simulator.shared_randomness:
        return "lanes are independent, as a short check confirmed"
    how = f"the mean over the {simulator.n} lanes is one sample" if _needs_rounds(simulator) else "one lane was used"
    return f"nothing of how lanes depend on each other: {how}, because {simulator.shared_randomness}"


def _needs_rounds(simulator: Simulator) -> bool:
    near: Any = getattr(simulator, "near", simulator)
    return simulator.shared_randomness == DIFFERENT or near.first_lane is None
