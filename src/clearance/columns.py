"""The exact optimum of large models: Dantzig–Wolfe column generation over deterministic policies.

The occupancy polytope is the convex hull of deterministic policies, so the linear program is a mixture of few of them:

    master    max Σ_j w_j J_r(π_j)   s.t.   Σ_j w_j (J_gi(π_j) − b_i) ≥ 0,   Σ_j w_j = 1,   w ≥ 0   (I + 1 rows, HiGHS)
    oracle    D(λ) = max_π J_r(π) + Σ_i λ_i (J_gi(π) − b_i)                    (policy iteration, λ from the master)

The master's value is a lower bound, every D(λ) an upper bound; the loop stops at a proven gap. A vertex of the master
mixes at most I + 1 policies. Phase one is the same loop for max_π min_i (J_gi − b_i), whose λ with Σλ = 1 and D(λ) < 0
proves that the limits cannot be met (Farkas). With many constraints the duals of the master jump about; they are
smoothed towards the best λ seen so far (Wentges 1997).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clearance.bellman import Operator
from clearance.errors import SolverError
from clearance.lp import highs
from clearance.problem import CMDP, Array

SMOOTHING = 0.5  # share of the best λ so far, once there are more than two constraints


@dataclass(eq=False)
class Columns:
    """The deterministic policies found so far: act [n, S] and J [n, 1+I]."""

    model: Operator
    b: Array
    V: Array = field(init=False)
    x: Array = field(init=False)
    act: list[NDArray[np.int64]] = field(default_factory=list)
    J: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.V, self.x = np.zeros(self.model.S), np.full(self.model.S, 1 / (1 - self.model.gamma) / self.model.S)

    def price(self, weights: Array, tol: float) -> float:
        """Ask the oracle for max_π weights·(J_r, J_g − b); adds its policy and returns a proven upper bound.

        `tol` is the accuracy wanted of the bound. Warm starts: V and the visits of the last call.
        """
        model = self.model
        h = weights @ model.h
        act = self.act[-1].copy() if self.act else np.zeros(model.S, np.int64)
        self.V, gain = model.maximise(np.ascontiguousarray(h), self.V, act, tol * (1 - model.gamma))
        self.x = model.occupancy(act, self.x.copy(), min(1e-11, 0.01 * tol) / model.S)
        self.act.append(act)
        self.J.append(model.J(act, self.x))
        return float(model.rho @ self.V + gain / (1 - model.gamma) - weights[1:] @ self.b)

    def slack(self) -> Array:
        """J_g − b of every column, [n, I]."""
        return np.array(self.J)[:, 1:] - self.b


@dataclass(frozen=True)
class Mixed:
    """A solved master: weights [n] over columns, multipliers [I], its value and the best upper bound."""

    weights: Array
    lam: Array
    value: float
    bound: float
    calls: int


def slater(columns: Columns, tol: float, *, enough: float = np.inf) -> Mixed:
    """max_π min_i (J_gi − b_i), stopping early once `enough` is reached or infeasibility is proven.

    `bound` is a proven upper bound: negative means that no policy meets the limits, with `lam` (Σλ = 1) as the proof.
    """
    I = len(columns.b)
    lam, bound, best_lam = np.full(I, 1 / I), np.inf, np.full(I, 1 / I)
    for calls in range(1, 1000):
        upper = columns.price(np.append(0.0, lam), 0.1 * tol)
        if upper < bound:
            bound, best_lam = upper, lam
        w, duals, value = _slater_master(columns.slack())
        if bound - value <= tol or value >= enough or bound < 0:
            return Mixed(w, best_lam, value, bound, calls)
        lam = _smoothed(duals, best_lam)
    raise SolverError("column generation for the Slater margin did not reach its gap")


def best_mixture(columns: Columns, tol: float) -> Mixed:
    """max J_r subject to the limits, from columns that already contain a feasible mixture."""
    I = len(columns.b)
    bound, best_lam, calls = np.inf, np.zeros(I), 0
    smoothing = SMOOTHING if I > 2 else 0.0
    lam = best_lam
    for calls in range(1, 2000):
        upper = columns.price(np.append(1.0, lam), 0.1 * tol)
        if upper < bound:
            bound, best_lam = upper, lam
        w, duals, value = _master(np.array(columns.J)[:, 0], columns.slack())
        if bound - value <= tol:
            return Mixed(w, best_lam, value, bound, calls)
        # A price at the smoothed λ that the master already knows of would repeat itself: then price at its own duals.
        target = _smoothed(duals, best_lam, smoothing)
        lam = target if np.any(np.abs(target - lam) > 1e-12 * (1 + np.abs(lam))) else duals
    raise SolverError("column generation did not reach its gap")


def _smoothed(duals: Array, best: Array, smoothing: float = SMOOTHING) -> Array:
    return smoothing * best + (1 - smoothing) * duals if len(duals) > 2 else duals


def _master(J_r: Array, slack: Array) -> tuple[Array, Array, float]:
    """w, λ and the value of the master program."""
    n, I = slack.shape
    result = highs(
        -J_r, -slack.T if I else None, np.zeros(I) if I else None, np.ones((1, n)), [1.0], (0, None), "highs-ds"
    )
    lam = np.maximum(-result.ineqlin.marginals, 0.0) if I else np.zeros(0)
    return result.x, lam, -float(result.fun)


def _slater_master(slack: Array) -> tuple[Array, Array, float]:
    """w, λ (Σλ = 1) and t = max_w min_i Σ_j w_j slack_ji."""
    n, I = slack.shape
    rows = np.hstack([-slack.T, np.ones((I, 1))])
    bounds = [(0, None)] * n + [(None, None)]
    once = np.append(np.ones(n), 0.0)[None]
    result = highs(np.append(np.zeros(n), -1.0), rows, np.zeros(I), once, [1.0], bounds, "highs-ds")
    lam = np.maximum(-result.ineqlin.marginals, 0.0)
    return result.x[:n], lam / max(lam.sum(), 1e-300), -float(result.fun)


def columns_of(cmdp: CMDP) -> Columns:
    """An empty set of columns for this model."""
    return Columns(Operator.of(cmdp), cmdp.b)


def mixture_of(columns: Columns, mixed: Mixed) -> tuple[Array, Array, Array]:
    """The policies in use, at most I + 1: weights [M], π [M, S, A] and their occupancies d [M, S, A]."""
    model, used = columns.model, np.flatnonzero(mixed.weights > 0)
    weights = mixed.weights[used] / mixed.weights[used].sum()
    pi = np.zeros((len(used), model.S, model.A))
    d = np.zeros_like(pi)
    for m, j in enumerate(used):
        act = columns.act[j]
        visits = model.occupancy(act, columns.x.copy(), 0.0)
        pi[m, np.arange(model.S), act] = 1.0
        d[m, np.arange(model.S), act] = (1 - model.gamma) * visits
    return weights, pi, d
