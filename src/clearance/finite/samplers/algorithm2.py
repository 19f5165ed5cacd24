"""Algorithm 2 on a finite model, compiled: unbiased draws of (s, a, Â) and of Ĵ by geometric rollouts.

(s, a) ~ d_ρ^π        the last pair of a walk from ρ that stops with probability 1−γ before each further step
Q̂(s, a) = Σ_{t<T} h    from (s, a);   V̂(s) = Σ_{t<T} h from s with a new action;   T ~ Geo(1−γ) on {1, 2, …}
Â = Q̂ − V̂              with `resets=True`: the simulator can be reset to s (Bai et al. 2023, Alg. 2)
Â = ±2 Σ_{t<T} h       with `resets=False`: a fair coin decides if the walk continues from (s, a), which gives +, or
                       takes a new action at s, which gives −. This is unbiased too, without a reset to s.
Ĵ                      the mean of Σ_{t<T} h over walks from ρ
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled import algorithm1, walks
from clearance.core.compiled.alias_tables import Tables, alias_cells, draw_error, geometric_tables, pack
from clearance.core.compiled.walks import Rows
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.finite_sampler import FiniteSampler
from clearance.finite.softmax_policy import SoftmaxPolicy
from clearance.learning.direction import SGD
from clearance.learning.draws import Draws, PairScore
from clearance.learning.methods.cnpgpd import CNPGPD
from clearance.learning.methods.method_base import kappa_value
from clearance.learning.methods.npgpd import NPGPD
from clearance.learning.state import State
from clearance.learning.trace import Trace


@dataclass(frozen=True, eq=False)
class Table(FiniteSampler):
    """The sampler that runs Algorithm 2 on a finite model.

    With `resets`, the simulator can be reset to a chosen state. Without, a fair coin replaces the reset, as the
    docstring of the module explains.
    """

    cmdp: CMDP
    policy: SoftmaxPolicy
    resets: bool = True

    @cached_property
    def tables(self) -> Tables:
        return alias_tables(self.cmdp)

    def rows(self, theta: Array) -> Rows:
        """Return the action probabilities of the policy with parameters θ, in the form that the compiled code reads."""
        pi = np.ascontiguousarray(self.policy.pi(theta))
        stamp = np.zeros(self.cmdp.S, np.int64)
        return Rows(pi, pack(pi), stamp, theta, self.policy.bias, *self.policy.sparse_features)

    def batch(
        self, key: np.uint64, memory: Any, theta: Array, N: int, extra: Array | None = None
    ) -> tuple[Draws, Array, Any, int]:
        """Return (N draws, Ĵ [1+I], the unchanged `memory`, environment steps) for the policy with parameters θ.

        The draws are for the update direction (Algorithm 1, lines 3–7), and Ĵ is for the dual step (lines 11–15). With
        `extra` [S, A], a signal that is not in the model, the draws also have advantages of this signal.
        """
        tables = add_signal(self.tables, extra)
        H, A = tables.h.shape[1], self.cmdp.A
        pair, start, last = np.empty(N, np.int64), np.empty(2 * N, np.int64), np.empty(2 * N, np.int64)
        J, QV = np.empty((2 * N, H)), np.empty((2 * N, H))
        rows = self.rows(theta)
        work = walks.workspace(A, H)
        steps = walks.rollouts(np.uint64(key), tables, rows, walks.READY, self.resets, pair, start, last, J, QV, work)
        tabular = self.policy.tabular
        score = PairScore(rows.pi, pair) if tabular else self.policy.score(theta, *np.divmod(pair, A))
        return (
            Draws(np.full(N, 1 / N), score, QV[:N] - QV[N:], pair),
            J[N:, : 1 + self.cmdp.I].mean(0),
            memory,
            int(steps),
        )

    def advance(self, method: Any, key: np.uint64, state: State, n: int, lam_max: float) -> tuple[State, Trace] | None:
        """Run n iterations of Algorithm 1 with SGD in one compiled call; return (the new state, the trace).

        Return None if `method` is not `CNPGPD` or `NPGPD`, or its direction is not `SGD`. The call uses the same random
        streams, walks and updates as `CNPGPD.step`, and tests compare the results of the two.
        """
        if type(method) not in (CNPGPD, NPGPD) or not isinstance(
            method.direction, SGD
        ):  # a subclass may step otherwise
            return None
        cmdp, policy = self.cmdp, self.policy
        theta, lam, H = state.theta.copy(), state.lam.copy(), 1 + cmdp.I
        empty = np.empty((cmdp.S, cmdp.A)), np.empty(cmdp.S * cmdp.A, np.uint64), np.zeros(cmdp.S, np.int64)
        rows = Rows(*empty, theta, policy.bias, *policy.sparse_features)
        out = np.empty((n, len(theta))), np.empty((n, cmdp.I)), np.empty((n, H)), np.empty(n), np.empty(n, np.int64)
        b = cmdp.b + kappa_value(method.kappa)  # the conservative limits; κ may differ from constraint to constraint
        settings = (self.resets, method.N, float(method.eta1), float(method.eta2), 0.0, float(lam_max))
        scales, work = method.direction.scales(cmdp.gamma), walks.workspace(cmdp.A, H)
        algorithm1.run(key, state.k, self.tables, rows, lam, b, *settings, scales, work, out)
        trace = Trace(*out, counts=np.ones(n), J=np.empty((0, H)))
        return State(theta, lam, state.k + n, state.sampler_memory), trace


def add_signal(tables: Tables, extra: Array | None) -> Tables:
    """Return a model's tables with `extra` [S, A] as one more signal after the others; unchanged if `extra` is None."""
    return tables if extra is None else tables._replace(h=np.column_stack([tables.h, extra.ravel()]))


def alias_tables(cmdp: CMDP) -> Tables:
    """Return the alias tables of a model in the form that the compiled code reads; they are computed once per model."""
    made_of = cmdp.P, cmdp.h, cmdp.rho, cmdp.gamma
    found = cmdp.__dict__.get("_tables")  # `replace` copies the tables to models in which P, h, ρ or γ may differ
    if found is None or not all(x is y or (np.ndim(x) == 0 and x == y) for x, y in zip(found[0], made_of, strict=True)):
        found = made_of, _tables(cmdp)
        cmdp.__dict__["_tables"] = found
    return found[1]


def transition_error(cmdp: CMDP) -> float:
    """Return a bound on the total variation distance between a row of P and the distribution that is drawn from.

    The two differ by rounding. The bound holds for all rows and is computed once per model.
    """
    found = cmdp.__dict__.get("_transition_error")
    if found is None or found[0] is not cmdp.P:
        sums = np.asarray(cmdp.rows.sum(axis=1)).ravel()[cmdp.available.ravel()]
        longest = int(np.diff(cmdp.P.indptr).max()) if cmdp.is_sparse else cmdp.S
        found = cmdp.__dict__["_transition_error"] = cmdp.P, draw_error(sums, longest)
    return found[1]


def _tables(cmdp: CMDP) -> Tables:
    P: Any = cmdp.P if cmdp.is_sparse else sparse.csr_array(cmdp.P.reshape(-1, cmdp.S))
    indptr = np.asarray(P.indptr, np.int64)
    counts = np.diff(indptr)
    widest = int(counts.max())
    width = widest if widest <= 2 * counts.mean() else 0
    cells = alias_cells(indptr, P.indices, P.data, width)
    where = np.flatnonzero(cmdp.rho).astype(P.indices.dtype)
    start = alias_cells(np.array([0, len(where)]), where, cmdp.rho[where], 0)
    h = np.ascontiguousarray(cmdp.h.reshape(1 + cmdp.I, -1).T)
    gamma = cmdp.gamma if cmdp.gamma < 1 else 0.5  # episodes of undiscounted sums end by themselves, not at random
    return Tables(cells, indptr, width, start, h, cmdp.A, *geometric_tables(gamma))
