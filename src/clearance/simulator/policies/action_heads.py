"""Distributions over actions, as functions of a network's outputs: what a policy draws, and its Fisher matrix.

A head draws a *latent* u; the action is a fixed function of it (`clearance.core.action_draws`), squashed for Gaussians
on a bounded box. The map is one to one and does not depend on θ, so ∇ log π(action) = ∇ log N(u): scores and Fisher
matrices never meet the squashing, nor the numbers near its ends that cannot be inverted.

Outputs `out` have one axis [size]; batches go through vmap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clearance.core.action_draws import ChoiceDraws, NormalDraws
from clearance.core.spaces import Discrete, MultiDiscrete, Space
from clearance.simulator.jax_backend import jax, jnp

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Categorical(ChoiceDraws):
    """Independent choices with logits `out`, in JAX."""

    xp = jnp

    def noise(self, key: Any, shape: tuple[int, ...]) -> Any:
        """Gumbel noise [..., size]."""
        return jax.random.gumbel(key, (*shape, self.size))

    def log_prob(self, out: Any, u: Any) -> Any:
        """log π(u) = Σ_parts log softmax(logits)[u]."""
        parts = (jax.nn.log_softmax(p)[u[i]] for i, p in enumerate(self.parts(out)))
        return sum(parts)

    def fisher(self, out: Any, v: Any) -> Any:
        """M v with M = diag(p) − p pᵀ for each part: the Fisher matrix in the logits."""
        pairs = zip(self.parts(out), self.parts(v), strict=True)
        return jnp.concatenate([_centred(jax.nn.softmax(o), w) for o, w in pairs])

    def kl(self, out: Any, new: Any) -> Any:
        """KL(π ‖ π_new)."""
        pairs = [
            (jax.nn.log_softmax(o), jax.nn.log_softmax(n)) for o, n in zip(*map(self.parts, (out, new)), strict=True)
        ]
        return sum(jnp.sum(jnp.exp(a) * (a - b)) for a, b in pairs)


def _centred(p: Any, v: Any) -> Any:
    return p * (v - jnp.sum(p * v))


@dataclass(frozen=True, eq=False)
class Gaussian(NormalDraws):
    """Independent normals, in JAX."""

    xp = jnp

    def noise(self, key: Any, shape: tuple[int, ...]) -> Any:
        return jax.random.normal(key, (*shape, self.m))

    def log_prob(self, out: Any, u: Any) -> Any:
        """log N(u; mean, σ²), without the squashing's own density: it does not depend on θ."""
        mean, log_std = out[: self.m], out[self.m :]
        return jnp.sum(-0.5 * ((u - mean) / jnp.exp(log_std)) ** 2 - log_std - 0.5 * LOG_2PI)

    def fisher(self, out: Any, v: Any) -> Any:
        """M v with M = diag(1/σ², 2): the Fisher matrix in (mean, log σ)."""
        return jnp.concatenate([v[: self.m] * jnp.exp(-2 * out[self.m :]), 2 * v[self.m :]])

    def kl(self, out: Any, new: Any) -> Any:
        """KL(π ‖ π_new)."""
        m = self.m
        ratio = jnp.exp(2 * (out[m:] - new[m:]))
        apart = ((out[:m] - new[:m]) * jnp.exp(-new[m:])) ** 2
        return 0.5 * jnp.sum(ratio + apart - 1 + 2 * (new[m:] - out[m:]))


Head = Categorical | Gaussian


def head_of(space: Space) -> Head:
    """Return the distribution that goes with an action space."""
    if isinstance(space, Discrete | MultiDiscrete):
        return Categorical(space.nvec, isinstance(space, Discrete))
    return Gaussian(space)
