"""The exact optimum of large models: Dantzig–Wolfe column generation over deterministic policies.

The set of all occupancies is the convex hull of those of deterministic policies, so a mixture of a few such policies
solves the linear program:

    master    max Σ_j w_j J_r(π_j)   s.t.   Σ_j w_j (J_gi(π_j) − b_i) ≥ 0,   Σ_j w_j = 1,   w ≥ 0   (I + 1 rows, HiGHS)
    oracle    D(λ) = max_π J_r(π) + Σ_i λ_i (J_gi(π) − b_i)                    (policy iteration, λ from the master)

The master's value is a lower bound of the optimum, and every D(λ) is an upper bound; the loop stops at a proven gap. A
vertex of the master mixes at most I + 1 policies. Phase one is the same loop for max_π min_i (J_gi − b_i). If its λ,
with Σλ = 1, has D(λ) < 0, no policy meets the limits (Farkas). With several constraints the duals of the master
oscillate; they are smoothed towards the best λ seen so far (Wentges 1997).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import highspy
import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.compiled.sparse_lu import Factor
from clearance.core.errors import SolverError
from clearance.exact.bellman import Operator
from clearance.exact.oracles import OracleColumns, accuracy_for
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy

STEPS = 1  # steps of policy iteration in one call of the oracle, if the model has local structure
RECENT = 6  # policies whose values give the first V at new multipliers
STALLED = "column generation did not reach its gap: bring gamma further from 1, or use method='lp'"
SMALL = 1e-5  # the gap, relative to the scale of J, that is accepted if rounding prevents a smaller one
SMOOTHING = 0.5  # weight of the best λ so far in the smoothed λ, if there is more than one constraint


@dataclass(eq=False)
class Columns:
    """The columns of the master program: the n deterministic policies found so far.

    Their actions are act [n, S], and their values J [n, 1+I]. The method `price` is the oracle, which adds policies.
    The other fields keep results of its last calls, from which the next call starts, such as V [S] and the visits x [S]
    of the last policy.
    """

    model: Operator
    b: Array
    V: Array = field(init=False)
    x: Array = field(init=False)
    factor: Factor | None = field(init=False)
    signals: Array = field(init=False)
    recent: Array = field(init=False)
    past: deque[tuple[Array, Array]] = field(default_factory=lambda: deque(maxlen=RECENT))
    act: list[NDArray[np.int64]] = field(default_factory=list)
    J: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        model = self.model
        self.V, self.x = np.zeros(model.S), np.full(model.S, 1 / (1 - model.gamma) / model.S)
        self.factor = None if model.elimination is None else Factor(model.elimination, model.gamma)
        if self.factor is not None:  # values [S, 1+I] of the last policies, in turn; signals by rows s·A + a
            self.recent = np.zeros((RECENT, model.S, len(model.h)))
            self.signals = np.ascontiguousarray(model.h.T)

    def price(self, weights: Array, gap: float, tol: float) -> float:
        """Maximise weights·(J_r, J_g − b) over policies; add policies to the columns and return a bound on the maximum.

        This upper bound is proven, but only as accurate as the current `gap` requires, so early calls are cheap. J of
        each new policy is accurate to tol/100, where `tol` is the final gap.
        """
        accuracy = accuracy_for(gap, tol)
        model = self.model
        h, act = weights @ model.h, self.act[-1].copy() if self.act else np.zeros(model.S, np.int64)
        if self.factor is not None:
            self.V, gain = self._improve(self.factor, h, weights, act, accuracy * (1 - model.gamma))
        else:  # the visits start from those of the last call
            self.V, gain = model.maximise(h, self._extrapolate(weights), act, accuracy * (1 - model.gamma))
            self.past.append((weights, self.V))
            size = model.S * max(float(np.abs(model.h).max()), 1e-300)
            self.x = model.occupancy(act, self.x.copy(), 0.01 * tol * (1 - model.gamma) / size)
            self.act.append(act)
            self.J.append(model.J(act, self.x))
        return float(model.rho @ self.V + gain / (1 - model.gamma) - weights[1:] @ self.b)

    def _extrapolate(self, weights: Array) -> Array:
        """Return a first guess of V [S] for new weights of the signals, from the values of the last calls.

        V is linear in the weights as long as the policy stays the same, so a linear combination is a good guess.
        """
        if len(self.past) < 2:
            return self.V
        share = np.linalg.lstsq(np.array([w for w, _ in self.past]).T, weights, rcond=1e-3)[0]
        if np.abs(share).sum() > 4:  # far from all of them
            return self.V
        return np.sum([c * V for c, (_, V) in zip(share, self.past, strict=True)], axis=0)

    def _improve(
        self, factor: Factor, h: Array, weights: Array, act: NDArray[np.int64], tol: float
    ) -> tuple[Array, float]:
        """Run at most STEPS steps of policy iteration for h = weights·signals from `act`; return (V, max(TV − V)).

        T is the Bellman operator. Each policy becomes a column. `factor` gives the values of all signals of a policy at
        once, so the values of earlier policies are known for the new weights too. At each state, V starts from the
        largest of these values. The call stops early once TV − V varies by at most `tol`.
        """
        model, gain = self.model, np.inf
        V = np.max(self.recent[: max(len(self.act), 1)] @ weights, axis=0)
        for step in range(STEPS + 1):
            gain, least = model.sweep(h, V, act)
            known = bool(self.act) and np.array_equal(act, self.act[-1])
            if step == STEPS or (gain - least <= tol and (known or step > 0)):
                break
            if not known:
                values = factor.update(model.P, model.A, act).solve(self.signals.take(model.rows(act), axis=0))
                self.recent[len(self.act) % RECENT] = values
                self.act.append(act.copy())
                self.J.append(model.rho @ values)
            V = self.recent[(len(self.act) - 1) % RECENT] @ weights
        return V, gain


@dataclass(frozen=True)
class Mixed:
    """A solved master program: weights [n] of the columns, multipliers λ [I], its value, and the best upper bound.

    `calls` is how often the oracle was called.
    """

    weights: Array
    lam: Array
    value: float
    bound: float
    calls: int


class Master:
    """The master program of column generation; new columns are added, and HiGHS starts each time from its last basis.

    With the argument `unit` [I] it is the program of phase one: max t subject to Σ_j w_j slack_ji ≥ t·unit_i, where
    slack_ji is J_gi − b_i of column j. Its multipliers λ satisfy Σ_i λ_i unit_i = 1.
    """

    def __init__(self, I: int, unit: Array | None = None) -> None:
        self.I, self.margin, self.n = I, unit is not None, 0
        self.rows = np.arange(I + 1, dtype=np.int32)
        self.highs = highspy.Highs()
        self.highs.silent()
        for name in ("primal_feasibility_tolerance", "dual_feasibility_tolerance"):
            self.highs.setOptionValue(name, 1e-10)
        self.highs.setOptionValue("simplex_strategy", 4)  # primal: a new column leaves the last basis feasible
        self.highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for lower, upper in [(0.0, highspy.kHighsInf)] * I + [(1.0, 1.0)]:
            self.highs.addRow(lower, upper, 0, np.zeros(0, np.int32), np.zeros(0))
        if unit is not None:
            t = np.append(-unit, 0.0)
            self.highs.addCol(1.0, -highspy.kHighsInf, highspy.kHighsInf, I + 1, self.rows, t)

    def solve(self, J: list[Array], b: Array) -> tuple[Array, Array, float]:
        """Add those columns of J that are new, and solve the program; return (weights w [n], λ [I], value).

        J lists the values [1+I] of all columns so far, and b [I] are the limits.
        """
        for column in J[self.n :]:
            cost, entries = 0.0 if self.margin else float(column[0]), np.append(column[1:] - b, 1.0)
            self.highs.addCol(cost, 0.0, highspy.kHighsInf, self.I + 1, self.rows, entries)
        self.n = len(J)
        self.highs.run()
        if not self._optimal():  # the warm start can make HiGHS fail: solve again without it
            self.highs.clearSolver()
            self.highs.run()
        if not self._optimal():
            raise SolverError(
                f"the master program was not solved ({self.highs.getModelStatus().name}): relax b a little"
            )
        solution = self.highs.getSolution()
        lam = np.maximum(-np.array(solution.row_dual[: self.I]), 0.0)
        w = np.maximum(np.array(solution.col_value[1:] if self.margin else solution.col_value), 0.0)
        return w, lam, float(self.highs.getObjectiveValue())

    def _optimal(self) -> bool:
        return self.highs.getModelStatus() == highspy.HighsModelStatus.kOptimal


def slater(columns: Columns | OracleColumns, unit: Array, tol: float, *, enough: float = np.inf) -> Mixed:
    """Solve max_π min_i (J_gi − b_i)/unit_i to the gap `tol`; stop early once the value reaches `enough`.

    `unit` [I] are the units in which the slacks are compared. In the result, `bound` is an upper bound on the maximum.
    If it is negative, no policy meets the limits, and `lam` (with Σ λ_i unit_i = 1) is the proof. If the sign of the
    maximum is not known at the gap `tol`, the loop continues down to tol/100.
    """
    I = len(columns.b)
    master = Master(I, unit)
    lam = best_lam = 1 / (I * unit)
    bound, value = np.inf, -np.inf
    for calls in range(1, 1000):
        upper = columns.price(np.append(0.0, lam), bound - value, tol)
        if upper < bound:
            bound, best_lam = upper, lam
        w, duals, value = master.solve(columns.J, columns.b)
        undecided = value < 0 <= bound
        if bound - value <= (0.01 * tol if undecided else tol) or value >= enough:
            return Mixed(w, best_lam, value, bound, calls)
        lam = _smooth(duals / max(float(duals @ unit), 1e-300), best_lam)
    raise SolverError(STALLED)


def best_mixture(columns: Columns | OracleColumns, gap: float, scale: float) -> Mixed:
    """Solve max J_r subject to the limits, from columns that already contain a feasible mixture.

    The loop alternates between the master program and the oracle (`columns.price`). It stops at a proven `gap` relative
    to the optimum, or relative to scale/1000 if that is larger; `scale` is the typical size of J. It also stops if two
    calls of the oracle in a row have the same λ and the same result, and the remaining gap is small: at a large λ,
    rounding can make the proven bound coarser than `gap`.
    """
    I = len(columns.b)
    master = Master(I)
    lam = best_lam = np.zeros(I)
    bound, value, tol = np.inf, -np.inf, gap * scale
    asked: tuple[bytes, float, float] | None = None
    for calls in range(1, 2000):
        upper = columns.price(np.append(1.0, lam), bound - value, tol)
        if upper < bound:
            bound, best_lam = upper, lam
        w, duals, value = master.solve(columns.J, columns.b)
        tol = gap * max(abs(value), 1e-3 * scale)
        same = asked == (asked := (lam.tobytes(), upper, value))
        if bound - value <= (SMALL * scale if same else tol):
            return Mixed(w, best_lam, value, bound, calls)
        # At the same smoothed λ as before, the oracle would give the same result: use the master's own duals then.
        target = _smooth(duals, best_lam)
        lam = target if np.max(np.abs(target - lam), initial=0.0) > 1e-12 * (1 + np.max(lam, initial=0.0)) else duals
    raise SolverError(STALLED)


def _smooth(duals: Array, best: Array) -> Array:
    return SMOOTHING * best + (1 - SMOOTHING) * duals if len(duals) > 1 else duals


def columns_of(cmdp: CMDP) -> Columns:
    """Return an empty set of columns for this model."""
    return Columns(Operator.of(cmdp), cmdp.b)


def mixture_of(columns: Columns | OracleColumns, mixed: Mixed) -> tuple[Array, Array, Array]:
    """Return the M ≤ I + 1 policies with positive weight in a solved master program `mixed`.

    The result is (weights [M], π [M, S, A], occupancies d [M, S, A]).
    """
    used = np.flatnonzero(mixed.weights > 0)
    weights = mixed.weights[used] / mixed.weights[used].sum()
    if isinstance(columns, OracleColumns):
        pi = columns.tables(used)
        return weights, pi, occupancy(columns.oracle.cmdp, pi)
    model = columns.model
    pi = np.zeros((len(used), model.S, model.A))
    d = np.zeros_like(pi)
    for m, j in enumerate(used):
        act = columns.act[j]
        visits = model.occupancy(act, columns.x.copy(), 0.0)
        pi[m, np.arange(model.S), act] = 1.0
        d[m, np.arange(model.S), act] = (1 - model.gamma) * visits
    return weights, pi, d
