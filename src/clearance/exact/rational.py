"""Values of policies of small models in rational arithmetic: where an enclosure contains the limit, they decide."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from clearance.core.arrays import Array
from clearance.core.rational_algebra import Matrix, round_down, round_up, solve_exactly, to_fractions
from clearance.finite.cmdp import CMDP

# Up to this many states, and components of a mixture, the exact values take less than a second.
MOST_STATES, MOST_COMPONENTS = 24, 8


def exact_values(cmdp: CMDP, pi: Array) -> Matrix:
    """V [1+I, S] of the stationary policy π [S, A]: the solution of (I − γ P_π) V = h_π for the numbers as stored."""
    P = cmdp.rows.toarray() if cmdp.is_sparse else cmdp.rows
    weights = to_fractions(pi)
    P_pi = (weights[..., None] * to_fractions(P).reshape(cmdp.S, cmdp.A, cmdp.S)).sum(1)
    h_pi = (weights * to_fractions(cmdp.h)).sum(-1)
    return solve_exactly(to_fractions(np.eye(cmdp.S)) - Fraction(cmdp.gamma) * P_pi, h_pi.T).T


def expect(weights: Array, values: Matrix) -> Fraction:
    """Σ_n weights_n · values_n."""
    return Fraction(to_fractions(weights) @ values)


def round_outwards(x: Fraction) -> tuple[float, float]:
    """The largest float up to x and the smallest from it on; both are x where it is one."""
    return round_down(x), round_up(x)
