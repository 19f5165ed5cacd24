"""Count transitions during walks on a finite model that is used only as a simulator.

Transitions are drawn from alias tables. Each cell of a table holds two next states: its own entry and its alias. Each
of the two has its own counter, so counting a transition costs one addition, whatever the number of states |S|. Only the
counts are used for estimates, never the probabilities in the tables.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled import episodes
from clearance.core.compiled.alias_tables import pack
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.algorithm2 import alias_tables


class TransitionCounts(NamedTuple):
    """Counts of transitions (`hits` [2·cells]) and of start states (`starts` [S]).

    Transitions are drawn from alias tables, in which each cell holds two next states: its own entry and its alias.
    hits[2·i] counts draws of the own entry of cell i, hits[2·i + 1] draws of its alias.
    """

    hits: NDArray[np.uint32]
    starts: Array

    @classmethod
    def none(cls, cmdp: CMDP) -> TransitionCounts:
        return cls(np.zeros(2 * len(alias_tables(cmdp).cells), np.uint32), np.zeros(cmdp.S))

    def add(self, hits: NDArray[np.uint32], starts: Array) -> None:
        """Add the given counts of transitions and of start states to this object; do nothing if `hits` is empty."""
        if len(hits):
            np.add(self.hits, hits, out=self.hits)
            np.add(self.starts, starts, out=self.starts)

    def walk(self, cmdp: CMDP, key: np.uint64, pi: Array, N: int) -> int:
        """Run N walks from ρ by π [S, A] and count their transitions; return the number of environment steps.

        The length of a walk is geometrically distributed.
        """
        return int(episodes.wander(np.uint64(key), alias_tables(cmdp), pack(pi), N, self.hits, self.starts))

    def transitions(self, cmdp: CMDP) -> sparse.csr_array:
        """Return the counts n(s, a, s') as a matrix [S·A, S]."""
        model = alias_tables(cmdp)
        slot = np.flatnonzero(self.hits)
        cell = slot >> 1
        state = model.cells[cell, 1 + (slot & 1)].astype(np.int64)
        row = cell // model.width if model.width else np.searchsorted(model.indptr, cell, side="right") - 1
        n = self.hits[slot].astype(float)
        return sparse.csr_array(sparse.coo_array((n, (row, state)), shape=(cmdp.S * cmdp.A, cmdp.S)))
