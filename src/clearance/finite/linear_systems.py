"""Solve linear systems (I − γM) x = y of finite models, by one factorisation or by iterations.

Iterations are used for large sparse models without local structure, whose factors would have too many entries.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import linalg as sparse_linalg

from clearance.core.arrays import Array
from clearance.core.compiled.iterative import linear_solve
from clearance.core.compiled.sparse_lu import Factor
from clearance.core.errors import SolverError
from clearance.finite.cmdp import CMDP

# Above this number of states, the factors of a sparse LU may become dense; elimination or iterations are used instead.
LU_STATES = 200
SINGULAR = "a linear system of the model is singular in float64: bring gamma further from 1"
STUCK = "a linear system of the model is singular in float64: a state is left with a probability that rounding swallows"


class Places(Protocol):
    """The interface that linear solves need from a model with S states.

    `elimination` is the order in which large sparse systems eliminate the states; None if the model has no good order.
    """

    @property
    def S(self) -> int: ...

    @property
    def elimination(self) -> Any: ...


def solve_systems(system: Array, y: Array) -> Array:
    """Return the solution x of system·x = y, for dense systems I − γP [..., S, S].

    Raise SolverError if γ is so close to 1 that a system is singular.
    """
    try:
        return np.asarray(np.linalg.solve(system, y), float)
    except np.linalg.LinAlgError:
        raise SolverError(SINGULAR) from None


def transition_matrix(cmdp: CMDP, pi: Array) -> Any:
    """Return P_π [S, S] with P_π(s, s') = Σ_a π(a|s) P(s'|s, a); dense or CSR like P."""
    if not cmdp.is_sparse:
        return np.einsum("sa,sat->st", pi, cmdp.P)
    return averager(pi) @ cmdp.P


def averager(pi: Array) -> sparse.csr_array:
    """Return the sparse matrix [S, S·A] that averages over actions: entry (s, s·A + a) is π(a|s)."""
    S, A = pi.shape
    columns, rows = np.arange(S * A, dtype=np.int32), np.arange(0, S * A + 1, A, dtype=np.int32)
    return sparse.csr_array((pi.ravel(), columns, rows), shape=(S, S * A))


def factorise(model: Places, P_pi: Any, gamma: float):
    """Return two functions: the first solves (I − γ P_π) x = y for x, the second the transposed system.

    P_π may have entries only where the P of `model` has entries for some action.
    """
    P_pi = as_int32(P_pi) if sparse.issparse(P_pi) else P_pi
    if sparse.issparse(P_pi) and model.S > LU_STATES and model.elimination is not None:
        factor = Factor(model.elimination, gamma).update(P_pi)
        return factor.solve, factor.solve_T
    if sparse.issparse(P_pi) and model.S > LU_STATES:
        return (lambda y: _solve_iteratively(P_pi, gamma, y)), (
            lambda y: _solve_iteratively(as_int32(P_pi.T.tocsr()), gamma, y)
        )
    if sparse.issparse(P_pi):
        try:
            lu = sparse_linalg.splu((sparse.eye_array(model.S, format="csc") - gamma * P_pi.tocsc()).tocsc())
        except RuntimeError:
            raise SolverError(SINGULAR if gamma < 1 else STUCK) from None
        return lu.solve, lambda y: lu.solve(y, trans="T")
    with warnings.catch_warnings(action="ignore", category=linalg.LinAlgWarning):  # it is an error here
        lu_piv = linalg.lu_factor(np.eye(model.S) - gamma * P_pi)
    if not np.all(np.diag(lu_piv[0])):
        raise SolverError(SINGULAR if gamma < 1 else STUCK)
    return (lambda y: linalg.lu_solve(lu_piv, y)), (lambda y: linalg.lu_solve(lu_piv, y, trans=1))


def _solve_iteratively(M: Any, gamma: float, y: Array) -> Array:
    """Return (I − γM)⁻¹ y up to rounding, for one right-hand side [S] or several [S, n]."""
    gamma = min(gamma, 1 - 2.0**-53)  # the iterations divide by 1 − γ to decide when to stop
    columns = np.ascontiguousarray(y.T if y.ndim == 2 else y[None])
    x = columns / (1 - gamma) if gamma < 1 - 1e-12 else columns.copy()
    for right, solution in zip(columns, x, strict=True):
        residual = linear_solve(M, gamma, right, solution, 0.0)
        if not residual <= 1e-9 * max(float(np.abs(solution).max(initial=0.0)), 1e-300):
            raise SolverError(f"a linear system was solved to {residual:.1e} only: bring gamma further from 1")
    return x.T if y.ndim == 2 else x[0]


def as_int32(M: Any) -> sparse.csr_array:
    """Return the same matrix with 32-bit indices, which the compiled solvers expect."""
    if M.indices.dtype == np.int32 and M.indptr.dtype == np.int32:
        return M
    return sparse.csr_array((M.data, M.indices.astype(np.int32), M.indptr.astype(np.int32)), shape=M.shape)
