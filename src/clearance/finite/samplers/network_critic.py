"""A sampler that trains a two-layer network f as critic of each signal, by semi-gradient TD, as in neural CRPO.

    y(s, a) = h(s, a) + γ · mean of V(s') over the visits of (s, a),    V(s') = Σ_a' π(a'|s') f(s', a'; W), W held fixed
    W ← W − β Σ_{s,a} n(s, a)/n (f(s, a; W) − y(s, a)) ∂f/∂W            `epochs` times in each batch

n(s, a) is the number of visits of a pair in the walks, and n the sum over all pairs. The values of each signal are
learned in units of its largest |h|/(1−γ), so that one step size β suits all signals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.compiled import episodes
from clearance.core.compiled.alias_tables import pack
from clearance.core.errors import InputError
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.algorithm2 import alias_tables
from clearance.finite.samplers.finite_sampler import FiniteSampler
from clearance.finite.samplers.td_critic import FORGET, state_values, table_draws
from clearance.finite.two_layer_policy import Policy, TwoLayer, two_layer
from clearance.learning.draws import Draws


class Weights(NamedTuple):
    """The state of the critic: network weights W [1+I, m·D], recent visits [S], and counts of start states [S].

    W holds the weights of one network for each signal, with m neurons and D inputs.
    """

    W: Array
    visits: Array
    starts: Array


@dataclass(frozen=True, eq=False)
class NetworkCritic(FiniteSampler):
    """The sampler for the method CRPO with a two-layer network as critic; it returns advantages at every (s, a).

    m        the number of neurons of the network
    inputs   the inputs [S, A, D] of the network, by default one-hot
    beta     the step size β of the critic
    epochs   the number of gradient steps of the critic in each batch
    explore  the share of the walks' actions that is drawn uniformly
    """

    cmdp: CMDP
    policy: Policy
    m: int = 64
    beta: float = 1.0
    epochs: int = 10
    explore: float = 0.1
    inputs: Array | None = field(default=None, repr=False)

    @cached_property
    def net(self) -> TwoLayer:
        return two_layer(self.cmdp.S, self.cmdp.A, self.m, inputs=self.inputs, seed=1)

    @cached_property
    def unit(self) -> Array:
        """The largest |h|/(1−γ) [1+I], a bound on |Q| of each signal; 1 for a signal that is always 0."""
        size = np.abs(self.cmdp.h).max(axis=(1, 2)) / (1 - self.cmdp.gamma)
        return np.where(size > 0, size, 1.0)

    def begin(self) -> Weights:
        W = np.tile(self.net.init(), (1 + self.cmdp.I, 1))
        return Weights(W, np.zeros(self.cmdp.S), np.zeros(self.cmdp.S))

    def batch(
        self, key: np.uint64, memory: Weights, theta: Array, N: int, extra: Array | None = None
    ) -> tuple[Draws, Array, Weights, int]:
        """Run N walks and train the critic; return (every pair as a draw, Ĵ [1+I], the new critic, environment steps).

        θ are the policy's parameters, and `memory` is the critic so far. `extra` must be None.
        """
        if extra is not None:
            raise InputError("NetworkCritic learns r and g only: use Critic for methods that regularise")
        cmdp = self.cmdp
        pi = np.ascontiguousarray(self.policy.pi(theta))
        uniform = cmdp.available / cmdp.available.sum(1, keepdims=True)
        walked = pack((1 - self.explore) * pi + self.explore * uniform)
        V = state_values(pi, self.net.value(memory.W).T)  # in units
        count, total, starts = np.zeros(cmdp.S * cmdp.A), np.zeros((cmdp.S * cmdp.A, 1 + cmdp.I)), memory.starts.copy()
        steps = episodes.tally(np.uint64(key), alias_tables(cmdp), walked, N, V, count, total, starts)
        seen = np.maximum(count, 1.0)[:, None]
        y = cmdp.h.reshape(1 + cmdp.I, -1).T / self.unit + cmdp.gamma * total / seen
        W = self._fit(memory.W, y.T, count / count.sum())
        Q = self.net.value(W).T * self.unit
        V = state_values(pi, Q)
        visits = FORGET * memory.visits + count.reshape(cmdp.S, cmdp.A).sum(1)
        J_hat = starts @ V / starts.sum()
        return table_draws(self.policy, theta, pi, Q, V, visits), J_hat, Weights(W, visits, starts), int(steps)

    def _fit(self, W: Array, y: Array, weight: Array) -> Array:
        """Return the weights W [1+I, m·D] after `epochs` gradient steps towards the targets y [1+I, S·A].

        `weight` [S·A] is the weight of each pair in the squared error. A network has m neurons and D inputs.
        """
        net = self.net
        rows = np.flatnonzero(weight)
        x, y, weight = net.x[rows], y[:, rows], weight[rows]
        layers = W.reshape(len(W), net.m, net.D)
        for _ in range(self.epochs):
            z = x @ np.swapaxes(layers, 1, 2)  # [1+I, rows, m]
            error = weight * (np.maximum(z, 0.0) @ net.sign - y)
            layers = layers - self.beta * np.swapaxes((z > 0) * (net.sign * error[:, :, None]), 1, 2) @ x
        return layers.reshape(W.shape)
