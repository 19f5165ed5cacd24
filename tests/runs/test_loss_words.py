"""What a tested policy loses of the estimated optimum, in words."""

from __future__ import annotations

import math

import pytest

from clearance.runs.worlds.planned_policy import loss_words

BEST = "estimated best reward within the limits: "
PASS, LEARN = "is given up so that the test passes", "is given up because learning is not finished"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((38.5521, 0.002, 0.104, 0.00534), f"38.552 ± 0.002; of that, 0.1 {PASS} and 0.0053 {LEARN}"),
        ((38.5521, 0.023, 0.104, 0.00534), f"38.55 ± 0.02; of that, 0.1 {PASS}"),  # the rest is below the error
        ((38.5521, 0.0, 1.39e-17, 0.5), f"38.5521; of that, 0.5 {LEARN}"),
        ((38.5521, 0.0, 1e-8, 1.39e-17), "38.5521"),
        ((-1234.5, 23.4, 1.0, 40.0), f"-1234 ± 23; of that, 40 {LEARN}"),
        ((2.0, math.inf, 1.0, 1.0), "2"),
    ],
)
def test_only_losses_beyond_error_and_rounding_are_said(given: tuple[float, ...], words: str) -> None:
    assert loss_words(*given) == BEST + words
