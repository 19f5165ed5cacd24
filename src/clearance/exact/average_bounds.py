"""Prove bounds on the long-run means of one policy. The bounds hold in real arithmetic.

Two vectors g (gain) and v (bias) prove a bound on the mean of a signal h under a policy π:

    lower bound    g ≤ P_π g  and  g + v ≤ h_π + P_π v    prove    ρ·g ≤ mean
    upper bound    g ≥ P_π g  and  g + v ≥ h_π + P_π v    prove    mean ≤ ρ·g

In a closed class g is constant, so P_π g = g exactly. In transient states, g and v of the lower bound are lowered by a
multiple of the number of remaining steps, until rounding cannot break the inequalities. The upper bound is the negative
of a lower bound for −h.
"""

from __future__ import annotations

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import SolverError
from clearance.exact.pair_rows import PairRows, rounding
from clearance.exact.policy_drift import LIFTS, average_drift, between, hair
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import Chain
from clearance.finite.support_graph import Mask, reachable


def approximate(cmdp: CMDP, pi: Array) -> Array:
    """Return vectors [M, 1+I, 4, S] that bound the long-run means of M policies pi [M, S, A].

    The four vectors of each policy and signal are g and v that prove the lower bound ρ·g, then g and v that prove the
    upper bound ρ·g (see the module's head).
    """
    rows = PairRows.of(cmdp)
    return np.stack([_vectors(cmdp, rows.only(p > 0), p) for p in pi])


def _vectors(cmdp: CMDP, rows: PairRows, pi: Array) -> Array:
    chain, seen = Chain.of(cmdp, pi), reachable(cmdp, pi > 0)
    found = np.empty((1 + cmdp.I, 4, cmdp.S))
    try:
        gain, bias = chain.gains()
        steps = np.maximum(chain.steps(), 0.0) * (1 + 1e-9) if np.any(chain.label < 0) else np.zeros(cmdp.S)
    except SolverError:  # no finite bound can be computed in floating point
        found[:, :2], found[:, 2:] = -np.inf, np.inf
        return found
    for k in range(1 + cmdp.I):
        found[k, :2] = _prove_below(rows, pi, chain, seen, steps, cmdp.h[k], gain[k], bias[k])
        found[k, 2:] = -_prove_below(rows, pi, chain, seen, steps, -cmdp.h[k], -gain[k], -bias[k])
    return found


def _prove_below(
    rows: PairRows, pi: Array, chain: Chain, seen: Mask, steps: Array, h: Array, gain: Array, v: Array
) -> Array:
    """Return g and v [2, S] that prove the lower bound ρ·g on the long-run mean of h [S, A] under π.

    It is proven that g ≤ P_π g and g + v ≤ h_π + P_π v in all reachable states (`seen`). All entries are −∞ if rounding
    prevents this. `gain`, v and `steps` [S] are the approximate gain, bias and remaining steps of π. `rows` are the
    transitions of the model, and `chain` is the Markov chain of π.
    """
    closed, zero = chain.label >= 0, np.zeros(pi.shape)
    low = average_drift(rows, pi, v, h, 1)[0]
    least = np.full(chain.classes, np.inf)
    np.minimum.at(least, chain.label[closed], low[closed])
    inside, under, beside = 0.0, 0.0, 0.0  # subtracted from gains of classes; from g and v, per step
    for _ in range(LIFTS):
        g = np.where(closed, (least - inside)[chain.label], 0.0)
        if not closed.all():
            g = np.where(closed, g, chain.until_absorption(np.where(closed, 0.0, chain.P @ g)) - under * steps)
        moved = v - beside * steps
        short_g = -average_drift(rows, pi, g, zero, 1)[0]
        short_v = -average_drift(rows, pi, moved, h - g[:, None], 2)[0]
        if not np.any((short_g > 0) | (short_v > 0), where=seen):
            return np.stack([g, moved])
        inside += 4 * inside + 2 * _most(short_v, seen & closed) + hair(g)
        under += 4 * under + 2 * _most(short_g, seen & ~closed) + hair(g)
        beside += 4 * beside + 2 * _most(short_v, seen & ~closed) + hair(v)
    return np.full((2, len(v)), -np.inf)


def _most(x: Array, where: Mask) -> float:
    return float(np.max(x, where=where, initial=0.0))


def enclose(cmdp: CMDP, pi: Array, V: Array) -> tuple[Array, Array, Array]:
    """Return the long-run means of M policies, their proven lower bounds and their proven upper bounds, each [M, 1+I].

    A mean is the middle of its two bounds. V is the result of `approximate` for the policies pi [M, S, A].
    """
    start = cmdp.rho > 0
    low, high = (np.where(start, V[:, :, side], 0.0) @ cmdp.rho for side in (0, 2))
    return between(low, high, rounding(cmdp.S + 8) * (np.where(start, np.abs(V[:, :, [0, 2]]).max(2), 0.0) @ cmdp.rho))
