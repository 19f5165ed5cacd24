"""Exact discounted sums of second moments of a linear system.

    s(N, C) = Σ_t γ^t tr(C F^t N F'^t)        F [n, n], N and C symmetric and positive semidefinite

First restrict F to the directions that N excites (the smallest F-invariant space that contains N's range) and that C
observes (the same for F' and C). On this part the sum is finite if and only if γ|z|² < 1 for all eigenvalues z:

* if all satisfy this, P = C + γF'PF has one solution, Σ_t γ^t F'^t C F^t, and s = tr(PN): n(n+1)/2 linear equations;
* if one does not, let O and G be the sums of the first n terms of γ^t F'^t C F^t and γ^t F^t N F'^t. Both are positive
  definite on this part, so γ^k tr(O F^k G F'^k) does not tend to 0. It is a sum of n² terms of s from the k-th on, all
  of them ≥ 0, so s = ∞.

Both the test and the solution use rational arithmetic, so they have no rounding error and are always conclusive.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from clearance.core.rational_algebra import (
    Matrix,
    ensure_exact,
    find_characteristic,
    find_span,
    has_all_roots_within,
    solve_exactly,
)


def sum_moments(F: Matrix, Ns: list[Matrix], Cs: list[Matrix], gamma: Fraction) -> list[list[Fraction | float]]:
    """Return the sums s(N, C) = Σ_t γ^t tr(C F^t N F'^t) for all pairs of matrices from `Ns` and `Cs`.

    The outer list is over N, the inner lists are over C. An entry is ∞ if its sum diverges.
    """
    F, Ns, Cs = _restrict(F, Ns, Cs)
    back, Cs, Ns = _restrict(F.T, Cs, Ns)
    F = back.T
    if has_all_roots_within(find_characteristic(F), gamma):
        Ps = _solve_lyapunov(F, Cs, gamma)
        return [[Fraction(np.sum(ensure_exact(P * N))) for P in Ps] for N in Ns]
    if len(Ns) == len(Cs) == 1:
        return [[math.inf]]
    return [[sum_moments(F, [N], [C], gamma)[0][0] for C in Cs] for N in Ns]


def _restrict(F: Matrix, Ns: list[Matrix], Cs: list[Matrix]) -> tuple[Matrix, list[Matrix], list[Matrix]]:
    """Restrict the system to the directions that the matrices N excite; return the restricted F, Ns and Cs.

    In these directions, a few entries of the state vector determine all others. These entries are the new coordinates.
    """
    T, at = find_span(np.hstack(Ns))
    while len(at) < len((wider := find_span(np.hstack([T, F @ T])))[1]):
        T, at = wider
    return (F @ T)[at], [N[np.ix_(at, at)] for N in Ns], [T.T @ C @ T for C in Cs]


def _solve_lyapunov(F: Matrix, Cs: list[Matrix], gamma: Fraction) -> list[Matrix]:
    """Return the solution P of the Lyapunov equation P = C + γF'PF for every C in `Cs`.

    The unknowns are the entries of P on and above the diagonal.
    """
    i, j = np.triu_indices(len(F))
    moved = F[i][:, i] * F[j][:, j] + np.where(i != j, 1, 0)[:, None] * F[j][:, i] * F[i][:, j]
    X = solve_exactly(np.eye(len(i), dtype=object) - gamma * moved.T, np.stack([C[i, j] for C in Cs], axis=1))
    found = []
    for x in X.T:
        P = np.zeros(F.shape, object)
        P[i, j] = P[j, i] = x
        found.append(P)
    return found
