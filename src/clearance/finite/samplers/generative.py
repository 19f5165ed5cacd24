"""A sampler with a generative model: it draws N next states of every pair (s, a) and estimates the model from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled import episodes
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.algorithm2 import alias_tables
from clearance.finite.samplers.exact_sampler import Exact
from clearance.finite.samplers.finite_sampler import FiniteSampler
from clearance.finite.two_layer_policy import Policy
from clearance.learning.draws import Draws


@dataclass(frozen=True, eq=False)
class Generative(FiniteSampler):
    """The sampler of the method `ModelBased`: it draws next states of every pair (s, a). As in the paper, ρ is known.

    With exact=True, no samples are drawn, and the true model is used in place of the empirical one.
    """

    cmdp: CMDP
    policy: Policy
    exact: bool = False

    def begin(self) -> Array:
        """Return an empty table of the counts n(s, a, s'); each of its rows is (s·A + a, s', n)."""
        return np.zeros((0, 3))

    def collect(self, key: np.uint64, memory: Array, N: int) -> tuple[Array, int]:
        """Draw N next states of every pair; return (`memory` with their counts appended, the number of samples)."""
        if self.exact:
            return memory, 0
        pairs, found = np.flatnonzero(self.cmdp.available), [memory]
        for row in pairs:
            count = np.zeros(self.cmdp.S)
            episodes.nexts(np.uint64(key), row, N, alias_tables(self.cmdp), count)
            seen = np.flatnonzero(count)
            found.append(np.column_stack([np.full(len(seen), float(row)), seen.astype(float), count[seen]]))
        return np.concatenate(found), N * len(pairs)

    def model(self, memory: Array) -> CMDP:
        """Return the empirical model P̂(s'|s, a) = n(s, a, s')/n(s, a) from the counts n in `memory`."""
        if self.exact:
            return self.cmdp
        kept = self.__dict__.get("_model")  # planning asks for the same model many times
        if kept is None or kept[0] is not memory:
            kept = memory, self._empirical(memory)
            self.__dict__["_model"] = kept
        return kept[1]

    def _empirical(self, memory: Array) -> CMDP:
        cmdp = self.cmdp
        row, col, n = memory.T
        counts: Any = sparse.csr_array((n, (row.astype(int), col.astype(int))), shape=(cmdp.S * cmdp.A, cmdp.S))
        total = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1.0)
        P = sparse.csr_array(sparse.diags_array(1 / total) @ counts)
        P = P if cmdp.is_sparse else P.toarray().reshape(cmdp.S, cmdp.A, cmdp.S)
        about = {"rho": cmdp.rho, "gamma": cmdp.gamma, "names": cmdp.names, "available": cmdp.available}
        return CMDP(P, cmdp.r, cmdp.g, cmdp.b, order="state", **about)

    def batch(
        self, key: np.uint64, memory: Array, theta: Array, N: int, extra: Array | None = None
    ) -> tuple[Draws, Array, Array, int]:
        """Draw N more next states of every pair; return (exact draws, exact J, the new counts, the number of samples).

        The draws and J are exact for the empirical model and the policy with parameters θ. With `extra` [S, A], a
        signal that is not in the model, the draws also have advantages of this signal.
        """
        memory, steps = self.collect(key, memory, N)
        draws, J, _, _ = Exact(self.model(memory), self.policy).batch(key, None, theta, N, extra)
        return draws, J, memory, steps
