"""Split signals into a part for the step and a part for entering the next state, so that sums have a known range.

    h(s, a) = rest(s, a) + Σ_t P(t|s, a) paid(t)         for states s from which the signal can still be nonzero

The sums are those until absorption. A signal such as "the next step reaches the goal" is stored as a probability, and a
run may collect such probabilities any number of times before it reaches the goal. If the signal is instead collected on
entering the goal (`paid`), a run collects it only once, so the range of the sum is finite.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled import total_sums
from clearance.finite.cmdp import CMDP
from clearance.finite.support_graph import Labels, Mask, components, pair_graph, spread

EXACT = 2.0**-40  # relative errors of `paid` up to this size count as rounding; `Payments.error` accounts for them
MOST = 4_000_000  # the largest number of entries of the least-squares problem for `paid`


class Payments(NamedTuple):
    """The two parts of the signals: one step adds rest(s, a), and also paid(s') unless the signal was over in s.

    s' is the next state. Both parts have one column for each signal.

    rest   [S·A, 1+I];   paid: [S, 1+I], 0 in states where the signal is not over
    over   mask [S, 1+I]: on no path from the state is the signal ever nonzero again
    error  a bound [1+I] on the error of J from the rounding of `paid`
    """

    rest: Array
    paid: Array
    over: NDArray[np.bool_]
    error: Array


@lru_cache(maxsize=4)
def payments_of(cmdp: CMDP) -> Payments:
    """Return the two parts of a model's signals. A signal that is 0 on all cycles of the model is not split."""
    pair, s, s_next = pair_graph(cmdp)
    label = components(s, s_next, cmdp.S)[1]
    circling = np.zeros(cmdp.S * cmdp.A, bool)
    circling[pair[label[s] == label[s_next]]] = True
    rest = np.where(cmdp.available, cmdp.h, 0.0).reshape(1 + cmdp.I, -1).T.copy()
    paid, over = np.zeros((cmdp.S, 1 + cmdp.I)), np.zeros((cmdp.S, 1 + cmdp.I), bool)
    for j in range(1 + cmdp.I):
        pays = np.zeros(cmdp.S, bool)
        pays[np.flatnonzero(rest[:, j]) // cmdp.A] = True
        over[:, j] = ~spread(s_next, s, pays)
        if np.any(rest[circling, j]):
            found = _paid_on_entering(cmdp, rest[:, j], over[:, j])
            if found is not None:
                rest[:, j], paid[:, j] = 0.0, found
    return Payments(rest, paid, over, EXACT * np.abs(paid).max(axis=0))


def _paid_on_entering(cmdp: CMDP, h: Array, over: Mask) -> Array | None:
    """Return u [S] with h(s, a) = Σ_t P(t|s, a) u(t), where u is 0 outside of the states `over` [S]; None if none fits.

    The first attempt uses one number for all states in which u is not 0, as fits the probability of reaching them.
    """
    P: Any = sparse.csr_array(cmdp.rows)
    total = np.asarray(P.sum(axis=1)).ravel()
    P = sparse.csr_array(sparse.diags_array(1 / np.where(total > 0, total, 1.0)) @ P)
    outside = np.flatnonzero(np.repeat(~over, cmdp.A) & cmdp.available.ravel())
    E, y = sparse.csr_array(P[outside]), h[outside]
    free = np.zeros(cmdp.S, bool)
    free[E[np.flatnonzero(y == 0)].indices] = True
    goal = over & ~free
    p = E @ goal.astype(float)
    if not np.any(p > 0):
        return None
    k = int(p.argmax())
    guesses = [y[k] / p[k] * goal]
    into = np.flatnonzero(np.asarray(E.sum(axis=0)).ravel() * over)
    if 0 < len(into) * len(y) <= MOST:
        general = np.zeros(cmdp.S)
        general[into] = np.linalg.lstsq(E[:, into].toarray(), y, rcond=None)[0]
        general[np.abs(general) < EXACT * np.abs(general).max(initial=0.0)] = 0.0
        guesses.append(general)
    return next((u for u in guesses if np.all(np.abs(E @ u - y) <= EXACT * (E @ np.abs(u)))), None)


def sum_range(cmdp: CMDP, payments: Payments, taken: Mask) -> tuple[Array, Array, Array]:
    """Return (low, high, size), each [1+I]: the range of an episode's sum, and the largest Σ |rest + paid|.

    `taken` [S, A] is a mask of the pairs that the policy can take. The range is infinite if the signal is not 0 on some
    cycle of these pairs.
    """
    pair, s, s_next = pair_graph(cmdp)
    used = taken.ravel()[pair]
    seen = spread(s[used], s_next[used], cmdp.rho > 0)
    used &= seen[s]
    pair, s, s_next = pair[used], s[used], s_next[used]
    label = components(s, s_next, cmdp.S)[1]
    order = np.argsort(label[s], kind="stable")
    pair, s, s_next = pair[order], s[order], s_next[order]
    ends, starts, circles = silent(cmdp, payments, taken), np.flatnonzero(cmdp.rho > 0), label[s] == label[s_next]
    found = np.zeros((3, 1 + cmdp.I))
    for j in range(1 + cmdp.I):
        gain = payments.rest[pair, j] + np.where(payments.over[s, j], 0.0, payments.paid[s_next, j])
        if np.any(gain[circles]):
            found[:, j] = -np.inf, np.inf, np.inf
            continue
        for row, y in enumerate((-gain, gain, np.abs(gain))):
            found[row, j] = _largest(s, s_next, y, ends)[starts].max()
    return -found[0], found[1], found[2]


def _largest(s: Labels, s_next: Labels, gain: Array, ends: Mask) -> Array:
    M = np.where(ends, 0.0, -np.inf)
    total_sums.largest_sums(s, s_next, np.ascontiguousarray(gain), M)
    return M


def silent(cmdp: CMDP, payments: Payments, taken: Mask) -> Mask:
    """Return a mask of the states [S] from which all signals stay 0 on every path of pairs in `taken` [S, A].

    Episodes end in these states. A policy that takes all of these pairs reaches one of them with probability 1, unless
    there is a closed class with nonzero signals.
    """
    pair, s, s_next = pair_graph(cmdp)
    used = taken.ravel()[pair]
    rest, entry = payments.rest[pair] != 0, ~payments.over[s] & (payments.paid[s_next] != 0)
    pays = np.zeros(cmdp.S, bool)
    pays[s[used & np.any(rest | entry, axis=1)]] = True
    return ~spread(s_next[used], s[used], pays)
