"""The protocol of episode sources. Each episode gives a bounded unbiased estimate of a policy's J for a certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array

Batch = tuple[Array, NDArray[np.int64], int]  # X [n, 1+I], component of each episode [n], environment steps


class Episodes(Protocol):
    """A protocol for sources of independent episodes of one policy."""

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The bounds (low, high), each [1+I], of J and of every estimate that `draw` returns."""
        ...

    @property
    def bias(self) -> Array:
        """A bound [1+I] on |E X − J|, where X is an estimate; the difference comes from finite precision."""
        ...

    @property
    def episode_steps(self) -> float:
        """The mean number of environment steps of an episode."""
        ...

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        """Return the estimates of episodes begin .. begin + n − 1 of the random stream `key`."""
        ...


def blocks(begin: int, n: int, size: int) -> list[tuple[int, int]]:
    """Return (begin, length) of the blocks into which the episodes begin .. begin + n − 1 are split.

    Each block has `size` episodes; the last one may be shorter.
    """
    return [(b, min(size, begin + n - b)) for b in range(begin, begin + n, size)]


def join(parts: Sequence[Batch]) -> Batch:
    """Join batches, in the given order, into one batch."""
    X, component, steps = zip(*parts, strict=True)
    return np.concatenate(X), np.concatenate(component), int(sum(steps))
