"""Compiled sums of signals until absorption: their range over the possible paths, and sampled episodes."""

from __future__ import annotations

import numpy as np

from clearance.core.compiled.alias_tables import G, U, alias_mask, fold, mix
from clearance.core.compiled.compilation import kernel
from clearance.core.compiled.episodes import _action, _pick, _slot


@kernel
def largest_sums(source, target, gain, M):
    """Raise M [S] to the largest sum of `gain` along any path from each state to its end, and return nothing.

    The possible steps are source[k] → target[k] with `gain`[k]. At first M is 0 where a path may end and −∞ elsewhere.
    No cycle has a step with a gain other than 0, so repeated sweeps end. They are few if the steps whose paths are the
    shortest come first.
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
    """Draw the episodes begin .. begin + N − 1 of a mixture until they end; write their sums to X [N, 1+I].

    A step from s by a to s' pays rest[s·A + a, j], and paid[s', j] too unless over[s, j]. An episode of the policy m
    ends in the states where going[m, s] is false. `pols` [M, S·A] are the packed policies, and `choice` the alias cells
    of their weights; `component` [N] gets the policy of each episode. Transitions are counted in `hits` [2·cells], and
    start states in `starts`, unless `hits` is empty. Return (steps made, episode): the first episode that had not ended
    after `longest` steps, or −1.
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
