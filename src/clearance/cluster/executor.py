"""Executors: many jobs at once, over threads of this process or over a Ray cluster (`ray_executor`).

Algorithms give a function and jobs and take the outcomes as they come; they do not know who runs them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

from threadpoolctl import ThreadpoolController, threadpool_limits

from clearance.core.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")

Call = Callable[[Any, Any, Any], Any]

_here = threading.local()  # what a job can ask about itself


class Outcome(Protocol):
    """A job that has ended."""

    def result(self) -> Any:
        """Return what it gave; or raises what it raised."""
        ...


Outcomes = Generator[tuple[int, Outcome], None, None]


class WorkerPool(Protocol):
    """Workers that each hold a tool: `LocalPool`, or `RayPool` on Ray."""

    def map(self, call: Call, shared: Any, jobs: Sequence[Any]) -> list[Any]:
        """[call(tool, shared, job) for job in jobs]; `shared` goes to each worker once."""
        ...

    def close(self) -> None: ...


class Executor(Protocol):
    """Something that runs jobs: `Local`, or `clearance.Ray`."""

    def stream(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Outcomes:
        """Yield (i, the outcome of function(jobs[i])) for every i, as they end. Closing the generator stops the work:
        jobs that have not begun are dropped, and running ones are asked to stop (`should_stop`, or Ctrl-C in their
        process) and waited for.
        """
        ...

    def worker_pool(self, tool: Any, make: Callable[[], Any]) -> WorkerPool:
        """Return workers that hold a tool: this one, or one that `make` makes in each of them."""
        ...


@dataclass(eq=False)
class LocalPool:
    """One tool, in this process."""

    tool: Any

    def map(self, call: Call, shared: Any, jobs: Sequence[Any]) -> list[Any]:
        with one_blas_thread():
            return [call(self.tool, shared, job) for job in jobs]

    def close(self) -> None:
        """Do nothing: the caller owns the tool."""


@dataclass(frozen=True)
class Local:
    """The executor that runs jobs in threads of this process, by default as many as there are cores.

    BLAS has one thread in each job: the last bits of its products depend on how many it has, and results must not
    depend on who computes them.
    """

    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None and self.threads < 1:
            raise InputError(f"threads must be at least 1, got {self.threads!r}")

    def stream(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Outcomes:
        stop, threads = threading.Event(), self.threads or os.cpu_count() or 1
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(threads, initializer=_listen, initargs=(stop,)) as pool:
            futures = {pool.submit(function, job): i for i, job in enumerate(jobs)}
            try:
                for future in as_completed(futures):
                    yield futures[future], future
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def worker_pool(self, tool: Any, make: Callable[[], Any]) -> WorkerPool:
        """Return a pool of one: this process."""
        return LocalPool(tool)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return the same for work in this thread."""
    return _blas().limit(limits=1, user_api="blas")


def _listen(stop: threading.Event) -> None:
    _here.stop = stop


def should_stop() -> bool:
    """Return whether the job that asks should save what it has and end."""
    stop = getattr(_here, "stop", None)
    return stop is not None and stop.is_set()


def run_all(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> list[Result]:
    """Return [function(job) for job in jobs], computed in parallel; bit-identical for any number of workers.

    threads   as many as there are cores unless given
    progress  called with (done, of how many) whenever one has finished
    executor  who does it; threads of this process unless given
    A failure, or Ctrl-C, drops the jobs that have not begun.
    """
    jobs = list(jobs)
    results: dict[int, Any] = {}
    with closing((executor or Local(threads)).stream(function, jobs)) as outcomes:
        for i, outcome in outcomes:
            results[i] = outcome.result()
            if progress is not None:
                progress(len(results), len(jobs))
    return [results[i] for i in range(len(jobs))]
