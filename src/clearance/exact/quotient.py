"""Models whose end components are collapsed to nodes, for sums until a run stops.

An end component in which a run may stay for ever becomes one node, since each of its states can reach every other one
with probability 1 and at no cost. A row is a pair (s, a) that leaves the component, taken as a choice at the node. If
staying is allowed, one more row stops the run there with a given value. The equation

    V(x) = max over rows from x of  h(row) + Σ P(y|row) V(y)

for the nodes x is solved by policy iteration. A row is changed only for a better one. So if the first policy stops with
probability 1, all later policies do, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled.dissection import Elimination
from clearance.core.errors import SolverError
from clearance.exact.pair_rows import PairRows
from clearance.finite.cmdp import PATIENCE
from clearance.finite.linear_systems import LU_STATES, as_int32, factorise
from clearance.finite.support_graph import Labels, Mask

BETTER = 1e-13  # a row replaces the present one only if it is better by this much, relative to the values


@dataclass(frozen=True, eq=False)
class Quotient:
    """A model whose end components are collapsed to N nodes, with R rows: ways to leave a node, or to stop there.

    node    [S] the node of each state; −1 for states that are left out
    source  [R] the node at which a row starts, ascending
    pair    [R] the pair s·A + a of a row, −1 for stopping
    P       [R, N] the probabilities of a row, normalised; no entries for stopping
    S       N, the number of nodes (the name that linear systems use)
    """

    node: Labels
    source: Labels
    pair: Labels
    P: Any
    S: int

    @classmethod
    def of(cls, rows: PairRows, node: Labels, pairs: Mask, stops: Labels) -> Quotient:
        """Build the quotient of a model.

        rows   the transitions of the model
        node   the node of each state [S]
        pairs  a mask [S, A] of the pairs that leave their node, or that stay in it and have signals
        stops  the nodes in which runs may stop
        """
        N = int(node.max(initial=-1)) + 1
        kept = np.flatnonzero(pairs.ravel())
        source = np.concatenate([node[kept // rows.A], stops])
        order = np.argsort(source, kind="stable")
        pair = np.concatenate([kept, np.full(len(stops), -1)])[order]
        place = np.full(rows.S * rows.A, -1)
        place[pair[pair >= 0]] = np.flatnonzero(pair >= 0)
        used = pairs.ravel()[rows.pair]
        weight = rows.p[used] / rows.total[rows.pair[used]]
        at = place[rows.pair[used]], node[rows.target[used]]
        P = sparse.csr_array((weight, at), shape=(len(pair), N))
        return cls(node, source[order], pair, P, N)

    @cached_property
    def elimination(self) -> Elimination | None:
        """An order in which to eliminate the nodes in linear solves; None if there is none or the model is small."""
        if self.S <= LU_STATES:
            return None
        hop = sparse.csr_array((np.ones(len(self.source)), (self.source, np.arange(len(self.source)))))
        return Elimination.of(as_int32(sparse.csr_array(hop @ self.P)), 1, PATIENCE)

    @cached_property
    def first(self) -> Labels:
        """The index [N] of the first row of each node. Rows are ordered by node, and every node has at least one."""
        return np.searchsorted(self.source, np.arange(self.S)).astype(np.int64)

    def maximise(self, h: Array, chosen: Labels, usable: Mask | None = None) -> tuple[Array, Labels]:
        """Return V [N] and the index of the row that a best policy takes at each node [N].

        h [R] are the signals of all rows. Policy iteration starts from the policy that takes the rows `chosen` [N],
        which must stop with probability 1. With a mask `usable` [R], only these rows may be taken.
        """
        chosen = chosen.copy()
        for _ in range(1000):
            V = self.evaluate(h, chosen)
            Q = h + self.P @ V
            if usable is not None:
                Q = np.where(usable, Q, -np.inf)
            best = np.maximum.reduceat(Q, self.first)
            size = np.abs(V) + np.abs(h[chosen]) + self.P[chosen] @ np.abs(V)
            better = np.flatnonzero(best > V + BETTER * (size + 1e-3 * float(np.abs(V).max(initial=0.0))))
            if not len(better):
                return V, chosen
            winners = np.flatnonzero(best[self.source] <= Q)
            first_winner = np.full(self.S, -1)
            first_winner[self.source[winners[::-1]]] = winners[::-1]
            chosen[better] = first_winner[better]
        raise SolverError("policy iteration did not end: bring r, g and b to the size of 1")

    def evaluate(self, h: Array, chosen: Labels) -> Array:
        """Return the values V [N] of the policy that takes the row chosen[n] at node n, for signals h [R] of the rows.

        For several signals, h is [R, n] and V is [N, n].
        """
        return factorise(self, self.P[chosen], 1.0)[0](np.ascontiguousarray(h[chosen]))

    @cached_property
    def stopping(self) -> Labels:
        """A policy that stops with probability 1, as the index of the row that it takes at each node [N].

        It stops at nodes where that is allowed. At other nodes it takes a row that may lead closer to such a node.
        """
        chosen = np.full(self.S, -1)
        stop = np.flatnonzero(self.pair < 0)
        chosen[self.source[stop]] = stop
        entries = self.P.tocoo()
        row, target = entries.coords
        while np.any(chosen < 0):
            hits = row[(chosen[target] >= 0) & (chosen[self.source[row]] < 0)]
            if not len(hits):
                raise SolverError("a state cannot stop")  # the code that builds a quotient excludes this
            fresh = np.unique(hits)[::-1]
            chosen[self.source[fresh]] = fresh
        return chosen.astype(np.int64)


def walk_to(rows: PairRows, goal: Mask, pairs: Mask, act: Labels) -> None:
    """Change the policy act [S] so that runs reach `goal` [S] from all states from which this is possible.

    `rows` are the transitions of the model. Only the pairs in the mask `pairs` [S, A] may be used to get there.
    """
    done, used = goal.copy(), pairs.ravel()[rows.pair]
    pair, target = rows.pair[used], rows.target[used]
    while True:
        hits = np.unique(pair[done[target] & ~done[pair // rows.A]])[::-1]
        if not len(hits):
            return
        act[hits // rows.A] = hits % rows.A
        done[hits // rows.A] = True
