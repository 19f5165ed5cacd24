"""Policies to deploy: every head with random weights, and tables."""

from __future__ import annotations

from typing import Any

import numpy as np

import clearance as cl
from clearance.core.spaces import Box, Discrete, MultiDiscrete, Space
from clearance.simulator.policies.network_policy import Design, Normaliser, categorical, gaussian

INF = np.inf
HEADS: dict[str, tuple[Design, Space]] = {
    "discrete": (categorical((12,)), Discrete(3)),
    "linear": (categorical(()), Discrete(4, start=-1)),
    "multi-discrete": (categorical((8, 8)), MultiDiscrete((2, 3), start=(1, 0))),
    "multi-discrete form": (categorical((8,)), MultiDiscrete((2, 3, 2, 2), form=(2, 2))),
    "squashed": (gaussian((12, 6)), Box(np.array([-1.0, 0.0]), np.array([1.0, 5.0]))),
    "free": (gaussian((5,)), Box(np.full(2, -INF), np.full(2, INF))),
    "half bounded": (gaussian((5,)), Box(np.array([-INF, 0.0]), np.array([1.0, INF]))),
    "mixed bounds": (gaussian((5,)), Box(np.array([-2.0, 0.0]), np.array([2.0, INF]))),
    "scale by state": (gaussian((7,), scale="state"), Box(np.full(4, -1.0), np.full(4, 3.0), form=(2, 2))),
    "fixed scale": (gaussian((), scale="fixed", std=0.3), Box(np.array([-1.0]), np.array([1.0]))),
}
HEADS |= {
    "image": (categorical((6,)), Discrete(3)),
    "stacked frames": (gaussian((5,), conv=((4, 3, 2),)), Box(np.array([-1.0]), np.array([1.0]))),
}
SHAPES: dict[str, tuple[int, ...]] = {name: (2, 2) if name == "scale by state" else (3,) for name in HEADS}
SHAPES |= {"image": (9, 8, 2), "stacked frames": (2, 8, 9)}


def network_mixture(head: str, M: int, seed: int = 0) -> cl.NetworkMixture:
    """M networks with this head and random θ; half of the designs come with a normaliser of their own."""
    rng, (design, space) = np.random.default_rng(seed), HEADS[head]
    policy: Any = design.fitted(SHAPES[head], space)
    theta = rng.normal(0, 0.7, (M, policy.d))
    n = policy.inputs
    own = Normaliser(rng.normal(size=n).astype("f"), rng.uniform(0.2, 4, n).astype("f"), np.float32(100))
    return cl.NetworkMixture(
        policy, rng.dirichlet(np.ones(M)), theta, own if design.normalise else Normaliser.identity(n)
    )


def table_mixture(M: int, seed: int = 0) -> cl.Mixture:
    """M random policies of a model with 5 states and 3 actions."""
    rng = np.random.default_rng(seed)
    return cl.Mixture(rng.dirichlet(np.ones(M)), rng.dirichlet(np.ones(3), size=(M, 5)))


def timed_mixture(M: int) -> cl.Mixture:
    """M random policies of 4 steps, 5 states and 3 actions."""
    rng = np.random.default_rng(0)
    return cl.Mixture(rng.dirichlet(np.ones(M)), rng.dirichlet(np.full(3, 0.3), size=(M, 4, 5)))
