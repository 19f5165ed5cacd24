"""Summarise thousands of iterations as a curve of a few dozen bins, each with its mean and its range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array

BINS = 100


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve of values y over x, in n bins of neighbouring iterations; all arrays are [n].

    mean       mean of the iterations in the bin
    low, high  their 5 % and 95 % quantiles
    so_far     average over all iterations up to the end of the bin, which is the value of their uniform mixture
    """

    x: Array
    mean: Array
    low: Array
    high: Array
    so_far: Array


def curve(steps: NDArray[Any], y: Array, bins: int = BINS) -> Curve:
    """Return the curve of y [K] over the environment steps of the iterations [K], in at most `bins` bins.

    The x of a bin is the total number of steps until its end.
    """
    x, parts = np.cumsum(steps, dtype=float), np.array_split(np.arange(len(y)), min(bins, max(len(y), 1)))
    total, last = np.cumsum(y, dtype=float), np.array([p[-1] for p in parts if len(p)], dtype=int)
    rows = [(y[p].mean(), *np.quantile(y[p], (0.05, 0.95))) for p in parts if len(p)]
    mean, low, high = np.array(rows, float).reshape(-1, 3).T
    return Curve(x[last], mean, low, high, total[last] / (last + 1))


def span(*values: Array | float | None) -> tuple[float, float]:
    """Return the range (low, high) of all finite numbers given, widened a little so that it is never empty."""
    seen = np.concatenate([np.ravel(np.asarray(v, float)) for v in values if v is not None] or [np.zeros(1)])
    seen = seen[np.isfinite(seen)]
    low, high = (float(seen.min()), float(seen.max())) if len(seen) else (0.0, 1.0)
    air = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return low - air, high + air


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most `most` + 1 round numbers in [low, high]: multiples of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / most
    if not (np.isfinite(raw) and raw > 0):
        return [low]
    power = 10.0 ** np.floor(np.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(k * step, 12 - int(np.floor(np.log10(step)))) for k in range(first, last + 1)]
