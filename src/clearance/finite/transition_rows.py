"""Build transition probabilities from a list of transitions: a dense array if small, CSR if large."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

# Up to this number of entries [S, A, S] (4 MB), computations with a dense array are faster.
DENSE_ENTRIES = 500_000


def transitions(
    S: int, A: int, s: ArrayLike, a: ArrayLike, s_next: ArrayLike, prob: ArrayLike, *, dense: bool | None = None
) -> Any:
    """Return P from a list of transitions: dense [S, A, S], or CSR [S·A, S] with rows s·A + a.

    P(s_next | s, a) is the sum of all probabilities `prob` that are listed for this transition. s, a, s_next and prob
    broadcast against each other.

    dense  whether P is dense; by default P is dense if it has at most `DENSE_ENTRIES` entries
    """
    s, a, s_next, prob = (np.ravel(x) for x in np.broadcast_arrays(s, a, s_next, prob))
    keep = prob != 0
    at = (np.asarray(s, np.int64)[keep] * A + np.asarray(a, np.int64)[keep], np.asarray(s_next, np.int64)[keep])
    P = sparse.coo_array((np.asarray(prob, float)[keep], at), shape=(S * A, S)).tocsr()
    dense = S * A * S <= DENSE_ENTRIES if dense is None else dense
    return P.toarray().reshape(S, A, S) if dense else P


def start_at(S: int, s: int) -> np.ndarray:
    """Return the start distribution ρ [S] with probability 1 for state s."""
    return np.eye(1, S, s)[0]


def number_names(what: str, n: int) -> list[str]:
    """Return n numbered names; for what = "queue" they are "queue 0", "queue 1", …"""
    return [f"{what} {i}" for i in range(n)]
