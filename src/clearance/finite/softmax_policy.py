"""Softmax policies of finite models: π(a|s) ∝ exp⟨Φ_sa, θ⟩ (Bai et al. 2023, appendix "Evaluation Details").

    score(s, a) = ∇ log π_θ(a|s) = Φ_sa − Σ_a' π(a'|s) Φ_sa'

Tabular softmax is the special case Φ = identity, d = S·A. Features are stored sparse, so the same code serves both
cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import read_available, read_numbers
from clearance.finite.cmdp import CMDP
from clearance.finite.linear_systems import averager

# Up to this number of entries, Φ is converted to a dense array, which is many times faster for small models.
DENSE = 10**6


@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxPolicy:
    """The policy class π_θ(a|s) ∝ exp⟨Φ_sa, θ⟩. The functions `softmax` and `linear_softmax` make its objects.

    matrix     the features Φ [S·A, d], sparse
    tabular    whether Φ is the identity
    available  a mask [S, A]; other actions have probability 0
    """

    S: int
    A: int
    matrix: Any
    tabular: bool = False
    available: NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        kind = "tabular" if self.tabular else "linear"
        return f"<SoftmaxPolicy: {kind}, {self.d:,} parameters for {self.S:,} states and {self.A:,} actions>"

    @cached_property
    def bias(self) -> Array:
        """The array [S, A] that is added to the logits: 0 for actions that exist, −inf for others."""
        none = np.zeros((self.S, self.A), bool) if self.available is None else ~self.available
        return np.where(none, -np.inf, 0.0)

    @property
    def d(self) -> int:
        """The number of parameters."""
        return self.matrix.shape[1]

    @cached_property
    def features(self) -> Array:
        """The features Φ [S, A, d] as a dense array."""
        return self.matrix.toarray().reshape(self.S, self.A, self.d)

    @cached_property
    def sparse_features(self) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, NDArray[np.int64]]:
        """The features Φ as CSR arrays (indptr, indices, values) with rows s·A + a, and the action of each value."""
        m = self.matrix
        action = np.repeat(np.arange(self.S * self.A) % self.A, np.diff(m.indptr))
        return np.asarray(m.indptr, np.int64), np.asarray(m.indices, np.int64), np.asarray(m.data, float), action

    def init(self) -> Array:
        """Return the first parameters θ¹ = 0, which give the uniform policy (Algorithm 1, line 1)."""
        return np.zeros(self.d)

    def log_pi(self, theta: ArrayLike) -> Array:
        """Return log π [..., S, A] for one parameter vector θ [d] or for many [..., d]."""
        theta = np.asarray(theta, float)
        logits = theta if self.tabular else (self.matrix @ theta.reshape(-1, self.d).T).T
        return log_softmax(logits.reshape(*theta.shape[:-1], self.S, self.A) + self.bias)

    def pi(self, theta: ArrayLike) -> Array:
        """Return π [..., S, A] for one parameter vector θ [d] or for many [..., d]."""
        return np.exp(self.log_pi(theta))

    def log_prob(self, theta: ArrayLike, s: NDArray[np.int64], a: NDArray[np.int64]) -> Array:
        """Return log π_θ(a|s) [N] for states s [N] and actions a [N]."""
        return self.log_pi(theta)[s, a]

    def score(self, theta: ArrayLike, s: NDArray[np.int64], a: NDArray[np.int64]) -> Any:
        """Return ∇ log π_θ(a|s) [N, d] = Φ_sa − E_{a'~π(·|s)} Φ_sa' for states s [N] and actions a [N].

        The result is sparse if the features Φ are large.
        """
        pi = self.pi(theta)
        if self.S * self.A * self.d <= DENSE:
            return self.features[s, a] - np.einsum("sa,sad->sd", pi, self.features)[s]
        return self.matrix[s * self.A + a] - (averager(pi) @ self.matrix)[s]

    def sample(self, theta: ArrayLike, s: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw one action for each state of s [N]."""
        cdf = np.cumsum(self.pi(theta)[s], axis=-1)
        return np.minimum((rng.random(len(s))[:, None] > cdf).sum(-1), self.A - 1)


def log_softmax(logits: Array) -> Array:
    """Return log softmax over the last axis. It equals scipy.special.log_softmax bit for bit and is faster."""
    most = np.max(logits, axis=-1, keepdims=True)
    shifted = logits - np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def softmax(S: int, A: int, available: ArrayLike | None = None) -> SoftmaxPolicy:
    """Return the tabular softmax class, with one parameter per (s, a).

    `available` is a mask [S, A]; other actions have probability 0.
    """
    mask = read_available(available, S, A)
    return SoftmaxPolicy(S, A, sparse.eye_array(S * A, format="csr"), tabular=True, available=mask)


def linear_softmax(features: ArrayLike, available: ArrayLike | None = None) -> SoftmaxPolicy:
    """Return the log-linear softmax class with features Φ [S, A, d].

    `available` is a mask [S, A]; other actions have probability 0.
    """
    phi = read_numbers("features", features, ndim=3)
    S, A, d = phi.shape
    if min(S, A, d) == 0:
        raise InputError(f"features must be [S, A, d] with no empty axis, got shape {phi.shape}")
    return SoftmaxPolicy(S, A, sparse.csr_array(phi.reshape(S * A, d)), available=read_available(available, S, A))


class TiedFeaturesError(InputError):
    """Raised when shared features couple the probabilities of states or actions.

    The optimum of such a policy class is not the solution of a linear program.
    """


def check_fits(cmdp: CMDP, policy: Any) -> None:
    """Raise InputError if [S, A] differs between class and model, or if the class has actions that the model lacks."""
    if (policy.S, policy.A) != (cmdp.S, cmdp.A):
        raise InputError(
            f"features are for [S, A] = {(policy.S, policy.A)}, the model has {(cmdp.S, cmdp.A)} states and actions"
        )
    if np.any(np.isfinite(policy.bias) & ~cmdp.available):
        raise InputError("policy takes actions that the model does not have: make it with available=cmdp.available")


def class_model(cmdp: CMDP, policy: Any) -> CMDP:
    """Return a model whose policies are exactly those of the class {π_θ}; its optimum is the optimum of the class.

    Such a model exists if each state is free or blind. A state is blind if all its actions have equal features. Then π
    is uniform in this state, and each action of the new model has the average effect of all actions. A state is free if
    the differences between its actions' features are linearly independent of each other and of the differences at other
    states. Raise TiedFeaturesError if a state is neither.
    """
    check_fits(cmdp, policy)
    if not isinstance(policy, SoftmaxPolicy):
        raise TiedFeaturesError("the optimum over networks is no linear program")
    can = np.isfinite(policy.bias)
    if policy.tabular and np.array_equal(can, cmdp.available):
        return cmdp
    contrast, blind = _contrasts(policy)
    if np.linalg.matrix_rank(contrast[~blind].reshape(-1, policy.d)) < (can.sum(1) - 1)[~blind].sum():
        raise TiedFeaturesError(
            "features tie states or actions together: the optimum of this class is no linear program"
        )
    share = can / can.sum(1, keepdims=True)
    blocks = np.where(blind[:, None, None], np.repeat(share[:, None], cmdp.A, axis=1), np.eye(cmdp.A)) * can[:, :, None]
    P: Any = sparse.block_diag(blocks, format="csr") @ sparse.csr_array(cmdp.rows)
    P = P if cmdp.is_sparse else P.toarray().reshape(cmdp.S, cmdp.A, cmdp.S)
    h = np.einsum("sab,hsb->hsa", blocks, cmdp.h)
    about = {"rho": cmdp.rho, "gamma": cmdp.gamma, "names": cmdp.names, "available": can, "order": "state"}
    return CMDP(P, h[0], h[1:], cmdp.b, **about)


def class_policy(policy: Any, pi: Array) -> Array:
    """Convert the policy pi [S, A] of a model that `class_model` returned to a policy of the original model.

    The result is uniform in blind states, that is, states in which all actions have equal features.
    """
    can = np.isfinite(policy.bias)
    if policy.tabular:
        return pi
    _, blind = _contrasts(policy)
    return np.where(blind[:, None], can / can.sum(1, keepdims=True), pi)


def _contrasts(policy: SoftmaxPolicy) -> tuple[Array, NDArray[np.bool_]]:
    """Return (contrasts [S, A, d], blind [S]).

    The contrasts are the features Φ_sa minus those of the first available action of the state. A state is blind if the
    features of all its actions are equal.
    """
    can = np.isfinite(policy.bias)
    first = np.argmax(can, axis=1)
    contrast = np.where(can[:, :, None], policy.features - policy.features[np.arange(policy.S), first][:, None], 0.0)
    return contrast, ~np.any(contrast, axis=(1, 2))
