"""The Bellman operator on sparse models: policy iteration, and the visits of a deterministic policy.

    (TV)(s) = max_a h(s, a) + γ Σ P(s'|s, a) V(s'),        V* ≤ V + max(TV − V)/(1−γ)   for any V

Policy iteration alternates one greedy sweep and one evaluation. No result is trusted: what comes back is V with its own
Bellman residual, from which every bound follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.compiling import announce
from clearance.linear import linear_solve, policy_iteration, transposed_rows
from clearance.problem import CMDP, Array


@dataclass(frozen=True, eq=False)
class Operator:
    """A finite model as the sweeps read it: CSR over rows s·A + a, and the signals h [1+I, S·A]."""

    P: Any
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
        """
        P, V = self.P, V.copy()
        announce(policy_iteration)
        return V, policy_iteration(P.indptr, P.indices, P.data, h, self.gamma, V, act, tol)

    def occupancy(self, act: NDArray[np.int64], x: Array, tol: float) -> Array:
        """x(s) = (I − γ P_actᵀ)⁻¹ ρ, the discounted visits of a deterministic policy, from a first guess."""
        M = transposed_rows(self.P.indptr, self.P.indices, self.P.data, act, self.A)
        linear_solve(M, self.gamma, self.rho, x, tol)
        return x

    def J(self, act: NDArray[np.int64], x: Array) -> Array:
        """J [1+I] of a deterministic policy from its visits: one solve for all signals."""
        return self.h[:, np.arange(self.S) * self.A + act] @ x
