"""The violations that `compare` shows agree with the verdict of the certificate."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from clearance.studies.comparison_figure import violations_of


@pytest.mark.parametrize(
    ("verdict", "which", "last", "shown"),
    [
        ("CERTIFIED", "best", 4e-15, 0.0),  # a rounding error of the values in the trace
        ("CERTIFIED", "best", -0.25, -0.25),
        ("CERTIFIED", "best", 1e-6, 1e-6),  # too large for rounding: shown
        ("CERTIFIED", "average", 4e-15, 4e-15),  # the certificate is about the best mixture
        ("UNDECIDED", "best", 4e-15, 4e-15),
    ],
)
def test_certified_mixture_has_no_violation_within_rounding(
    verdict: str, which: str, last: float, shown: float
) -> None:
    J = np.array([[1.0, -0.5], [1.0, -last]])
    result = SimpleNamespace(b=np.zeros(1), verdict=verdict, curve=SimpleNamespace(**{which: J}))
    assert violations_of(result, which).tolist() == [0.5, shown]
