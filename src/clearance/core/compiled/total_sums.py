"""Compiled sums of signals until absorption: their range over the possible paths, and sampled episodes."""

from __future__ import annotations

import numpy as np

from clearance.core.compiled.alias_tables import G, U, alias_mask, fold, mix
from clearance.core.compiled.compilation import kernel
from clearance.core.compiled.episodes import _action, _pick, _slot


@kernel
def largest_sums(source, target, gain, M):
    """Raise M [S] to the largest sum of `gain` along any path from each state to its end; return nothing.

    The possible steps are source[k] → target[k] with gain[k]. Before the call, M is 0 where a path may end and −∞
    elsewhere. On cycles all gains are 0, so the repeated sweeps end. Few sweeps are needed if the steps near the ends
    of the paths come first.
    """
    changed = True
    while changed:
        changed = False
        for k in range(len(source)):
            found = gain[k] + M[target[k]]
            if found > M[source[k]]:
                M[source[k]] = found
                changed = True


@kernel
def sums(key, begin, model, rest, paid, over, going, pols, choice, longest, X, component, hits, starts):
    """Draw N episodes of a mixture, from number `begin` on, until they end; write their sums to X [N, 1+I].

    A step from s by a to s' adds rest[s·A + a, j] to sum j and, unless over[s, j], also paid[s', j]. An episode of the
    policy m ends in the states where going[m, s] is false. `pols` [M, S·A] are the packed policies, and `choice` the
    alias cells of their weights. The index of the policy of each episode is written to `component` [N]. Unless `hits`
    is empty, transitions are counted in `hits` [2·cells] and start states in `starts`. Return (number of steps,
    episode): the first episode that had not ended after `longest` steps, or −1.
    """
    cells, indptr, width, origin, _, A, _, _, _ = model
    N, H = X.shape
    mask, steps, counting = alias_mask(A), 0, len(hits) > 0
    for n in range(N):
        x = fold(key, begin + n)
        x += G
        m = _pick(mix(x), U(0), len(choice), choice)
        component[n] = m
        x += G
        s = _pick(mix(x), U(0), len(origin), origin)
        if counting:
            starts[s] += 1.0
        for j in range(H):
            X[n, j] = 0.0
        t = 0
        while going[m, s]:
            if t >= longest:
                return steps, begin + n
            x += G
            row = s * A + _action(mix(x), s, A, mask, pols[m])
            first, k = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
            x += G
            slot = _slot(mix(x), U(first), k, cells)
            after = np.int64(cells[slot >> U(1), U(1) + (slot & U(1))])
            if counting:
                hits[slot] += np.uint32(1)
            for j in range(H):
                X[n, j] += rest[row, j]
                if not over[s, j]:
                    X[n, j] += paid[after, j]
            s = after
            t += 1
            steps += 1
    return steps, -1
