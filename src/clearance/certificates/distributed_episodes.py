"""Episodes for a certificate drawn by many workers: the same evidence, bit for bit, as drawn by one.

The stream of an episode is a function of its number, and the bets are placed in this order: `sequential_test.gather`
asks for the episodes begin .. begin + n − 1, decides, and asks for the next. Here they are cut into blocks of fixed
size, which any worker may draw, and put together in order. Which worker draws a block, and when it arrives, cannot
change the verdict; and no episode is drawn beyond what was asked for, so there is none to discard after the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from clearance.certificates.episode_source import Batch, Episodes, blocks, join
from clearance.cluster.executor import Executor, WorkerPool
from clearance.core.arrays import Array

BLOCK = 2**13  # episodes that one worker draws at a time


@dataclass(frozen=True, eq=False)
class DistributedEpisodes:
    """One of several sources that the workers of a pool hold, as a source of its own."""

    source: Episodes
    which: int
    pool: WorkerPool

    @property
    def bounds(self) -> tuple[Array, Array]:
        return self.source.bounds

    @property
    def bias(self) -> Array:
        return self.source.bias

    @property
    def one_sided(self) -> tuple[bool, ...]:
        return getattr(self.source, "one_sided", ())

    @property
    def episode_steps(self) -> float:
        return self.source.episode_steps

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        return join(self.pool.map(_draw, (self.which, key), blocks(begin, n, BLOCK)))


def _draw(sources: Sequence[Episodes], shared: tuple[int, np.uint64], job: tuple[int, int]) -> Batch:
    which, key = shared
    return sources[which].draw(key, *job)


@contextmanager
def distribute(sources: Sequence[Episodes], executor: Executor | None) -> Iterator[list[Episodes]]:
    """Yield the sources as they are, or as sources whose episodes the executor's workers draw."""
    if executor is None:
        yield list(sources)
        return
    pool = executor.worker_pool(sources, lambda: sources)
    try:
        yield [DistributedEpisodes(source, i, pool) for i, source in enumerate(sources)]
    finally:
        pool.close()
