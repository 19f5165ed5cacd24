"""A sampler that follows one trajectory without resets and trains a critic along it, as PD-NAC does (Zeng et al. 2021).

    a ~ (1−ε)π(·|s) + ε/|A|;     Q(s, a) ← Q(s, a) + β (h(s, a) + γ Σ_a' π(a'|s') Q(s', a') − Q(s, a))

If a state ends the episode (every action stays there and gives no signal), the next state is drawn from ρ, as in a
simulator. The estimate of J is Ĵ = Σ_s ρ(s) V̂(s) with known ρ, as in the paper; it cannot be measured, since a
trajectory without resets draws from ρ only once. ε is the share of uniform actions and β the step size of the critic.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.compiled import episodes
from clearance.core.compiled.alias_tables import pack
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.algorithm2 import add_signal, alias_tables
from clearance.finite.samplers.finite_sampler import FiniteSampler
from clearance.finite.samplers.td_critic import FORGET, make_room, state_values, table_draws
from clearance.finite.two_layer_policy import Policy
from clearance.learning.draws import Draws


class Path(NamedTuple):
    """The state of the sampler: the current state s (−1 before the first step), Q [S·A, 1+I] and recent visits [S]."""

    s: int
    Q: Array
    visits: Array


@dataclass(frozen=True, eq=False)
class Trajectory(FiniteSampler):
    """The sampler of the method `PDNAC`, which trains a critic along one trajectory.

    beta     the critic's step size β
    explore  the share ε of the actions that is drawn uniformly
    """

    cmdp: CMDP
    policy: Policy
    beta: float = 0.05
    explore: float = 0.1

    @cached_property
    def ends(self) -> NDArray[np.bool_]:
        """The mask [S] of states that end an episode: every action stays there and gives no signal."""
        S, A = self.cmdp.S, self.cmdp.A
        rows = np.arange(S * A)
        stays = np.asarray(self.cmdp.rows[rows, rows // A]).reshape(S, A) == 1.0
        quiet = ~np.any(self.cmdp.h, axis=0)
        return np.all((stays & quiet) | ~self.cmdp.available, axis=1)

    def begin(self) -> Path:
        S, A, H = self.cmdp.S, self.cmdp.A, 1 + self.cmdp.I
        return Path(-1, np.zeros((S * A, H)), np.zeros(S))

    def batch(
        self, key: np.uint64, memory: Path, theta: Array, N: int, extra: Array | None = None
    ) -> tuple[Draws, Array, Path, int]:
        """Take N more steps; return (every pair as a draw, Ĵ [1+I], the new state of the sampler, N).

        θ are the policy's parameters, and `memory` is the state of the sampler. With `extra` [S, A], a signal that is
        not in the model, the critic also learns this signal.
        """
        cmdp = self.cmdp
        pi = np.ascontiguousarray(self.policy.pi(theta))
        uniform = cmdp.available / cmdp.available.sum(1, keepdims=True)
        walked = pack((1 - self.explore) * pi + self.explore * uniform)
        Q, visits = make_room(memory.Q, cmdp, extra), FORGET * memory.visits
        V, model = state_values(pi, Q), add_signal(alias_tables(cmdp), extra)
        settings = (cmdp.gamma, self.beta, self.ends, N)
        s = episodes.follow(np.uint64(key), memory.s, model, walked, pi, *settings, Q, V, visits)
        V = state_values(pi, Q)
        J_hat = cmdp.rho @ V[:, : 1 + cmdp.I]
        return table_draws(self.policy, theta, pi, Q, V, visits), J_hat, Path(int(s), Q, visits), N
