"""Algorithm 1 as a script would write it: plain Python and NumPy, one sample after the other.

The yardstick for the compiled kernels. Its work is that of the published script: the visitation of pairs (s, a) by
power iteration to 1e-6, every action and state by `RandomState.choice`, rollouts of the single signal r + λg, SGD row
by row.
"""

from __future__ import annotations

import numpy as np

import clearance as cl


def iteration(
    cmdp: cl.CMDP, features: np.ndarray, theta: np.ndarray, lam: float, N: int, rng: np.random.RandomState
) -> tuple[np.ndarray, float]:
    """One iteration of Algorithm 1 with Λ = ∞; returns the new θ and Ĵ_g."""
    S, A, h_L = cmdp.S, cmdp.A, cmdp.r + lam * cmdp.g[0]
    logits = features @ theta
    pi = np.exp(logits - logits.max(1, keepdims=True))
    pi /= pi.sum(1, keepdims=True)
    visit = visitation(cmdp, pi)

    def rollout(signal: np.ndarray, s: int, a: int) -> float:
        total = 0.0
        for _ in range(rng.geometric(1 - cmdp.gamma)):
            total += signal[s, a]
            s = rng.choice(S, p=cmdp.P[s, a])
            a = rng.choice(A, p=pi[s])
        return total

    w, mean = np.zeros(features.shape[2]), np.zeros(features.shape[2])
    for _ in range(N):
        s, a = divmod(int(rng.choice(S * A, p=visit)), A)
        A_hat = rollout(h_L, s, a) - rollout(h_L, s, int(rng.choice(A, p=pi[s])))
        score = features[s, a] - pi[s] @ features[s]
        w = w - 0.05 * (score @ w - A_hat) * score
        mean += w / N
    starts = [int(rng.choice(S, p=cmdp.rho)) for _ in range(N)]
    J_g = np.mean([rollout(cmdp.g[0], s, int(rng.choice(A, p=pi[s]))) for s in starts])
    return theta + 0.1 * mean / (1 - cmdp.gamma), float(J_g)


def visitation(cmdp: cl.CMDP, pi: np.ndarray) -> np.ndarray:
    """d(s, a) [S·A] by power iteration, until it changes by less than 1e-6."""
    chain = (cmdp.P[:, :, :, None] * pi[None, None]).reshape(cmdp.S * cmdp.A, -1)
    start = (cmdp.rho[:, None] * pi).ravel()
    d, change = start, 1.0
    while change > 1e-6:
        new = (1 - cmdp.gamma) * start + cmdp.gamma * d @ chain
        d, change = new, float(np.abs(new - d).sum())
    return d / d.sum()
