"""The expected change of a vector in one step of a policy, with bounds that hold in real arithmetic."""

from __future__ import annotations

import numpy as np

from clearance.core.arrays import Array
from clearance.exact.pair_rows import TINY, PairRows, rounding

LIFTS = 12  # the amounts tried to shift a vector until it proves a bound; each is at least 4 times the last


def average_drift(rows: PairRows, pi: Array, V: Array, h: Array, terms: int) -> tuple[Array, Array]:
    """Return bounds (low, high) [S] of Σ_a π(a|s) (h(s, a) + Σ_t P̃(t|s, a) V(t) − V(s)) in real arithmetic.

    P̃ is P with rows divided by their sums. The sum of π(·|s) may differ from 1 by rounding; this does not change the
    sign of the result. Each h(s, a) is a floating-point sum of `terms` terms.
    """
    drift, error = rows.drift(V)
    middle = np.einsum("sa,sa->s", pi, h + drift)
    size = np.einsum("sa,sa->s", pi, np.abs(h) + np.abs(drift))
    slop = rounding(rows.A + terms + 6) * size + np.einsum("sa,sa->s", pi, error) * (1 + rounding(rows.A + 4))
    slop = slop + rows.A * TINY * (size > 0)
    return middle - slop, middle + slop


def hair(*vectors: Array) -> float:
    """Return a tiny amount, but one whose addition still changes numbers as large as those in the given vectors."""
    return max((float(np.abs(x).max(initial=0.0)) for x in vectors), default=0.0) * 2.0**-50 + TINY


def between(low: Array, high: Array, slop: Array) -> tuple[Array, Array, Array]:
    """Return the middle of each interval [low, high], and its ends moved outward by `slop`; ends may be infinite."""
    finite = np.isfinite(low) & np.isfinite(high)
    slop = np.where(np.isfinite(slop), slop, 0.0)
    with np.errstate(invalid="ignore"):
        middle = np.where(finite, low + (high - low) / 2, np.where(low == high, low, 0.0))
    return middle, low - slop, high + slop
