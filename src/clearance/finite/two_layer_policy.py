"""Two-layer networks on finite models: f(s, a) = m^(−1/2) Σ_j b_j ReLU(W_j·x_sa), b_j = ±1 fixed (Xu et al. 2021).

    π_W(a|s) ∝ exp f(s, a);      ∂f/∂W_j = m^(−1/2) b_j 1[W_j·x > 0] x

Here x_sa [D] is the input of a state-action pair and W [m, D] the weights of m neurons. Neurons form pairs: the two
have output weights b_j of opposite sign and start with the same W_j ~ N(0, 1/D). So initially f = 0 and π is uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import read_available, read_numbers
from clearance.finite.softmax_policy import SoftmaxPolicy, log_softmax


@dataclass(frozen=True, eq=False)
class TwoLayer:
    """The policy class of two-layer networks with m neurons and D inputs x [S·A, D] of norm at most 1.

    θ is the weight matrix W [m, D], flattened. Its initial value is drawn with the random seed `seed`. Actions that are
    not in the mask `available` [S, A] have probability 0. The function `two_layer` makes objects of this class.
    """

    S: int
    A: int
    x: Array
    m: int
    seed: int = 0
    available: NDArray[np.bool_] | None = None

    tabular = False

    @cached_property
    def bias(self) -> Array:
        """The array [S, A] that is added to the network's output f: 0 for actions that exist, −inf for others."""
        none = np.zeros((self.S, self.A), bool) if self.available is None else ~self.available
        return np.where(none, -np.inf, 0.0)

    @property
    def D(self) -> int:
        return self.x.shape[1]

    @property
    def d(self) -> int:
        """The number of parameters."""
        return self.m * self.D

    @cached_property
    def sign(self) -> Array:
        """The fixed output weights b_j/√m [m] of the m neurons, where b_j is 1 or −1."""
        return np.repeat([1.0, -1.0], self.m // 2) / np.sqrt(self.m)

    def init(self) -> Array:
        """Return random initial weights W [m·D] for which the network's output f is 0.

        Each neuron has the same weights as another neuron whose output sign is opposite.
        """
        half = np.random.default_rng(self.seed).normal(size=(self.m // 2, self.D)) / np.sqrt(self.D)
        return np.concatenate([half, half]).ravel()

    def value(self, theta: ArrayLike) -> Array:
        """Return the network's output f [..., S·A] for one parameter vector θ [d] or for many [..., d]."""
        W = np.asarray(theta, float).reshape(*np.shape(theta)[:-1], self.m, self.D)
        return np.maximum(self.x @ np.swapaxes(W, -1, -2), 0.0) @ self.sign

    def jacobian(self, theta: Array) -> Array:
        """Return the Jacobian ∂f/∂θ [S·A, d] of the network's output f at one θ."""
        active = (self.x @ theta.reshape(self.m, self.D).T > 0) * self.sign
        return (active[:, :, None] * self.x[:, None, :]).reshape(len(self.x), self.d)

    def log_pi(self, theta: ArrayLike) -> Array:
        """Return log π [..., S, A] for one parameter vector θ [d] or for many [..., d]."""
        f = self.value(theta)
        return log_softmax(f.reshape(*f.shape[:-1], self.S, self.A) + self.bias)

    def pi(self, theta: ArrayLike) -> Array:
        """Return π [..., S, A] for one parameter vector θ [d] or for many [..., d]."""
        return np.exp(self.log_pi(theta))

    def score(self, theta: Array, s: NDArray[np.int64], a: NDArray[np.int64]) -> Any:
        """Return ∇ log π_θ(a|s) [N, d] = ∂f(s, a) − E_{a'~π} ∂f(s, a') for states s [N] and actions a [N].

        ∂f is the gradient of the network's output with respect to θ.
        """
        J = self.jacobian(theta).reshape(self.S, self.A, self.d)
        return J[s, a] - np.einsum("sa,sad->sd", self.pi(theta), J)[s]


def two_layer(
    S: int, A: int, m: int = 64, *, inputs: ArrayLike | None = None, available: ArrayLike | None = None, seed: int = 0
) -> TwoLayer:
    """Return the policy class of two-layer ReLU networks of even width m.

    inputs     the inputs [S, A, D] of the network; by default one-hot codes of state and action
    available  a mask [S, A] of the actions that exist in each state; by default all
    seed       the seed of the random initial weights
    """
    if m < 2 or m % 2:
        raise InputError(f"m must be an even whole number ≥ 2, got {m!r}")
    x = _one_hot(S, A) if inputs is None else read_numbers("inputs", inputs, ndim=3)
    if x.shape[:2] != (S, A):
        raise InputError(f"inputs must be [S, A, D] = [{S}, {A}, D], got shape {x.shape}")
    norm = np.linalg.norm(x, axis=-1).max()
    return TwoLayer(S, A, x.reshape(S * A, -1) / max(norm, 1e-300), m, seed, read_available(available, S, A))


def _one_hot(S: int, A: int) -> Array:
    """Return the one-hot inputs (e_s, e_a) of every pair [S, A, S + A]."""
    states, acts = np.broadcast_to(np.eye(S)[:, None], (S, A, S)), np.broadcast_to(np.eye(A)[None], (S, A, A))
    return np.concatenate([states, acts], axis=-1)


Policy = SoftmaxPolicy | TwoLayer
