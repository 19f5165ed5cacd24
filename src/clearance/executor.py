"""Many runs at once: seeds, κ, instances. The kernels release the GIL, so threads of one process are enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


def run_all(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """[function(job) for job in jobs], over threads; the results are the same bits for any number of them.

    threads   as many as there are cores unless given
    progress  called with (done, of how many) whenever one has finished
    A failure, or Ctrl-C, drops the jobs that have not begun.
    """
    jobs = list(jobs)
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        futures = {pool.submit(function, job): i for i, job in enumerate(jobs)}
        results: dict[int, Any] = {}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                if progress is not None:
                    progress(len(results), len(jobs))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [results[i] for i in range(len(jobs))]
