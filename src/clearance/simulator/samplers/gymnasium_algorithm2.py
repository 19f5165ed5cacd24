"""Algorithm 2 for network policies on Gymnasium problems: draws by `fair_coin`, with a critic as control variate.

The environment is never put back into a chosen state. The critic is fitted to earlier batches only, so draws are
unbiased for any critic; a better critic only reduces their variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.learning.draws import Draws
from clearance.simulator.gymnasium_envs.gymnasium_problem import Gym
from clearance.simulator.jax_backend import jax, real
from clearance.simulator.policies.network_policy import NetworkPolicy
from clearance.simulator.policies.network_score import NetworkScore
from clearance.simulator.samplers.fair_coin import coin_draws, geometric_returns, plain
from clearance.simulator.samplers.jax_algorithm2 import Algorithm2
from clearance.simulator.samplers.value_networks import Values
from clearance.simulator.simulator import Steps


@dataclass(frozen=True, eq=False)
class ResetFree(Algorithm2):
    """The paper's sampler (Algorithm 2) for environments that cannot be put into a chosen state.

    control  whether a critic is used as control variate, which reduces the variance;  hidden: the critic's layer sizes

    Observations are not normalised.
    """

    simulator: Gym
    policy: NetworkPolicy
    control: bool = True
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        s = self.simulator.statement
        if s.horizon is not None or not isinstance(self.simulator, Gym):
            raise InputError(f"{s.name}: Algorithm 2 is for simulators with γ < 1 and no horizon; use Practical")
        self.check_policy()

    def batch(self, key: np.uint64, memory: Values, theta: Array, N: int) -> tuple[Draws, Array, Values, int]:
        """Return about N draws for the update direction, the estimate Ĵ [1+I], the new memory, and the steps taken.

        The draws are those of lines 3–7 of Algorithm 1. Ĵ is the mean of about N walks (lines 11–15).
        """
        head, out = self.policy.head, self.policy.plain(theta, self.normaliser(memory))

        def sample(rng: np.random.Generator, obs: Any) -> Any:
            return head.latent(out(obs), head.plain_noise(rng, len(obs)), np)

        def signals(steps: Steps) -> Array:
            behind = self.V(memory, steps.after) * ~steps.terminated[..., None]
            return steps.h + self.statement.gamma * behind - self.V(memory, steps.obs)

        how = self.simulator, sample, int(key)
        given = signals if self.control else plain, lambda u: head.action(u, np)
        pairs = coin_draws(*how, N, *given)
        walks = geometric_returns(how[0], sample, int(key) ^ 1, N, *given)
        X = walks.X + (self.V(memory, walks.obs) if self.control else 0.0)
        A, weight = pairs.A * pairs.alive[:, None], pairs.alive / len(pairs.alive)
        z = self.policy.flat(np.asarray(pairs.obs, np.float32))
        score = NetworkScore(self.policy, theta, real(z), jax.numpy.asarray(pairs.action), real(weight))
        draws = Draws(weight, score, A, np.zeros(0, np.int64))
        if self.control:
            fresh = pairs.alive & ~pairs.heads
            sums = self.V(memory, pairs.obs) - A / 2  # sums after a fresh action at s
            rows = np.concatenate([z, self.policy.flat(np.asarray(walks.obs, np.float32))])
            valid = np.append(fresh, np.ones(len(X), bool)).astype(np.float32)
            order = self.critics.order(key, len(rows))
            memory = self._fit(order, memory, real(rows), real(np.concatenate([sums, X])), real(valid))
        return draws, X.mean(0), memory, pairs.steps + walks.steps

    def V(self, memory: Values, obs: Any) -> Array:
        """Return the critic's values [..., 1+I] at observations [..., *shape], in float64.

        Batches are padded to a few sizes, so that few programs are compiled.
        """
        z = self.policy.flat(np.asarray(obs, np.float32))
        rows = z.reshape(-1, z.shape[-1])
        filled = np.zeros((max(256, 1 << (len(rows) - 1).bit_length()), z.shape[-1]), np.float32)
        filled[: len(rows)] = rows
        return np.asarray(self._value(memory, filled), float)[: len(rows)].reshape(*z.shape[:-1], -1)

    @cached_property
    def _value(self) -> Any:
        return jax.jit(self.critics.__call__)

    @cached_property
    def _fit(self) -> Any:
        return jax.jit(self.critics.fit)
