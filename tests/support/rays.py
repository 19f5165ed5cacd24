"""Ray clusters for the tests: several nodes on this machine, small, without dashboard, and nothing left behind."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import clearance as cl

SMALL: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
# A node that is gone is missed after a second, not after a quarter of a minute.
HASTY = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


@contextmanager
def cluster(nodes: int = 2) -> Iterator[tuple[Any, cl.Ray]]:
    """A head that does no work, nodes with one core each, and an executor on them."""
    executor, path = cl.Ray(), os.environ.get("PYTHONPATH")
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *([path] if path else [])])
    head = {**SMALL, "num_cpus": 0, "include_dashboard": False, "_system_config": HASTY}
    with forks():
        found = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            add_node(found)
        executor = cl.Ray(found.address)
        executor.connected()
        yield found, executor
    finally:
        executor.close()
        found.shutdown()
        os.environ.pop("PYTHONPATH") if path is None else os.environ.update(PYTHONPATH=path)


@contextmanager
def forks() -> Iterator[None]:
    """Ray's tool for tests forks to start a node, here, and JAX, where another test has loaded it, warns of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
        yield


def add_node(found: Any) -> Any:
    """One more node."""
    with forks():
        return found.add_node(**SMALL)


def worker_of(folder: Path) -> int:
    """The process that writes a run folder."""
    return int((folder / "lock").read_text())


def belongs(pid: int, node: Any) -> bool:
    """Whether a worker is one of this node."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # gone meanwhile
        return False
    return parent in [p.process.pid for p in node.all_processes["raylet"]]


def kill_worker_of(folder: Path) -> None:
    os.kill(worker_of(folder), signal.SIGKILL)


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """What a condition gives as soon as it gives anything."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")
