"""Draw the episodes for a certificate on many workers; the evidence is bit-identical to that of one worker.

The random stream of an episode depends only on its index, and bets are placed in the order of the indices:
`sequential_test.gather` requests the episodes begin .. begin + n − 1, decides, and requests the next episodes. Here the
requested episodes are split into blocks of fixed size. Any worker may draw a block, and the blocks are joined in order.
So the verdict does not depend on which worker draws a block or when it is done. Only requested episodes are drawn, so
none is discarded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from clearance.certificates.episode_source import Batch, Episodes, blocks, join
from clearance.cluster.executor import Executor, WorkerPool
from clearance.core.arrays import Array

BLOCK = 2**13  # the number of episodes that a worker draws at a time


@dataclass(frozen=True, eq=False)
class DistributedEpisodes:
    """A source of episodes that are drawn by the workers of a pool.

    `which` is the index of the original `source` in the list of sources that each worker holds.
    """

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
    def nu(self) -> tuple[float | None, ...]:
        return getattr(self.source, "nu", ())

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
    """Yield sources of the same episodes as `sources`, for the duration of a `with` block.

    With an executor, its workers draw the episodes; without one, `sources` themselves are yielded.
    """
    if executor is None:
        yield list(sources)
        return
    pool = executor.worker_pool(sources, lambda: sources)
    try:
        yield [DistributedEpisodes(source, i, pool) for i, source in enumerate(sources)]
    finally:
        pool.close()
