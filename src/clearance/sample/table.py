"""Algorithm 2 on a finite model, compiled: unbiased draws of (s, a, Â) and of Ĵ by geometric rollouts.

(s, a) ~ d_ρ^π        walk from ρ, stop with probability 1−γ before each further step; the last pair
Q̂(s, a) = Σ_{t<T} h    from (s, a);   V̂(s) = Σ_{t<T} h from s, a fresh action;   T ~ Geo(1−γ) on {1, 2, …}
Â = Q̂ − V̂              `resets=True`: the simulator can be put back to s (Bai et al. 2023, Alg. 2)
Â = ±2 Σ_{t<T} h       `resets=False`: a fair coin decides whether the walk goes on from (s, a), giving +, or
                       takes a fresh action at s, giving −. Unbiased too, with no reset to a chosen state.
Ĵ = mean of Σ_{t<T} h from ρ
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from clearance import kernels
from clearance.episodes import pack
from clearance.kernels import Rows, Tables
from clearance.policy import SoftmaxPolicy
from clearance.problem import CMDP, Array
from clearance.sample.draws import Draws, PairScore


@dataclass(frozen=True, eq=False)
class Table:
    """The sampler of a finite model: Algorithm 2 with resets, or reset-free by the coin."""

    cmdp: CMDP
    policy: SoftmaxPolicy
    resets: bool = True

    @cached_property
    def tables(self) -> Tables:
        return tables_of(self.cmdp)

    def begin(self) -> None:
        """Nothing is carried from one batch to the next."""

    def rows(self, theta: Array) -> Rows:
        """The policy tables of θ, made in full."""
        pi = np.ascontiguousarray(self.policy.pi(theta))
        stamp = np.zeros(self.cmdp.S, np.int64)
        return Rows(pi, pack(pi), stamp, theta, self.policy.bias, *self.policy.sparse_features)

    def batch(
        self, key: np.uint64, world: Any, theta: Array, N: int, extra: Array | None = None
    ) -> tuple[Draws, Array, Any, int]:
        """Draws for the direction (lines 3–7), Ĵ [1+I] for the dual step (lines 11–15), and the steps they cost."""
        tables = with_column(self.tables, extra)
        H, A = tables.h.shape[1], self.cmdp.A
        pair, start = np.empty(N, np.int64), np.empty(2 * N, np.int64)
        J, QV = np.empty((2 * N, H)), np.empty((2 * N, H))
        rows = self.rows(theta)
        work = kernels.workspace(A, H)
        steps = kernels.rollouts(np.uint64(key), tables, rows, kernels.READY, self.resets, pair, start, J, QV, work)
        tabular = self.policy.tabular
        score = PairScore(rows.pi, pair) if tabular else self.policy.score(theta, *np.divmod(pair, A))
        return (
            Draws(np.full(N, 1 / N), score, QV[:N] - QV[N:], pair),
            J[N:, : 1 + self.cmdp.I].mean(0),
            world,
            int(steps),
        )


def with_column(tables: Tables, extra: Array | None) -> Tables:
    """The tables with one more signal [S, A] behind the others."""
    return tables if extra is None else tables._replace(h=np.column_stack([tables.h, extra.ravel()]))


def tables_of(cmdp: CMDP) -> Tables:
    """The alias tables of a model, as the kernels read them; made once per model."""
    found = cmdp.__dict__.get("_tables")
    if found is None or found[0] is not cmdp.h:  # `replace` shares P with the model it came from, but not h
        found = cmdp.h, _tables(cmdp)
        cmdp.__dict__["_tables"] = found
    return found[1]


def _tables(cmdp: CMDP) -> Tables:
    P: Any = cmdp.P if cmdp.is_sparse else sparse.csr_array(cmdp.P.reshape(-1, cmdp.S))
    indptr = np.asarray(P.indptr, np.int64)
    counts = np.diff(indptr)
    widest = int(counts.max())
    width = widest if widest <= 2 * counts.mean() else 0
    cells = kernels.alias_cells(indptr, P.indices, P.data, width)
    where = np.flatnonzero(cmdp.rho).astype(P.indices.dtype)
    start = kernels.alias_cells(np.array([0, len(where)]), where, cmdp.rho[where], 0)
    h = np.ascontiguousarray(cmdp.h.reshape(1 + cmdp.I, -1).T)
    return Tables(cells, indptr, width, start, h, cmdp.A, *kernels.geometric_tables(cmdp.gamma))
