"""Compiled stochastic regressions of the natural direction: rows of scores in, ω out.

minimise  E (score·x − y)²        for the columns of y at once
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def weighted(score, y, sigma, cap):
    """x ← x − α_n (score_n·x − y_n) score_n with α_n = 2/(σ(n+1)), at most `cap`; Σ 2(n+1) x_n / (N(N+1)).

    score [N, d], y [N, H] → [d, H]: one regression for each column.
    """
    N, d = score.shape
    H = y.shape[1]
    x, mean = np.zeros((H, d)), np.zeros((H, d))
    for n in range(N):
        alpha = min(2.0 / (sigma * (n + 1)), cap)
        weight = 2.0 * (n + 1) / (N * (N + 1.0))
        for j in range(H):
            error = -y[n, j]
            for i in range(d):
                error += score[n, i] * x[j, i]
            for i in range(d):
                x[j, i] -= alpha * error * score[n, i]
                mean[j, i] += weight * x[j, i]
    return mean.T


@njit(cache=True, nogil=True)
def accelerated(score, y, a, beta, xi, delta):
    """Accelerated SGD (Jain et al. 2018): u = a·x + (1−a)·v, x = u − δĝ, v = βu + (1−β)v − ξĝ; mean of the last N/2 x.

    score [N, d], y [N]; ĝ = (score·u − y) score.
    """
    N, d = score.shape
    x, v, mean = np.zeros(d), np.zeros(d), np.zeros(d)
    late = N - N // 2
    for n in range(N):
        error = -y[n]
        for i in range(d):
            error += score[n, i] * (a * x[i] + (1 - a) * v[i])
        for i in range(d):
            u = a * x[i] + (1 - a) * v[i]
            x[i] = u - delta * error * score[n, i]
            v[i] = beta * u + (1 - beta) * v[i] - xi * error * score[n, i]
        if n >= N - late:
            for i in range(d):
                mean[i] += x[i]
    return mean / late
