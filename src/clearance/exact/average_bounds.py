"""Bounds on the long-run means of one policy that hold in real arithmetic.

    g ≤ P_π g  and  g + v ≤ h_π + P_π v:    ρ·g ≤ mean,   and the mirror image

Where a run stays, g is constant, so P_π g = g exactly. Elsewhere g and v are lowered by a multiple of the number of
remaining steps, until rounding cannot break the inequalities.
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
    """Return vectors [M, 1+I, 4, S] that bound the long-run means of policies pi [M, S, A].

    They are g and v of a lower bound, then g and v of an upper bound; each bound is ρ·g (see the module's head).
    """
    rows = PairRows.of(cmdp)
    return np.stack([_vectors(cmdp, rows.only(p > 0), p) for p in pi])


def _vectors(cmdp: CMDP, rows: PairRows, pi: Array) -> Array:
    chain, seen = Chain.of(cmdp, pi), reachable(cmdp, pi > 0)
    found = np.empty((1 + cmdp.I, 4, cmdp.S))
    try:
        gain, bias = chain.gains()
        steps = np.maximum(chain.steps(), 0.0) * (1 + 1e-9) if np.any(chain.label < 0) else np.zeros(cmdp.S)
    except SolverError:  # nothing can be said in floating point
        found[:, :2], found[:, 2:] = -np.inf, np.inf
        return found
    for k in range(1 + cmdp.I):
        found[k, :2] = _prove_below(rows, pi, chain, seen, steps, cmdp.h[k], gain[k], bias[k])
        found[k, 2:] = -_prove_below(rows, pi, chain, seen, steps, -cmdp.h[k], -gain[k], -bias[k])
    return found


def _prove_below(
    rows: PairRows, pi: Array, chain: Chain, seen: Mask, steps: Array, h: Array, gain: Array, v: Array
) -> Array:
    """Return g and v [2, S] with g ≤ P_π g and g + v ≤ h_π + P_π v in all reachable states (`seen`), so that ρ·g is
    a lower bound on the mean; −∞ if rounding prevents a proof. `gain`, v and `steps` are approximate values of π.
    """
    closed, zero = chain.label >= 0, np.zeros(pi.shape)
    low = average_drift(rows, pi, v, h, 1)[0]
    least = np.full(chain.classes, np.inf)
    np.minimum.at(least, chain.label[closed], low[closed])
    inside, under, beside = 0.0, 0.0, 0.0  # what the gain of a class, g and v on the way there must give up
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
    """Return the long-run means of policies with proven lower and upper bounds, each [M, 1+I]; V is the result of
    `approximate`.
    """
    start = cmdp.rho > 0
    low, high = (np.where(start, V[:, :, side], 0.0) @ cmdp.rho for side in (0, 2))
    return between(low, high, rounding(cmdp.S + 8) * (np.where(start, np.abs(V[:, :, [0, 2]]).max(2), 0.0) @ cmdp.rho))
