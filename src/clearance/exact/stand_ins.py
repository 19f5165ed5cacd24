"""Convert models with another criterion, or with costs that must never be paid, to discounted models for learning.

    horizon   the time is part of the state, γ' = 1 − 1/H, and signals grow by γ/γ' per step. J is exactly the same
    total     w bounds the expected number of remaining steps of every policy: w ≥ 1 + P w for all pairs. Then
              P'(t|s, a) = P(t|s, a) w(t) / (γ' w(s)), h' = h/w, ρ' ∝ ρ w and γ' = 1 − 1/max w give exactly the same J
              (Veinott 1969). If some policy never ends there is no such w, and a discount near 1 is used
    average   a discount near 1 is used, and signals are multiplied by 1 − γ'
    never     the model keeps only those pairs with which the cost is never paid (`never`)

Where a discount near 1 approximates the criterion, only the objective of learning is approximate. Iterates are compared
by their exact values under the true criterion, and certificates are about the true criterion.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.errors import InputError, SolverError
from clearance.exact.never import never_of
from clearance.exact.quotient import Quotient
from clearance.exact.total_oracle import TotalOracle
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import scale_of
from clearance.finite.mixture import Mixture

MOST_PAIRS = 3_000_000  # the most pairs that a model with the time in its state may have
NEAR = 0.99  # the discount γ' that is used in place of long-run means
LONG = 20.0  # for sums until absorption, 1/(1 − γ') is this many times the usual length of a run


@dataclass(frozen=True, eq=False)
class StandIn:
    """A discounted `model` to learn on in place of the `true` one; if `exact`, every policy has the same J in both."""

    true: CMDP
    model: CMDP
    exact: bool

    def forward(self, mixture: Mixture) -> Mixture:
        """Turn a policy of the true model into a policy of the discounted model."""
        if self.true.horizon is None:
            return mixture
        pi = mixture.tables(self.true)
        end = self.true.available[:1] / self.true.available[:1].sum(-1, keepdims=True)
        flat = pi.reshape(mixture.M, -1, self.true.A)
        return Mixture(mixture.weights, np.concatenate([flat, np.broadcast_to(end, (mixture.M, 1, self.true.A))], 1))

    def back(self, mixture: Mixture) -> Mixture:
        """Turn a policy of the discounted model into a policy of the true model."""
        if self.true.horizon is None:
            return mixture
        return Mixture(mixture.weights, mixture.pi[:, :-1].reshape(mixture.M, *self.true.policy_shape))


@lru_cache(maxsize=4)  # the same model gives the same object, for which samplers are made
def stand_in_of(cmdp: CMDP) -> StandIn | None:
    """Return the discounted model on which to learn; None if learning can use the model itself.

    For a cost that must never be paid, the pairs that can lead to it are removed, unless no policy can avoid the cost.
    """
    never = never_of(cmdp)
    if never is None and cmdp.kind == "discounted":
        return None
    if never is not None and not never.impossible:
        left, b = never.rest, cmdp.b.copy()
        b[never.limits] = -scale_of(cmdp) * np.abs(cmdp.g[never.limits]).max(axis=(1, 2))  # every policy meets it
        h = np.where(left.available, cmdp.h, 0.0)
        h[[1 + i for i in never.limits]] = 0.0
        part = left.replace(h=h, b=b, names=list(cmdp.names))
    else:
        part = cmdp
    model, exact = {"discounted": _same, "horizon": _with_time, "total": _contracted, "average": _averaged}[cmdp.kind](
        part
    )
    object.__setattr__(model, "costs", cmdp.costs)
    return StandIn(cmdp, model, exact)


def with_time(cmdp: CMDP) -> StandIn:
    """Convert a model with a horizon to a discounted model whose states include the time.

    Costs with the limit 0 stay ordinary constraints.
    """
    return StandIn(cmdp, _with_time(cmdp)[0], True)


def _same(cmdp: CMDP) -> tuple[CMDP, bool]:
    return cmdp, True


def _with_time(cmdp: CMDP) -> tuple[CMDP, bool]:
    """Return (model, True): a discounted model with states (t, s) = t·S + s and one more state for the end.

    True says that every policy has the same J in both models.
    """
    H, S, A = cmdp.policy_shape
    if H * S * A > MOST_PAIRS:
        raise InputError(
            f"horizon {H} times {S:,} states is more than can be learned with a table: use clearance optimum, or a "
            "shorter horizon"
        )
    gamma = 1 - 1 / max(H, 2)
    P = sparse.coo_array(sparse.csr_array(cmdp.rows))
    row, column = (x.astype(np.int64) for x in P.coords)
    rows, columns, data = [], [], []
    for t in range(H):
        last = t == H - 1
        rows.append(t * S * A + row)
        columns.append(np.full(len(column), H * S) if last else (t + 1) * S + column)
        data.append(P.data)
    end = H * S * A + np.arange(A)
    everything = [*rows, end], [*columns, np.full(A, H * S)], [*data, np.ones(A)]
    rows_, columns_, data_ = (np.concatenate(x) for x in everything)
    P_ = sparse.csr_array((data_, (rows_, columns_)), shape=((H * S + 1) * A, H * S + 1))
    growth = (cmdp.gamma / gamma) ** np.arange(H)
    h = (cmdp.h[:, None] * growth[:, None, None]).reshape(1 + cmdp.I, H * S, A)
    h = np.concatenate([h, np.zeros((1 + cmdp.I, 1, A))], axis=1)
    allowed = np.broadcast_to(cmdp.available, cmdp.policy_shape) if cmdp.allowed is None else cmdp.allowed
    available = np.concatenate([allowed.reshape(H * S, A), cmdp.available[:1]])
    rho = np.append(cmdp.rho, np.zeros((H - 1) * S + 1))
    about = {"rho": rho, "gamma": gamma, "names": cmdp.names, "available": available, "order": "state"}
    return CMDP(
        P_ if cmdp.is_sparse or H * S > 300 else P_.toarray().reshape(H * S + 1, A, -1), h[0], h[1:], cmdp.b, **about
    ), True


def _averaged(cmdp: CMDP) -> tuple[CMDP, bool]:
    return cmdp.replace(h=(1 - NEAR) * cmdp.h, criterion="discounted", gamma=NEAR), False


def _contracted(cmdp: CMDP) -> tuple[CMDP, bool]:
    oracle = TotalOracle(cmdp)
    steps = _longest(oracle)
    if steps is None:
        return cmdp.replace(criterion="discounted", gamma=1 - 1 / (LONG * scale_of(cmdp))), False
    ends = oracle.zero[0] >= 0
    w = np.where(ends, 0.0, steps) * (1 + 1e-9)
    gamma, end = max(1 - 1 / float(w.max()), 0.5), int(np.argmax(ends))
    P = sparse.csr_array(cmdp.rows)
    source = np.maximum(np.repeat(w, cmdp.A), 1.0)
    P = sparse.csr_array(sparse.diags_array(1 / source) @ P @ sparse.diags_array(w)) / gamma
    rest = 1 - np.asarray(P.sum(axis=1)).ravel()
    stop = sparse.csr_array(np.where(cmdp.available.ravel(), np.maximum(rest, 0.0), 0.0)[:, None])
    P = sparse.csr_array(P + stop @ sparse.csr_array(np.eye(cmdp.S)[[end]]))
    weight = float(cmdp.rho @ w)
    if weight == 0:
        return cmdp.replace(criterion="discounted", gamma=gamma), True  # every run has ended
    h = np.where(ends[:, None], 0.0, cmdp.h * (weight / np.maximum(w, 1.0))[:, None])
    about = {"rho": cmdp.rho * w / weight, "gamma": gamma, "names": cmdp.names, "order": "state"}
    dense = P if cmdp.is_sparse else P.toarray().reshape(cmdp.S, cmdp.A, cmdp.S)
    return CMDP(dense, h[0], h[1:], cmdp.b, available=cmdp.available, **about), True


def _longest(oracle: TotalOracle) -> Array | None:
    """Return for each state [S] the largest expected number of steps until absorption, over all policies.

    Return None if some policy never ends, or if a run may continue from a state in which it could end.
    """
    ends, pairs = oracle.zero
    if not oracle.ending.all() or np.any(oracle.cmdp.available[ends >= 0] & ~pairs[ends >= 0]):
        return None
    quotient: Quotient = oracle.quotient
    try:
        V, _ = quotient.maximise(np.where(quotient.pair >= 0, 1.0, 0.0), quotient.stopping)
    except SolverError:
        return None
    if not (np.all(np.isfinite(V)) and np.all(V >= 0) and float(V.max()) < 1e9):
        return None
    longer = V[quotient.source] + 1e-6 * V.max() < 1 + quotient.P @ V
    return None if np.any(longer & (quotient.pair >= 0)) else V[quotient.node]
