"""Weighted samples of (score, advantage): the output of every sampler and the input of every update direction."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from clearance.core.arrays import Array


class Draws(NamedTuple):
    """N weighted samples: weight [N] (sum 1), score ∇ log π(a|s) [N, d], advantages A [N, 1+I], pair s·A + a [N].

    Exact evaluations have the same form, with every pair (s, a) as one sample of weight d(s, a). So all update
    directions work for sampled and for exact draws. `score` may be a linear operator: only `score @ w` and
    `score.T @ v` are used.
    """

    weight: Array
    score: Any
    A: Array
    pair: NDArray[np.int64]


class PairScore(LinearOperator):
    """The scores [N, S·A] of drawn pairs of a tabular softmax, as a linear operator.

    The score ∇ log π(a|s) of a pair is e_sa − Σ_a' π(a'|s) e_sa', where e_sa are the unit vectors.
    """

    def __init__(self, pi: Array, pair: NDArray[np.int64]) -> None:
        super().__init__(np.dtype(float), (len(pair), pi.size))
        self.pi, self.pair = pi, pair

    def _matvec(self, x: Array) -> Array:
        w = x.reshape(self.pi.shape)
        return (w - np.sum(self.pi * w, axis=1, keepdims=True)).ravel()[self.pair]

    def _rmatvec(self, x: Array) -> Array:
        v = np.bincount(self.pair, x.ravel(), self.pi.size).reshape(self.pi.shape)
        return (v - self.pi * v.sum(1, keepdims=True)).ravel()

    def toarray(self) -> Array:
        S, A = self.pi.shape
        out = np.zeros((len(self.pair), S, A))
        rows, s = np.arange(len(self.pair)), self.pair // A
        out[rows, s] = -self.pi[s]
        out = out.reshape(len(rows), S * A)
        out[rows, self.pair] += 1.0
        return out
