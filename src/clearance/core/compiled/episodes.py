"""Compiled episodes on a finite model seen as a simulator: walks that train a critic, and bounded estimates of J.

Streams, alias tables and horizons are those of `alias_tables`; every episode has a stream of its own, so chunks and
threads change no result.
"""

from __future__ import annotations

import numpy as np

from clearance.core.compiled.alias_tables import (
    LOW,
    G,
    U,
    alias_mask,
    below,
    even,
    fold,
    geometric,
    may_be_uneven,
    mix,
    wins,
)
from clearance.core.compiled.compilation import kernel, piece


@piece
def _pick(word, first, n, cells):
    """The own or the alias entry of one of the n cells from `first` (unsigned) on."""
    i, coin = first + U(below(word, n)), word & LOW
    threshold = U(cells[i, 0])
    if may_be_uneven(word, n) | (coin == threshold):
        return _pick_evenly(even(word, n), first, n, cells)
    return np.int64(cells[i, 1] if coin < threshold else cells[i, 2])


@piece
def _pick_evenly(word, first, n, cells):
    i = first + U(below(word, n))
    return np.int64(cells[i, 1] if wins(word, U(cells[i, 0]), U(cells[i, 3])) else cells[i, 2])


@piece
def _slot(word, first, n, cells):
    """The same as 2·cell for its own entry, or 2·cell + 1 for its alias: where a transition is counted."""
    i, coin = first + U(below(word, n)), word & LOW
    threshold = U(cells[i, 0])
    if may_be_uneven(word, n) | (coin == threshold):
        return _slot_evenly(even(word, n), first, n, cells)
    return i + i if coin < threshold else i + i + U(1)


@piece
def _slot_evenly(word, first, n, cells):
    i = first + U(below(word, n))
    return i + i if wins(word, U(cells[i, 0]), U(cells[i, 3])) else i + i + U(1)


@piece
def _action(word, s, A, mask, pol):
    """An action from the packed alias table of π(·|s); `mask` is that of `alias_mask`."""
    i, coin = below(word, A), word & LOW
    packed = pol[U(s * A + i)]
    if may_be_uneven(word, A) | (coin == (packed >> U(32))):
        return _action_evenly(even(word, A), s, A, mask, pol)
    return i if coin < (packed >> U(32)) else np.int64(packed & mask)


@piece
def _action_evenly(word, s, A, mask, pol):
    i = below(word, A)
    packed = pol[U(s * A + i)]
    return i if wins(word, packed >> U(32), packed & LOW & ~mask) else np.int64(packed & mask)


@kernel
def td(key, model, pol, pi, gamma, gain, N, Q, V, count, visits, starts, hits):
    """N walks from ρ with geometric horizon under the alias tables `pol`; the critic of π learns at every step.

    Expected TD(0), for all signals at once:  Q(s, a) += β (h + γ V(s') − Q(s, a)),  V(s) = Σ_a π(a|s) Q(s, a), with
    β = 1/(1 + gain·n(s, a)). Since V is the mean over π and not the value of the action taken, walks may follow another
    policy than π. Also counts the states visited and begun in and, if hits [2·cells] is not empty, the transitions.
    Returns the environment steps.
    """
    cells, indptr, width, origin, h, A, tail, guide, inv_log_gamma = model
    H, mask, steps, counting = h.shape[1], alias_mask(A), 0, len(hits) > 0
    for n in range(N):
        x = fold(key, n)
        T = geometric(x, tail, guide, inv_log_gamma)
        steps += T
        x += G
        s = _pick(mix(x), U(0), len(origin), origin)
        starts[s] += 1.0
        for _ in range(T):
            x += G
            a = U(_action(mix(x), s, A, mask, pol))
            row = U(s) * U(A) + a  # unsigned: no look whether an index is negative
            first, m = (row * U(width), width) if width > 0 else (U(indptr[row]), indptr[row + U(1)] - indptr[row])
            x += G
            slot = _slot(mix(x), U(first), m, cells)
            after = U(cells[slot >> U(1), U(1) + (slot & U(1))])
            if counting:
                hits[slot] += np.uint32(1)
            n_row = count[row] + 1.0
            count[row] = n_row
            at = U(s)
            visits[at] += 1.0
            beta, p = 1.0 / (1.0 + gain * n_row), pi[at, a]
            for j in range(U(H)):
                move = beta * (h[row, j] + gamma * V[after, j] - Q[row, j])
                Q[row, j] += move
                V[at, j] += p * move
            s = np.int64(after)
    return steps


@kernel
def follow(key, s, model, pol, pi, gamma, beta, ends, N, Q, V, visits):
    """N more steps of one trajectory from state s, with a critic of π learning at every step by a constant β.

    Expected TD(0) as in `td`. No resets, but for states that end an episode (`ends` [S]), where it starts again from ρ.
    Returns the state reached.
    """
    cells, indptr, width, origin, h, A, _, _, _ = model
    H, mask, x = h.shape[1], alias_mask(A), key
    for _ in range(N):
        x += G
        if s < 0 or ends[s]:
            s = _pick(mix(x), U(0), len(origin), origin)
        x += G
        a = _action(mix(x), s, A, mask, pol)
        row = s * A + a
        first, m = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
        x += G
        after = _pick(mix(x), U(first), m, cells)
        visits[s] += 1.0
        for j in range(H):
            move = beta * (h[row, j] + gamma * V[after, j] - Q[row, j])
            Q[row, j] += move
            V[s, j] += pi[s, a] * move
        s = after
    return s


@kernel
def tally(key, model, pol, N, V, count, total, starts):
    """N walks from ρ with geometric horizon: visits of every pair [S·A], Σ V(s') after it [S·A, H], and starts [S].

    What a critic of any form needs for a step of TD with targets from V. Returns the environment steps.
    """
    cells, indptr, width, origin, _, A, tail, guide, inv_log_gamma = model
    H, mask, steps = V.shape[1], alias_mask(A), 0
    for n in range(N):
        x = fold(key, n)
        T = geometric(x, tail, guide, inv_log_gamma)
        steps += T
        x += G
        s = _pick(mix(x), U(0), len(origin), origin)
        starts[s] += 1.0
        for _ in range(T):
            x += G
            row = s * A + _action(mix(x), s, A, mask, pol)
            first, m = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
            x += G
            s = _pick(mix(x), U(first), m, cells)
            count[row] += 1.0
            for j in range(H):
                total[row, j] += V[s, j]
    return steps


@kernel
def wander(key, model, pol, N, hits, starts):
    """N walks from ρ with geometric horizon: count transitions in hits [2·cells] and starts [S]; return the steps."""
    cells, indptr, width, origin, _, A, tail, guide, inv_log_gamma = model
    mask, steps = alias_mask(A), 0
    for n in range(N):
        x = fold(key, n)
        T = geometric(x, tail, guide, inv_log_gamma)
        steps += T
        x += G
        s = _pick(mix(x), U(0), len(origin), origin)
        starts[s] += 1.0
        for _ in range(T):
            x += G
            row = s * A + _action(mix(x), s, A, mask, pol)
            first, m = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
            x += G
            slot = _slot(mix(x), U(first), m, cells)
            hits[slot] += np.uint32(1)
            s = np.int64(cells[slot >> U(1), U(1) + (slot & U(1))])
    return steps


@kernel
def nexts(key, row, N, model, count):
    """From one pair s·A + a, N times: count[s'] += 1."""
    cells, indptr, width, _, _, _, _, _, _ = model
    first, k = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
    x = fold(key, row)
    for _ in range(N):
        x += G
        count[_pick(mix(x), U(first), k, cells)] += 1.0


@kernel
def returns(key, begin, model, gamma, ratio, pols, choice, base, inside, X, component, hits, starts):
    """Draw episodes begin .. begin + N − 1 of a mixture; X is the bounded unbiased estimator of J for every signal.

        X = V̂(s_0) + Σ_{t<T} (γ/q)^t (h_t + γ V̂(s_{t+1}) − V̂(s_t)),    P(T > t) = q^t,    ratio = γ/q

    X [N, 1+I] and the component of each episode [N] are filled in. The component is drawn once per episode from the
    alias cells `choice`, pols [M, S·A] are the packed policies; `model` has the horizon tables of q, not of γ.
    `base` [M, S, 1+I] is V̂ of every component, or [1, S, 1+I] of all: any table keeps X unbiased. If `hits` [2·cells]
    is not empty, transitions are counted there, and the states begun in. Returns (steps, episode, step) of the first
    pair whose signals do not lie `inside` [S·A] their bounds, or (steps, −1, −1).
    """
    cells, indptr, width, origin, h, A, tail, guide, inv_log_q = model
    N, H = X.shape
    mask, steps, counting = alias_mask(A), 0, len(hits) > 0
    for n in range(N):
        x = fold(key, begin + n)
        T = geometric(x, tail, guide, inv_log_q)
        x += G
        m = _pick(mix(x), U(0), len(choice), choice)
        pol = pols[m]
        component[n] = m
        x += G
        s = _pick(mix(x), U(0), len(origin), origin)
        V = base[m if len(base) > 1 else 0]
        if counting:
            starts[s] += 1.0
        for j in range(H):
            X[n, j] = V[s, j]
        weight = 1.0
        for t in range(T):
            x += G
            row = s * A + _action(mix(x), s, A, mask, pol)
            first, k = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
            x += G
            slot = _slot(mix(x), U(first), k, cells)
            after = np.int64(cells[slot >> U(1), U(1) + (slot & U(1))])
            if counting:
                hits[slot] += np.uint32(1)
            if not inside[row]:
                return steps, begin + n, t
            for j in range(H):
                X[n, j] += weight * (h[row, j] + gamma * V[after, j] - V[s, j])
            weight *= ratio
            s = after
        steps += T
    return steps, -1, -1


@kernel
def successors(key, model, weights, gamma, V, X):
    """From every pair (s, a), n times: X[s·A + a, n] = weights·h(s, a) + γ V(s') − V(s); returns the steps."""
    cells, indptr, width, _, h, A, _, _, _ = model
    steps = 0
    for row in range(X.shape[0]):
        first, k = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
        if indptr[row + 1] == indptr[row]:
            continue  # no such action
        x = fold(key, row)
        here = -V[row // A]
        for j in range(h.shape[1]):
            here += weights[j] * h[row, j]
        for n in range(X.shape[1]):
            x += G
            X[row, n] = here + gamma * V[_pick(mix(x), U(first), k, cells)]
        steps += X.shape[1]
    return steps


@kernel
def log_wealth(z, bets, total):
    """total[j] += Σ_n log(1 + bets_j z_n), by products that are taken the logarithm of before they can overflow.

    At most 1024 logarithms are added in a row: the rounding of long sums would grow with their length.
    """
    for j in range(len(bets)):
        product, part, added = 1.0, 0.0, 0.0
        for n in range(len(z)):
            product *= 1.0 + bets[j] * z[n]
            if n % 32 == 31:
                part += np.log(product)
                product = 1.0
                if n % 32768 == 32767:
                    added += part
                    part = 0.0
        total[j] += added + (part + np.log(product))
