"""Compute the range of the estimate X of J over all possible paths of an episode.

The models must have transitions that lead only to later states, such as models with the time in their state. Then
backward induction over the possible transitions gives the smallest and the largest X. This range is often much shorter
than the bound by the largest signal times the number of steps, because few paths can have the largest signal in every
step.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled import path_bounds
from clearance.finite.cmdp import CMDP


class Paths(NamedTuple):
    """The possible transitions (CSR) and start states of a model, all of whose transitions lead to later states.

    absorbing  the states [n] that lead only to themselves; they are the only exception
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    starts: NDArray[np.int64]
    absorbing: NDArray[np.int64]


@lru_cache(maxsize=4)
def forward_paths(cmdp: CMDP) -> Paths | None:
    """Return the possible transitions of a model if they lead only to later states, else None.

    States that lead only to themselves under all actions are allowed too.
    """
    P = sparse.csr_array(cmdp.rows, copy=True)
    P.eliminate_zeros()
    source = np.repeat(np.arange(cmdp.S * cmdp.A) // cmdp.A, np.diff(P.indptr))
    stays = P.indices == source
    absorbing = np.unique(source[stays])
    leaves = np.isin(source, absorbing) & ~stays
    if np.any(P.indices < source) or np.any(leaves):
        return None
    return Paths(
        P.indptr.astype(np.int64), P.indices.astype(np.int64), np.flatnonzero(cmdp.rho > 0), absorbing.astype(np.int64)
    )


def path_range(
    paths: Paths, taken: NDArray[np.bool_], h: Array, V: Array, q: float, ratio: float, full: float
) -> tuple[Array, Array]:
    """Return the bounds (low, high), each [1+I], of the estimate X of one policy, up to rounding.

        X = h_0 + Σ_{0<t<T} ratio^t (h_t − (1−q) V(s_t)) + q ratio^T V(s_T),    T ≥ 1

    taken  a mask of the pairs [S, A] that the policy can take;  h: the signals [1+I, S, A];  V: the control variate
           [S, 1+I]
    full   an upper bound of the sum Σ_t ratio^t over all t ≥ 0
    """
    ends, M = [], np.zeros(len(taken))
    for sign in (-1.0, 1.0):
        found = np.zeros(len(h))
        for j, own in enumerate(h):
            first, stop = sign * own, sign * q * V[:, j]
            later = np.ascontiguousarray(first - (1 - q) / q * stop[:, None])
            here, last = later[paths.absorbing], stop[paths.absorbing]
            end = full * here.max(initial=0.0) + ratio * last.max(initial=0.0)
            found[j] = sign * path_bounds.largest_sum(*paths[:3], taken, first, later, stop, ratio, end, M)
        ends.append(found)
    return ends[0], ends[1]
