"""Compiled episodes on a finite model used as a simulator: walks that train a critic, and bounded estimates of J.

Random streams, alias tables and horizons come from `alias_tables`. Every episode has its own stream, so results do not
depend on chunks or threads.
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
    """Draw one of n alias cells, starting at index `first`, by a random `word`; return its own or its alias entry."""
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
    """Draw an alias cell i as `_pick` does; return 2·i if the cell's own entry is drawn, 2·i + 1 if its alias is."""
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
    """Draw an action in state s from the packed alias tables `pol`, by a random word; `mask` is from `alias_mask`."""
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
    """Train the critic Q, V of a policy π by expected TD(0), at every step of N walks from ρ with geometric horizon:

        Q(s, a) += β (h + γ V(s') − Q(s, a)),    V(s) = Σ_a π(a|s) Q(s, a),    β = 1/(1 + gain·count(s, a))

    All signals h are learned at once. The actions are drawn from the packed policy `pol`, which may differ from π,
    since V is a mean over π. Visits are counted in `visits` [S], start states in `starts` [S] and, unless `hits`
    [2·cells] is empty, transitions in `hits`. Return the number of environment steps.
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
            row = U(s) * U(A) + a  # unsigned, so that numba does not check for negative indices
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
    """Continue one trajectory from state s for N steps; train the critic Q, V of π as in `td`, with step size `beta`.

    The actions are drawn from the packed policy `pol`, and `visits` [S] counts states. If s < 0, or if s ends an
    episode (mask `ends` [S]), the next state is drawn from ρ. Return the last state.
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
    """Run N walks from ρ with the packed policy `pol`; return the number of environment steps.

    Three sums are updated: the visits of each pair in `count` [S·A], the starts in `starts` [S], and V(s') over the
    next states s', for H signals, in `total` [S·A, H]. They suffice for a TD step of any critic with targets from V.
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
    """Run N walks from ρ with the packed policy `pol`; count transitions and starts, and return the number of steps.

    The counters are `hits` [2·cells] and `starts` [S].
    """
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
    """Draw N next states of the state-action pair `row` = s·A + a of `model`, and count them in `count` [S]."""
    cells, indptr, width, _, _, _, _, _, _ = model
    first, k = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
    x = fold(key, row)
    for _ in range(N):
        x += G
        count[_pick(mix(x), U(first), k, cells)] += 1.0


@kernel
def returns(key, begin, model, gamma, ratio, pols, choice, base, inside, X, component, hits, starts):
    """Draw N episodes of a mixture, from number `begin` on, and compute a bounded unbiased estimate X of J from each.

        X = V̂(s_0) + Σ_{t<T} (γ/q)^t (h_t + γ V̂(s_{t+1}) − V̂(s_t)),    P(T > t) = q^t,    ratio = γ/q

    h are the signals. The control variate V̂ is `base` [M, S, 1+I], or [1, S, 1+I] if all policies share it. `pols`
    [M, S·A] are the packed policies, `choice` the alias cells of their weights, and `model` has tables of γ^t with q in
    place of γ.

    Write X [N, 1+I], and the index of the policy of each episode to `component` [N]. Unless `hits` is empty, count
    transitions in `hits` [2·cells] and start states in `starts`. Return (number of steps, episode, step). The last two
    are the first place where a signal is out of bounds, that is, where `inside` [S·A] is false; −1 and −1 if there is
    none.
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
    """Draw next states s' of every pair (s, a), and write weights·h(s, a) + γ V(s') − V(s) to X[s·A + a, n] for draw n.

    `weights` [1+I] are the weights of the signals h. Pairs without transitions are skipped. Return the number of draws.
    """
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
    """Add the log wealth Σ_n log(1 + bets_j z_n) of each bet j to total[j]; z are the outcomes of the bets.

    One logarithm is taken for every 32 factors, whose product cannot overflow. At most 1024 logarithms are added to one
    sum, since the rounding error of a sum grows with its length.
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
