"""Compiled backward induction over a finite horizon, on sparse models with rows s·A + a.

    V_t(s) = max_a h(s, a) + γ Σ_s' P(s'|s, a) V_{t+1}(s'),   V_H = 0

For each step, one pass over all transitions finds the best actions for one signal. The values of all signals are then
computed from the rows of the chosen actions only.
"""

from __future__ import annotations

import numpy as np

from clearance.core.compiled.compilation import kernel
from clearance.core.compiled.iterative import row_dot

U = np.uint64


@kernel
def induct(indptr, indices, data, h, mixed, gamma, allowed, act, V):
    """Compute the best actions for the signal `mixed` [S·A]: write them to act [H, S], and their values to V [H, S].

    Return the values [S, n] at step 0 of the n signals h [S·A, n] under this policy. The mask `allowed` [H, S·A] says
    which state-action pairs may be taken at each step; a mask [1, S·A] holds for every step. The transitions are CSR
    (indptr, indices, data).
    """
    H, S = act.shape
    n = h.shape[1]
    A = len(h) // S
    later, now, ahead = np.zeros((S, n)), np.zeros((S, n)), np.zeros(S)
    for step in range(H):
        t = H - 1 - step
        rows = allowed[t if len(allowed) > 1 else 0]
        for s in range(S):
            best, choice = -np.inf, np.int64(0)
            for a in range(A):
                row = s * A + a
                if not rows[row]:
                    continue
                q = mixed[row] + gamma * row_dot(indices, data, indptr[row], indptr[row + 1], ahead)
                if q > best:
                    best, choice = q, np.int64(a)
            act[t, s], V[t, s] = choice, best
            row = s * A + choice
            for k in range(n):
                now[s, k] = 0.0
            for i in range(U(indptr[row]), U(indptr[row + 1])):
                p, target = data[i], U(indices[i])
                for k in range(n):
                    now[s, k] += p * later[target, k]
            for k in range(n):
                now[s, k] = h[row, k] + gamma * now[s, k]
        ahead[:] = V[t]
        later, now = now, later
    return later


@kernel
def follow(indptr, indices, data, h, gamma, pi, later, now, size):
    """Evaluate one step of a policy π [S, A]: now(s) = Σ_a π(a|s) (h(s, a) + γ Σ_s' P(s'|s, a) later(s')).

    h [S·A, n] are n signals, `later` [S, n] are their values at the next step, and `now` [S, n] receives those at this
    step. The same sum with absolute values is written to `size` [S, n]; it is used to bound the rounding error.
    """
    S, A = pi.shape
    n = later.shape[1]
    value, bound = np.empty(n), np.empty(n)
    for s in range(S):
        for k in range(n):
            now[s, k], size[s, k] = 0.0, 0.0
        for a in range(A):
            if pi[s, a] == 0.0:
                continue
            row = s * A + a
            for k in range(n):
                value[k], bound[k] = 0.0, 0.0
            for i in range(U(indptr[row]), U(indptr[row + 1])):
                p, target = data[i], U(indices[i])
                for k in range(n):
                    change = p * later[target, k]
                    value[k] += change
                    bound[k] += abs(change)
            for k in range(n):
                now[s, k] += pi[s, a] * (h[row, k] + gamma * value[k])
                size[s, k] += pi[s, a] * (abs(h[row, k]) + gamma * bound[k])
