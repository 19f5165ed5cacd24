"""Rational linear algebra against what is known of its answers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from clearance.core.rational_algebra import (
    average_down,
    average_up,
    ensure_exact,
    find_characteristic,
    find_span,
    has_all_roots_within,
    is_semidefinite,
    round_down,
    round_up,
    solve_exactly,
    to_fractions,
)

LARGEST = float(np.finfo(float).max)


def draw_matrix(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return to_fractions(rng.normal(size=shape) * 10.0 ** rng.integers(-30, 30, shape))


@pytest.mark.parametrize("n", [0, 1, 2, 5, 9])
def test_solutions_have_no_residual(n: int) -> None:
    rng = np.random.default_rng(n)
    A, B = draw_matrix(rng, n, n), draw_matrix(rng, n, 2)
    if n > 1:
        A[0, 0] = Fraction(0)  # the first pivot must be looked for
    assert np.all(A @ solve_exactly(A, B) == B)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_the_basis_of_a_span_holds_its_columns(rank: int) -> None:
    rng = np.random.default_rng(rank)
    X = draw_matrix(rng, 4, rank) @ draw_matrix(rng, rank, 6) if rank else to_fractions(np.zeros((4, 6)))
    T, at = find_span(X)
    assert T.shape == (4, rank) and np.all(T[at] == np.eye(rank)) and np.all(T @ X[at] == X)


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_the_characteristic_polynomial_vanishes_at_its_matrix(n: int) -> None:
    F = draw_matrix(np.random.default_rng(n), n, n)
    total = to_fractions(np.zeros((n, n)))
    for coefficient in reversed(find_characteristic(F)):  # Cayley and Hamilton, by Horner's rule
        total = total @ F + coefficient * np.eye(n, dtype=object)
    assert not np.any(total)


@pytest.mark.parametrize("gamma", [Fraction(1, 4), Fraction(0.95), 1 - Fraction(1, 2**53)])
def test_roots_are_told_apart_by_any_margin(gamma: Fraction) -> None:
    """Roots a ± ib in rational numbers, of which γ(a² + b²) is 1 − d for d down to 10⁻⁶⁰, 0 or negative."""
    edge = Fraction(math.isqrt(int(10**120 / gamma)), 10**60)  # γ^−½ rounded down to 60 digits
    rng = np.random.default_rng(0)
    for d, within in [(Fraction(1, 10**k), True) for k in (1, 9, 59)] + [(-Fraction(1, 10**k), False) for k in (9, 59)]:
        radius = edge * (1 - d)
        pair = [radius**2, -2 * radius * Fraction(3, 5), Fraction(1)]  # radius · (3 ± 4i)/5
        real = [[radius * int(rng.choice([-1, 1])), Fraction(1)]] * 2  # and a double real root
        c = [Fraction(1)]
        for factor in (pair, *real, [edge / 3, Fraction(1)]):
            c = list(np.convolve(np.array(c, object), np.array(factor, object)))
        assert has_all_roots_within(c, gamma) == within
    assert not has_all_roots_within([Fraction(-2), Fraction(1)], Fraction(1, 4))  # on the circle


@pytest.mark.parametrize(
    ("X", "expected"),
    [
        ([[1.0, 1.0], [1.0, 1.0]], True),
        ([[1.0, 1.0], [1.0, 1.0 - 2**-53]], False),
        ([[0.0, 0.0], [0.0, 1.0]], True),
        ([[0.0, 1e-300], [1e-300, 1.0]], False),
        ([[1.0, 0.5], [0.4, 1.0]], False),
        ([[-1e-320]], False),
    ],
)
def test_semidefinite_matrices_are_recognised(X: list[list[float]], expected: bool) -> None:
    assert is_semidefinite(to_fractions(X)) == expected


def test_rounding_is_outward_and_by_one_place_at_most() -> None:
    third = Fraction(1, 3)
    assert Fraction(round_down(third)) < third < Fraction(round_up(third)) == Fraction(math.nextafter(1 / 3, 1))
    assert round_down(Fraction(0.1)) == round_up(Fraction(0.1)) == 0.1
    assert round_down(Fraction(10) ** 400) == LARGEST and round_up(Fraction(10) ** 400) == math.inf
    assert round_down(Fraction(1, 10**400)) == 0 and round_up(Fraction(1, 10**400)) == 5e-324


def test_averages_are_rounded_outward() -> None:
    w, x = np.array([0.1, 0.2, 0.7]), np.array([1.0, 1e-30, -3.0])
    true = sum(Fraction(a) * Fraction(b) for a, b in zip(w, x, strict=True)) / sum(map(Fraction, w))
    assert average_down(w, x) < true < average_up(w, x) == math.nextafter(average_down(w, x), 1)
    ends = np.array([-np.inf, np.inf, 0.0])
    assert average_down(w, ends) == -math.inf and average_up(w, ends) == math.inf


def test_whole_numbers_are_divided_exactly_and_floats_are_refused() -> None:
    T, at = find_span(np.array([[3, 1], [1, 7]], object))
    assert at == [0, 1] and all(isinstance(x, Fraction) for x in T.ravel())
    assert solve_exactly(np.array([[3]], object), np.array([[1]], object))[0, 0] == Fraction(1, 3)
    with pytest.raises(TypeError, match="floating-point"):
        ensure_exact(np.array([Fraction(1), 0.5], object))
