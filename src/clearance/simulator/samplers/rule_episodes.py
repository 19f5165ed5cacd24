"""Sources of episodes for certificates: episodes of a user's rule, and episodes of networks.

The episodes of networks run in lanes (parallel environments). They are independent samples even if lanes depend on each
other.
"""

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
from clearance.simulator.policies.rule_mixture import RuleMixture
from clearance.simulator.samplers.simulator_episodes import NetworkEpisodes
from clearance.simulator.simulator import Simulator

WHO = 2**42 + 1  # the random stream that decides whether the rule or a network acts in an episode


def follow_any_rule(
    simulator: Any, rule: Callable[[Any], Any], seed: int, T: int, seen: list[Any] | None = None
) -> Array:
    """Run one episode of a rule `observation -> action`, of at most T steps, in this process.

    Return its signals h [t, 1+I]: in each step the reward, then the utilities.

    seen  a list to which the pair (observation, action) of each step is appended
    """
    if isinstance(simulator, Environment):
        return follow_jax_rule(simulator, rule, key_of(seed), T, seen)
    return follow_rule(simulator, rule, seed, T, seen)


@dataclass(frozen=True, eq=False)
class OwnRuleEpisodes(NetworkEpisodes):
    """Episodes of a rule `observation -> action`, one after the other in one environment of this process.

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
class RuleMixtureEpisodes(NetworkEpisodes):
    """Episodes of a `RuleMixture`: at the start of each episode, the rule or one of the networks is drawn."""

    mixture: RuleMixture  # type: ignore[assignment]

    @cached_property
    def _by_rule(self) -> OwnRuleEpisodes:
        near: Any = getattr(self.simulator, "near", self.simulator)
        return OwnRuleEpisodes(near, rule=self.mixture.known_rule())

    @cached_property
    def _by_networks(self) -> NetworkEpisodes:
        return network_episodes(self.simulator, self.mixture.networks)

    @property
    def episode_steps(self) -> float:
        share = self.mixture.share
        return share * self._by_rule.episode_steps + (1 - share) * self._by_networks.episode_steps

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        by_rule = np.random.default_rng(int(fold(fold(key, WHO), begin))).random(n) < self.mixture.share
        X, component, steps = np.empty((n, 1 + self.statement.I)), np.full(n, self.mixture.networks.M), 0
        for mask, source in ((by_rule, self._by_rule), (~by_rule, self._by_networks)):
            if mask.any():
                X[mask], who, taken = source.draw(key, begin, int(mask.sum()))
                steps += taken
                if source is self._by_networks:
                    component[mask] = who
        return X, self._numbered(component), steps

    def _numbered(self, component: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the index of the policy that acted in each episode [n], counted among the policies that can be drawn.

        If the rule has probability 1, it is the only such policy, and all indices are 0. Otherwise `component` is
        returned unchanged.
        """
        return component if self.mixture.share < 1 else np.zeros_like(component)


@dataclass(frozen=True, eq=False)
class RoundEpisodes(NetworkEpisodes):
    """Samples for parallel environments (lanes) that may depend on each other.

    In each round, all lanes run one episode of the same policy of the mixture. Their mean is one sample. Rounds are
    independent even if lanes are not, and a mean has the same bounds as one episode.
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
    """Return a source of independent samples of a mixture's episodes, even if lanes depend on each other.

    A lane is one of the simulator's parallel environments. If lanes are independent, all are used. If not, only the
    first lane is used. If this is not possible, because lanes cannot run alone or lanes with the same seed differ, the
    mean over all lanes is one sample.
    """
    near: Any = getattr(simulator, "near", simulator)
    if not simulator.shared_randomness:
        return NetworkEpisodes(simulator, mixture)
    if _needs_rounds(simulator):
        return RoundEpisodes(near, mixture)
    return NetworkEpisodes(near.first_lane, mixture)


def any_episodes(simulator: Simulator, mixture: NetworkMixture | RuleMixture) -> NetworkEpisodes:
    """Return a source of independent samples of a mixture's episodes; the mixture may contain a rule."""
    if isinstance(mixture, RuleMixture):
        return RuleMixtureEpisodes(simulator, mixture)
    return network_episodes(simulator, mixture)


def sees_what_networks_see(simulator: Any) -> bool:
    """Return whether a rule and a network get the same observation arrays, so that one mixture can contain both."""
    if simulator.memory is not None:
        return False
    if isinstance(simulator, Environment):
        return True
    obs = simulator.lanes.reset_first(0)
    return isinstance(obs, np.ndarray) and obs.shape == tuple(simulator.obs_shape)


def describe_lanes(simulator: Simulator) -> str:
    """Return a text on what a certificate assumes about lanes (parallel environments).

    If lanes may be dependent, the text says how samples were drawn and why.
    """
    if not simulator.shared_randomness:
        return "lanes are independent, as a short check confirmed"
    how = f"the mean over the {simulator.n} lanes is one sample" if _needs_rounds(simulator) else "one lane was used"
    return f"nothing of how lanes depend on each other: {how}, because {simulator.shared_randomness}"


def _needs_rounds(simulator: Simulator) -> bool:
    near: Any = getattr(simulator, "near", simulator)
    return simulator.shared_randomness == DIFFERENT or near.first_lane is None
