"""What a statistical certificate needs of a policy: bounded unbiased estimates of its J, one per episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array

Batch = tuple[Array, NDArray[np.int64], int]  # X [n, 1+I], component of each episode [n], environment steps


class Episodes(Protocol):
    """A source of independent episodes of one policy."""

    @property
    def bounds(self) -> tuple[Array, Array]:
        """(low, high) of an estimate [1+I], and of J: every number that `draw` gives lies within."""
        ...

    @property
    def bias(self) -> Array:
        """By how much the mean of the estimates may differ from J [1+I]: random bits and sums of finite precision."""
        ...

    @property
    def episode_steps(self) -> float:
        """Environment steps of an episode, on average."""
        ...

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        """Return the estimates of episodes begin .. begin + n − 1 of the stream `key`."""
        ...


def blocks(begin: int, n: int, size: int) -> list[tuple[int, int]]:
    """Return (begin, length) of the blocks that episodes begin .. begin + n − 1 are cut into."""
    return [(b, min(size, begin + n - b)) for b in range(begin, begin + n, size)]


def join(parts: Sequence[Batch]) -> Batch:
    """Return blocks, in their order, as one batch."""
    X, component, steps = zip(*parts, strict=True)
    return np.concatenate(X), np.concatenate(component), int(sum(steps))
