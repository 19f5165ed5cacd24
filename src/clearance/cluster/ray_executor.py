"""Run jobs on a Ray cluster, one Ray task per job. If a worker or its node fails, the task is repeated elsewhere.

    with cl.Ray() as executor:                    # a private Ray on this machine, or the one that RAY_ADDRESS names
        cl.sweep("queue", {"seed": range(100)}, out="grid", executor=executor)

The function is put into the object store once and sent to each node once. Jobs and results are sent with the tasks. Ray
is installed by the extra `cluster`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from clearance import __version__
from clearance.cluster.executor import Outcomes, WorkerPool
from clearance.cluster.ray_calls import LIVES, Received, call_quietly, lost_worker_error, put_in_store
from clearance.cluster.ray_process import (
    RayServer,
    import_ray,
    join_cluster,
    named_address,
    parse_address,
    silence_ray,
    start_ray,
)
from clearance.cluster.worker_pool import RayPool
from clearance.core.errors import InputError

AHEAD = 4  # the largest number of submitted tasks, as a multiple of the jobs that can run at the same time
GRACE = 30.0  # how many seconds cancelled jobs get to save their state


@dataclass(eq=False)
class Ray:
    """The executor that runs jobs on a Ray cluster.

    address   "HOST:PORT" or "ray://HOST:PORT" of a cluster to join. None: the address in the environment variable
              RAY_ADDRESS. If that is not set, a private Ray is started on the loopback interface; it ends with this
              process
    cores     number of cores for one job, and of threads that BLAS and XLA use in it
    workers   number of workers that run a simulator's environments or draw the episodes of a certificate (default: as
              many as fit into the cluster)
    patience  seconds that one job of such a worker may take before the worker is replaced
    """

    address: str | None = None
    cores: int = 1
    workers: int | None = None
    patience: float = 600.0
    _ours: bool = field(default=False, init=False)
    _keeper: RayServer | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.address is not None:
            parse_address(self.address)
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
        """Leave the cluster that this object joined, or end the cluster that it started."""
        if self._ours:
            self._ours = False
            import_ray().shutdown()
        if self._keeper is not None:
            self._keeper.end()
            self._keeper = None

    def connected(self) -> Any:
        """Join or start the cluster unless this was done before; return the package `ray`."""
        ray = import_ray()
        if not ray.is_initialized():
            silence_ray()
            address = named_address() if self.address is None else self.address
            self._keeper = start_ray(ray) if address is None else join_cluster(ray, address)
            self._ours = True
        elif not self._ours and self.address is not None and not self.address.startswith("ray://"):
            joined = ray.get_runtime_context().gcs_address
            if self.address != joined:
                raise InputError(f"cluster {self.address}: this process has joined {joined} already: leave that first")
        return ray

    @property
    def room(self) -> int:
        """The number of jobs that the cluster can run at the same time."""
        return max(1, int(self.connected().cluster_resources().get("CPU", 1)) // self.cores)

    def stream(self, function: Callable[[Any], Any], jobs: Sequence[Any]) -> Outcomes:
        ray = self.connected()
        task = ray.remote(call_quietly).options(num_cpus=self.cores, max_retries=LIVES - 1)
        shared, waiting, running = put_in_store(ray, function), deque(enumerate(jobs)), {}
        try:
            while waiting or running:
                while waiting and len(running) < AHEAD * self.room:
                    i, job = waiting.popleft()
                    running[task.remote(__version__, self.cores, shared, job)] = i
                for ref in ray.wait(list(running), num_returns=1)[0]:
                    yield running.pop(ref), _fetch(ray, ref)
        except BaseException:
            _cancel(ray, list(running))
            raise

    def worker_pool(self, tool: Any, make: Callable[[], Any]) -> WorkerPool:
        """Return a pool of Ray workers; each holds a tool, such as a simulator, made by `make`. `tool` is not used."""
        return RayPool(self, make, self.workers or self.room, self.patience)


def _fetch(ray: Any, ref: Any) -> Received:
    try:
        return ray.get(ref)
    except ray.exceptions.RayError as e:
        return Received(None, lost_worker_error(e))


def _cancel(ray: Any, running: list[Any]) -> None:
    """Interrupt all running tasks, and give them up to GRACE seconds to save their state."""
    with suppress(Exception):  # the cluster itself may have failed
        for ref in running:
            ray.cancel(ref)
        ray.wait(running, num_returns=len(running), timeout=GRACE)
