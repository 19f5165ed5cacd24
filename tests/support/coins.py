"""Toys with a known tail: each step costs 1 with a probability that the action chooses, so sums are binomial."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import clearance as cl

H = 12
CALM, BOLD = 0.2, 0.4  # the chances of a cost


class Coins(gymnasium.Env):
    """Action 1 earns 1 and costs 1 with probability BOLD, action 0 earns nothing and costs 1 with probability CALM."""

    metadata: dict[str, Any] = {}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        cost = float(self.np_random.random() < (BOLD if action else CALM))
        return np.full(1, cost, np.float32), float(action), False, False, {"cost": cost}


def gym_coins(limits: Any, **more: Any) -> Any:
    return cl.gymnasium(Coins, limits=limits, horizon=H, **{"num_envs": 4, "bounds": (0.0, 1.0), **more})


def jax_coins(limits: Any, p: float = BOLD, lanes: int = 64, **more: Any) -> Any:
    """The same in JAX with one chance p whatever the action is."""

    def step(key: Any, state: Any, action: Any) -> Any:
        cost = (jax.random.uniform(key) < p).astype(float)
        return state + cost, jnp.stack([action.astype(float), cost]), jnp.zeros((), bool)

    return cl.environment(lambda key: jnp.zeros(()), step, lambda s: s[None] / H, action=cl.Discrete(2), gamma=1.0,
                          limits=limits, horizon=H, names=["cost"], bounds=([0.0, 0.0], [1.0, 1.0]), lanes=lanes,
                          name="coins", **more)  # fmt: skip


def chance_above(c: int, p: float) -> float:
    """P(C > c), exactly."""
    return float(stats.binom.sf(c, H, p))


def cvar(level: float, p: float) -> float:
    """CVaR of C, exactly: the least over ν of the Rockafellar–Uryasev form, at a whole number."""
    k, mass = np.arange(H + 1), stats.binom.pmf(np.arange(H + 1), H, p)
    return float(min(nu + mass @ np.maximum(k - nu, 0) / (1 - level) for nu in k))


def any_policy(env: Any) -> cl.NetworkMixture:
    """A policy that takes both actions alike."""
    from clearance.simulator.policies.network_policy import Normaliser

    policy = cl.categorical(hidden=()).fitted(env.obs_shape, env.action, 0, env.memory)
    return cl.NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs))
