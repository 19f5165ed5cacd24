"""The same jobs on a Ray cluster: one Ray task each, repeated elsewhere when a worker or its node dies.

    with cl.Ray() as executor:                    # a Ray of our own, on this machine; or one that runs here already
        cl.sweep("queue", {"seed": range(100)}, out="grid", executor=executor)

The function goes into the object store once, and from there once to every node that needs it; jobs and results travel
with the tasks. Ray comes with the extra `cluster`.
"""

from __future__ import annotations

import os
import pickle
import secrets
import socket
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any, NamedTuple

from clearance import __version__
from clearance.errors import InputError, MissingExtraError, SolverError
from clearance.executor import Outcomes

if TYPE_CHECKING:
    from clearance.crew import Crew

LIVES = 5  # how often a job may lose its worker
AHEAD = 4  # tasks handed out for each core of the cluster
GRACE = 30.0  # seconds that jobs are given to save what they have
STORE = 200 * 2**20  # bytes of the object store of a Ray of our own
ANSWER = 5.0  # seconds within which a cluster must answer


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
            _package().shutdown()
        if self._keeper is not None:
            self._keeper.end()
            self._keeper = None

    def connected(self) -> Any:
        """The package `ray`, connected."""
        ray = _package()
        if not ray.is_initialized():
            _quieten()
            self._keeper = _start(ray) if self.address is None else _join(ray, self.address)
            self._ours = True
        elif self.address is not None and not self.address.startswith("ray://"):
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
    except (TypeError, pickle.PicklingError, AttributeError) as e:
        raise InputError(f"this cannot be sent to other processes: {str(e).splitlines()[0]}") from None


# ------------------------------------------------------------------------------------------------ joining and starting


def host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 2**16):
        raise InputError(f"cluster must be local, ray, ray://HOST:PORT or HOST:PORT, got {address!r}")
    return host.strip("[]"), int(port)


def _package() -> Any:
    """Ray, told not to call home."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtraError("ray", "cluster") from None
    return ray


def _quieten() -> None:
    """What Ray says of workers and nodes that die: their first sentence, on standard error. It prints pages, and on
    standard output, which is for our answers alone.
    """
    from ray._private import worker

    def say(data: dict[str, Any], ignore_prefix: bool = False) -> None:
        first = "".join(data.get("lines", [])[:1]).strip().partition(". ")[0].partition("\n")[0]
        sys.stderr.write(f"ray: {first[:200]}\n" if first else "")

    worker.print_to_stdstream = say


QUIET: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}


def _start(ray: Any) -> Keeper | None:
    """The Ray that runs on this machine; else one of our own, and the process that keeps it."""
    try:
        ray.init("auto", **QUIET)
        return None
    except ConnectionError:
        # A Ray of our own serves those who know its token: other users of this machine do not.
        before = _authenticated({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    process = Popen([sys.executable, "-c", KEEPER, str(STORE)], stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
    keeper = Keeper(process, before)
    address = process.stdout.readline().strip()  # type: ignore[union-attr]
    if not address:
        said = keeper.end().strip().splitlines()
        raise InputError(f"Ray could not be started: {said[-1] if said else 'it said nothing'}")
    with _loopback():
        ray.init(address, **QUIET)
    return keeper


class Keeper(NamedTuple):
    """The process that keeps a Ray of our own, and the settings for authentication without it."""

    process: Popen[str]
    before: dict[str, str | None]

    def end(self) -> str:
        """End it; what it said."""
        said = self.process.communicate()[1]  # closes its standard input, and waits
        _authenticated(self.before)
        return said


def _authenticated(by: dict[str, str | None]) -> dict[str, str | None]:
    """Ray's settings for authentication, in this process and those it starts; gives back those before."""
    from ray import _raylet

    before = {name: os.environ.get(name) for name in by}
    for name, value in by.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    core: Any = _raylet
    core.Config.initialize("")  # Ray has read both as it was loaded
    core.AuthenticationTokenLoader.instance().reset_cache()
    return before


# Keeps a Ray of our own, without dashboard, until its standard input closes: so Ray ends with us, however we end. A
# process of its own, because Ray forks to start, which JAX, once it has begun, forbids.
KEEPER = """
import os, sys
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
import ray
how = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
context = ray.init("local", object_store_memory=int(sys.argv[1]), **how)
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""


@contextmanager
def _loopback() -> Iterator[None]:
    """Ray's own switch for desktops, by which it stays on the loopback interface: it was read as Ray was loaded."""
    from ray._private import ray_constants as constants

    before, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def _join(ray: Any, address: str) -> None:
    host, port = host_and_port(address)
    try:
        with socket.create_connection((host, port), timeout=ANSWER):
            pass
        ray.init(address, **QUIET)
    except (OSError, ConnectionError, RuntimeError, ValueError) as e:
        first = next(iter(str(e).strip().splitlines()), type(e).__name__)
        raise InputError(f"cluster {address}: cannot be joined: {first}: is Ray running there?") from None
