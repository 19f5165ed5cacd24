"""The constrained Markov decision process with finitely many states and actions.

    maximise J_r(π)   subject to   J_gi(π) ≥ b_i,  i = 1..I,      J_h(π) = E Σ_t γ^t h(s_t, a_t),  s_0 ~ ρ

Signals are stacked, h = (r, g_1, …, g_I), so that V, Q, A and J all carry a leading axis 1 + I:

    V_π = (I − γ P_π)⁻¹ h_π,   Q = h + γ P V,   A = Q − V,   J = ρ·V
    d(s) = (1−γ) ρᵀ (I − γ P_π)⁻¹,   d(s, a) = d(s) π(a|s),   J = ⟨h, d⟩ / (1−γ)

Bai et al. 2023, section "Problem Formulation". The limit b stays a field: folding it into g as (1−γ)b would be
wrong as soon as episodes end. A terminal state is absorbing with zero signals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.sparse import linalg as sparse_linalg

from clearance.direct import Factor
from clearance.dissection import Elimination
from clearance.errors import InputError, SolverError
from clearance.files import load_npz, save_npz
from clearance.inputs import (
    actions,
    constraint_names,
    constraints,
    csr_from,
    discount,
    distributions,
    frozen,
    initial,
    number,
    numbers,
    transitions,
)
from clearance.linear import linear_solve

Array = NDArray[np.float64]

# Beyond this many states a sparse LU may fill in; iterations take over.
LU_STATES = 200


@dataclass(frozen=True, eq=False)
class CMDP:
    """A finite constrained MDP.

    P      transition probabilities, dense [S, A, S] or sparse (CSR) [S·A, S], row s·A + a
    h      the signals [1+I, S, A], reward first (made from `r`, `g` and `cost`)
    b      lower limits [I] of J_g
    rho    initial distribution [S]; uniform unless given
    gamma  discount factor in (0, 1)
    names  names of the constraints [I], for messages and reports
    available  which actions exist in which state [S, A] (as an argument; all unless given): the rows of P of others are
           ignored, and no policy takes them

    Costs with upper limits, as safe-RL users write them, are accepted and mean the same thing:
    `cost=c, limit=l` adds the constraint g = −c, b = −l.

    >>> CMDP(P=[[[1.0], [1.0]]], r=[[1.0, 0.0]], cost=[[[1.0, 0.0]]], limit=2.0, gamma=0.5).b
    array([-2.])
    """

    P: Any
    h: Array = field(repr=False)
    b: Array
    rho: Array = field(repr=False)
    gamma: float
    names: tuple[str, ...]

    def __init__(
        self,
        P: ArrayLike | sparse.sparray | sparse.spmatrix,
        r: ArrayLike,
        g: ArrayLike | None = None,
        b: ArrayLike = 0.0,
        *,
        rho: ArrayLike | None = None,
        gamma: float,
        cost: ArrayLike | None = None,
        limit: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        available: ArrayLike | None = None,
    ) -> None:
        r_ = numbers("r", r, ndim=2)
        S, A = r_.shape
        if S == 0 or A == 0:
            raise InputError(f"r must have at least one state and one action, got shape {r_.shape}")
        if (cost is None) != (limit is None):
            missing, given = ("limit", "cost") if limit is None else ("cost", "limit")
            raise InputError(f"{missing} is missing: `{given}` needs it (cost [I, S, A] with upper limit [I])")
        g_, b_ = constraints("g", g, "b", b, S, A)
        c_, l_ = constraints("cost", cost, "limit", 0.0 if limit is None else limit, S, A)
        mask = actions(available, S, A)
        h = np.concatenate([r_[None], g_, -c_])
        put = object.__setattr__
        put(self, "P", transitions(P, S, A, mask))
        put(self, "h", frozen(h if mask is None else np.where(mask, h, 0.0)))
        put(self, "b", frozen(np.concatenate([b_, -l_])))
        put(self, "rho", initial(rho, S))
        put(self, "gamma", discount(gamma))
        put(self, "names", constraint_names(names, self.I))

    @property
    def S(self) -> int:
        return self.h.shape[1]

    @property
    def A(self) -> int:
        return self.h.shape[2]

    @property
    def I(self) -> int:  # noqa: E743
        return self.h.shape[0] - 1

    @property
    def r(self) -> Array:
        return self.h[0]

    @property
    def g(self) -> Array:
        return self.h[1:]

    @property
    def is_sparse(self) -> bool:
        return sparse.issparse(self.P)

    @cached_property
    def available(self) -> NDArray[np.bool_]:
        """Which actions exist in which state, [S, A]."""
        if self.is_sparse:
            return (np.diff(self.P.indptr) > 0).reshape(self.S, self.A)
        return self.P.any(axis=-1)

    @cached_property
    def rows(self) -> Any:
        """P as a matrix [S·A, S] whose row s·A + a is P(·|s, a); dense or CSR."""
        return self.P if self.is_sparse else self.P.reshape(self.S * self.A, self.S)

    @cached_property
    def elimination(self) -> Elimination | None:
        """The order in which to eliminate states, if the model has local structure."""
        return Elimination.of(self.P if self.is_sparse else sparse.csr_array(self.rows), self.A, self.gamma)

    def tightened(self, kappa: ArrayLike) -> CMDP:
        """The conservative problem: J_g ≥ b + κ (Bai et al. 2023, eq. 7)."""
        kappa = np.asarray(kappa, float)
        if kappa.ndim and kappa.shape != self.b.shape:
            raise InputError(f"kappa has shape {kappa.shape} for {self.I} constraints; give one number, or one each")
        return self.replace(b=self.b + kappa)

    def replace(
        self, *, h: ArrayLike | None = None, b: ArrayLike | None = None, names: Sequence[str] | None = None
    ) -> CMDP:
        """The same model with other signals h [1+I, S, A] or limits b [I]; P is shared, not copied. With names [I], h
        and b all given, I may be another one.
        """
        other = object.__new__(CMDP)
        other.__dict__.update(self.__dict__)
        if names is not None:
            other.__dict__["names"] = constraint_names(names, self.I if h is None or b is None else len(names))
        I = len(other.names)
        if h is not None:
            h_ = numbers("h", h, ndim=3)
            if h_.shape != (1 + I, self.S, self.A):
                raise InputError(f"h has shape {h_.shape}, the model needs {(1 + I, self.S, self.A)}")
            other.__dict__["h"] = frozen(np.where(self.available, h_, 0.0))
        if b is not None:
            b_ = numbers("b", b, ndim=1)
            if b_.shape != (I,):
                raise InputError(f"b has {len(b_)} entries for {I} constraints; give one each")
            other.__dict__["b"] = frozen(b_)
        return other

    def save(self, path: str | Path) -> None:
        """Write the model as `.npz` (plain arrays, readable without running code)."""
        save_npz(path, {"schema": np.array("clearance/problem/1"), **self.arrays()})

    def arrays(self) -> dict[str, Any]:
        """All of the model, as arrays with the names that its files have."""
        arrays: dict[str, Any] = {"r": self.r, "g": self.g, "b": self.b, "rho": self.rho}
        arrays |= {"gamma": np.float64(self.gamma), "names": np.array(self.names, dtype=np.str_)}
        if self.is_sparse:
            arrays |= {"P_data": self.P.data, "P_indices": self.P.indices, "P_indptr": self.P.indptr}
        else:
            arrays["P"] = self.P
        if not self.available.all():
            arrays["available"] = self.available
        return arrays

    @classmethod
    def load(cls, path: str | Path) -> CMDP:
        """Read a model written by `save`, or any `.npz` with the same arrays."""
        z = load_npz(path)
        missing = [k for k in ("r", "gamma") if k not in z]
        if missing or not ("P" in z or {"P_data", "P_indices", "P_indptr"} <= z.keys()):
            what = missing[0] if missing else "P (or P_data, P_indices, P_indptr)"
            raise InputError(f"{path}: {what} is missing; a model needs P, r, gamma and usually g, b, rho")
        try:
            P = z["P"] if "P" in z else csr_from(z)
            names = [str(n) for n in np.atleast_1d(z["names"])] if "names" in z else None
            gamma = number("gamma", z["gamma"])
            given = {"rho": z.get("rho"), "available": z.get("available")}
            return cls(P, z["r"], z.get("g"), z.get("b", 0.0), gamma=gamma, names=names, **given)
        except InputError as e:
            raise InputError(f"{path}: {e}") from None


@dataclass(frozen=True)
class Evaluation:
    """Exact values of one stationary policy: V [1+I, S], Q and A [1+I, S, A], d [S, A], J [1+I]."""

    V: Array
    Q: Array
    A: Array
    d: Array
    J: Array


def evaluate(cmdp: CMDP, pi: ArrayLike) -> Evaluation:
    """V, Q, A, the occupancy d and J of the stationary policy π [S, A], by one factorisation.

    V = (I − γ P_π)⁻¹ h_π;  Q = h + γ P V;  d(s) = (1−γ) (I − γ P_πᵀ)⁻¹ ρ;  J = ρ·V.
    """
    pi = check_policy(cmdp, pi)
    solve, solve_T = _factorise(cmdp, transition_of(cmdp, pi))
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
        _, solve_T = _factorise(cmdp, transition_of(cmdp, pi))
        return (1 - cmdp.gamma) * solve_T(cmdp.rho)[:, None] * pi
    # One small product per state: the bits of a policy must not depend on how many there are beside it.
    P_pi = np.matmul(pi[..., None, :], cmdp.P)[..., 0, :]
    system = np.eye(cmdp.S) - cmdp.gamma * np.swapaxes(P_pi, -1, -2)
    rhs = np.broadcast_to(cmdp.rho[:, None], (*pi.shape[:-2], cmdp.S, 1))
    return (1 - cmdp.gamma) * np.linalg.solve(system, rhs) * pi


def values(cmdp: CMDP, d: Array) -> Array:
    """J [..., 1+I] from occupancies d [..., S, A]: J = ⟨h, d⟩ / (1−γ)."""
    flat = d.reshape(*d.shape[:-2], cmdp.S * cmdp.A)
    return (flat[..., None, :] @ cmdp.h.reshape(1 + cmdp.I, -1).T)[..., 0, :] / (1 - cmdp.gamma)


def policy_of(d: ArrayLike, available: NDArray[np.bool_] | None = None) -> Array:
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


def transition_of(cmdp: CMDP, pi: Array) -> Any:
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
    pi = numbers("policy", pi, ndim=2)
    if pi.shape != (cmdp.S, cmdp.A):
        raise InputError(f"policy has shape {pi.shape}, the model needs [S, A] = {(cmdp.S, cmdp.A)}")
    pi = distributions("policy", pi)
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
        return (lambda y: _iterated(P_pi, cmdp.gamma, y)), (lambda y: _iterated(P_pi.T.tocsr(), cmdp.gamma, y))
    if sparse.issparse(P_pi):
        lu = sparse_linalg.splu((sparse.eye_array(cmdp.S, format="csc") - cmdp.gamma * P_pi.tocsc()).tocsc())
        return lu.solve, lambda y: lu.solve(y, trans="T")
    lu_piv = linalg.lu_factor(np.eye(cmdp.S) - cmdp.gamma * P_pi)
    return (lambda y: linalg.lu_solve(lu_piv, y)), (lambda y: linalg.lu_solve(lu_piv, y, trans=1))


def _iterated(M: Any, gamma: float, y: Array) -> Array:
    """(I − γM)⁻¹ y to rounding, for one right-hand side [S] or several [S, n]."""
    columns = np.ascontiguousarray(y.T if y.ndim == 2 else y[None])
    x = columns / (1 - gamma)
    for right, solution in zip(columns, x, strict=True):
        residual = linear_solve(M, gamma, right, solution, 0.0)
        if not residual <= 1e-9 * max(float(np.abs(solution).max(initial=0.0)), 1e-300):
            raise SolverError(f"a linear system was solved to {residual:.1e} only: bring gamma further from 1")
    return x.T if y.ndim == 2 else x[0]
