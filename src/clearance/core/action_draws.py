"""From a network's outputs to actions, in plain array code: NumPy where a policy runs, JAX where it learns.

A draw is a *latent* u = latent(out, noise); the action is a fixed function of it. Without noise it is the most likely
action. For normals on a bounded box the action is squashed,

    action = middle + half · tanh(u),      u ~ N(mean, σ²)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from clearance.core.spaces import Box, Discrete, MultiDiscrete, Space


@dataclass(frozen=True)
class ChoiceDraws:
    """Independent choices with logits `out`: one part per entry of nvec, latents [parts] whole numbers."""

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
        """Gumbel noise [n, size]: the action is where logit + noise is largest."""
        return rng.gumbel(size=(n, self.size))

    def latent(self, out: Any, noise: Any, xp: Any = None) -> Any:
        xp = self.xp if xp is None else xp
        return xp.stack([xp.argmax(p, -1) for p in self.parts(out + noise)], -1)

    def action(self, u: Any, xp: Any = None) -> Any:
        return u[..., 0] if self.scalar else u


@dataclass(frozen=True, eq=False)
class NormalDraws:
    """Independent normals: `out` is (mean, log σ) [2m], latents [m]; squashed where the box has both bounds."""

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
    """Return the draws that go with an action space."""
    if isinstance(space, Discrete | MultiDiscrete):
        return ChoiceDraws(space.nvec, isinstance(space, Discrete))
    return NormalDraws(space)
