"""Compiled improvement of policies for long-run means: sweeps of the Bellman operator, starting from a policy's bias.

    v(s) ← max_a h(s, a) − g(s) + Σ_s' P(s'|s, a) v(s')

Let v be the bias of a policy with gain g, and T v the right-hand side. Then v ≤ T v, each update can only raise v, and
v ≤ T v stays true. So the actions of the last updates form a policy whose gain is at least g. Sweeps update v in place
and alternate between forward and backward order, so an improvement at one state reaches the whole model. A step of
policy iteration would reach only the neighbours of that state.
"""

from __future__ import annotations

import numpy as np

from clearance.core.compiled.compilation import kernel

U = np.uint64


@kernel
def gain_sweeps(indptr, indices, data, h, gain, v, act, over, least, sweeps):
    """Improve the policy act [S] in place by at most `sweeps` sweeps, from its bias v [S] and its gain [S].

    Write max_a h + P v − v − gain, computed before the sweeps, to `over` [S]. State-action pairs without transitions
    are not available. An action is replaced only if the improvement cannot be rounding: it must exceed `least` times
    the size of the numbers involved. Return whether an action has changed.
    """
    S = len(v)
    A = len(h) // S
    w, largest, changed = v.copy(), 0.0, False
    for s in range(S):
        largest = max(largest, abs(v[s]))
    for sweep in range(sweeps + 1):
        moved = False
        for place in range(S):
            s = place if sweep % 2 == 1 else S - 1 - place
            best, choice, whole = -np.inf, act[s], -np.inf
            for a in range(A):
                row = s * A + a
                if indptr[row] == indptr[row + 1]:
                    continue
                total, own = 0.0, 0.0
                for i in range(U(indptr[row]), U(indptr[row + 1])):
                    if indices[i] == s:
                        own += data[i]
                    else:
                        total += data[i] * w[U(indices[i])]
                q = h[row] - gain[s] + total
                whole = max(whole, q + own * w[s])
                q = q / (1.0 - own) if own < 1.0 - 1e-9 else q + own * w[s]  # summed until the state is left
                if q > best:
                    best, choice = q, a
            if sweep == 0:
                over[s] = whole - w[s]
            elif best > w[s] + least * (abs(h[s * A + choice]) + abs(w[s]) + 1e-3 * largest):
                w[s] = best
                moved = True
                if choice != act[s]:
                    act[s] = choice
                    changed = True
        if sweep > 0 and not moved:
            break
    return changed
