"""The same jobs on a Ray cluster: one Ray task each, repeated elsewhere when a worker or its node dies.

    with cl.Ray() as executor:                    # a Ray of our own, on this machine; or one that runs here already
        cl.sweep("queue", {"seed": range(100)}, out="grid", executor=executor)

The function goes into the object store once, and from there once to every node that needs it; jobs and results travel
with the tasks. Ray comes with the extra `cluster`.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from clearance import __version__
from clearance.errors import InputError, SolverError
from clearance.executor import Outcomes
from clearance.keeper import Keeper, host_and_port, join, package, quieten, start

if TYPE_CHECKING:
    from clearance.crew import Crew

LIVES = 5  # how often a job may lose its worker
AHEAD = 4  # tasks handed out for each core of the cluster
GRACE = 30.0  # seconds that jobs are given to save what they have


@dataclass(eq=False)
class Ray:
    """An executor on Ray.

    address  None: the Ray that runs on this machine, or one that is started for us, on the loopback interface alone,
             and ends with us. "HOST:PORT" or "ray://HOST:PORT" joins a cluster
    cores    of one job: BLAS and XLA have as many threads in it
    workers  of a fleet or a certificate; as many as the cluster has room for unless given
    patience seconds that one part of their work may take, before its worker is given up and replaced
    """

    address: str | None = None
    cores: int = 1
    workers: int | None = None
    patience: float = 600.0
    _ours: bool = field(default=False, init=False)
    _keeper: Keeper | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.address is not None:
            host_and_port(self.address)
        for name, value in (("cores", self.cores), ("workers", 1 if self.workers is None else self.workers)):
            if value < 1:
                raise InputError(f"{name} must be at least 1, got {value!r}")
        if not self.patience > 0:
            raise InputError(f"patience must be a positive number of seconds, got {self.patience!r}")

    def __enter__(self) -> Ray:
        self.connected()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, if it was joined or started here."""
        if self._ours:
            self._ours = False
            package().shutdown()
        if self._keeper is not None:
            self._keeper.end()
            self._keeper = None

    def connected(self) -> Any:
        """The package `ray`, connected."""
        ray = package()
        if not ray.is_initialized():
            quieten()
            self._keeper = start(ray) if self.address is None else join(ray, self.address)
            self._ours = True
        elif not self._ours and self.address is not None and not self.address.startswith("ray://"):
            joined = ray.get_runtime_context().gcs_address
            if self.address != joined:
                raise InputError(f"cluster {self.address}: this process has joined {joined} already: leave that first")
        return ray

    @property
    def room(self) -> int:
        """Jobs that the cluster can run at the same time, as it is now."""
        return max(1, int(self.connected().cluster_resources().get("CPU", 1)) // self.cores)

    def stream(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Outcomes:
        ray = self.connected()
        task = ray.remote(call_quietly).options(num_cpus=self.cores, max_retries=LIVES - 1)
        shared, waiting, running = put(ray, function), deque(enumerate(jobs)), {}
        try:
            while waiting or running:
                while waiting and len(running) < AHEAD * self.room:
                    i, job = waiting.popleft()
                    running[task.remote(__version__, self.cores, shared, job)] = i
                for ref in ray.wait(list(running), num_returns=1)[0]:
                    yield running.pop(ref), _received(ray, ref)
        except BaseException:
            _stopped(ray, list(running))
            raise

    def crew(self, tool: Any, make: Callable[[], Any]) -> Crew:
        from clearance.crew import Hands

        return Hands(self, make, self.workers or self.room, self.patience)


class Received(NamedTuple):
    """The outcome of a task: a value, or an error; and the warnings on the way."""

    value: Any
    error: Exception | None
    said: tuple[Warning, ...] = ()

    def result(self) -> Any:
        for warning in self.said:
            warnings.warn(warning, stacklevel=3)
        if self.error is not None:
            raise self.error
        return self.value


def call_quietly(version: str, cores: int, function: Any, job: Any) -> Received:
    """One job, in a worker. Errors and warnings are values here: Ray would wrap the former and print the latter."""
    prepare(cores)
    if version != __version__:
        text = f"a worker has clearance {__version__}, this is {version}: install the same on every node"
        return Received(None, InputError(text))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            return Received(function(job), None, _told(said))
        except Exception as e:
            return Received(None, e, _told(said))


def _told(said: list[Any]) -> tuple[Warning, ...]:
    return tuple(w.message for w in said if isinstance(w.message, UserWarning))


def prepare(cores: int) -> None:
    """Threads of this worker process: as many as the job has cores."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(cores, "blas")
    if cores == 1 and "jax" not in sys.modules:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")


def _received(ray: Any, ref: Any) -> Received:
    try:
        return ray.get(ref)
    except ray.exceptions.RayError as e:
        return Received(None, lost(e))


def lost(e: Exception) -> SolverError:
    """What to say when Ray has given a job up."""
    first = next(iter(str(e).strip().splitlines()), type(e).__name__)
    return SolverError(f"the worker of this job died, {LIVES} times in all: {type(e).__name__}: {first}")


def _stopped(ray: Any, running: list[Any]) -> None:
    """Ctrl-C in every task that is at work, and time to save."""
    with suppress(Exception):  # the cluster may be what is gone
        for ref in running:
            ray.cancel(ref)
        ray.wait(running, num_returns=len(running), timeout=GRACE)


def put(ray: Any, function: Any) -> Any:
    """Into the object store, once for all jobs."""
    try:
        return ray.put(function)
    except Exception as e:  # each kind of object that cannot be sent has its own
        raise InputError(f"this cannot be sent to other processes: {str(e).splitlines()[0]}") from None
