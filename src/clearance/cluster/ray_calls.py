"""Run one call in a worker process of Ray, and return errors and warnings as values."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, NamedTuple

from clearance import __version__
from clearance.core.errors import InputError, SolverError

LIVES = 5  # how often a job may lose its worker


class Received(NamedTuple):
    """The outcome of a job on Ray: a value or an error, and the warnings that the job raised (`said`)."""

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
    """Run function(job) in a worker; return errors and warnings as values, since Ray would wrap or print them.

    version  the version of clearance that the caller has; a worker with another version returns an error
    cores    the number of threads that the job may use
    """
    limit_threads(cores)
    if version != __version__:
        text = f"a worker has clearance {__version__}, this is {version}: install the same on every node"
        return Received(None, InputError(text))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            return Received(function(job), None, _user_warnings(said))
        except Exception as e:
            return Received(None, e, _user_warnings(said))


def _user_warnings(said: list[Any]) -> tuple[Warning, ...]:
    return tuple(w.message for w in said if isinstance(w.message, UserWarning))


def limit_threads(cores: int) -> None:
    """Limit the threads of BLAS in this worker process to `cores`; with one core, limit the threads of XLA too."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(cores, "blas")
    if cores == 1 and "jax" not in sys.modules:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")


def lost_worker_error(e: Exception) -> SolverError:
    """Return the error for a job that Ray has given up because its worker died too often; `e` is Ray's exception."""
    first = next(iter(str(e).strip().splitlines()), type(e).__name__)
    return SolverError(f"the worker of this job died, {LIVES} times in all: {type(e).__name__}: {first}")


def put_in_store(ray: Any, function: Any) -> Any:
    """Put an object, such as a function, into Ray's object store, and return its reference.

    So the object is sent once for all jobs. Raise InputError if the object cannot be sent to other processes.
    """
    try:
        return ray.put(function)
    except Exception as e:  # each kind of object that cannot be sent has its own
        raise InputError(f"this cannot be sent to other processes: {str(e).splitlines()[0]}") from None
