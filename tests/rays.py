"""Ray clusters for the tests: several nodes on this machine, small, without dashboard, and nothing left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import clearance as cl

SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
# A node that is gone is missed after a second, not after a quarter of a minute.
HASTY = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}


@contextmanager
def cluster(nodes: int = 2) -> Iterator[tuple[Any, cl.Ray]]:
    """A head that does no work, nodes with one core each, and an executor on them."""
    executor = cl.Ray()
    from ray.cluster_utils import Cluster

    head = {**SMALL, "num_cpus": 0, "include_dashboard": False, "_system_config": HASTY}
    found = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(nodes):
            found.add_node(**SMALL)
        executor = cl.Ray(found.address)
        executor.connected()
        yield found, executor
    finally:
        executor.close()
        found.shutdown()


def worker_of(folder: Path) -> int:
    """The process that writes a run folder."""
    return int((folder / "lock").read_text())


def belongs(pid: int, node: Any) -> bool:
    """Whether a worker is one of this node."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
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
