"""The approximate bounds are what they claim on normal samples, and are not on rare events, where betting is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import clearance as cl
from clearance.certificates.approximate_bounds import approximate_bootstrap, approximate_student_t
from clearance.certificates.betting import Bets


def test_closed_form_and_normal_coverage() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 12))
    mine = np.array([approximate_student_t(row, 0.05) for row in x])
    t = stats.t.ppf(0.95, 11) * x.std(1, ddof=1) / np.sqrt(12)
    assert mine == pytest.approx(x.mean(1) - t)
    assert np.mean(mine > 0) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 4000))
    few = np.array([approximate_bootstrap(row, 0.05, seed=i, resamples=400) for i, row in enumerate(x[:100])])
    assert np.abs(few - mine[:100]).mean() < 0.15


def test_rare_events_fool_them_but_not_the_bets() -> None:
    """A cost of 1 with probability 1 %, a limit of 0.9 %, 100 samples: often no cost is seen at all."""
    rng = np.random.default_rng(1)
    x = -(rng.uniform(size=(1000, 100)) < 0.01).astype(float)
    wrong = {"t": 0, "bootstrap": 0, "bets": 0}
    for i, row in enumerate(x):
        bets = Bets(-0.009, -1.0, 0.0)
        bets.update(row)
        wrong["bets"] += bets.rejects(0.05)
        wrong["t"] += approximate_student_t(row, 0.05) >= -0.009
        wrong["bootstrap"] += approximate_bootstrap(row, 0.05, seed=i, resamples=100) >= -0.009
    assert wrong["t"] > 200 and wrong["bootstrap"] > 200, "the true level is far above δ = 50 in 1000"
    assert wrong["bets"] <= 50


def test_bad_input() -> None:
    with pytest.raises(cl.InputError, match="at least two samples"):
        approximate_student_t(np.zeros(1), 0.1)
    with pytest.raises(cl.InputError, match="delta"):
        approximate_bootstrap(np.zeros(3), 1.0)
