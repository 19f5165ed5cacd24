"""Linear algebra in exact rational arithmetic, and conversion to floating point with outward rounding.

Every finite floating-point number is rational. So sums, products, quotients and comparisons of stored numbers are
computed here without any error. Matrices are NumPy arrays of `Fraction`. The numerators grow with the dimension, so the
functions are meant for a few dozen unknowns.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from clearance.core.arrays import Array

Matrix = Any  # a NumPy array of `Fraction`


# ------------------------------------------------------------------------------------------------ floating point


def to_fractions(x: Any) -> Matrix:
    """Convert finite floating-point numbers to fractions that are exactly equal to them."""
    return np.vectorize(Fraction, otypes=[object])(np.asarray(x, float))


def ensure_exact(X: Matrix) -> Matrix:
    """Return X as fractions; raise TypeError if it contains floating-point numbers, which may have been rounded."""
    if any(isinstance(x, float) for x in X.ravel()):
        raise TypeError("a floating-point number in rational arithmetic")
    return np.vectorize(Fraction, otypes=[object])(X)


def round_down(q: Fraction) -> float:
    """Return the largest floating-point number ≤ q."""
    try:
        x = float(q)
    except OverflowError:
        return float(np.finfo(float).max) if q > 0 else -math.inf
    return x if Fraction(x) <= q else math.nextafter(x, -math.inf)


def round_up(q: Fraction) -> float:
    """Return the smallest floating-point number ≥ q."""
    return -round_down(-q)


def average_down(weights: Array, x: Array) -> float:
    """Return the weighted mean Σ_i w_i x_i / Σ_i w_i, rounded down, for weights w > 0; x may have infinite entries.

    If x has both −∞ and +∞ as entries, the result is −∞.
    """
    for end in (-math.inf, math.inf):
        if end in x:
            return end
    w = to_fractions(weights)
    return round_down(Fraction(w @ to_fractions(x)) / sum(w))


def average_up(weights: Array, x: Array) -> float:
    """Return the weighted mean Σ_i w_i x_i / Σ_i w_i, rounded up, for weights w > 0; x may have infinite entries.

    If x has both −∞ and +∞ as entries, the result is +∞.
    """
    return -average_down(weights, -x)


def enclose_exp(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return (lower, upper) bounds of e^x: the sum of n ≥ 2|x| terms of its series, ± twice the next term."""
    term, total = Fraction(1), Fraction(0)
    for k in range(1, 2 * math.ceil(abs(x)) + 60):
        total += term
        term *= x / k
    return total - 2 * abs(term), total + 2 * abs(term)


# ------------------------------------------------------------------------------------------------ linear algebra


def solve_exactly(A: Matrix, B: Matrix) -> Matrix:
    """Return the solution X [n, k] of AX = B for a regular A, by elimination in whole numbers (Bareiss 1968)."""
    n = len(A)
    T = np.array([_clear_denominators(row) for row in ensure_exact(np.hstack([A, B]))], object)
    last = 1
    for k in range(n):
        pivot = k + next(i for i, x in enumerate(T[k:, k]) if x)
        T[[k, pivot]] = T[[pivot, k]]
        below = slice(k + 1, n)
        T[below, k + 1 :] = (T[k, k] * T[below, k + 1 :] - np.outer(T[below, k], T[k, k + 1 :])) // last
        last = T[k, k]
    X = np.zeros(B.shape, object)  # X times the determinant of A, which is now `last`
    for i in reversed(range(n)):
        X[i] = (last * T[i, n:] - T[i, i + 1 : n] @ X[i + 1 :]) // T[i, i]
    return X * Fraction(1, last)


def _clear_denominators(row: Matrix) -> Matrix:
    """Return the row multiplied by the smallest positive integer that makes all its entries whole."""
    common = math.lcm(*(x.denominator for x in row))
    return [x.numerator * (common // x.denominator) for x in row]


def find_span(X: Matrix) -> tuple[Matrix, list[int]]:
    """Return a basis T [n, r] of the column space of X [n, k], and the r row indices at which T is the identity."""
    rows, pivots = ensure_exact(X.T), []
    for j in range(len(X)):
        r = len(pivots)
        pivot = next((i for i in range(r, len(rows)) if rows[i, j]), None)
        if pivot is None:
            continue
        rows[[r, pivot]] = rows[[pivot, r]]
        rows[r] = rows[r] / rows[r, j]
        others = np.arange(len(rows)) != r
        rows[others] = rows[others] - np.outer(rows[others, j], rows[r])
        pivots.append(j)
    return rows[: len(pivots)].T, pivots


def is_semidefinite(X: Matrix) -> bool:
    """Return whether X is symmetric positive semidefinite (X = X' and v'Xv ≥ 0 for all v), by elimination."""
    X = ensure_exact(X)
    if np.any(X != X.T):
        return False
    while len(X):
        first, row, rest = X[0, 0], X[0, 1:], X[1:, 1:]
        if first < 0 or (first == 0 and any(row)):
            return False
        X = rest - np.outer(row, row) / first if first else rest
    return True


def find_characteristic(F: Matrix) -> list[Fraction]:
    """Return the coefficients of det(zI − F), the constant term first (Faddeev and LeVerrier)."""
    n, F = len(F), ensure_exact(F)
    one = to_fractions(np.eye(n))
    falling, M = [Fraction(1)], one
    for k in range(1, n + 1):
        product = F @ M
        falling.append(-Fraction(np.trace(product)) / k)
        M = product + falling[-1] * one
    return falling[::-1]


def has_all_roots_within(c: list[Fraction], gamma: Fraction) -> bool:
    """Return whether γ|z|² < 1 for all roots z of the polynomial Σ_k c_k z^k of degree n (Schur 1917, Cohn 1922).

    `c` lists the coefficients c_0 .. c_n. For n ≥ 1, this is true if and only if two conditions hold: (1) γ^n c_0² <
    c_n², and (2) it is true for the polynomial of degree n − 1 with the coefficients d_k = c_n c_{k+1} − γ^{k+1} c_0
    c_{n−1−k}, k < n.
    """
    while n := len(c) - 1:
        if gamma**n * c[0] ** 2 >= c[n] ** 2:
            return False
        c = [c[k + 1] / c[n] - gamma ** (k + 1) * c[0] * c[n - 1 - k] / c[n] ** 2 for k in range(n)]
    return True
