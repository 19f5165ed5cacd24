"""Optimistic values of the pairs (s, a) of an estimated model. They guide exploration; each observed step updates them.

One imagined visit is added to the counted visits of each pair. It leads to the best value that an episode can have. So
a pair that was never tried has this best value, and the value of a pair with few visits is still close to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clearance.core.arrays import Array
from clearance.exact.estimated_model import EstimatedModel

SWEEPS = 400  # at most so many sweeps of value iteration; too few of them leave the values too large, not too small
ACCURACY = 1e-4  # of the values, relative to their range


@dataclass(eq=False)
class OptimisticValues:
    """Optimistic values Q [S, A] of the signal weights·h, and the counts that they come from.

    best   the largest value that an episode can have
    end    the index of the state after the end of an episode, whose value is 0
    bonus  [S·A], added to the value of each pair: γ times the standard error of the mean value of the next state
    n      the visits of each pair [S·A]
    total  the sums of the signal over the visits of each pair [S·A]
    after  the counted next states of each pair, {pair: {next state: count}}
    """

    Q: Array
    weights: Array
    gamma: float
    best: float
    end: int
    bonus: Array
    n: Array
    total: Array
    after: dict[int, dict[int, int]]

    def action(self, s: int) -> int:
        """Return the action with the largest optimistic value in state s."""
        return int(self.Q[s].argmax())

    def observe(self, s: int, a: int, h: Array, after: int) -> None:
        """Count one step from the pair (s, a) with the signals h [1+I] to the state `after`, and update Q(s, a)."""
        pair = s * self.Q.shape[1] + a
        self.n[pair] += 1
        self.total[pair] += float(self.weights @ h)
        found = self.after.setdefault(pair, {})
        found[after] = found.get(after, 0) + 1
        self.refresh(s, a)

    def refresh(self, s: int, a: int) -> None:
        """Compute Q(s, a) again from the counts and the present values of the next states.

        The pair (s, a) must have been visited at least once.
        """
        pair = s * self.Q.shape[1] + a
        n = self.n[pair]
        later = sum(k * self.Q[x].max() for x, k in self.after[pair].items() if x != self.end)
        value = self.total[pair] / n + self.bonus[pair] + self.gamma * (later + self.best) / (n + 1)
        self.Q[s, a] = min(value, self.best)


def optimistic_values(
    model: EstimatedModel, V: Array, weights: Array, best: float, transitions: dict[tuple[int, int], int]
) -> OptimisticValues:
    """Return the optimistic values of the signal weights·h on an estimated model whose last state is the end.

    V            values [S, 1+I] of a policy that is good for this signal; they give the standard errors of pairs
    best         the largest value of an episode
    transitions  the counted transitions {(pair, next state): count}
    """
    cmdp, n, end = model.cmdp, np.zeros(model.cmdp.S * model.cmdp.A), model.cmdp.S - 1
    after: dict[int, dict[int, int]] = {}
    for (pair, x), k in transitions.items():  # the model's own counts also hold states that were never met
        after.setdefault(pair, {})[x] = k
        n[pair] += k
    h, value = weights @ cmdp.h.reshape(1 + cmdp.I, -1), V @ weights
    tried = n > 0
    mean = cmdp.rows @ value
    scatter = np.sqrt(np.maximum(cmdp.rows @ value**2 - mean**2, 0.0) / np.maximum(n, 1.0))
    bonus = np.where(tried, cmdp.gamma * scatter, 0.0)
    fixed, share = h + bonus + cmdp.gamma * best / (n + 1), cmdp.gamma * n / (n + 1)
    W = np.full(cmdp.S, best)
    Q = np.full((cmdp.S, cmdp.A), best)
    for _ in range(SWEEPS):
        W[end] = 0.0
        Q = np.where(tried, np.minimum(fixed + share * (cmdp.rows @ W), best), best).reshape(cmdp.S, cmdp.A)
        newer = Q.max(1)
        newer[end] = 0.0
        change, W = float(np.abs(newer - W).max()), newer
        if change <= (1 - cmdp.gamma) * ACCURACY * max(np.ptp(W), 1e-300):
            break
    return OptimisticValues(Q, weights, cmdp.gamma, best, end, bonus, n, h * n, after)
