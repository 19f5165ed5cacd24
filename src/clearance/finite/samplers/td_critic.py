"""A sampler that trains a tabular critic Q of each signal by expected TD(0) and returns the advantage of every pair.

    Q(s, a) ← Q(s, a) + β (h(s, a) + γ Σ_a' π(a'|s') Q(s', a') − Q(s, a)),      β = 1/(1 + gain·(1−γ)·n(s, a))

n(s, a) is the number of visits of a pair. The walks start from ρ and stop with probability 1−γ at each step, as in
Algorithm 2, but they need neither a reset to a chosen state nor a second rollout: every step updates the critics of all
signals. A share `explore` of the actions is drawn uniformly, so that pairs are still visited after π has stopped taking
them. Without this, the softmax policy might stay saturated for ever. The critic does not need the transitions; with
`counting` they are counted (`transition_counts`), and a plan can be computed from the counts after learning.

The draws are biased as long as the critic has not converged. Certificates never use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from clearance.core.arrays import Array
from clearance.core.compiled import episodes
from clearance.core.compiled.alias_tables import pack
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.algorithm2 import add_signal, alias_tables
from clearance.finite.samplers.finite_sampler import FiniteSampler
from clearance.finite.two_layer_policy import Policy
from clearance.learning.draws import Draws

FORGET = 0.9  # the share of the visits that is kept from one batch to the next, so that d̂ follows the policy


class Tables(NamedTuple):
    """The state of the critic.

    Q       the values [S·A, 1+I]
    seen    the number of visits of each pair [S·A]
    visits  the number of recent visits of each state [S]
    starts  the number of walks that started in each state [S]
    hits    the counts of transitions so far (`transition_counts`), empty if they are not counted

    All arrays are copied in every batch, so that an interrupted batch does not change the state that a checkpoint
    stores.
    """

    Q: Array
    seen: Array
    visits: Array
    starts: Array
    hits: NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Critic(FiniteSampler):
    """The sampler with a TD critic, for the method `RegularisedCNPGPD`.

    It returns advantages at every pair (s, a), and Ĵ = ρ̂·V̂ from the observed shares ρ̂ of start states.

    explore   the share of the walks' actions that is drawn uniformly
    gain      how fast the critic's step size falls with the visits of a pair; the docstring of the module has the
              formula
    counting  whether transitions are counted
    """

    cmdp: CMDP
    policy: Policy
    explore: float = 0.1
    gain: float = 0.1
    counting: bool = False

    def begin(self) -> Tables:
        S, A, H = self.cmdp.S, self.cmdp.A, 1 + self.cmdp.I
        slots = 2 * len(alias_tables(self.cmdp).cells) if self.counting else 0
        return Tables(np.zeros((S * A, H)), np.zeros(S * A), np.zeros(S), np.zeros(S), np.zeros(slots, np.uint32))

    def batch(
        self, key: np.uint64, memory: Tables, theta: Array, N: int, extra: Array | None = None
    ) -> tuple[Draws, Array, Tables, int]:
        """Run N walks and train the critic; return (every pair as a draw, Ĵ [1+I], the new critic, environment steps).

        A draw has the weight d̂(s) π(a|s), where d̂(s) is the share of state s in recent visits. θ are the policy's
        parameters, and `memory` is the critic so far. With `extra` [S, A], a signal that is not in the model, the
        critic also learns this signal.
        """
        cmdp, gamma = self.cmdp, self.cmdp.gamma
        pi = np.ascontiguousarray(self.policy.pi(theta))
        uniform = cmdp.available / cmdp.available.sum(1, keepdims=True)
        walked = pack((1 - self.explore) * pi + self.explore * uniform)
        Q, seen, visits = make_room(memory.Q, cmdp, extra), memory.seen.copy(), FORGET * memory.visits
        starts, hits = memory.starts.copy(), memory.hits.copy()
        V = state_values(pi, Q)
        gain = self.gain * (1 - gamma)
        model = add_signal(alias_tables(cmdp), extra)
        steps = episodes.td(key, model, walked, pi, gamma, gain, N, Q, V, seen, visits, starts, hits)
        V = state_values(pi, Q)  # without the rounding of the running sums
        J_hat = starts @ V[:, : 1 + cmdp.I] / starts.sum()
        after = Tables(Q, seen, visits, starts, hits)
        return table_draws(self.policy, theta, pi, Q, V, visits), J_hat, after, int(steps)


def make_room(Q: Array, cmdp: CMDP, extra: Array | None) -> Array:
    """Return a copy of Q [S·A, ·] with one column for each signal of the model, and one more if `extra` is given.

    New columns are 0.
    """
    H = 1 + cmdp.I + (extra is not None)
    return np.column_stack([Q, np.zeros((len(Q), H - Q.shape[1]))]) if Q.shape[1] < H else Q[:, :H].copy()


def table_draws(policy: Policy, theta: Array, pi: Array, Q: Array, V: Array, visits: Array) -> Draws:
    """Return every pair (s, a) as a draw with weight d̂(s) π(a|s) and advantage Q − V.

    d̂(s) is the share of state s in `visits` [S]. For a tabular softmax policy, the scores are returned as a linear
    operator, since a matrix would have (S·A)² entries.
    """
    pairs = np.arange(pi.size)
    weight = (visits[:, None] * pi).ravel()
    score = TabularScore(pi) if policy.tabular else policy.score(theta, *np.divmod(pairs, pi.shape[1]))
    return Draws(weight / weight.sum(), score, Q - np.repeat(V, pi.shape[1], axis=0), pairs)


class TabularScore(LinearOperator):
    """The scores of a tabular softmax as a linear operator: (score w)(s, a) = w(s, a) − Σ_a' π(a'|s) w(s, a')."""

    def __init__(self, pi: Array) -> None:
        super().__init__(np.dtype(float), (pi.size, pi.size))
        self.pi = pi

    def _matvec(self, x: Array) -> Array:
        w = x.reshape(self.pi.shape)
        return (w - np.sum(self.pi * w, axis=1, keepdims=True)).ravel()

    def _rmatvec(self, x: Array) -> Array:
        v = x.reshape(self.pi.shape)
        return (v - self.pi * v.sum(1, keepdims=True)).ravel()


def state_values(pi: Array, Q: Array) -> Array:
    """Return V(s) = Σ_a π(a|s) Q(s, a) [S, 1+I] from Q [S·A, 1+I]."""
    S, A = pi.shape
    return np.einsum("sa,sah->sh", pi, Q.reshape(S, A, -1))
