"""Critics: one network V_j(s) per signal, j = 0..I, trained by Adam on returns with normalised targets.

Targets are normalised by their running mean and standard deviation, which change as the policy learns. After each
change the last layer is rescaled so that the predicted values stay the same (van Hasselt et al. 2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jax.flatten_util import ravel_pytree

from clearance.core.convolution import Front
from clearance.simulator.jax_backend import eqx, jax, jnp, optax
from clearance.simulator.policies.network_policy import Net, kernels, network

CHUNK = 256  # rows of which values are computed together
FLOOR = 1e-6  # added to the spread of the targets, so that a constant signal causes no division by 0


class Values(NamedTuple):
    """The state of the critics: parameters [1+I, d], Adam's state, mean and spread of targets [1+I], batches seen."""

    theta: Any
    adam: Any
    mean: Any
    spread: Any
    seen: Any


@dataclass(frozen=True)
class Critics:
    """1+I value networks of the same shape, one for each signal (reward, then constraints).

    rate    Adam's learning rate;  batch: rows per step of Adam
    epochs  passes over the data of one iteration (.25: a quarter of its rows)
    """

    inputs: int
    signals: int
    hidden: tuple[int, ...] = (64, 64)
    rate: float = 1e-3
    epochs: float = 4
    batch: int = 512
    front: Front | None = None  # convolutions, as the policy has them

    @cached_property
    def _unravel(self) -> Any:
        with jax.ensure_compile_time_eval():
            return ravel_pytree(self._net(jax.random.key(0)))[1]

    def _net(self, key: Any) -> Net:
        """Return a new network whose output is V = 0 everywhere."""
        front = None if self.front is None else self.front._replace(rest=self.inputs - self.front.image.size)
        inputs = self.inputs if front is None else front.features
        return Net(kernels(key, front), network(key, (inputs, *self.hidden, 1), 0.0), None, front)

    @cached_property
    def adam(self) -> Any:
        return optax.adam(self.rate, eps=1e-5)

    def begin(self, seed: int) -> Values:
        keys = jax.random.split(jax.random.key(seed), self.signals)
        theta = jnp.stack([ravel_pytree(self._net(k))[0] for k in keys])
        zero = jnp.zeros(self.signals)
        return Values(theta, self.adam.init(theta), zero, zero + 1, jnp.zeros((), jnp.int32))

    def _raw(self, theta: Any, z: Any) -> Any:
        """Return the networks' outputs [N, 1+I] at normalised observations z [N, inputs].

        These are values in units of the normalised targets.
        """
        nets = [self._unravel(theta[j]) for j in range(self.signals)]  # vmap over nets would be four times slower
        return jnp.stack([jax.vmap(net)(z)[:, 0] for net in nets], axis=1)

    def __call__(self, values: Values, z: Any) -> Any:
        """Return the predicted values V [..., 1+I] at normalised observations z [..., inputs]."""
        flat = z.reshape(-1, self.inputs)
        whole = len(flat) // CHUNK * CHUNK  # in chunks, whose activations stay in the cache: twice as fast
        chunks = jax.lax.map(lambda rows: self._raw(values.theta, rows), flat[:whole].reshape(-1, CHUNK, self.inputs))
        raw = jnp.concatenate([chunks.reshape(-1, self.signals), self._raw(values.theta, flat[whole:])])
        return (raw * values.spread + values.mean).reshape(*z.shape[:-1], self.signals)

    def rescaled(self, values: Values, R: Any, valid: Any) -> Values:
        """Return critics whose mean and spread of the targets are updated by the returns R [N, 1+I].

        The networks are rescaled, so that the values V stay the same.

        valid  an array [N]: 1 for the rows of R that count, 0 for the others
        """
        n = jnp.sum(valid)
        mean = valid @ R / n
        spread = jnp.sqrt(valid @ (R - mean) ** 2 / n) + FLOOR
        gain = jnp.maximum(0.2, 1 / (values.seen + 1.0))
        new_mean, new_spread = (
            values.mean + gain * (mean - values.mean),
            values.spread + gain * (spread - values.spread),
        )
        ratio = values.spread / new_spread
        shift = (values.mean - new_mean) / new_spread
        theta = jax.vmap(self._rescale)(values.theta, ratio, shift)
        return Values(theta, values.adam, new_mean, new_spread, values.seen + 1)

    def _rescale(self, theta: Any, ratio: Any, shift: Any) -> Any:
        net = self._unravel(theta)
        last = net.layers[-1]
        moved = (last.weight * ratio, last.bias * ratio + shift)
        return ravel_pytree(eqx.tree_at(lambda x: (x.layers[-1].weight, x.layers[-1].bias), net, moved))[0]

    def order(self, key: np.uint64, total: int, N: int | None = None) -> Any:
        """Return row indices [steps of Adam, batch] to train on, drawn from `total` rows.

        There are as many steps of Adam as `epochs` passes over N rows need; N is `total` by default. Each pass over the
        rows is shuffled anew. NumPy is used because it shuffles ten times as fast as JAX.
        """
        N = total if N is None else N
        rng, size = np.random.default_rng(int(key)), min(self.batch, N)
        steps = round(self.epochs * (N // size))
        passes = math.ceil(steps / max(total // size, 1))
        epochs = [rng.permutation(total)[: total // size * size] for _ in range(passes)]
        return np.reshape(epochs, (-1, size)).astype(int)[:steps]  # integers even if there are none

    def fit(self, order: Any, values: Values, z: Any, R: Any, valid: Any) -> Values:
        """Rescale the critics, train them on observations z [N, inputs] with targets R [N, 1+I], and return them.

        order  the row indices for each step of Adam;  valid: 1 if a row counts, else 0 [N]
        """
        return self.descend(order, self.rescaled(values, R, valid), z, R, valid)

    def descend(self, order: Any, values: Values, z: Any, R: Any, valid: Any) -> Values:
        """Train the critics V_j by Adam on Σ_j (V_j(z) − R_j)², in units of the normalised targets, and return them.

        order  the row indices for each step of Adam;  z, R: observations [N, inputs] and targets [N, 1+I]
        valid  1 if a row counts, else 0 [N]
        """
        y = (R - values.mean) / values.spread

        def loss(theta: Any, rows: Any) -> Any:
            miss = (self._raw(theta, z[rows]) - y[rows]) ** 2
            return jnp.sum(miss * valid[rows, None]) / len(rows)

        def one(carry: Any, rows: Any) -> Any:
            theta, state = carry
            step, state = self.adam.update(jax.grad(loss)(theta, rows), state)
            return (optax.apply_updates(theta, step), state), None

        (theta, adam), _ = jax.lax.scan(one, (values.theta, values.adam), order)
        return values._replace(theta=theta, adam=adam)
