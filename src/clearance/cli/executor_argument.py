"""Make the executor that the flags --cluster, --threads and --workers describe."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import Any

from clearance.core.errors import InputError
from clearance.simulator.simulator import Simulator


@contextlib.contextmanager
def executor_of(args: argparse.Namespace) -> Iterator[Any]:
    """Yield the executor that --cluster, --threads and --workers describe; by default, threads of this process."""
    if args.cluster in (None, "local"):
        from clearance.cluster.executor import Local

        yield Local(getattr(args, "threads", None))
        return
    from clearance.cluster.ray_executor import Ray

    with Ray(None if args.cluster == "ray" else args.cluster, workers=getattr(args, "workers", None)) as ray:
        yield ray


@contextlib.contextmanager
def distributed(args: argparse.Namespace, problem: Any) -> Iterator[Any]:
    """Yield the problem itself or, with --cluster, a simulator whose environments run on the cluster."""
    if args.cluster is None:
        yield problem
        return
    if not isinstance(problem, Simulator):
        raise InputError("--cluster is for simulators; one run on a model has one process: see clearance sweep")
    from clearance.simulator.remote_lanes import Fleet

    with executor_of(args) as executor, Fleet(problem, executor) as fleet:
        yield fleet
