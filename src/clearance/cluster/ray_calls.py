"""Run one call in a worker process of Ray; errors and warnings are returned as values."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any, NamedTuple

from clearance import __version__
from clearance.core.errors import InputError, SolverError

LIVES = 5  # after its worker has died this many times, a job fails


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
    """Run function(job) in a worker. Errors and warnings are returned as values, since Ray would wrap or print them.

    version  the version of clearance on the caller's side; a worker with another version returns an error
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
    """Limit the BLAS threads of this worker process to `cores`; if `cores` is 1, also limit the threads of XLA."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(cores, "blas")
    if cores == 1 and "jax" not in sys.modules:
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")


def lost_worker_error(e: Exception) -> SolverError:
    """Return the error for a job that Ray gave up because its workers died too often; `e` is Ray's exception."""
    first = next(iter(str(e).strip().splitlines()), type(e).__name__)
    return SolverError(f"the worker of this job died, {LIVES} times in all: {type(e).__name__}: {first}")


def put_in_store(ray: Any, function: Any) -> Any:
    """Put an object, such as a function, into Ray's object store, and return the reference to it.

    All jobs then share one copy. Raise InputError if the object cannot be sent to other processes.
    """
    try:
        return ray.put(function)
    except Exception as e:  # Ray raises different types for different kinds of objects
        raise InputError(f"this cannot be sent to other processes: {str(e).splitlines()[0]}") from None
