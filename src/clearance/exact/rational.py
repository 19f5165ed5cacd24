"""Values of policies of small models in rational arithmetic: where an enclosure contains the limit, they decide.

Floating-point numbers are dyadic fractions, so (I − γ P_π) V = h_π for the numbers as stored is a system of whole
numbers once every row is multiplied by a power of two. Fraction-free elimination (Bareiss 1968) solves it exactly.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.finite.cmdp import CMDP

# Up to this many states, and components of a mixture, the exact values take less than a second.
MOST_STATES, MOST_COMPONENTS = 24, 8

Values = list[list[Fraction]]


def exact_values(cmdp: CMDP, pi: Array) -> Values:
    """V [1+I, S] of the stationary policy π [S, A], exactly."""
    H, S = 1 + cmdp.I, cmdp.S
    P = cmdp.rows.toarray() if cmdp.is_sparse else cmdp.rows
    gamma, rows = Fraction(cmdp.gamma), []
    for s in range(S):
        used = [(Fraction(float(pi[s, a])), a) for a in np.flatnonzero(pi[s])]
        step = [sum((p * _read(P[s * cmdp.A + a, t]) for p, a in used), Fraction(0)) for t in range(S)]
        signals = [sum((p * _read(cmdp.h[h, s, a]) for p, a in used), Fraction(0)) for h in range(H)]
        rows.append(_whole([(s == t) - gamma * x for t, x in enumerate(step)] + signals))
    _eliminate(rows)
    return [[Fraction(rows[s][S + h], rows[s][s]) for s in range(S)] for h in range(H)]


def expect(weights: Array, values: list[Fraction]) -> Fraction:
    """Σ_n weights_n · values_n."""
    return sum((_read(w) * v for w, v in zip(weights, values, strict=True)), Fraction(0))


def round_outwards(x: Fraction) -> tuple[float, float]:
    """The largest float below x and the smallest above it; both are x where it is one."""
    near = float(x)
    low = near if Fraction(near) <= x else math.nextafter(near, -math.inf)
    return low, low if Fraction(low) == x else math.nextafter(low, math.inf)


def _read(x: Any) -> Fraction:
    return Fraction(float(x))


def _whole(row: list[Fraction]) -> list[int]:
    """The row times the least common denominator."""
    factor = math.lcm(*(x.denominator for x in row))
    return [int(x * factor) for x in row]


def _eliminate(rows: list[list[int]]) -> None:
    """Make the left block diagonal, in whole numbers: every division is exact.

    The matrix is strictly diagonally dominant where γ times the row sums of P_π is below 1, so no pivot is 0.
    """
    before = 1
    for k, pivot_row in enumerate(rows):
        pivot = pivot_row[k]
        for i, row in enumerate(rows):
            if i != k:
                factor = row[k]
                rows[i] = [(pivot * x - factor * y) // before for x, y in zip(row, pivot_row, strict=True)]
        before = pivot
