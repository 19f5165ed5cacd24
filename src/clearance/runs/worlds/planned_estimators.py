"""The estimators of J that a test of a planned policy may use; they differ in horizon, control variate and range."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.exact.estimated_model import PolicyEstimate
from clearance.finite.samplers.finite_episodes import shorten_range

POWERS = (0.5, 0.7, 0.85, 0.93)  # exponents of γ: an episode of a test continues with probability γ^power
SHORTER = (0.0, 0.25, 0.5, 0.75, 1.0)  # how far a range is narrowed: 0 not at all, 1 as far as possible


class Estimator(NamedTuple):
    """The estimator of J that the episodes of a test use.

    power    episodes continue with probability γ^power at each step
    shorter  how far the range of the estimate of each signal [1+I] is narrowed: 0 not at all, 1 as far as possible
    base     the control variate [S, 1+I]
    sd       the standard deviation [1+I] of one episode's estimate
    """

    power: float
    shorter: Array
    base: Array
    sd: Array


def make_estimator(seen: PolicyEstimate, lowest: Array | None, power: float, shorter: Array) -> Estimator:
    """Return an estimator whose control variate is V̂, the policy's values on the estimated model.

    V̂ is lowered for signals with `shorter` > 0, because this narrows the range of the estimate.

    seen    the policy's estimate on the model;  power, shorter: as in `Estimator`
    lowest  the smallest signals [S, 1+I] that the policy can get in each state; None if they are not known
    """
    if lowest is None or not np.any(shorter > 0):
        return Estimator(power, np.zeros(len(shorter)), seen.V, seen.spread(power))
    base = shorten_range(seen.V, lowest, seen.model.cmdp.gamma, power, shorter)
    return Estimator(power, shorter, base, seen.spread(power, base))
