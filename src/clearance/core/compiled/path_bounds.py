"""Compiled bounds on sums along the paths of a finite model whose transitions lead only to later states."""

from __future__ import annotations

from clearance.core.compiled.compilation import kernel


@kernel
def largest_sum(indptr, indices, starts, taken, first, later, stop, ratio, end, M):
    """Return the largest sum that any path of positive probability can have, by backward induction.

        x_0 + Σ_{0<t<T} ratio^t y_t + ratio^T stop(s_T),    x_t = first[s_t, a_t],    y_t = later[s_t, a_t],    T ≥ 1

    Paths start in one of `starts` and end after any number T of steps. Transitions (`indptr`, `indices` of the pairs
    s·A + a) lead to states with a larger index, except from absorbing states. Pairs for which `taken` [S, A] is false
    are not used. `end` is an upper bound of the sum from an absorbing state on. M [S] is overwritten with the largest
    sum from each state on.
    """
    S, A = taken.shape
    for s in range(S - 1, -1, -1):
        best, absorbing = -1.7976931348623157e308, False
        for a in range(A):
            if not taken[s, a]:
                continue
            for k in range(indptr[s * A + a], indptr[s * A + a + 1]):
                after = indices[k]
                if after == s:
                    absorbing = True
                else:
                    best = max(best, later[s, a] + ratio * max(stop[after], M[after]))
        M[s] = max(best, end) if absorbing else best
    most = -1.7976931348623157e308
    for s in starts:
        for a in range(A):
            if taken[s, a]:
                for k in range(indptr[s * A + a], indptr[s * A + a + 1]):
                    after = indices[k]
                    most = max(most, first[s, a] + ratio * max(stop[after], M[after]))
    return most
