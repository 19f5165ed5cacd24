"""Limits on the probability to ever enter states, against paths that are counted out."""

from __future__ import annotations

import numpy as np
import pytest

import clearance as cl
from clearance.finite.evaluation import evaluate


def crossing() -> cl.CMDP:
    """0 → 1 or 2, back to 0 with probability 1/2 from both, else to the end 3; the reward counts visits of 1."""
    P = np.zeros((4, 2, 4))
    P[0, 0, 1] = P[0, 1, 2] = P[3, :, 3] = 1
    P[1, :, [0, 3]] = P[2, :, [0, 3]] = 0.5
    r = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    return cl.CMDP(P, r, rho=[1, 0, 0, 0], criterion="total", states=["start", "left", "right", "end"])


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_a_set_that_can_be_left_gets_a_flag(p: float) -> None:
    """To enter "left" with probability p and then always go there again: each entry is worth 2 visits in all."""
    flagged = cl.limit_reach(crossing(), "left", at_most=p, name="left")
    assert flagged.S == 8 and flagged.states is not None and flagged.states[4] == "start (entered left)"
    best = cl.optimum(flagged)
    assert best.status == "optimal" and best.J_r == pytest.approx(2 * p, abs=1e-8)
    assert -best.J[1] == pytest.approx(p, abs=1e-8)
    if p == 0:
        assert "no run can have left" in cl.certify(flagged, best).message


def test_an_absorbing_set_needs_none_and_goals_have_lower_limits() -> None:
    P = np.zeros((3, 2, 3))
    P[0, 0, 1], P[0, 0, 2], P[0, 1, 2] = 0.9, 0.1, 1
    P[1, :, 1] = P[2, :, 2] = 1
    r = np.array([[0.0, 1.0], [0, 0], [0, 0]])
    goal = cl.limit_reach(cl.CMDP(P, r, rho=[1, 0, 0], criterion="total"), [1], at_least=0.45)
    best = cl.optimum(goal)
    assert goal.S == 3 and best.J_r == pytest.approx(0.5, abs=1e-8) and best.J[1] == pytest.approx(0.45, abs=1e-8)
    with pytest.raises(cl.InputError, match="criterion='total'"):
        cl.limit_reach(goal.replace(criterion="discounted", gamma=0.9), [1], at_most=0.1)


def test_within_a_horizon() -> None:
    two = cl.limit_reach(crossing().replace(horizon=3), "right", at_most=1.0)
    always_right = np.eye(2)[[1, 0, 0, 0] * 2]
    assert evaluate(two, always_right).J[1] == pytest.approx(-1.0)
    mixed = np.tile([0.5, 0.5], (8, 1))  # step 0 with 1/2; else, after 2 steps with 1/2 · 1/2, step 2 with 1/2
    assert evaluate(two, mixed).J[1] == pytest.approx(-(0.5 + 0.5 * 0.5 * 0.5))
