"""Executors run many jobs at once, in threads of this process or on a Ray cluster (`ray_executor`).

An algorithm passes a function and a list of jobs, and receives the outcomes in the order in which jobs end. Algorithms
do not depend on the executor that runs the jobs.
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

_here = threading.local()  # the stop event of the job in this thread, which `should_stop` reads


class Outcome(Protocol):
    """The outcome of a job that has ended: a value or an exception."""

    def result(self) -> Any:
        """Return the value of the job, or raise its exception."""
        ...


Outcomes = Generator[tuple[int, Outcome], None, None]


class WorkerPool(Protocol):
    """A pool of workers, `LocalPool` or `RayPool`. Each worker holds a tool, an object such as a simulator."""

    def map(self, call: Call, shared: Any, jobs: Sequence[Any]) -> list[Any]:
        """Return [call(tool, shared, job) for job in jobs], where `tool` is the worker's own object.

        `shared` is sent to each worker only once.
        """
        ...

    def close(self) -> None: ...


class Executor(Protocol):
    """The interface of executors: `Local` or `clearance.Ray`."""

    def stream(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Outcomes:
        """Yield (i, outcome of function(jobs[i])) for each i, in the order in which jobs end.

        If the generator is closed, jobs that have not begun are dropped. Running jobs are asked to stop (by
        `should_stop`, or by Ctrl-C in their process), and closing waits until they have ended.
        """
        ...

    def worker_pool(self, tool: Any, make: Callable[[], Any]) -> WorkerPool:
        """Return a pool of workers that each hold a tool, an object such as a simulator.

        A pool in this process uses `tool` itself. A worker in another process makes its own tool by calling `make`.
        """
        ...


@dataclass(eq=False)
class LocalPool:
    """A pool whose only worker is this process; `tool` is the object that its jobs use."""

    tool: Any

    def map(self, call: Call, shared: Any, jobs: Sequence[Any]) -> list[Any]:
        with one_blas_thread():
            return [call(self.tool, shared, job) for job in jobs]

    def close(self) -> None:
        """Do nothing, since the tool belongs to the caller."""


@dataclass(frozen=True)
class Local:
    """The executor that runs jobs in threads of this process; default: as many threads as cores.

    In each job, BLAS uses one thread. The reason is that the last bits of matrix products depend on the number of
    threads, and results must not depend on the executor.
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
        """Return a pool whose only worker is this process. It uses `tool` and does not call `make`."""
        return LocalPool(tool)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Return a context manager in which BLAS uses one thread."""
    return _blas().limit(limits=1, user_api="blas")


def _listen(stop: threading.Event) -> None:
    _here.stop = stop


def should_stop() -> bool:
    """Return whether the executor has asked the current job to save its state and end."""
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

    threads   number of threads (default: all cores)
    progress  a callback progress(jobs done, all jobs) that is called whenever a job has finished
    executor  the executor (default: threads of this process)

    If a job raises an exception, or on Ctrl-C, the jobs that have not begun are dropped.
    """
    jobs = list(jobs)
    results: dict[int, Any] = {}
    with closing((executor or Local(threads)).stream(function, jobs)) as outcomes:
        for i, outcome in outcomes:
            results[i] = outcome.result()
            if progress is not None:
                progress(len(results), len(jobs))
    return [results[i] for i in range(len(jobs))]
