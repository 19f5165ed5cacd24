"""Exact evaluation of policies of a finite model: V, Q, A, J and occupancies, by one factorisation.

V_π = (I − γ P_π)⁻¹ h_π,   Q = h + γ P V,   A = Q − V,   J = ρ·V
d(s) = (1−γ) ρᵀ (I − γ P_π)⁻¹,   d(s, a) = d(s) π(a|s),   J = ⟨h, d⟩ / (1−γ)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.sparse import linalg as sparse_linalg

from clearance.certificates.verdict_words import join_some
from clearance.core.arrays import Array
from clearance.core.compiled.iterative import linear_solve
from clearance.core.compiled.sparse_lu import Factor
from clearance.core.errors import InputError, SolverError
from clearance.core.validation import read_distributions, read_numbers
from clearance.finite.cmdp import CMDP

# Beyond this many states a sparse LU may fill in; iterations take over.
LU_STATES = 200
SINGULAR = "a linear system of the model is singular in float64: bring gamma further from 1"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Exact values of one stationary policy: V [1+I, S], Q and A [1+I, S, A], d [S, A], J [1+I]."""

    V: Array
    Q: Array
    A: Array
    d: Array
    J: Array

    def __repr__(self) -> str:
        J = join_some([f"{x:.6g}" for x in self.J], most=8)
        return f"<Evaluation: J = ({J}); V {self.V.shape}, Q and A {self.Q.shape}, d {self.d.shape}>"


def evaluate(cmdp: CMDP, pi: ArrayLike) -> Evaluation:
    """V, Q, A, the occupancy d and J of the stationary policy π [S, A], by one factorisation.

    V = (I − γ P_π)⁻¹ h_π;  Q = h + γ P V;  d(s) = (1−γ) (I − γ P_πᵀ)⁻¹ ρ;  J = ρ·V.
    """
    pi = check_policy(cmdp, pi)
    solve, solve_T = _factorise(cmdp, transition_matrix(cmdp, pi))
    V = solve(np.einsum("sa,hsa->sh", pi, cmdp.h)).T
    Q = cmdp.h + cmdp.gamma * (cmdp.rows @ V.T).T.reshape(cmdp.h.shape)
    d = (1 - cmdp.gamma) * solve_T(cmdp.rho)[:, None] * pi
    return Evaluation(V=V, Q=Q, A=Q - V[:, :, None], d=d, J=V @ cmdp.rho)


def occupancy(cmdp: CMDP, pi: ArrayLike) -> Array:
    """d(s, a) of one policy [S, A] or of many [..., S, A]: (1−γ) Σ_t γ^t P(s_t = s, a_t = a).

    Many policies of a small dense model go through one batched solve.
    """
    pi = np.asarray(pi, float)
    if pi.shape[-2:] != (cmdp.S, cmdp.A):
        raise InputError(f"policy has shape {pi.shape}, the model needs [..., S, A] = {(cmdp.S, cmdp.A)}")
    if pi.ndim > 2 and cmdp.is_sparse:
        return np.stack([occupancy(cmdp, p) for p in pi.reshape(-1, cmdp.S, cmdp.A)]).reshape(pi.shape)
    if cmdp.is_sparse:
        _, solve_T = _factorise(cmdp, transition_matrix(cmdp, pi))
        return (1 - cmdp.gamma) * solve_T(cmdp.rho)[:, None] * pi
    # One small product per state: the bits of a policy must not depend on how many there are beside it.
    P_pi = np.matmul(pi[..., None, :], cmdp.P)[..., 0, :]
    system = np.eye(cmdp.S) - cmdp.gamma * np.swapaxes(P_pi, -1, -2)
    rhs = np.broadcast_to(cmdp.rho[:, None], (*pi.shape[:-2], cmdp.S, 1))
    return (1 - cmdp.gamma) * solve_systems(system, rhs) * pi


def solve_systems(system: Array, y: Array) -> Array:
    """(I − γP)⁻¹ y of dense systems [..., S, S]; an error where γ is so close to 1 that float64 sees a singular one."""
    try:
        return np.asarray(np.linalg.solve(system, y), float)
    except np.linalg.LinAlgError:
        raise SolverError(SINGULAR) from None


def values_from_occupancy(cmdp: CMDP, d: Array) -> Array:
    """J [..., 1+I] from occupancies d [..., S, A]: J = ⟨h, d⟩ / (1−γ)."""
    flat = d.reshape(*d.shape[:-2], cmdp.S * cmdp.A)
    return (flat[..., None, :] @ cmdp.h.reshape(1 + cmdp.I, -1).T)[..., 0, :] / (1 - cmdp.gamma)


def policy_from_occupancy(d: ArrayLike, available: NDArray[np.bool_] | None = None) -> Array:
    """π(a|s) = d(s, a) / Σ_a d(s, a) (Bai et al. 2023, Assumption 5); uniform over the available actions where the
    state is never visited.
    """
    d = np.maximum(np.asarray(d, float), 0.0)
    total = d.sum(-1, keepdims=True)
    if available is None:
        elsewhere = np.full(d.shape[-1], 1.0 / d.shape[-1])
    else:
        elsewhere = available / available.sum(-1, keepdims=True)
    return np.where(total > 0, d / np.where(total > 0, total, 1.0), elsewhere)


def transition_matrix(cmdp: CMDP, pi: Array) -> Any:
    """P_π [S, S]: P_π(s, s') = Σ_a π(a|s) P(s'|s, a); dense or CSR as P is."""
    if not cmdp.is_sparse:
        return np.einsum("sa,sat->st", pi, cmdp.P)
    return averager(pi) @ cmdp.P


def averager(pi: Array) -> sparse.csr_array:
    """The matrix [S, S·A] that averages rows s·A + a over a ~ π(·|s)."""
    S, A = pi.shape
    columns, rows = np.arange(S * A, dtype=np.int32), np.arange(0, S * A + 1, A, dtype=np.int32)
    return sparse.csr_array((pi.ravel(), columns, rows), shape=(S, S * A))


def check_policy(cmdp: CMDP, pi: ArrayLike) -> Array:
    """π as an array [S, A] whose rows are distributions, or an error that names the state."""
    pi = read_numbers("policy", pi, ndim=2)
    if pi.shape != (cmdp.S, cmdp.A):
        raise InputError(f"policy has shape {pi.shape}, the model needs [S, A] = {(cmdp.S, cmdp.A)}")
    pi = read_distributions("policy", pi)
    forbidden = np.argwhere((pi > 0) & ~cmdp.available)
    if len(forbidden):
        raise InputError("policy takes action {1} at state {0}, which has no such action".format(*forbidden[0]))
    return pi


def _factorise(cmdp: CMDP, P_pi: Any):
    """Solvers of (I − γ P_π) x = y and of the transposed system: one LU, or iterations where it would fill in."""
    if sparse.issparse(P_pi) and cmdp.S > LU_STATES and cmdp.elimination is not None:
        factor = Factor(cmdp.elimination, cmdp.gamma).update(P_pi)
        return factor.solve, factor.solve_T
    if sparse.issparse(P_pi) and cmdp.S > LU_STATES:
        return (lambda y: _solve_iteratively(P_pi, cmdp.gamma, y)), (
            lambda y: _solve_iteratively(P_pi.T.tocsr(), cmdp.gamma, y)
        )
    if sparse.issparse(P_pi):
        try:
            lu = sparse_linalg.splu((sparse.eye_array(cmdp.S, format="csc") - cmdp.gamma * P_pi.tocsc()).tocsc())
        except RuntimeError:
            raise SolverError(SINGULAR) from None
        return lu.solve, lambda y: lu.solve(y, trans="T")
    with warnings.catch_warnings(action="ignore", category=linalg.LinAlgWarning):  # it is an error here
        lu_piv = linalg.lu_factor(np.eye(cmdp.S) - cmdp.gamma * P_pi)
    if not np.all(np.diag(lu_piv[0])):
        raise SolverError(SINGULAR)
    return (lambda y: linalg.lu_solve(lu_piv, y)), (lambda y: linalg.lu_solve(lu_piv, y, trans=1))


def _solve_iteratively(M: Any, gamma: float, y: Array) -> Array:
    """(I − γM)⁻¹ y to rounding, for one right-hand side [S] or several [S, n]."""
    columns = np.ascontiguousarray(y.T if y.ndim == 2 else y[None])
    x = columns / (1 - gamma)
    for right, solution in zip(columns, x, strict=True):
        residual = linear_solve(M, gamma, right, solution, 0.0)
        if not residual <= 1e-9 * max(float(np.abs(solution).max(initial=0.0)), 1e-300):
            raise SolverError(f"a linear system was solved to {residual:.1e} only: bring gamma further from 1")
    return x.T if y.ndim == 2 else x[0]
