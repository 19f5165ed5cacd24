"""The Bellman operator on sparse models: greedy sweeps, compiled, and policy iteration.

    (TV)(s) = max_a h(s, a) + γ Σ P(s'|s, a) V(s'),        V* ≤ V + max(TV − V)/(1−γ)   for any V

Policy iteration alternates one greedy sweep and one evaluation. No result is trusted: what comes back is V with its own
Bellman residual, from which every bound follows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from clearance.linear import linear_solve
from clearance.problem import CMDP, Array


@njit(cache=True, nogil=True)
def sweep(indptr, indices, data, h, gamma, V, act):
    """act ← the greedy policy of V (kept where it is as good); returns max and min over s of (TV − V)(s)."""
    S = len(V)
    A = len(h) // S
    most, least = -np.inf, np.inf
    for s in range(S):
        best, choice, kept = -np.inf, act[s], -np.inf
        for a in range(A):
            row = s * A + a
            if indptr[row] == indptr[row + 1]:
                continue  # no such action in this state
            total = 0.0
            for i in range(indptr[row], indptr[row + 1]):
                total += data[i] * V[indices[i]]
            q = h[row] + gamma * total
            if a == act[s]:
                kept = q
            if q > best:
                best, choice = q, a
        if kept < best - 1e-14 * abs(best):
            act[s] = choice
        gain = best - V[s]
        most, least = max(most, gain), min(least, gain)
    return most, least


@dataclass(frozen=True, eq=False)
class Operator:
    """A finite model as the sweeps read it: CSR over rows s·A + a, and the signals h [1+I, S·A]."""

    P: sparse.csr_array
    h: Array
    rho: Array
    gamma: float
    S: int
    A: int

    @classmethod
    def of(cls, cmdp: CMDP) -> Operator:
        P = cmdp.P if cmdp.is_sparse else sparse.csr_array(cmdp.rows)
        return cls(P, cmdp.h.reshape(1 + cmdp.I, -1), cmdp.rho, cmdp.gamma, cmdp.S, cmdp.A)

    def maximise(self, h: Array, V: Array, act: NDArray[np.int64], tol: float) -> tuple[Array, float]:
        """Policy iteration for one signal h [S·A] from V and act (improved in place) → V, and max(TV − V).

        Stops when TV − V varies by at most tol over the states: then V* ≤ V + max(TV − V)/(1−γ) is tight to tol/(1−γ).
        Evaluations are as exact as the last improvement was large: early policies need no digits.
        """
        P = self.P
        most, spread, best = np.inf, np.inf, np.inf
        for _ in range(200):
            most, least = sweep(P.indptr, P.indices, P.data, h, self.gamma, V, act)
            best, spread = min(best, spread), most - least
            if spread <= tol or (spread <= 1e3 * tol and not spread < 0.9 * best):
                break  # done, or rounding is all that is left
            rows = np.arange(self.S) * self.A + act
            V = V.copy()
            linear_solve(P[rows], self.gamma, h[rows], V, max(0.01 * spread, 0.2 * tol))
        return V, most

    def occupancy(self, act: NDArray[np.int64], x: Array, tol: float) -> Array:
        """x(s) = (I − γ P_actᵀ)⁻¹ ρ, the discounted visits of a deterministic policy, from a first guess."""
        M = sparse.csr_array(self.P[np.arange(self.S) * self.A + act].T)
        linear_solve(M, self.gamma, self.rho, x, tol)
        return x

    def J(self, act: NDArray[np.int64], x: Array) -> Array:
        """J [1+I] of a deterministic policy from its visits: one solve for all signals."""
        return self.h[:, np.arange(self.S) * self.A + act] @ x
