"""Properties that depend only on which transitions are possible. Rounding of probabilities cannot change them.

- The reachable states are those that some policy can reach from the start.
- The closed classes of P_π are the sets of states in which a run of the policy π ends up. The other states are
  transient.
- An end component is a set of states, with some of their actions, that these actions never leave and in which they can
  lead from every state to every other. So a run can stay there for ever.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from clearance.finite.cmdp import CMDP

Mask = NDArray[np.bool_]
Labels = NDArray[np.int64]


def pair_graph(cmdp: CMDP) -> tuple[Labels, Labels, Labels]:
    """Return the possible transitions as three arrays of equal length: the pair s·A + a, the state s, the next state.

    Entries of P that are stored as 0 are no transitions.
    """
    P = sparse.coo_array(cmdp.rows)
    row, column = P.coords
    used = P.data > 0
    pair = row[used].astype(np.int64)
    return pair, pair // cmdp.A, column[used].astype(np.int64)


def reachable(cmdp: CMDP, pairs: Mask | None = None) -> Mask:
    """Return a mask of the states [S] that runs can reach by state-action pairs in `pairs` [S, A] (default: all)."""
    pair, s, s_next = pair_graph(cmdp)
    used = np.ones(len(pair), bool) if pairs is None else pairs.ravel()[pair]
    return spread(s[used], s_next[used], cmdp.rho > 0)


def can_reach(cmdp: CMDP, goal: Mask, pairs: Mask | None = None) -> Mask:
    """Return a mask of the states [S] from which the pairs in `pairs` [S, A] (default: all) can lead to `goal` [S]."""
    pair, s, s_next = pair_graph(cmdp)
    used = np.ones(len(pair), bool) if pairs is None else pairs.ravel()[pair]
    return spread(s_next[used], s[used], goal)


def spread(source: Labels, target: Labels, start: Mask) -> Mask:
    """Return a mask of the states that can be reached from the states in `start` along edges source[i] → target[i]."""
    S, first = len(start), np.flatnonzero(start)
    rows = np.concatenate([source, np.full(len(first), S)])
    columns = np.concatenate([target, first])
    edges = sparse.csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(S + 1, S + 1))
    found = np.zeros(S + 1, bool)
    found[csgraph.breadth_first_order(edges, S, return_predecessors=False)] = True
    return found[:S]


def closed_classes(P_pi: Any) -> Labels:
    """Return the label of each state's closed class [S] under P_π: 0, 1, …, or −1 for a transient state."""
    P: Any = sparse.coo_array(P_pi)
    row, column = (x[P.data > 0].astype(np.int64) for x in P.coords)
    S = int(P.shape[0])
    n, label = components(row, column, S)
    leaves = np.zeros(n, bool)
    leaves[label[row[label[row] != label[column]]]] = True
    number = np.where(leaves, -1, np.cumsum(~leaves) - 1)
    return number[label].astype(np.int64)


def end_components(cmdp: CMDP, pairs: Mask | None = None) -> tuple[Labels, Mask]:
    """Return the maximal end components of the state-action pairs in `pairs` [S, A] (default: all).

    The result is (label of each state's component [S], mask [S, A] of the pairs that stay inside a component). Labels
    are 0, 1, …, or −1 if the state is in no component. The algorithm drops pairs that may leave the strongly connected
    component of their state, until there are no such pairs.
    """
    pair, s, s_next = pair_graph(cmdp)
    kept = (cmdp.available if pairs is None else cmdp.available & pairs).ravel().copy()
    label = np.zeros(cmdp.S, np.int64)
    while True:
        used = kept[pair]
        _, label = components(s[used], s_next[used], cmdp.S)
        leaving = np.unique(pair[used & (label[s] != label[s_next])])
        if not len(leaving):
            break
        kept[leaving] = False
    inside = kept.reshape(cmdp.S, cmdp.A)
    alive = inside.any(axis=1)
    numbers = np.full(cmdp.S, -1, np.int64)
    numbers[alive] = np.unique(label[alive], return_inverse=True)[1]
    return numbers, inside


def components(row: Labels, column: Labels, S: int) -> tuple[int, Labels]:
    """Return (number, label of each state [S]) of the strongly connected components of edges row[i] → column[i]."""
    edges = sparse.csr_array((np.ones(len(row), np.int8), (row, column)), shape=(S, S))
    n, label = csgraph.connected_components(edges, directed=True, connection="strong")
    return int(n), label.astype(np.int64)


def surely_reaching(cmdp: CMDP, goal: Mask, pairs: Mask | None = None) -> Mask:
    """Return a mask of the states [S] from which some policy reaches `goal` [S] with probability 1.

    The policy may use only the state-action pairs in `pairs` [S, A] (default: all).
    """
    pair, s, s_next = pair_graph(cmdp)
    kept = (cmdp.available if pairs is None else cmdp.available & pairs).ravel().copy()
    inside = np.ones(cmdp.S, bool)
    while True:
        used = kept[pair] & ~goal[s]
        found = spread(s_next[used], s[used], goal & inside)
        if np.array_equal(found, inside):
            return found
        inside = found
        kept[pair[~inside[s_next]]] = False
