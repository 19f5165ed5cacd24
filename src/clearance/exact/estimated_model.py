"""A finite model estimated from counted transitions, with estimates of its own error.

    P̂(s'|s, a) = n(s, a, s')/n(s, a),   ρ̂ = starts/Σ starts;    signals are known for pairs that were seen

For a pair that was never seen, the model assumes the worst: the run stays in the state for ever and collects the lowest
signals. So no plan uses such a pair. Two standard deviations are estimated for a policy on P̂. `doubt` is the standard
error of Ĵ due to finite counts (by linearisation). `spread` belongs to a certificate that tests the policy on fresh
episodes, with V̂ as control variate (`finite_episodes`): it is the standard deviation of one episode's estimate of J,
and determines how many episodes the test needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import Evaluation, evaluate, occupancy

DENSE_STATES = 400  # up to this many states, P̂ is stored as a dense array if P is
SURE = 1e9  # the count of the transition from the end state to itself


@dataclass(frozen=True, eq=False)
class EstimatedModel:
    """The estimated model `cmdp` (with P̂ and ρ̂), the visits n [S·A] of its pairs, and the number of counted `starts`.

    scatter  the standard deviation of the signals at each pair [S·A, 1+I]; 0 if signals are not random
    layers   H if (1) the states of the model are (t, s) = t·S + s with t < H, followed by one state for the end, and
             (2) all steps t share the same counts; else 1
    """

    cmdp: CMDP
    n: Array
    starts: float
    scatter: Array | float = 0.0
    layers: int = 1

    def evaluate(self, pi: Array) -> PolicyEstimate:
        return PolicyEstimate(self, pi, evaluate(self.cmdp, pi))

    def noise(self, V: Array) -> Array:
        """Return the variance [S·A, n] of V(s') over the next states s' of each pair, for V [S, n].

        One extreme draw of s' is added to the counts, so that a rarely seen pair has a positive variance.
        """
        rows, n = self.cmdp.rows, self.n[:, None]
        mean = rows @ V
        seen = np.maximum(rows @ V**2 - mean**2, 0.0)
        return (n * seen + 0.25 * np.ptp(V, axis=0) ** 2) / (n + 1)


@dataclass(frozen=True, eq=False)
class PolicyEstimate:
    """The values `at` of one policy π [S, A] on an estimated model, and the standard deviations of these estimates."""

    model: EstimatedModel
    pi: Array
    at: Evaluation

    @property
    def J(self) -> Array:
        return self.at.J

    @property
    def V(self) -> Array:
        """The estimated values V̂ [S, 1+I]."""
        return self.at.V.T

    @cached_property
    def _noise(self) -> Array:
        return self.model.noise(self.V)

    @cached_property
    def _start(self) -> Array:
        """The variance [1+I] of V̂(s_0) over start states s_0 ~ ρ̂."""
        rho = self.model.cmdp.rho
        return np.maximum(rho @ self.V**2 - (rho @ self.V) ** 2, 0.0)

    @cached_property
    def doubt(self) -> Array:
        """The standard error [1+I] of the estimated values Ĵ that is due to finite counts.

        Its square is Σ (γ x(s, a))² Var V̂(s')/n(s, a) over all pairs, plus the variances of start states and random
        signals. Here x are the discounted visits, n the counts, and V̂(s') the value of the next state.
        """
        gamma, x = self.model.cmdp.gamma, self.at.d.ravel() / (1 - self.model.cmdp.gamma)
        n, start = np.maximum(self.model.n, 0.5), self._start / max(self.model.starts, 1.0)
        step = gamma * np.sqrt(self._noise) + self.model.scatter
        if self.model.layers > 1:  # the error of one probability affects all steps in the same way: it adds up
            every = (x[:, None] * step)[: -self.model.cmdp.A].reshape(self.model.layers, -1, len(self.J)).sum(0)
            return np.sqrt((1 / n[: len(every)]) @ every**2 + start)
        return np.sqrt((x**2 / n) @ step**2 + start)

    def spread(self, power: float, base: Array | None = None) -> Array:
        """Return the standard deviation [1+I] of one episode's estimate of J in a certificate.

        After each step, such an episode continues with probability q = γ^power (`finite_episodes`). The control variate
        of the estimate is `base` [S, 1+I] or, by default, V̂. With V̂, the terms of the estimate are martingale
        differences with weights (γ/q)^t, so visits at time t are weighted by (γ²/q)^t.
        """
        if power not in self._visits:
            rate = self.model.cmdp.gamma ** (2 - power)
            self._visits[power] = occupancy(self.model.cmdp.replace(gamma=rate), self.pi) / (1 - rate)
        visits = self._visits[power]
        step = (self.model.cmdp.gamma * np.sqrt(self._noise) + self.model.scatter) ** 2
        exact = self._start + visits.ravel() @ (step + self.at.A.reshape(len(self.J), -1).T ** 2)
        more = 0.0 if base is None else self._second_moment(visits, base) - self._second_moment(visits, self.V)
        return np.sqrt(np.maximum(exact + more, 0.0))

    @cached_property
    def _visits(self) -> dict[float, Array]:
        """A cache: for each exponent `power`, the sums Σ_t (γ²/q)^t P(s_t = s, a_t = a) [S, A] with q = γ^power.

        q is the probability that an episode continues after a step.
        """
        return {}

    def _second_moment(self, visits: Array, base: Array) -> Array:
        """Return E X² [1+I] on the estimated model, where X is one episode's estimate of J (`finite_episodes`).

        `base` [S, 1+I] is the control variate of X, and `visits` [S, A] is the entry of `_visits` for the exponent in
        use.
        """
        cmdp, gap = self.model.cmdp, self.V - base
        now = np.moveaxis(cmdp.h, 0, -1).reshape(cmdp.S * cmdp.A, -1) - np.repeat(base, cmdp.A, axis=0)
        mean, gamma = cmdp.rows @ base, cmdp.gamma
        squares = now**2 + 2 * gamma * now * mean + gamma**2 * (cmdp.rows @ base**2)
        cross = now * (cmdp.rows @ gap) + gamma * (cmdp.rows @ (base * gap))
        return visits.ravel() @ (squares + 2 * gamma * cross) + cmdp.rho @ (base**2 + 2 * base * gap)


def estimate_model(transitions: Any, starts: Array, like: CMDP, low: Array, end: int | None = None) -> EstimatedModel:
    """Return the model estimated from counted transitions n(s, a, s') [S·A, S] (CSR) and counted starts [S].

    like  the model that provides the signals of seen pairs, limits, discount and names; its P and ρ are not read
    low   the declared lower bounds of the signals [1+I]
    end   the index of a state without signals. If it is given, a pair that was never seen is assumed to give the
          signals `low` once and to lead to this state. Otherwise such a pair gives `low` and stays in its state
    """
    S, A, n = like.S, like.A, np.asarray(transitions.sum(axis=1)).ravel()
    unseen = np.flatnonzero((n == 0) & like.available.ravel())
    leads = unseen // A if end is None else np.full(len(unseen), end)
    stay = sparse.csr_array((np.ones(len(unseen)), (unseen, leads)), shape=(S * A, S))
    P: Any = sparse.csr_array(sparse.diags_array(1 / np.maximum(n, 1.0)) @ transitions + stay)
    P.data /= np.repeat(np.asarray(P.sum(axis=1)).ravel(), np.diff(P.indptr))
    if S <= DENSE_STATES and not like.is_sparse:
        P = P.toarray().reshape(S, A, S)
    seen = (n > 0).reshape(S, A)
    h = np.where(seen | ~like.available, like.h, low[:, None, None])
    rho = starts / starts.sum() if starts.sum() else np.full(S, 1 / S)
    about: dict[str, Any] = {"gamma": like.gamma, "names": like.names, "available": like.available}
    return EstimatedModel(CMDP(P, h[0], h[1:], like.b, rho=rho, order="state", **about), n, float(starts.sum()))


def estimate_over_time(transitions: Any, starts: Array, like: CMDP, low: Array, layers: int) -> EstimatedModel:
    """Return the estimated model for a model whose states include the time.

    The states are (t, s) = t·S + s with t < `layers`, followed by one state for the end. The transition probabilities
    do not depend on t, so the counts of all steps are added up. The other arguments are as in `estimate_model`; `like`
    is the model whose states include the time.
    """
    A, S = like.A, (like.S - 1) // layers
    counted = sparse.coo_array(transitions)
    row, column = (x.astype(np.int64) for x in counted.coords)
    inner = (row < (layers - 1) * S * A) & (column < layers * S)
    at = row[inner] % (S * A), column[inner] % S
    each = sparse.coo_array(sparse.csr_array((counted.data[inner], at), shape=(S * A, S)))
    (pair, after), time = each.coords, np.arange(layers - 1)[:, None]
    seen = np.asarray(sparse.csr_array(each).sum(axis=1)).ravel()
    if layers == 1:
        seen = np.asarray(transitions.sum(axis=1)).ravel()[: S * A]
    stays = np.arange(A) + layers * S * A
    last = np.arange(S * A) + (layers - 1) * S * A
    rows = np.concatenate([(time * S * A + pair).ravel(), last, stays])
    columns = np.concatenate([((time + 1) * S + after).ravel(), np.full(len(last) + A, layers * S)])
    data = np.concatenate([np.tile(each.data, layers - 1), seen, np.full(A, SURE)])
    pooled = sparse.csr_array((data, (rows, columns)), shape=(like.S * A, like.S))
    pooled.eliminate_zeros()
    found = estimate_model(pooled, starts, like, low)
    return EstimatedModel(found.cmdp, found.n, found.starts, layers=layers)
