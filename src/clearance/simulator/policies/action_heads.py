"""Action distributions ("heads") as functions of a network's outputs: sampling, Fisher matrix and KL divergence.

A head draws a *latent* u. The action is a fixed function of u (`clearance.core.action_draws`); for Gaussians on a
bounded box it squashes u into the box. This function is one to one and does not depend on θ, so ∇ log π(action) = ∇ log
N(u). Scores and Fisher matrices therefore need neither the squashing function nor its inverse, which is inaccurate near
the ends.

A network's outputs `out` have one axis [size]; batches use vmap.
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
    """The distribution of discrete actions, in JAX: one categorical distribution for each part of the action.

    The network's outputs `out` are the logits of all parts, one after the other.
    """

    xp = jnp

    def noise(self, key: Any, shape: tuple[int, ...]) -> Any:
        """Return Gumbel noise [*shape, size], by which categorical choices are drawn."""
        return jax.random.gumbel(key, (*shape, self.size))

    def log_prob(self, out: Any, u: Any) -> Any:
        """Return log π(u), the sum over the parts of an action of log softmax(logits)[u_i].

        `u` holds the choice u_i for each part, and `out` the logits of all parts.
        """
        parts = (jax.nn.log_softmax(p)[u[i]] for i, p in enumerate(self.parts(out)))
        return sum(parts)

    def fisher(self, out: Any, v: Any) -> Any:
        """Return M v for a vector v [size], where M is the Fisher matrix with respect to the logits `out`.

        For each part of the action, M = diag(p) − p pᵀ with the probabilities p.
        """
        pairs = zip(self.parts(out), self.parts(v), strict=True)
        return jnp.concatenate([_centred(jax.nn.softmax(o), w) for o, w in pairs])

    def kl(self, out: Any, new: Any) -> Any:
        """Return KL(π ‖ π_new) of the distributions with logits `out` and `new`."""
        pairs = [
            (jax.nn.log_softmax(o), jax.nn.log_softmax(n)) for o, n in zip(*map(self.parts, (out, new)), strict=True)
        ]
        return sum(jnp.sum(jnp.exp(a) * (a - b)) for a, b in pairs)


def _centred(p: Any, v: Any) -> Any:
    return p * (v - jnp.sum(p * v))


@dataclass(frozen=True, eq=False)
class Gaussian(NormalDraws):
    """The distribution of real actions, in JAX: independent normals with parameters `out` = (mean, log σ)."""

    xp = jnp

    def noise(self, key: Any, shape: tuple[int, ...]) -> Any:
        return jax.random.normal(key, (*shape, self.m))

    def log_prob(self, out: Any, u: Any) -> Any:
        """Return the log density of N(mean, σ²) at a latent u, the value before it is squashed into the box of actions.

        The derivative of the squashing function is left out, since it does not depend on θ.
        """
        mean, log_std = out[: self.m], out[self.m :]
        return jnp.sum(-0.5 * ((u - mean) / jnp.exp(log_std)) ** 2 - log_std - 0.5 * LOG_2PI)

    def fisher(self, out: Any, v: Any) -> Any:
        """Return M v for a vector v [size], where M = diag(1/σ², 2) is the Fisher matrix in (mean, log σ)."""
        return jnp.concatenate([v[: self.m] * jnp.exp(-2 * out[self.m :]), 2 * v[self.m :]])

    def kl(self, out: Any, new: Any) -> Any:
        """Return KL(π ‖ π_new) of the distributions with parameters `out` and `new`."""
        m = self.m
        ratio = jnp.exp(2 * (out[m:] - new[m:]))
        apart = ((out[:m] - new[:m]) * jnp.exp(-new[m:])) ** 2
        return 0.5 * jnp.sum(ratio + apart - 1 + 2 * (new[m:] - out[m:]))


Head = Categorical | Gaussian


def head_of(space: Space) -> Head:
    """Return the action distribution for an action space."""
    if isinstance(space, Discrete | MultiDiscrete):
        return Categorical(space.nvec, isinstance(space, Discrete))
    return Gaussian(space)
