"""Run whole episodes of any policy, and return the sums of their signals and their lengths.

Without a horizon, an episode is followed until the discount factor γ^t falls to `REST`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.rule_watch import WatchedRule
from clearance.core.arrays import Array
from clearance.core.random_streams import fold
from clearance.core.statement import Statement
from clearance.simulator.jax_backend import jax, jax_key, real
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.jax_envs.jax_rollout import rollout
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.samplers.rule_episodes import follow_any_rule, network_episodes
from clearance.simulator.simulator import Steps

REST = 1e-3
LANES = 64  # episodes that run in parallel in a JAX environment


class Observed(NamedTuple):
    """The discounted sums X [n, 1+I] of the signals (reward, then utilities) over n episodes, and their lengths [n]."""

    X: Array
    length: NDArray[np.int64]

    def first(self, n: int) -> Observed:
        return Observed(self.X[:n], self.length[:n])


def longest(s: Statement) -> int:
    """Return the largest number of steps in an episode: the horizon, or without one the first t with γ^t ≤ REST."""
    return int(s.horizon) if s.horizon is not None else math.ceil(math.log(REST) / math.log(s.gamma))


def observe_episodes(simulator: Any, policy: Any, n: int, key: np.uint64) -> Observed:
    """Run n episodes of a policy; return the sums of their signals and their lengths.

    `policy` is a mixture of networks, or a rule `observation -> action`. Episodes of a rule run one after the other.
    """
    s = simulator.statement
    if isinstance(policy, NetworkMixture):
        found = _of_networks(simulator, policy, n, key)
        return found._replace(X=found.X + s.offset)
    watched, walks = WatchedRule(policy), []
    for i in range(n):
        watched.begin()
        seed = int(np.random.default_rng(int(fold(key, i))).integers(2**31))
        walks.append(follow_any_rule(simulator, watched.choose, seed, longest(s)))
    X = [np.sum(s.gamma ** np.arange(len(h))[:, None] * h, axis=0) for h in walks]
    return Observed(np.array(X) + s.offset, np.array([len(h) for h in walks]))


def _of_networks(simulator: Any, mixture: NetworkMixture, n: int, key: np.uint64) -> Observed:
    near = getattr(simulator, "near", simulator)
    if not isinstance(near, Environment):
        return _walked(near, mixture, n, key)
    counts = np.bincount(mixture.components(np.random.default_rng(int(key)), n), minlength=mixture.M)
    run, parts = _compiled(near, mixture), []
    norm = Normaliser(*(real(x) for x in mixture.normaliser))
    for m, count in enumerate(counts):
        for begin in range(0, int(count), LANES):
            steps = Steps(
                *(np.asarray(x) for x in run(jax_key(fold(fold(key, m), begin)), norm, real(mixture.theta[m])))
            )
            found = _first_episodes(steps, near.statement.gamma)
            parts.append(found.first(int(count) - begin))
    return Observed(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def _compiled(env: Environment, mixture: NetworkMixture) -> Any:
    policy, T = mixture.policy, longest(env.statement)

    def run(key: Any, norm: Any, theta: Any) -> Any:
        return rollout(env, policy, policy.net(theta), norm, key, LANES, T)[0]

    return jax.jit(run)


def _walked(simulator: Any, mixture: NetworkMixture, n: int, key: np.uint64) -> Observed:
    source = network_episodes(simulator, mixture)  # in one lane where lanes may share randomness
    sim, parts, T = source.simulator, [], longest(simulator.statement)
    for begin in range(0, n, sim.n):
        rng = np.random.default_rng(int(fold(key, begin)))
        act = source._acting(rng, mixture.components(rng, sim.n))
        found = _first_episodes(sim.walk(act, rng.integers(2**31, size=sim.n), T, once=True), sim.statement.gamma)  # type: ignore[attr-defined]
        parts.append(found.first(n - begin))
    return Observed(*(np.concatenate(x) for x in zip(*parts, strict=True)))


def _first_episodes(steps: Steps, gamma: float) -> Observed:
    """Return the discounted sums and the lengths of the first episode of each parallel environment."""
    ended = (steps.terminated | steps.truncated) & steps.valid
    before = np.cumsum(ended, axis=0) - ended == 0
    counted = steps.valid & before
    t = np.cumsum(counted, axis=0) - counted
    X = np.sum(gamma ** t[..., None] * np.where(counted[..., None], np.asarray(steps.h, float), 0.0), axis=0)
    return Observed(X, counted.sum(0))
