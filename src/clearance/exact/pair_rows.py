"""The rows P(·|s, a) of a model as lists of entries, and bounds on their expectations in real arithmetic.

Without discounting, a row of stored numbers p stands for the probabilities P̃ = p/Σp. The drift of a vector V, its
expected change from a state s to the next state t, is

    Σ_t P̃(t|s, a) V(t) − V(s)  =  Σ_t p(t) (V(t) − V(s)) / Σ_t p(t)

It is exactly 0 where V is constant, since differences of equal numbers are exactly 0. Every drift comes with a bound on
its rounding error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.finite.cmdp import CMDP
from clearance.finite.linear_systems import as_int32
from clearance.finite.support_graph import Labels, Mask

U = 2.0**-53
TINY = 2.0**-1060  # bound on the absolute error of a product that underflows


def rounding(n: int) -> float:
    """Return a bound on the relative rounding error of a sum of n products in floating point."""
    return 2 * n * U / (1 - n * U)


@dataclass(frozen=True, eq=False)
class PairRows:
    """All transitions of a model: entry k leads from pair[k] (= s·A + a) to state target[k] with weight p[k] > 0."""

    S: int
    A: int
    pair: Labels
    target: Labels
    p: Array

    @classmethod
    def of(cls, cmdp: CMDP) -> PairRows:
        P = sparse.csr_array(cmdp.rows)
        entries = P.tocoo()
        used = entries.data > 0
        row, column = entries.coords
        return cls(
            cmdp.S,
            cmdp.A,
            row[used].astype(np.int64),
            column[used].astype(np.int64),
            np.asarray(entries.data[used], float),
        )

    def only(self, pairs: Mask) -> PairRows:
        """Return only the transitions of those pairs that are in the mask `pairs` [S, A]."""
        used = pairs.ravel()[self.pair]
        return PairRows(self.S, self.A, self.pair[used], self.target[used], self.p[used])

    @cached_property
    def matrix(self) -> sparse.csr_array:
        """P with rows divided by their sums, as CSR [S·A, S]; the rows of pairs that do not exist are empty."""
        return as_int32(
            sparse.csr_array(
                (self.p / self.total[self.pair], (self.pair, self.target)), shape=(self.S * self.A, self.S)
            )
        )

    @cached_property
    def source(self) -> Labels:
        return self.pair // self.A

    @cached_property
    def total(self) -> Array:
        """The sum of the stored probabilities of each pair [S·A]; 1 if the action does not exist."""
        found = np.bincount(self.pair, self.p, self.S * self.A)
        return np.where(found > 0, found, 1.0)

    @cached_property
    def width(self) -> int:
        return int(np.bincount(self.pair, minlength=1).max())

    def drift(self, V: Array) -> tuple[Array, Array]:
        """Return the drift Σ_t P̃(t|s, a) V(t) − V(s) over next states t, and a bound on its error, each [S, A].

        P̃ is P with rows divided by their sums.
        """
        change = V[self.target] - V[self.source]
        up = np.bincount(self.pair, self.p * change, self.S * self.A) / self.total
        size = np.bincount(self.pair, self.p * np.abs(change), self.S * self.A) / self.total
        error = rounding(2 * self.width + 8) * size + self.width * TINY * (size > 0)
        return up.reshape(self.S, self.A), error.reshape(self.S, self.A)

    def expect(self, V: Array) -> Array:
        """Return the mean Σ_t P̃(t|s, a) V(t) [S, A] of V over the next states t of each pair, in floating point.

        P̃ is P with rows divided by their sums.
        """
        return (np.bincount(self.pair, self.p * V[self.target], self.S * self.A) / self.total).reshape(self.S, self.A)

    def leading_to(self, states: Mask) -> Mask:
        """Return a mask [S, A] of the pairs that may lead to a state in the mask `states` [S]."""
        found = np.zeros(self.S * self.A, bool)
        found[self.pair[states[self.target]]] = True
        return found.reshape(self.S, self.A)
