"""The Bellman operator T on sparse models: policy iteration, and the discounted visits of a deterministic policy.

    (TV)(s) = max_a h(s, a) + γ Σ P(s'|s, a) V(s'),        V* ≤ V + max(TV − V)/(1−γ)   for any V

Policy iteration alternates a greedy sweep and an evaluation of the new policy. The evaluation uses a factorisation if
the model has local structure (`sparse_lu`), else an iterative solver (`iterative`). No solver is trusted: every result
is V with its Bellman residual TV − V, and all bounds are computed from this residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled.dissection import Elimination
from clearance.core.compiled.iterative import linear_solve, policy_iteration, sweep, transposed_rows
from clearance.core.compiled.sparse_lu import Factor
from clearance.finite.cmdp import CMDP


@dataclass(frozen=True, eq=False)
class Operator:
    """A finite model in the form that sparse solvers read: P as CSR with rows s·A + a, and the signals h [1+I, S·A].

    `elimination` is an order in which linear solves eliminate the states; None if the model has no local structure.
    """

    P: Any
    h: Array
    rho: Array
    gamma: float
    S: int
    A: int
    elimination: Elimination | None

    @classmethod
    def of(cls, cmdp: CMDP) -> Operator:
        P = cmdp.P if cmdp.is_sparse else sparse.csr_array(cmdp.rows)
        return cls(P, cmdp.h.reshape(1 + cmdp.I, -1), cmdp.rho, cmdp.gamma, cmdp.S, cmdp.A, cmdp.elimination)

    def maximise(self, h: Array, V: Array, act: NDArray[np.int64], tol: float) -> tuple[Array, float]:
        """Run policy iteration for one signal h [S·A], starting from V [S] and act [S]; return (V, max(TV − V)).

        The policy `act` is updated in place. The iteration stops when TV − V varies by at most tol over the states.
        Then the bound V* ≤ V + max(TV − V)/(1−γ) is tight to tol/(1−γ).
        """
        P, gamma = self.P, self.gamma
        if self.elimination is None:
            V = V.copy()
            return V, policy_iteration(P.indptr, P.indices, P.data, h, gamma, V, act, tol)
        factor, most, best = Factor(self.elimination, gamma), np.inf, np.inf
        for _ in range(200):
            most, least = self.sweep(h, V, act)
            if most - least <= tol or (most - least <= 1e3 * tol and not most - least < 0.9 * best):
                break
            best, V = min(best, most - least), factor.update(P, self.A, act).solve(h[self.rows(act)])
        return V, most

    def sweep(self, h: Array, V: Array, act: NDArray[np.int64]) -> tuple[float, float]:
        """Set act [S] to the greedy policy of V [S]; return the largest and the smallest entry of TV − V.

        T is the Bellman operator for the signal h [S·A] (see the module's head). An action in `act` is kept if
        it is as good as the best one.
        """
        return sweep(self.P.indptr, self.P.indices, self.P.data, h, self.gamma, V, act)

    def rows(self, act: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows s·A + act[s] of a deterministic policy."""
        return np.arange(self.S) * self.A + act

    def occupancy(self, act: NDArray[np.int64], x: Array, tol: float) -> Array:
        """Return the discounted visits (I − γ P_actᵀ)⁻¹ ρ [S] of the deterministic policy `act`.

        An iterative solver starts from x [S], which it overwrites, and stops at the accuracy `tol`.
        """
        if self.elimination is not None:
            return Factor(self.elimination, self.gamma).update(self.P, self.A, act).solve_T(self.rho)
        M = transposed_rows(self.P.indptr, self.P.indices, self.P.data, act, self.A)
        linear_solve(M, self.gamma, self.rho, x, tol)
        return x

    def J(self, act: NDArray[np.int64], x: Array) -> Array:
        """Return J [1+I] of the deterministic policy `act` from its discounted visits x [S].

        One solve for x serves all signals.
        """
        return self.h[:, self.rows(act)] @ x
