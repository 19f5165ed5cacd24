"""The range of an episode's estimate of J, from the paths that are possible.

For models whose transitions only lead to later states, such as models with the time in their state, the largest and the
smallest estimate follow by backward induction over the possible transitions. This range is often much shorter than the
largest signal times the number of steps, because few paths can pay the largest cost in every step.
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
    """The possible transitions of a model that only lead to later states, in CSR form, and its possible start states.

    absorbing  the states [n] that lead only to themselves
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    starts: NDArray[np.int64]
    absorbing: NDArray[np.int64]


@lru_cache(maxsize=4)
def forward_paths(cmdp: CMDP) -> Paths | None:
    """Return the possible transitions of a model if they only lead to later states; else None.

    A state may also be absorbing: then all its actions lead to itself.
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

    taken  the pairs [S, A] that the policy can take;  h: the signals [1+I, S, A];  V: the control variate [S, 1+I]
    full   the sum Σ_t ratio^t over all t ≥ 0, or more
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
