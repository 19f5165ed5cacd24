"""Ray workers that each hold a tool, such as a simulator or a model with its tables, and use it for many jobs.

    map(call, shared, jobs) = [call(tool, shared, job) for job in jobs]

A job is a fixed unit of work with its own random stream. So its result depends neither on the worker that runs it nor
on how often it is run. If a worker dies, or a job takes longer than `patience`, the worker is replaced, and the job is
repeated with the same stream.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from clearance import __version__
from clearance.cluster.executor import Call
from clearance.cluster.ray_calls import LIVES, Received, call_quietly, put_in_store
from clearance.core.errors import SolverError

TRIES = 2  # after this many errors a job fails; the second attempt uses a new tool
ROOM = 120.0  # seconds within which the cluster must have room for a worker
FIRST = 60.0  # extra seconds for the first job of a worker, which makes the tool and compiles code


class _Worker:
    """A worker process on Ray. It makes its tool, such as a simulator, when it runs its first job.

    Errors of jobs are returned as values (`ray_calls`).
    """

    def __init__(self, version: str, cores: int, make: Callable[[], Any]) -> None:
        self.about, self.make = (version, cores), make
        self.tool, self.shared = None, ("", None)

    def ready(self) -> bool:
        return True

    def do(self, call: Call, shared: list[Any], job: Any) -> Received:
        return call_quietly(*self.about, lambda job: self._do(call, shared[0], job), job)

    def _do(self, call: Call, ref: Any, job: Any) -> Any:
        import ray

        if self.tool is None:
            self.tool = self.make()
        if self.shared[0] != ref.hex():  # fetch it only once for all jobs that share it
            self.shared = ref.hex(), ray.get(ref)
        return call(self.tool, self.shared[1], job)


class _Task(NamedTuple):
    """A running job: its worker (`hand`), its index among the jobs, and its deadline (`late`)."""

    hand: Any
    job: int
    late: float


@dataclass(eq=False)
class RayPool:
    """A pool of workers on Ray, which are Ray actors.

    ray       the executor `Ray` to which the pool belongs
    make      a function that makes a tool, such as a simulator; each worker calls it once
    workers   the number of workers
    patience  seconds that one job may take
    lost      the number of workers that were replaced so far
    """

    ray: Any  # the executor `Ray`
    make: Callable[[], Any]
    workers: int
    patience: float = 600.0
    lost: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        ray = self.ray.connected()
        self._kind = ray.remote(_Worker).options(num_cpus=self.ray.cores, max_restarts=0)
        self._make = put_in_store(ray, self.make)
        self._idle: list[Any] = []
        self._fresh: set[Any] = set()  # workers that have not run a job yet
        self._starting: dict[Any, Any] = {}
        self._busy: dict[Any, _Task] = {}
        for _ in range(self.workers):
            self._start_worker()

    def _start_worker(self) -> None:
        hand = self._kind.remote(__version__, self.ray.cores, self._make)
        self._starting[hand.ready.remote()] = hand

    def map(self, call: Call, shared: Any, jobs: Sequence[Any]) -> list[Any]:
        ray = self.ray.connected()
        given, results, round_ = [put_in_store(ray, shared)], {}, _Round(jobs)
        try:
            while len(results) < len(jobs):
                while round_.waiting and self._idle:
                    self._assign(call, given, round_)
                for ref in self._wait_for_any(ray):
                    self._collect(ray, ref, round_, results)
                self._replace_late(ray, round_)
        except BaseException:
            self._drop_busy(ray)
            raise
        return [results[i] for i in range(len(jobs))]

    def _assign(self, call: Call, given: list[Any], round_: _Round) -> None:
        hand, i = self._idle.pop(), round_.waiting.popleft()
        late = time.monotonic() + self.patience + FIRST * (hand in self._fresh)
        self._fresh.discard(hand)
        self._busy[hand.do.remote(call, given, round_.jobs[i])] = _Task(hand, i, late)

    def _wait_for_any(self, ray: Any) -> list[Any]:
        """Wait until a job has ended, a worker has started, or a job is late; return the Ray references now ready."""
        late = min((task.late for task in self._busy.values()), default=time.monotonic() + ROOM)
        patience = max(late - time.monotonic(), 0.0)
        found = ray.wait([*self._busy, *self._starting], num_returns=1, timeout=patience)[0]
        if not found and not self._busy:
            raise SolverError(f"the cluster found no room for a worker within {ROOM:g} s: add nodes, or ask for fewer")
        return found

    def _collect(self, ray: Any, ref: Any, round_: _Round, results: dict[int, Any]) -> None:
        hand, task = self._starting.pop(ref, None), self._busy.pop(ref, None)
        try:
            received = ray.get(ref)
        except ray.exceptions.RayError as e:
            self._replace(ray, hand or task.hand)  # type: ignore[union-attr]
            round_.again(None if task is None else task.job, f"died ({type(e).__name__})")
            return
        if task is None:
            self._idle.append(hand)
            self._fresh.add(hand)
        elif received.error is None or round_.raised(task.job) >= TRIES:
            self._idle.append(task.hand)
            results[task.job] = received.result()
        else:  # try once more, with a new worker and a new tool
            self._replace(ray, task.hand)
            round_.waiting.appendleft(task.job)

    def _replace_late(self, ray: Any, round_: _Round) -> None:
        for ref, task in list(self._busy.items()):
            if time.monotonic() > task.late:
                del self._busy[ref]
                self._replace(ray, task.hand)
                round_.again(task.job, f"took longer than {self.patience:g} s")

    def _replace(self, ray: Any, hand: Any) -> None:
        self.lost += 1
        ray.kill(hand)
        self._start_worker()

    def _drop_busy(self, ray: Any) -> None:
        """Kill the workers that are running a job, since their results are not needed; start new workers instead."""
        for task in self._busy.values():
            ray.kill(task.hand)
            self._start_worker()
        self._busy.clear()

    def close(self) -> None:
        ray = self.ray.connected()
        for hand in [*self._idle, *self._starting.values(), *(task.hand for task in self._busy.values())]:
            ray.kill(hand)
        self._idle, self._starting, self._busy = [], {}, {}


class _Round:
    """The jobs of one call of `RayPool.map`.

    waiting  the indices of the jobs to run
    losses   how often each job has lost its worker;  faults: how often each job has raised an error
    """

    def __init__(self, jobs: Sequence[Any]) -> None:
        self.jobs, self.waiting = jobs, deque(range(len(jobs)))
        self.losses: Counter[int | None] = Counter()
        self.faults: Counter[int] = Counter()

    def again(self, job: int | None, why: str) -> None:
        """Count the loss of a worker and put its job back into the queue; after LIVES losses, raise SolverError.

        job  the index of the job that the worker was running; None if the worker was still starting
        why  what happened to the worker, for the error message
        """
        self.losses[job] += 1
        if self.losses[job] >= LIVES:
            at = "as it started" if job is None else f"at part {job} of {len(self.jobs)}"
            raise SolverError(f"the worker {at} {why}, {LIVES} times in all")
        if job is not None:
            self.waiting.appendleft(job)

    def raised(self, job: int) -> int:
        self.faults[job] += 1
        return self.faults[job]
