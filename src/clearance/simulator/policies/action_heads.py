"""Distributions over actions, as functions of a network's outputs: what a policy draws, and its Fisher matrix.

A head draws a *latent* u; the action is a fixed function of it. For Gaussians on a bounded box it is the squashed one,

    action = middle + half · tanh(u),      u ~ N(mean, σ²)

The map is one to one and does not depend on θ, so ∇ log π(action) = ∇ log N(u): scores and Fisher matrices never meet
the squashing, nor the numbers near its ends that cannot be inverted.

Outputs `out` have one axis [size]; batches go through vmap.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from clearance.core.spaces import Box, Discrete, MultiDiscrete, Space
from clearance.simulator.jax_backend import jax, jnp

LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Categorical:
    """Independent choices with logits `out`: one part per entry of nvec, latents [parts] whole numbers."""

    nvec: tuple[int, ...]
    scalar: bool

    @property
    def size(self) -> int:
        return sum(self.nvec)

    def _parts(self, x: Any) -> list[Any]:
        ends = np.cumsum((0, *self.nvec))
        return [x[..., a:b] for a, b in pairwise(ends)]

    def noise(self, key: Any, shape: tuple[int, ...]) -> Any:
        """Gumbel noise [..., size]: the action is where logit + noise is largest."""
        return jax.random.gumbel(key, (*shape, self.size))

    def plain_noise(self, rng: np.random.Generator, n: int) -> Any:
        """The same for NumPy [n, size]."""
        return rng.gumbel(size=(n, self.size))

    def latent(self, out: Any, noise: Any, xp: Any = None) -> Any:
        xp = jnp if xp is None else xp
        return xp.stack([xp.argmax(p, -1) for p in self._parts(out + noise)], -1)

    def log_prob(self, out: Any, u: Any) -> Any:
        """log π(u) = Σ_parts log softmax(logits)[u]."""
        parts = (jax.nn.log_softmax(p)[u[i]] for i, p in enumerate(self._parts(out)))
        return sum(parts)

    def fisher(self, out: Any, v: Any) -> Any:
        """M v with M = diag(p) − p pᵀ for each part: the Fisher matrix in the logits."""
        pairs = zip(self._parts(out), self._parts(v), strict=True)
        return jnp.concatenate([_centred(jax.nn.softmax(o), w) for o, w in pairs])

    def kl(self, out: Any, new: Any) -> Any:
        """KL(π ‖ π_new)."""
        pairs = [
            (jax.nn.log_softmax(o), jax.nn.log_softmax(n)) for o, n in zip(*map(self._parts, (out, new)), strict=True)
        ]
        return sum(jnp.sum(jnp.exp(a) * (a - b)) for a, b in pairs)

    def action(self, u: Any, xp: Any = None) -> Any:
        return u[..., 0] if self.scalar else u


def _centred(p: Any, v: Any) -> Any:
    return p * (v - jnp.sum(p * v))


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Independent normals: `out` is (mean, log σ) [2m], latents [m]; squashed where the box has both bounds."""

    box: Box

    @property
    def m(self) -> int:
        return len(self.box.low)

    @property
    def size(self) -> int:
        return 2 * self.m

    def noise(self, key: Any, shape: tuple[int, ...]) -> Any:
        return jax.random.normal(key, (*shape, self.m))

    def plain_noise(self, rng: np.random.Generator, n: int) -> Any:
        return rng.standard_normal((n, self.m), np.float32)

    def latent(self, out: Any, noise: Any, xp: Any = None) -> Any:
        xp = jnp if xp is None else xp
        return out[..., : self.m] + xp.exp(out[..., self.m :]) * noise

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

    def action(self, u: Any, xp: Any = None) -> Any:
        xp = jnp if xp is None else xp
        squash = self.box.bounded
        if not squash.any():
            return xp.clip(u, self.box.low, self.box.high) if np.isfinite([self.box.low, self.box.high]).any() else u
        low, high = (np.where(squash, x, 0.0).astype(np.float32) for x in (self.box.low, self.box.high))
        inside = 0.5 * (low + high) + 0.5 * (high - low) * xp.tanh(u)
        return xp.where(squash, inside, xp.clip(u, self.box.low, self.box.high))


Head = Categorical | Gaussian


def head_of(space: Space) -> Head:
    """The distribution that goes with an action space."""
    if isinstance(space, Discrete | MultiDiscrete):
        return Categorical(space.nvec, isinstance(space, Discrete))
    return Gaussian(space)
