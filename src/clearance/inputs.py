"""Reading what users give: every error names the field and the place, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.errors import InputError

Array = NDArray[np.float64]

# Probabilities typed in decimal are off by rounding; anything beyond that is a mistake of the user's.
SUM_TOLERANCE = 1e-9


def csr_from(z: dict[str, NDArray[Any]]) -> sparse.csr_array:
    S, A = z["r"].shape if z["r"].ndim == 2 else (0, 0)
    data, indices, indptr = z["P_data"], z["P_indices"], z["P_indptr"]
    if indptr.ndim != 1 or len(indptr) != S * A + 1:
        raise InputError(f"P_indptr must have length S·A + 1 = {S * A + 1}, got shape {indptr.shape}")
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        raise InputError("P_indices and P_indptr must be whole numbers")
    if data.shape != indices.shape or data.ndim != 1 or indptr[0] != 0 or indptr[-1] != len(data):
        raise InputError("P_data, P_indices and P_indptr do not fit together (not a CSR matrix)")
    if np.any(np.diff(indptr) < 0) or (len(indices) and (indices.min() < 0 or indices.max() >= S)):
        raise InputError(f"P_indptr must not decrease and P_indices must lie in 0..{S - 1}")
    return sparse.csr_array((numbers("P_data", data, ndim=1), indices, indptr), shape=(S * A, S))


def numbers(name: str, x: Any, ndim: int) -> Array:
    try:
        a = np.asarray(x)
        if a.dtype.kind in "OUSVM":
            raise TypeError
        a = a.astype(float, casting="safe") if a.dtype.kind in "biuf" else a.astype(float, casting="same_kind")
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of real numbers with {ndim} axes") from None
    if a.ndim != ndim:
        raise InputError(f"{name} must have {ndim} axes, got shape {a.shape}")
    _finite(name, a)
    return a


def _finite(name: str, a: Array) -> None:
    bad = np.argwhere(~np.isfinite(a))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        what = "a NaN" if np.isnan(a[at]) else "an infinite value"
        raise InputError(_has(name, at, what))


def _has(name: str, at: tuple[int, ...], what: str) -> str:
    """ "g[0] has a NaN at state 4, action 2": the last two axes of a signal are state and action."""
    if name in ("r", "g", "cost", "policy") and len(at) >= 2:
        head = f"{name}[{at[0]}]" if len(at) == 3 else name
        return f"{head} has {what} at state {at[-2]}, action {at[-1]}"
    if name == "P" and len(at) == 3:
        return f"P[{at[0]}, {at[1]}] has {what} at next state {at[2]}"
    return f"{name} has {what} at {at if len(at) > 1 else at[0] if at else 'its only entry'}"


def number(name: str, x: Any) -> float:
    try:
        return float(x)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, got {x!r}") from None


def discount(gamma: Any) -> float:
    gamma = number("gamma", gamma)
    if not 0 < gamma < 1:
        raise InputError(f"gamma must be in (0, 1), got {gamma:g}")
    return gamma


def constraints(name: str, g: Any, limit_name: str, b: Any, S: int, A: int) -> tuple[Array, Array]:
    g_ = np.zeros((0, S, A)) if g is None else np.asarray(g)
    if g_.ndim == 2:
        g_ = g_[None]
    g_ = numbers(name, g_, ndim=3)
    if g_.shape[1:] != (S, A):
        raise InputError(f"{name} has shape {g_.shape}, it must be [I, S, A] with [S, A] = {(S, A)} as r has")
    b_ = np.asarray(b)
    b_ = numbers(limit_name, np.broadcast_to(b_, len(g_)) if b_.ndim == 0 else b_, ndim=1)
    if len(b_) != len(g_):
        raise InputError(f"{limit_name} has {len(b_)} entries for {len(g_)} constraints in {name}; give one each")
    return g_, b_


def initial(rho: Any, S: int) -> Array:
    rho_ = np.full(S, 1.0 / S) if rho is None else numbers("rho", rho, ndim=1)
    if rho_.shape != (S,):
        raise InputError(f"rho has {len(rho_)} entries, the model has {S} states")
    distributions("rho", rho_)
    return frozen(rho_)


def constraint_names(names: Sequence[str] | None, I: int) -> tuple[str, ...]:
    if names is None or (I and len(names) == 0):
        return tuple(f"g{i}" for i in range(I))
    if len(names) != I:
        raise InputError(f"names has {len(names)} entries for {I} constraints")
    return tuple(str(n) for n in names)


def transitions(P: Any, S: int, A: int) -> Any:
    if sparse.issparse(P):
        return _sparse_transitions(P, S, A)
    P_ = numbers("P", P, ndim=3)
    if P_.shape != (S, A, S):
        raise InputError(f"P has shape {P_.shape}, it must be [S, A, S] = {(S, A, S)} as r has")
    distributions("P", P_)
    return frozen(P_)


def _sparse_transitions(P: Any, S: int, A: int) -> sparse.csr_array:
    if P.shape != (S * A, S):
        raise InputError(f"sparse P has shape {P.shape}, it must be [S·A, S] = {(S * A, S)}")
    P = sparse.csr_array(P, dtype=float, copy=True)
    P.sum_duplicates()
    row_of = np.repeat(np.arange(S * A), np.diff(P.indptr))
    for bad, what in ((~np.isfinite(P.data), "a value that is not finite"), (P.data < 0, "a negative value")):
        if bad.any():
            n = int(np.argmax(bad))
            s, a = divmod(int(row_of[n]), A)
            raise InputError(f"P[{s}, {a}] has {what} at next state {P.indices[n]}")
    _sums_to_one("P", np.asarray(P.sum(axis=1)).reshape(S, A))
    for part in (P.data, P.indices, P.indptr):
        part.flags.writeable = False
    return P


def distributions(name: str, p: Array) -> None:
    negative = np.argwhere(p < 0)
    if len(negative):
        raise InputError(_has(name, tuple(int(i) for i in negative[0]), "a negative value"))
    _sums_to_one(name, p.sum(-1))


def _sums_to_one(name: str, total: Array) -> None:
    total = np.asarray(total)
    bad = np.argwhere(np.abs(total - 1) > SUM_TOLERANCE)
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        row = f"{name}[{', '.join(map(str, at))}]" if at else name
        raise InputError(f"{row} sums to {total[at]:.12g}; probabilities must sum to 1")


def frozen(a: Array) -> Array:
    a = np.array(a, dtype=float, order="C")
    a.flags.writeable = False
    return a
