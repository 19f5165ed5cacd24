"""Confidence bounds that hold only approximately, for comparison. No verdict of this library depends on them.

Student's t assumes that the mean is normally distributed, and the bootstrap that the sample represents the whole
distribution. With either of them, the data may be checked only once. If costs come from rare events, both certify
unsafe policies more often than δ allows, as the tests show.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from clearance.core.arrays import Array
from clearance.core.errors import InputError


def approximate_student_t(x: Array, delta: float) -> float:
    """Return x̄ − t_{1−δ, n−1} s/√n, the usual lower confidence bound of a mean.

    Its confidence may be lower than the claimed 1 − δ.
    """
    n = _checked(x, delta)
    return float(x.mean() - stats.t.ppf(1 - delta, n - 1) * x.std(ddof=1) / np.sqrt(n))


def approximate_bootstrap(x: Array, delta: float, *, seed: int = 0, resamples: int = 2000) -> float:
    """Return a lower confidence bound of the mean: the δ-quantile of the means of bootstrap resamples of x."""
    n = _checked(x, delta)
    rng = np.random.default_rng(seed)
    means = np.array([x[rng.integers(0, n, n)].mean() for _ in range(resamples)])
    return float(np.quantile(means, delta))


def _checked(x: Array, delta: float) -> int:
    if np.ndim(x) != 1 or len(x) < 2:
        raise InputError(f"x must be at least two samples [n], got shape {np.shape(x)}")
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta!r}")
    return len(x)
