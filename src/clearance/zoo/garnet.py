"""Garnet models: sparse random MDPs of any size, the usual benchmark for solvers."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from clearance.finite.cmdp import CMDP


def garnet(
    S: int = 1000,
    A: int = 5,
    successors: int = 10,
    I: int = 1,
    *,
    gamma: float = 0.99,
    level: float = 0.55,
    seed: int = 0,
) -> CMDP:
    """Return a sparse random CMDP in which every pair (s, a) leads to `successors` random states (with repetition).

    The transition weights are drawn from U(0,1) and normalised; r and g are drawn from U(0,1); ρ is uniform. The I
    limits are J_gi ≥ level/(1−γ).

    Garnet models were named by Archibald, McKinnon and Thomas (1995). A policy that maximises only r has J_g near
    0.5/(1−γ); one that maximises only g_1 has about J_g1 = 0.8/(1−γ). So at the default level the limits bind, and they
    are feasible for I ≤ 3.
    """
    rng = np.random.default_rng(seed)
    n = S * A
    weights = rng.random((n, successors))
    weights /= weights.sum(1, keepdims=True)
    to = rng.integers(0, S, size=(n, successors), dtype=np.int32)
    P = sparse.csr_array((weights.ravel(), to.ravel(), np.arange(0, n * successors + 1, successors)), shape=(n, S))
    return CMDP(P, rng.random((S, A)), rng.random((I, S, A)), level / (1 - gamma), gamma=gamma)


def million() -> CMDP:
    """Return a garnet model with a million states, five actions, ten successors and one limit: 5·10⁷ transitions."""
    return garnet(1_000_000)
