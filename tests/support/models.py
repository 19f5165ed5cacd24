"""Models that several tests use."""

from __future__ import annotations

import numpy as np

import clearance as cl


def random_cmdp(
    seed: int, S: int = 6, A: int = 3, I: int = 1, gamma: float = 0.8, concentration: float = 0.5
) -> cl.CMDP:
    """A model with sparse-ish random rows, signed signals and a random start; limits low enough to be met."""
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(S, concentration), size=(S, A))
    g = rng.uniform(-1, 1, (I, S, A))
    return cl.CMDP(P, rng.uniform(-1, 2, (S, A)), g, -2 / (1 - gamma), rho=rng.dirichlet(np.ones(S)), gamma=gamma)


def with_limits(cmdp: cl.CMDP, margin: float) -> cl.CMDP:
    """The same model with equal limits that leave exactly this Slater margin."""
    start, _ = cl.slater_margin(cmdp.replace(b=np.zeros(cmdp.I)))
    return cmdp.replace(b=np.full(cmdp.I, start - margin))


def random_theta(seed: int, d: int, size: float = 1.0) -> np.ndarray:
    return size * np.random.default_rng(seed).normal(size=d)
