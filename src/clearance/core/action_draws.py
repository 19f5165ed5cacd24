"""Draw actions from the outputs of a policy network, in array code that runs with NumPy (deployment) or JAX (learning).

A draw has two steps. First a *latent* value u = latent(out, noise) is drawn; then the action is a fixed function of u.
With zero noise, u gives the most likely action. If the action space is a bounded box, tanh maps a normally distributed
u into the box:

    action = middle + half · tanh(u),      u ~ N(mean, σ²)

Here `middle` is the centre of the box, and `half` its half width in each entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from clearance.core.spaces import Box, Discrete, MultiDiscrete, Space


@dataclass(frozen=True)
class ChoiceDraws:
    """Draws of discrete actions: an action is a vector of independent choices, and choice i has nvec[i] options.

    The network output is the concatenation of the logits of all choices. The latent values are whole numbers, one for
    each choice. With `scalar`, there is only one choice, and an action is a single number instead of a vector.
    """

    nvec: tuple[int, ...]
    scalar: bool
    xp: ClassVar[Any] = np

    @property
    def size(self) -> int:
        return sum(self.nvec)

    def parts(self, x: Any) -> list[Any]:
        ends = np.cumsum((0, *self.nvec))
        return [x[..., a:b] for a, b in pairwise(ends)]

    def plain_noise(self, rng: np.random.Generator, n: int) -> Any:
        """Return Gumbel noise [n, size].

        The argmax of logits + noise is then a sample from the categorical distribution.
        """
        return rng.gumbel(size=(n, self.size))

    def latent(self, out: Any, noise: Any, xp: Any = None) -> Any:
        xp = self.xp if xp is None else xp
        return xp.stack([xp.argmax(p, -1) for p in self.parts(out + noise)], -1)

    def action(self, u: Any, xp: Any = None) -> Any:
        return u[..., 0] if self.scalar else u


@dataclass(frozen=True, eq=False)
class NormalDraws:
    """Draws of continuous actions: each of the m entries of an action has its own independent normal distribution.

    The network output is (mean, log σ) [2m]; latent values are [m]. Entries of the action with two finite bounds are
    squashed by tanh; the other entries are clipped to their bounds.
    """

    box: Box
    xp: ClassVar[Any] = np

    @property
    def m(self) -> int:
        return len(self.box.low)

    @property
    def size(self) -> int:
        return 2 * self.m

    def plain_noise(self, rng: np.random.Generator, n: int) -> Any:
        return rng.standard_normal((n, self.m), np.float32)

    def latent(self, out: Any, noise: Any, xp: Any = None) -> Any:
        xp = self.xp if xp is None else xp
        return out[..., : self.m] + xp.exp(out[..., self.m :]) * noise

    def action(self, u: Any, xp: Any = None) -> Any:
        xp = self.xp if xp is None else xp
        squash = self.box.bounded
        if not squash.any():
            return xp.clip(u, self.box.low, self.box.high) if np.isfinite([self.box.low, self.box.high]).any() else u
        low, high = (np.where(squash, x, 0.0).astype(np.float32) for x in (self.box.low, self.box.high))
        inside = 0.5 * (low + high) + 0.5 * (high - low) * xp.tanh(u)
        return xp.where(squash, inside, xp.clip(u, self.box.low, self.box.high))


Draws = ChoiceDraws | NormalDraws


def draws_of(space: Space) -> Draws:
    """Return the object that draws actions of this action space: categorical choices or normals."""
    if isinstance(space, Discrete | MultiDiscrete):
        return ChoiceDraws(space.nvec, isinstance(space, Discrete))
    return NormalDraws(space)
