"""Read and check the user's inputs. Every error message is one line that names the field and the place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError

if TYPE_CHECKING:
    from scipy import sparse  # imported only where a sparse model is read: a deployed policy needs only NumPy

# Probabilities typed as decimals do not sum to exactly 1. A larger deviation than this is a user's mistake.
SUM_TOLERANCE = 1e-9
# Sums that deviate from 1 by less than this are not normalised, so that reading a written file gives the same bits.
ROUNDING = 1e-14
# Larger inputs are refused, so that products of two numbers, and their discounted sums, stay finite.
LARGEST = 1e152


def read_csr(z: dict[str, NDArray[Any]]) -> sparse.csr_array:
    """Return the CSR matrix P [S·A, S] from the arrays `P_data`, `P_indices` and `P_indptr` of a model file (z).

    Wrong indices are refused, since SciPy would read out of bounds.
    """
    from scipy import sparse

    S, A = read_numbers("r", z["r"], ndim=2).shape
    data = read_numbers("P_data", z["P_data"], ndim=1)
    indices, indptr = _whole("P_indices", z["P_indices"]), _whole("P_indptr", z["P_indptr"])
    if len(indptr) != S * A + 1:
        raise InputError(f"P_indptr has {len(indptr)} entries, it must have S·A + 1 = {S * A + 1}")
    if len(indices) != len(data):
        raise InputError(f"P_indices has {len(indices)} entries for {len(data)} in P_data; give one each")
    if indptr[0] != 0 or indptr[-1] != len(data):
        ends = f"from {indptr[0]} to {indptr[-1]}"
        raise InputError(f"P_indptr goes {ends}, it must go from 0 to the length of P_data, {len(data)}")
    _all_fine("P_indptr", np.append(True, np.diff(indptr) >= 0), indptr, "it must not decrease")
    _all_fine("P_indices", (indices >= 0) & (indices < S), indices, f"next states lie in 0..{S - 1}")
    return sparse.csr_array((data, indices, indptr), shape=(S * A, S))


def _whole(name: str, x: NDArray[Any]) -> NDArray[np.int64]:
    """Return a vector x of whole numbers as signed int64; `name` is for error messages.

    Differences of unsigned numbers would never be negative, so later checks need signed ones.
    """
    if x.ndim != 1 or x.dtype.kind not in "iu":
        raise InputError(f"{name} must be a list of whole numbers, got {x.dtype} of shape {x.shape}")
    return x.astype(np.int64)


def _all_fine(name: str, fine: NDArray[np.bool_], values: NDArray[np.int64], rule: str) -> None:
    if not fine.all():
        at = int(np.argmin(fine))
        raise InputError(f"{name}[{at}] is {values[at]}; {rule}")


def read_numbers(name: str, x: Any, ndim: int) -> Array:
    """Return x as a new float array with `ndim` axes; raise InputError if an entry is not finite or above `LARGEST`."""
    try:
        with np.errstate(over="ignore"):  # too large values of wider float types become infinite and are refused below
            a = np.asarray(x).astype(float, casting="same_kind")
    except (TypeError, ValueError):  # text, objects, complex numbers, dates, rows of different length
        raise InputError(f"{name} must be an array of real numbers with {_axes(ndim)}") from None
    if a.ndim != ndim:
        raise InputError(f"{name} must have {_axes(ndim)}, got shape {a.shape}")
    _refuse_masked(name, x)
    _finite(name, a)
    return a


def _refuse_masked(name: str, x: Any) -> None:
    if np.ma.is_masked(x):
        raise InputError(f"{name} has masked entries, whose values are unknown: fill them")


def check_model(x: Any) -> None:
    """Raise InputError unless x is a finite model."""
    if not hasattr(x, "P"):
        way = "load it first: load_model(path, …)" if isinstance(x, str) else "simulators have solve and certify"
        raise InputError(f"this needs a finite model, a CMDP; got {type(x).__name__}: {way}")


def require_discounted(cmdp: Any, what: str) -> None:
    """Raise InputError unless the model's criterion is discounted; `what` names the function that needs this."""
    if cmdp.kind != "discounted":
        raise InputError(f"{what} is for discounted sums; this model has criterion {cmdp.kind!r}")


def check_problem(x: Any) -> None:
    """Raise InputError unless x is a simulator. The caller must have handled finite models before."""
    if not hasattr(x, "statement"):
        ways = "a CMDP, or a simulator from cl.gymnasium(…) or cl.environment(…)"
        raise InputError(f"the problem must be {ways}, got {x!r}"[:300])


def _axes(n: int) -> str:
    return "1 axis" if n == 1 else f"{n} axes"


def _finite(name: str, a: Array) -> None:
    bad = np.argwhere(~(np.abs(a) <= LARGEST))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        size = "an infinite value" if np.isinf(a[at]) else f"{a[at]:g}, above {LARGEST:g}: rescale it,"
        raise InputError(_has(name, at, "a NaN" if np.isnan(a[at]) else size))


def _has(name: str, at: tuple[int, ...], what: str) -> str:
    """Return a message such as "g[0] has a NaN at state 4, action 2".

    `name` is the name of the array, `at` the index of the entry, and `what` describes the bad value.
    """
    if name in ("r", "g", "cost", "policy", "pi") and len(at) >= 2:
        head = f"{name}[{at[0]}]" if len(at) == 3 else name
        return f"{head} has {what} at state {at[-2]}, action {at[-1]}"
    if name == "P" and len(at) == 3:
        return f"P[{at[0]}, {at[1]}] has {what} at next state {at[2]}"
    return f"{name} has {what} at {at if len(at) > 1 else at[0] if at else 'its only entry'}"


def read_number(name: str, x: Any) -> float:
    """Return x as a float; x may also be an array with one entry, as in `.npz` files."""
    try:
        return float(np.asarray(x).reshape(()).item())
    except (TypeError, ValueError, OverflowError):
        got = repr(np.asarray(x).item()) if _ndim(x) == 0 else "an array"
        raise InputError(f"{name} must be one real number, got {got}") from None


def read_constraints(name: str, g: Any, limit_name: str, b: Any, S: int, A: int) -> tuple[Array, Array]:
    g_ = read_numbers(name, np.zeros((0, S, A)) if g is None else g, ndim=2 if _ndim(g) == 2 else 3)
    g_ = g_[None] if g_.ndim == 2 else g_
    if g_.shape[1:] != (S, A):
        raise InputError(f"{name} has shape {g_.shape}, it must be [I, S, A] with [S, A] = {(S, A)} as r has")
    b_ = read_numbers(limit_name, np.full(len(g_), read_number(limit_name, b)) if _ndim(b) == 0 else b, ndim=1)
    if len(b_) != len(g_):
        raise InputError(f"{limit_name} has {len(b_)} entries for {len(g_)} constraints in {name}; give one each")
    return g_, b_


def _ndim(x: Any) -> int | None:
    try:
        return np.ndim(x)
    except ValueError:  # rows of different length, which `read_numbers` reports
        return None


def read_initial(rho: Any, S: int) -> Array:
    rho_ = np.full(S, 1.0 / S) if rho is None else read_numbers("rho", rho, ndim=1)
    if rho_.shape != (S,):
        raise InputError(f"rho has {len(rho_)} entries, the model has {S} states")
    return freeze(read_distributions("rho", rho_))


def read_names(names: Sequence[str] | None, I: int) -> tuple[str, ...]:
    if names is None or (I and len(names) == 0):
        return tuple(f"g{i}" for i in range(I))
    if isinstance(names, str) or len(names) != I:
        got = f"the text {names!r}" if isinstance(names, str) else f"{len(names)} entries"
        raise InputError(f"names has {got} for {I} constraints; give a list with one name each")
    return tuple(str(n) for n in names)


def read_flags(name: str, flags: Any, I: int) -> tuple[bool, ...]:
    """Return the user's `flags` as one boolean for each of I constraints; all False if `flags` is None or empty."""
    mask = np.asarray(() if flags is None else flags)
    if mask.size == 0:
        return (False,) * I
    if mask.shape != (I,) or mask.dtype.kind != "b":
        raise InputError(f"{name} must be true or false for each of {I} constraints, got {mask.dtype} {mask.shape}")
    return tuple(bool(x) for x in mask)


def read_labels(name: str, labels: Any, n: int) -> tuple[str, ...] | None:
    """Return the user's names of n states or actions, which must be distinct; None if `labels` is None."""
    if labels is None:
        return None
    if isinstance(labels, str) or np.ndim(labels) != 1 or len(labels) != n:
        got = f"the text {labels!r}" if isinstance(labels, str) else f"shape {np.shape(labels)}"
        raise InputError(f"{name} must be a list of {n} names, got {got}")
    found = tuple(str(x) for x in labels)
    seen: set[str] = set()
    for label in found:
        if label in seen:
            raise InputError(f"{name} has {label!r} twice; give different names")
        seen.add(label)
    return found


def read_available(available: Any, S: int, A: int) -> NDArray[np.bool_] | None:
    if available is None:
        return None
    mask = np.asarray(available)
    if mask.dtype.kind != "b" or mask.shape != (S, A):
        raise InputError(
            f"available must be true or false for each of [S, A] = {(S, A)}, got {mask.dtype} {mask.shape}"
        )
    if not mask.any(axis=1).all():
        raise InputError(f"available leaves no action at state {int(np.argmin(mask.any(axis=1)))}")
    return mask


def read_transitions(P: Any, S: int, A: int, available: NDArray[np.bool_] | None) -> Any:
    from scipy import sparse

    if sparse.issparse(P):
        return _sparse_transitions(P, S, A, available)
    _refuse_masked("P", P)
    P_ = np.asarray(P)
    if available is not None and P_.shape == (S, A, S) and P_.dtype.kind in "biuf":
        P_ = np.where(available[:, :, None], P_, 0.0)
    P_ = read_numbers("P", P_ if P_.dtype.kind in "biuf" else P, ndim=3)
    if P_.shape != (S, A, S):
        raise InputError(f"P has shape {P_.shape}, it must be [S, A, S] = {(S, A, S)} as r has")
    return freeze(read_distributions("P", P_, available))


ORDERS = ("state", "action")


def order_rows(P: Any, S: int, A: int, order: str | None) -> Any:
    """Return a sparse P with rows in the order s·A + a.

    `order` is the order of the given rows: "state" (row s·A + a) or "action" (row a·S + s).

    In both orders P has the shape [S·A, S] and rows that sum to 1. If no order is given, P is refused if the order
    "action" seems much more likely. The check uses that in most models transitions lead to nearby states, so the mean
    distance |s' − s| is small in the right order. A model without such structure is not refused.
    """
    from scipy import sparse

    if order not in (None, *ORDERS):
        raise InputError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    if not sparse.issparse(P) or P.shape != (S * A, S):
        return P
    if order == "action":
        return sparse.csr_array(P)[np.arange(S * A).reshape(A, S).T.ravel()]
    if order is None and min(S, A) > 1 and P.dtype.kind in "biuf" and _fits_action_order(P, S, A):
        raise InputError(
            'P has rows that look like one matrix per action, stacked (row a·S + s): give order="action", or '
            'order="state" if row s·A + a is what they are'
        )
    return P


def _fits_action_order(P: Any, S: int, A: int) -> bool:
    """Return whether the rows of P [S·A, S] seem to be in the order a·S + s instead of s·A + a.

    This is so if the order a·S + s makes the mean distance |s' − s| of transitions smaller by a quarter and by four
    standard errors. In models without structure this happens by chance in fewer than one of a hundred cases.
    """
    from scipy import sparse

    entries = sparse.coo_array(P)
    row, s_next, p = entries.row.astype(np.int64), entries.col.astype(np.int64), np.abs(entries.data)
    if not np.all(p <= LARGEST):  # a later check refuses P and names the entry
        return False
    by_state, by_action = (np.bincount(row, p * np.abs(s_next - s), S * A) for s in (row // A, row % S))
    gain = by_state - by_action
    return bool(by_action.sum() < 0.75 * by_state.sum() and gain.mean() > 4 * gain.std() / np.sqrt(S * A))


def _sparse_transitions(P: Any, S: int, A: int, available: NDArray[np.bool_] | None) -> sparse.csr_array:
    from scipy import sparse

    if P.shape != (S * A, S):
        raise InputError(f"sparse P has shape {P.shape}, it must be [S·A, S] = {(S * A, S)}")
    if P.dtype.kind not in "biuf":
        raise InputError(f"P must hold real numbers, got {P.dtype}")
    P = sparse.csr_array(P, dtype=float, copy=True)
    P.sum_duplicates()
    if available is not None:
        P = sparse.csr_array(sparse.diags_array(available.ravel().astype(float)) @ P)
        P.eliminate_zeros()
    for bad, what in ((~np.isfinite(P.data), "a value that is not finite"), (P.data < 0, "a negative value")):
        if bad.any():
            n = int(np.argmax(bad))
            s, a = divmod(int(np.searchsorted(P.indptr, n, side="right")) - 1, A)
            raise InputError(f"P[{s}, {a}] has {what} at next state {P.indices[n]}")
    total = np.asarray(P.sum(axis=1))
    _sums_to_one("P", total.reshape(S, A), available)
    off = (np.abs(total - 1) > ROUNDING) & (total > 0)
    if off.any():
        P.data /= np.repeat(np.where(off, total, 1.0), np.diff(P.indptr))
    if P.nnz < 2**31:  # 32-bit indices take half the memory, and the solvers need only one compiled version
        P = sparse.csr_array((P.data, P.indices.astype(np.int32), P.indptr.astype(np.int32)), shape=P.shape)
    for part in (P.data, P.indices, P.indptr):
        part.flags.writeable = False
    return P


def read_distributions(name: str, p: Array, rows: NDArray[np.bool_] | None = None) -> Array:
    """Return p with each row normalised to sum 1; raise InputError if a sum differs from 1 by more than 1e-9.

    With the mask `rows`, only the selected rows are checked. Smaller differences, as in decimal inputs, are removed by
    the normalisation, so that a certificate and a sampler use the same numbers.
    """
    negative = np.argwhere(p < 0)
    if len(negative):
        raise InputError(_has(name, tuple(int(i) for i in negative[0]), "a negative value"))
    total = p.sum(-1, keepdims=True)
    _sums_to_one(name, total[..., 0], rows)
    off = np.abs(total - 1) > ROUNDING
    return p / np.where(off & (total > 0), total, 1.0) if off.any() else p


def _sums_to_one(name: str, total: Array, rows: NDArray[np.bool_] | None = None) -> None:
    """Raise InputError unless each entry of `total` (or each one that the mask `rows` selects) is 1 up to 1e-9."""
    total = np.asarray(total)
    off = np.abs(total - 1) > SUM_TOLERANCE
    bad = np.argwhere(off if rows is None else off & rows)
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        row = f"{name}[{', '.join(map(str, at))}]" if at else name
        raise InputError(f"{row} sums to {total[at]:.12g}; probabilities must sum to 1")


def freeze(a: Array) -> Array:
    a = np.array(a, dtype=float, order="C")
    a.flags.writeable = False
    return a


# ------------------------------------------------------------------------------------------ settings of methods


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def check_positive(name: str, value: Any) -> None:
    if not (is_number(value) and value > 0):
        raise InputError(f"{name} must be a positive number, got {value!r}")


def check_non_negative(name: str, value: Any) -> None:
    if not (is_number(value) and value >= 0):
        raise InputError(f"{name} must be a number ≥ 0, got {value!r}")


def check_count(name: str, value: object) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a whole number ≥ 1, got {value!r}")
