"""Compiled stochastic regressions that estimate the update direction ω of the policy parameters θ:

    minimise over x   E (score·x − y)²        for all columns y of the targets at once

A score is the gradient of log π(a|s) with respect to θ; the scores are the rows of an array [N, d].
"""

from __future__ import annotations

import numpy as np

from clearance.core.compiled.compilation import kernel


# These options let the compiler reorder sums, so that it can compute four at a time.
@kernel(fastmath={"reassoc", "contract"})
def weighted(score, y, sigma, cap):
    """Return the weighted mean Σ 2(n+1) x_n / (N(N+1)) of the SGD iterates x ← x − α_n (score_n·x − y_n) score_n.

    The step size is α_n = 2/(σ(n+1)), but at most `cap`; σ is `sigma`. `score` is [N, d], the targets y are [N, H] and
    the result is [d, H]: one regression for each column of y.
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


@kernel(fastmath={"reassoc", "contract"})
def accelerated(score, y, a, beta, xi, delta):
    """Return the mean [d] of the last half of the iterates x of accelerated SGD (Jain et al. 2018).

    Each row of `score` [N, d], with its target in y [N], makes one step with the coefficients a, β, ξ and δ:

        u = a·x + (1−a)·v,    ĝ = (score·u − y) score,    x = u − δĝ,    v = βu + (1−β)v − ξĝ
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


# The same regressions for tabular softmax, whose score at (s, a) is e_a − π(·|s) in the block of s and 0 elsewhere.


@kernel
def weighted_table(pair, pi, y, sigma, cap):
    """Return the result of `weighted`, with the same `sigma` and `cap`, for a tabular softmax policy π [S, A].

    `pair` [N] holds the sampled pairs s·A + a. Each sample takes only A operations, because an entry of the mean is
    updated only when the same entry of the iterate x changes.
    """
    N, H, A = len(pair), y.shape[1], pi.shape[1]
    d = pi.size
    x, mean, since = np.zeros((H, d)), np.zeros((H, d)), np.zeros(d)
    total = 0.0  # the sum of the weights so far; entry i of the mean is up to date until the sum since[i]
    for n in range(N):
        s, a = pair[n] // A, pair[n] % A
        alpha = min(2.0 / (sigma * (n + 1)), cap)
        for j in range(H):
            error = x[j, s * A + a] - y[n, j]
            for i in range(A):
                error -= pi[s, i] * x[j, s * A + i]
            for i in range(A):
                at = s * A + i
                mean[j, at] += (total - since[at]) * x[j, at]
                x[j, at] -= alpha * error * ((1.0 if i == a else 0.0) - pi[s, i])
        for i in range(A):
            since[s * A + i] = total
        total += 2.0 * (n + 1) / (N * (N + 1.0))
    for j in range(H):
        for i in range(d):
            mean[j, i] += (total - since[i]) * x[j, i]
    return mean.T


@kernel(fastmath={"reassoc", "contract"})
def accelerated_table(pair, pi, y, a, beta, xi, delta):
    """Return the result of `accelerated`, with the same coefficients, for a tabular softmax policy π [S, A].

    `pair` [N] holds the sampled pairs s·A + a. The error of a sample depends only on the A entries of the iterates x
    and v at its state s, but its step changes all entries.
    """
    N, A, d = len(pair), pi.shape[1], pi.size
    x, v, u, mean = np.zeros(d), np.zeros(d), np.zeros(d), np.zeros(d)
    late = N - N // 2
    for n in range(N):
        s, act = pair[n] // A, pair[n] % A
        for i in range(d):
            u[i] = a * x[i] + (1 - a) * v[i]
            x[i] = u[i]
            v[i] = beta * u[i] + (1 - beta) * v[i]
        error = u[s * A + act] - y[n]
        for i in range(A):
            error -= pi[s, i] * u[s * A + i]
        for i in range(A):
            score = (1.0 if i == act else 0.0) - pi[s, i]
            x[s * A + i] -= delta * error * score
            v[s * A + i] -= xi * error * score
        if n >= N - late:
            for i in range(d):
                mean[i] += x[i]
    return mean / late
