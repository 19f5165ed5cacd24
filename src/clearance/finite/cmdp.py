"""The constrained Markov decision process with finitely many states and actions.

    maximise J_r(π)   subject to   J_gi(π) ≥ b_i,  i = 1..I,      J_h(π) = E Σ_t γ^t h(s_t, a_t),  s_0 ~ ρ

or another criterion: the long-run mean, the sum until absorption, or the sum of the first H steps (`core.criterion`).

Row 0 of h is the reward, and the other rows are the constraint signals: h = (r, g_1, …, g_I). So V, Q, A and J all
have a leading axis of length 1 + I:

    V_π = (I − γ P_π)⁻¹ h_π,   Q = h + γ P V,   A = Q − V,   J = ρ·V
    d(s) = (1−γ) ρᵀ (I − γ P_π)⁻¹,   d(s, a) = d(s) π(a|s),   J = ⟨h, d⟩ / (1−γ)

See Bai et al. 2023, section "Problem Formulation". The limit b is stored as a separate field. Moving it into the
signal, as g − (1−γ)b, would be wrong as soon as episodes end. A terminal state is absorbing with zero signals. The
criteria without discount (average, total) divide each row of P by its sum, because a row that sums to 1 − 1e-16 would
lose all probability in the long run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from clearance.certificates.verdict_words import bound_words, join_some
from clearance.core.array_files import read_arrays
from clearance.core.arrays import Array
from clearance.core.atomic_files import save_npz
from clearance.core.compiled.dissection import Elimination
from clearance.core.criterion import Criterion, read_criterion, short_words
from clearance.core.errors import InputError
from clearance.core.html_card import MOST_ROWS, html_card
from clearance.core.inside_folder import AnyPath
from clearance.core.keywords import not_called
from clearance.core.statement import read_limits
from clearance.core.validation import (
    freeze,
    order_rows,
    read_available,
    read_constraints,
    read_csr,
    read_flags,
    read_initial,
    read_labels,
    read_names,
    read_number,
    read_numbers,
    read_transitions,
)

ARRAYS = ("P", "P_data", "P_indices", "P_indptr", "r", "g", "b", "rho", "gamma", "names", "costs", "available")
ARRAYS += ("states", "actions", "criterion", "horizon", "averaged")
PATIENCE = 0.9999  # the discount factor used to choose the order of elimination if the criterion has no discount


@dataclass(frozen=True, eq=False, repr=False)
class CMDP:
    """A finite constrained MDP.

    P      transition probabilities, dense [S, A, S] or sparse (CSR) [S·A, S], row s·A + a
    h      the signals [1+I, S, A], reward first (made from `r`, `g` and `cost`)
    b      lower limits [I] of J_g
    rho    initial distribution [S]; uniform unless given
    gamma  discount factor in (0, 1); 1 if nothing is discounted
    criterion  "discounted", "average" (the long-run mean per step) or "total" (the sum until absorption). The argument
           may also name a criterion for each signal, but all of them must be the same
    horizon  H: J is the sum of the first H steps, undiscounted unless gamma is given; None: no horizon
    names  names of the constraints [I], for messages and reports
    costs  mask [I] of the constraints that the user gave as costs; messages and reports show these as costs
    available  (argument) mask [S, A] of the actions that exist in each state; by default all. The rows of P of other
           actions are ignored, and no policy takes them
    states, actions  their names [S], [A], if given; kept in files, no result depends on them
    order  (argument) the order of the rows of a sparse P: "state" (row s·A + a) or "action" (row a·S + s: one matrix
           per action, stacked). Both have the same shape; without `order`, rows that look like "action" are refused

    Costs with upper limits, as safe-RL users write them, are accepted and mean the same thing:
    `cost=c, limit=l` adds the constraint g = −c, b = −l.

    >>> CMDP(P=[[[1.0], [1.0]]], r=[[1.0, 0.0]], cost=[[[1.0, 0.0]]], limit=2.0, gamma=0.5).b
    array([-2.])
    """

    P: Any
    h: Array
    b: Array
    rho: Array
    gamma: float
    names: tuple[str, ...]
    costs: tuple[bool, ...]
    states: tuple[str, ...] | None
    actions: tuple[str, ...] | None
    criterion: str
    horizon: int | None
    # Set by `exact.never`: `allowed` is a mask [H, S, A] of the pairs that a policy may take within a horizon, and
    # `recurring` is a mask [S, A] of the pairs that it may take infinitely often under the average criterion.
    allowed: ClassVar[NDArray[np.bool_] | None] = None
    recurring: ClassVar[NDArray[np.bool_] | None] = None
    # Where a step may give different values of a signal [1+I, S, A], of which h is only the mean; None: nowhere.
    averaged: ClassVar[NDArray[np.bool_] | None] = None

    @not_called("limits", "limit")
    def __init__(
        self,
        P: ArrayLike | sparse.sparray | sparse.spmatrix,
        r: ArrayLike,
        g: ArrayLike | None = None,
        b: ArrayLike = 0.0,
        *,
        rho: ArrayLike | None = None,
        gamma: float | None = None,
        criterion: str | Sequence[str] | Mapping[str, str] | None = None,
        horizon: int | None = None,
        cost: ArrayLike | None = None,
        limit: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        available: ArrayLike | None = None,
        states: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
        order: str | None = None,
    ) -> None:
        r_ = read_numbers("r", r, ndim=2)
        S, A = r_.shape
        if S == 0 or A == 0:
            raise InputError(f"r must have at least one state and one action, got shape {r_.shape}")
        if (cost is None) != (limit is None):
            missing, given = ("limit", "cost") if limit is None else ("cost", "limit")
            raise InputError(f"{missing} is missing: `{given}` needs it (cost [I, S, A] with upper limit [I])")
        g_, b_ = read_constraints("g", g, "b", b, S, A)
        c_, l_ = read_constraints("cost", cost, "limit", 0.0 if limit is None else limit, S, A)
        mask = read_available(available, S, A)
        h = np.concatenate([r_[None], g_, -c_])
        put = object.__setattr__
        put(self, "P", read_transitions(order_rows(P, S, A, order), S, A, mask))
        put(self, "h", freeze(h if mask is None else np.where(mask, h, 0.0)))
        put(self, "b", freeze(np.concatenate([b_, -l_])))
        put(self, "rho", read_initial(rho, S))
        put(self, "names", read_names(names, self.I))
        self._put_criterion(read_criterion(criterion, gamma, horizon, ("reward", *self.names)))
        put(self, "costs", (False,) * len(b_) + (True,) * len(l_))
        put(self, "states", read_labels("states", states, S))
        put(self, "actions", read_labels("actions", actions, A))

    def _put_criterion(self, found: Criterion) -> None:
        for field, value in (("criterion", found.name), ("gamma", found.gamma), ("horizon", found.horizon)):
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        return f"<CMDP: {self._size_in_words}; {join_some(self.limits_in_words) or 'no limits'}>"

    @property
    def _size_in_words(self) -> str:
        kind = "sparse" if self.is_sparse else "dense"
        return f"{self.S:,} states, {self.A:,} actions ({kind}), {short_words(self.full_criterion)}"

    def _repr_html_(self) -> str:
        size = self._size_in_words
        return html_card(f"CMDP: {size}", self.limits_in_words[:MOST_ROWS] or ["No limits."])

    @property
    def limits_in_words(self) -> list[str]:
        """The limit of each constraint as the user wrote it: an upper limit for a cost, a lower limit for a utility."""
        rows = zip(self.names, self.b.tolist(), self.costs, strict=True)
        return [bound_words(name, b, cost=cost) for name, b, cost in rows]

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

    @cached_property
    def signal_ranges(self) -> tuple[float, Array]:
        """The ranges (max − min) of r and of each g_i [I]; 1 for a constant signal. Methods use them as units."""
        r, g = float(np.ptp(self.r)), np.ptp(self.g, axis=(1, 2))
        return r or 1.0, np.where(g > 0, g, 1.0)

    @property
    def full_criterion(self) -> Criterion:
        """The criterion of J: its name, γ and the horizon."""
        return Criterion(self.criterion, self.gamma, self.horizon)

    @property
    def kind(self) -> str:
        """The formula that defines J: "discounted", "horizon", "total" or "average"."""
        return self.full_criterion.kind

    @property
    def length(self) -> float:
        """The factor `length` in J = length · ⟨h, d⟩, where d is the normalised occupancy of the policy."""
        return self.full_criterion.length

    @property
    def policy_shape(self) -> tuple[int, ...]:
        """The shape of a policy: [S, A], or [H, S, A] with a horizon H, since the best one then depends on the time."""
        return (self.S, self.A) if self.horizon is None else (self.horizon, self.S, self.A)

    @property
    def is_sparse(self) -> bool:
        return sparse.issparse(self.P)

    @cached_property
    def available(self) -> NDArray[np.bool_]:
        """The mask [S, A] of actions that exist in each state."""
        if self.is_sparse:
            return (np.diff(self.P.indptr) > 0).reshape(self.S, self.A)
        return self.P.any(axis=-1)

    @cached_property
    def rows(self) -> Any:
        """P as a matrix [S·A, S] whose row s·A + a is P(·|s, a); dense or CSR."""
        return self.P if self.is_sparse else self.P.reshape(self.S * self.A, self.S)

    @cached_property
    def elimination(self) -> Elimination | None:
        """The order in which to eliminate states in linear solves; None if the model has no local structure."""
        patience = self.gamma if self.gamma < 1 else PATIENCE
        return Elimination.of(self.P if self.is_sparse else sparse.csr_array(self.rows), self.A, patience)

    def tightened(self, kappa: ArrayLike) -> CMDP:
        """Return the conservative problem J_g ≥ b + κ (Bai et al. 2023, eq. 7); κ is a number or an array [I]."""
        kappa = np.asarray(kappa, float)
        if kappa.ndim and kappa.shape != self.b.shape:
            raise InputError(f"kappa has shape {kappa.shape} for {self.I} constraints; give one number, or one each")
        return self.replace(b=self.b + kappa)

    @not_called("limits", "limit")
    def replace(
        self,
        *,
        h: ArrayLike | None = None,
        b: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        limit: ArrayLike | Mapping[str, float] | None = None,
        gamma: float | None = None,
        criterion: str | None = None,
        horizon: int | None = None,
        rho: ArrayLike | None = None,
    ) -> CMDP:
        """Return the same model with other signals h [1+I, S, A], limits b [I], names [I], criterion or start ρ [S].

        P is shared and not copied. If names, h and b are all given, the number of constraints may change.

        criterion, horizon  the new criterion of J, with the discount factor `gamma` if it is given
        gamma  if given alone, the new discount factor; a horizon is kept

        limit  the limits as the user writes them, instead of b. Either upper limits of the costs (one number for all,
               or one for each), or a dict by name such as {"energy": 40}. In a dict, a cost gets an upper limit and a
               utility a lower limit; a constraint that is not named keeps its limit
        """
        if limit is not None:
            if b is not None or h is not None or names is not None:
                raise InputError("limit stands in place of b, for the signals and names as they are: give it alone")
            b = read_limits(limit, self.b, self.costs, self.names)
        other = object.__new__(CMDP)
        other.__dict__.update(self.__dict__)
        other.__dict__.pop("signal_ranges", None)
        if criterion is not None or horizon is not None:
            other._put_criterion(read_criterion(criterion, gamma, horizon))
        elif gamma is not None:
            other._put_criterion(read_criterion(None, gamma, self.horizon))
        if other.gamma != self.gamma:
            other.__dict__.pop("elimination", None)  # whether it pays depends on gamma
        if rho is not None:
            other.__dict__["rho"] = read_initial(rho, self.S)
        if names is not None:
            other.__dict__["names"] = read_names(names, self.I if h is None or b is None else len(names))
        I = len(other.names)
        if self.I != I:
            other.__dict__["costs"] = (False,) * I
        if h is not None:
            h_ = read_numbers("h", h, ndim=3)
            if h_.shape != (1 + I, self.S, self.A):
                raise InputError(f"h has shape {h_.shape}, the model needs {(1 + I, self.S, self.A)}")
            other.__dict__["h"] = freeze(np.where(self.available, h_, 0.0))
            if self.averaged is not None:
                other.__dict__["averaged"] = _still_averaged(self.averaged, self.h, other.h)
        if b is not None:
            b_ = read_numbers("b", b, ndim=1)
            if b_.shape != (I,):
                raise InputError(f"b has {len(b_)} entries for {I} constraints; give one each")
            other.__dict__["b"] = freeze(b_)
        return other

    def with_averaged(self, averaged: ArrayLike | None) -> CMDP:
        """Return the same model, with the knowledge in which steps h is only the mean of what may happen [1+I, S, A].

        Means, optima and certificates do not depend on it. Limits on single episodes are refused for such costs.
        """
        mask = np.asarray(False if averaged is None else averaged)
        if mask.ndim and (mask.shape != self.h.shape or mask.dtype.kind != "b"):
            raise InputError(f"averaged must be true or false, {self.h.shape}, got {mask.dtype} {mask.shape}")
        other = self.replace()
        other.__dict__["averaged"] = mask if mask.any() else None
        return other

    def save(self, path: AnyPath) -> None:
        """Write the model as an `.npz` file of plain arrays, which can be read without executing code."""
        signs = {"costs": np.array(self.costs)} if any(self.costs) else {}
        signs |= {} if self.averaged is None else {"averaged": self.averaged}
        labels = {"states": self.states, "actions": self.actions}
        signs |= {name: np.array(x, dtype=np.str_) for name, x in labels.items() if x is not None}
        save_npz(path, {"schema": np.array("clearance/problem/1"), **self.arrays(), **signs})

    def arrays(self) -> dict[str, Any]:
        """Return all data of the model on which results depend, as arrays with the names used in model files."""
        arrays: dict[str, Any] = {"r": self.r, "g": self.g, "b": self.b, "rho": self.rho}
        arrays |= {"gamma": np.float64(self.gamma), "names": np.array(self.names, dtype=np.str_)}
        if self.is_sparse:
            arrays |= {"P_data": self.P.data, "P_indices": self.P.indices, "P_indptr": self.P.indptr}
        else:
            arrays["P"] = self.P
        if not self.available.all():
            arrays["available"] = self.available
        if self.horizon is not None:
            arrays["horizon"] = np.int64(self.horizon)
        elif self.kind != "discounted":
            arrays["criterion"] = np.array(self.criterion)
        return arrays

    @classmethod
    def load(cls, path: AnyPath) -> CMDP:
        """Read a model written by `save`, or any `.npz` with the same arrays."""
        z = read_arrays(path, ARRAYS, _most_numbers)
        missing = [k for k in ("r", "gamma") if k not in z and (k == "r" or not {"criterion", "horizon"} & z.keys())]
        if missing or not ("P" in z or {"P_data", "P_indices", "P_indptr"} <= z.keys()):
            if "pi" in read_arrays(path, ("pi",)):
                raise InputError(f"{path}: holds a policy (pi), it is no model")
            what = missing[0] if missing else "P (or P_data, P_indices, P_indptr)"
            raise InputError(f"{path}: {what} is missing; a model needs P, r, gamma and usually g, b, rho")
        try:
            P = z["P"] if "P" in z else read_csr(z)
            names = [str(n) for n in np.atleast_1d(z["names"])] if "names" in z else None
            gamma = read_number("gamma", z["gamma"]) if "gamma" in z else None
            given: dict[str, Any] = {name: z.get(name) for name in ("rho", "available", "states", "actions")}
            given |= {"criterion": str(z["criterion"]) if "criterion" in z else None}
            given |= {"horizon": _whole_number(path, z["horizon"]) if "horizon" in z else None}
            model = cls(P, z["r"], z.get("g"), z.get("b", 0.0), gamma=gamma, names=names, order="state", **given)
            object.__setattr__(model, "costs", read_flags("costs", z.get("costs"), model.I))
            return model.with_averaged(z.get("averaged"))
        except InputError as e:
            raise InputError(f"{path}: {e}") from None


def _most_numbers(shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the largest allowed number of entries of each array in a model file, by name.

    The numbers follow from `shapes`, the shapes of the arrays in the file.
    """
    pairs, S = math.prod(shapes.get("r", ())), (*shapes.get("r", ()), 0)[0]
    signals = shapes.get("g", ())
    I = math.prod(signals) // max(pairs, 1) if signals[-2:] == shapes.get("r") else 0
    sparse_P = {"P_data": pairs * S, "P_indices": math.prod(shapes.get("P_data", ())), "P_indptr": pairs + 1}
    signals_of = {"r": pairs if len(shapes.get("r", ())) == 2 else 0, "g": I * pairs, "b": I, "names": I, "costs": I}
    labels = {"states": S, "actions": (*shapes.get("r", ()), 0, 0)[1]}
    single = {"gamma": 1, "criterion": 1, "horizon": 1}
    signals_of["averaged"] = (1 + I) * pairs
    return sparse_P | signals_of | labels | single | {"P": pairs * S, "rho": S, "available": pairs}


def _still_averaged(averaged: NDArray[np.bool_], h: Array, new: Array) -> NDArray[np.bool_] | None:
    """Return for the signals `new` [1+I', S, A] what `averaged` says of the same signals in h [1+I, S, A].

    A signal and its negative, which a cost is, are the same here. Of other signals nothing is known.
    """
    same = [[np.array_equal(x, y) or np.array_equal(x, -y) for y in h] for x in new]
    found = np.stack([averaged[np.array(row)].any(axis=0) for row in same])
    return found if found.any() else None


def _whole_number(path: AnyPath, x: Array) -> int:
    if x.size != 1 or x.dtype.kind not in "iu":
        raise InputError(f"{path}: horizon must be one whole number")
    return int(x.item())
