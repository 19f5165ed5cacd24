"""How an episode of a test estimates J where a model was estimated: the horizon, the control variate and its range."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.exact.estimated_model import PolicyEstimate
from clearance.finite.samplers.finite_episodes import shorten_range

POWERS = (0.5, 0.7, 0.85, 0.93)  # of γ, with which an episode of a test may continue
SHORTER = (0.0, 0.25, 0.5, 0.75, 1.0)  # by which share of what is possible the range of an estimate is shortened


class Estimator(NamedTuple):
    """How an episode of a test estimates J.

    power    of γ that it continues with
    shorter  by which share of what is possible its range is shortened, for each signal [1+I]
    base     the control variate [S, 1+I] that makes it so
    sd       its standard deviation [1+I]
    """

    power: float
    shorter: Array
    base: Array
    sd: Array


def make_estimator(seen: PolicyEstimate, lowest: Array | None, power: float, shorter: Array) -> Estimator:
    """The estimator with V̂ as control variate, lowered where that shortens the range.

    lowest  the smallest signals [S, 1+I] that the policy can meet in each state, where that is known
    """
    if lowest is None or not np.any(shorter > 0):
        return Estimator(power, np.zeros(len(shorter)), seen.V, seen.spread(power))
    base = shorten_range(seen.V, lowest, seen.model.cmdp.gamma, power, shorter)
    return Estimator(power, shorter, base, seen.spread(power, base))
