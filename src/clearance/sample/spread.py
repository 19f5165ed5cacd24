"""Episodes for a certificate drawn by many: the same evidence, bit for bit, as drawn by one.

The stream of an episode is a function of its number, and the bets are placed in this order: `statistical.gather` asks
for the episodes begin .. begin + n − 1, decides, and asks for the next. Here they are cut into blocks of fixed size,
which any worker may draw, and put together in order. Who draws, and when each block arrives, is not part of what is
decided on; and no episode is drawn beyond what was asked for, so there is none to discard after the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearance.crew import Crew
from clearance.executor import Executor
from clearance.problem import Array
from clearance.sample.returns import Batch, Returns

BLOCK = 2**13  # episodes of a finite model that one worker draws at a time


@dataclass(frozen=True, eq=False)
class Spread:
    """One of several sources that a crew has, as a source of its own (`statistical.Episodes`)."""

    source: Returns
    which: int
    crew: Crew

    @property
    def bounds(self) -> tuple[Array, Array]:
        return self.source.bounds

    @property
    def episode_steps(self) -> float:
        return self.source.episode_steps

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        return joined(self.crew.map(_drawn, (self.which, key), blocks(begin, n, BLOCK)))


def blocks(begin: int, n: int, size: int) -> list[tuple[int, int]]:
    """(begin, length) of the blocks of episodes begin .. begin + n − 1."""
    return [(b, min(size, begin + n - b)) for b in range(begin, begin + n, size)]


def joined(parts: Sequence[Batch]) -> Batch:
    """Blocks in their order, as one."""
    X, component, steps = zip(*parts, strict=True)
    return np.concatenate(X), np.concatenate(component), int(sum(steps))


def _drawn(sources: Sequence[Returns], shared: tuple[int, np.uint64], job: tuple[int, int]) -> Batch:
    which, key = shared
    return sources[which].draw(key, *job)


@contextmanager
def spread(sources: Sequence[Any], executor: Executor | None) -> Iterator[list[Any]]:
    """The sources as they are; or drawn from by whoever the executor has."""
    if executor is None:
        yield list(sources)
        return
    crew = executor.crew(sources, lambda: sources)
    try:
        yield [Spread(source, i, crew) for i, source in enumerate(sources)]
    finally:
        crew.close()
