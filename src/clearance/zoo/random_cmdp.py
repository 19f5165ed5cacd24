"""Random CMDPs: the recipe and the instance of Bai et al. (2023), and two instances of Ding et al."""

from __future__ import annotations

import numpy as np

from clearance.finite.cmdp import CMDP
from clearance.finite.softmax_policy import SoftmaxPolicy, linear_softmax


def random_cmdp(
    seed: int = 10,
    S: int = 10,
    A: int = 5,
    *,
    gamma: float = 0.8,
    low: float = -0.71,
    high: float = 0.29,
    b: float = 0.0,
) -> CMDP:
    """Return a random CMDP by the recipe of Bai et al. 2023 ("Evaluation Details").

    P is drawn from U(0,1) with normalised rows, r from U(0,1), and g from U(low, high). ρ is uniform, and the limit is
    J_g ≥ b. P, r and g are drawn in this order, as in the published script, so seed 10 gives the instance of the paper.
    """
    rng = np.random.RandomState(seed)  # the generator with which the published instances were drawn
    P = rng.uniform(size=(S * A, S))
    P /= P.sum(1, keepdims=True)
    r = rng.uniform(size=S * A)
    g = rng.uniform(size=S * A) * (high - low) + low
    return CMDP(P.reshape(S, A, S), r.reshape(S, A), g.reshape(1, S, A), b, gamma=gamma)


def bai2023() -> CMDP:
    """Return the instance in the figures of Bai et al. 2023: seed 10, |S| = 10, |A| = 5, γ = 0.8, b = 0."""
    return random_cmdp(10)


def bai2023_policy() -> SoftmaxPolicy:
    """Return the policy class of `bai2023`, with d = 35 features.

    The features are one-hot for the first 35 pairs (s, a) and zero for the others. So the policy is a tabular softmax
    in states 0..6, and always uniform in states 7, 8 and 9.
    """
    return linear_softmax(np.eye(50, 35).reshape(10, 5, 35))


def ding2020() -> CMDP:
    """Return the instance of Ding et al. 2020: |S| = 20, |A| = 10, γ = 0.8, g ~ U(0, 1), J_g ≥ 3."""
    return random_cmdp(10, 20, 10, gamma=0.8, low=0.0, high=1.0, b=3.0)


def ding2023() -> CMDP:
    """Return the instance of Ding et al. 2023: |S| = 20, |A| = 5, γ = 0.9, g ~ U(−1, 1), J_g ≥ 0."""
    return random_cmdp(10, 20, 5, gamma=0.9, low=-1.0, high=1.0)
