"""The matrices of these tests are tiny: threads inside BLAS only get in each other's way.

XLA optimises little: most of the time of the tests of simulators is compiling.

What JAX compiles is kept in a folder for as long as the tests run: every sampler compiles its own programs, and most of
them are the same ones.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("same on every machine", derandomize=True)
settings.load_profile("same on every machine")

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if "xla_backend_optimization_level" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {QUICK}".strip()

own = "PYTEST_XDIST_WORKER" not in os.environ and "JAX_COMPILATION_CACHE_DIR" not in os.environ
if own:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="clearance-compiled-")
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def pytest_unconfigure() -> None:
    if own:
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="session")
def pair() -> Iterator[Any]:
    """A Ray cluster of two nodes with one core each, and an executor on it."""
    pytest.importorskip("ray")
    from rays import cluster

    with cluster(2) as found:
        yield found
