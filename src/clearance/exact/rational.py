"""Exact values of policies of small models in rational arithmetic. They decide limits that floating point cannot."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from clearance.core.arrays import Array
from clearance.core.rational_algebra import Matrix, round_down, round_up, solve_exactly, to_fractions
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.finite.support_graph import Labels, closed_classes, reachable

# Up to this many states, steps of a horizon, and components of a mixture, the exact values take less than a second.
NONE, ONE = np.array(Fraction(0), object), np.array(Fraction(1), object)
MOST_STATES, MOST_STEPS, MOST_COMPONENTS = 24, 16, 8


def is_small(cmdp: CMDP, mixture: Mixture) -> bool:
    """Return whether computing exact values takes less than about a second for this model and policy."""
    short = cmdp.horizon is None or cmdp.horizon <= MOST_STEPS
    return cmdp.S <= MOST_STATES and mixture.M <= MOST_COMPONENTS and short


def exact_values(cmdp: CMDP, pi: Array) -> Matrix | None:
    """Return the vectors that prove the values of a policy π [S, A] or [H, S, A], exactly and for the model as stored.

    They are V [1+I, S] for the discounted criterion and V [1+I, H, S] with a horizon. For the other criteria they are
    the vectors of `total_oracle` and `average_bounds`. Return None if a sum is infinite.
    """
    return {"discounted": _discounted, "horizon": _horizon, "total": _total, "average": _average}[cmdp.kind](cmdp, pi)


def at_start(cmdp: CMDP, values: Matrix) -> Matrix:
    """Return vectors [1+I, S] whose mean over the start distribution is J; `values` is a result of `exact_values`."""
    return values if cmdp.kind == "discounted" else values[:, 0]


def _rows(cmdp: CMDP) -> Matrix:
    P = cmdp.rows.toarray() if cmdp.is_sparse else cmdp.rows
    return to_fractions(P).reshape(cmdp.S, cmdp.A, cmdp.S)


def _discounted(cmdp: CMDP, pi: Array) -> Matrix:
    """Return the values V [1+I, S] of a policy: the exact solution of (I − γ P_π) V = h_π."""
    weights = to_fractions(pi)
    P_pi = (weights[..., None] * _rows(cmdp)).sum(1)
    h_pi = (weights * to_fractions(cmdp.h)).sum(-1)
    return solve_exactly(to_fractions(np.eye(cmdp.S)) - Fraction(cmdp.gamma) * P_pi, h_pi.T).T


def _horizon(cmdp: CMDP, pi: Array) -> Matrix:
    P, h, gamma, weights = _rows(cmdp), to_fractions(cmdp.h), Fraction(cmdp.gamma), to_fractions(pi)
    V = to_fractions(np.zeros((1 + cmdp.I, len(pi) + 1, cmdp.S)))
    for t in reversed(range(len(pi))):
        for k in range(1 + cmdp.I):
            V[k, t] = (weights[t] * (h[k] + gamma * (P @ V[k, t + 1]))).sum(-1)
    return V[:, :-1]


def _chain(cmdp: CMDP, pi: Array) -> tuple[Matrix, Matrix, Labels]:
    """Return the Markov chain of a policy: P_π [S, S] with rows that sum to 1, h_π [S, 1+I], and class labels [S].

    The label of a state is 0, 1, … for its closed class, or −1 if the state is transient.
    """
    P, weights = _rows(cmdp), to_fractions(pi)
    total, mass = P.sum(-1, keepdims=True), weights.sum(-1, keepdims=True)
    weights = weights / mass
    P_pi = (weights[..., None] * (P / np.where(total == 0, ONE, total))).sum(1)
    label = closed_classes((P_pi != 0).astype(float))
    return P_pi, (weights * to_fractions(cmdp.h)).sum(-1).T, label


def _total(cmdp: CMDP, pi: Array) -> Matrix | None:
    P, h, label = _chain(cmdp, pi)
    closed, seen = label >= 0, reachable(cmdp, pi > 0)
    if np.any(h[closed & seen] != 0):
        return None
    system = to_fractions(np.eye(cmdp.S)) - np.where(closed[:, None] | closed, NONE, P)
    right = np.where(closed[:, None], NONE, np.hstack([to_fractions(np.ones((cmdp.S, 1))), h]))
    w, *V = solve_exactly(system, right).T
    return np.array([[v, v, w] for v in V], object)


def _average(cmdp: CMDP, pi: Array) -> Matrix:
    P, h, label = _chain(cmdp, pi)
    at = [int(np.flatnonzero(label == k)[0]) for k in range(int(label.max()) + 1)]
    M = P.copy()
    M[:, at] = Fraction(0)
    system = to_fractions(np.eye(cmdp.S)) - M
    length, *sums = solve_exactly(system, np.hstack([to_fractions(np.ones((cmdp.S, 1))), h])).T
    cycle = np.array([[v[s] / length[s] for v in sums] for s in at], object)
    gain = solve_exactly(system, P[:, at] @ cycle)
    bias = solve_exactly(system, h - gain)
    return np.array([[g, v, g, v] for g, v in zip(gain.T, bias.T, strict=True)], object)


def expect(weights: Array, values: Matrix) -> Fraction:
    """Return Σ_n weights_n · values_n."""
    return Fraction(to_fractions(weights) @ values)


def round_outwards(x: Fraction) -> tuple[float, float]:
    """Return the largest float ≤ x and the smallest float ≥ x."""
    return round_down(x), round_up(x)
