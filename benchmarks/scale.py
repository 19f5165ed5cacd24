"""What it costs to be many: a Ray of our own on this machine against this process alone (docs/research/scaling.md).

    python benchmarks/scale.py [--out scale.json]

Tasks per second, bytes and seconds per iteration on a small and a large simulator, and from them the work that a group
of lanes must be for workers to pay off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

import clearance as cl
from clearance.core.atomic_files import save_json
from clearance.simulator.policies.network_policy import Design, Normaliser
from clearance.simulator.remote_lanes import Acting, map_jobs, streams, walk
from clearance.simulator.samplers.actor_critic import Practical

SIMULATORS: dict[str, dict[str, Any]] = {
    "CartPole-v1, 8 × 200 steps": {"env": "CartPole-v1", "T": 200, "lanes": 8, "groups": 8},
    "HalfCheetah-v5, 4 × 500 steps": {"env": "HalfCheetah-v5", "T": 500, "lanes": 4, "groups": 8},
}


def nothing(*_: Any) -> int:
    """The smallest job."""
    return 0


def seconds(work: Callable[[], Any], times: int = 3) -> float:
    """The median of a few runs, after one that warms up."""
    work()
    return statistics.median(_timed(work) for _ in range(times))


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def simulator(about: dict[str, Any]) -> Any:
    return cl.gymnasium(about["env"], limits=[], horizon=about["T"], num_envs=about["lanes"])


def rates(ray: cl.Ray, n: int = 1000) -> dict[str, float]:
    """Jobs per second: as tasks of a grid, and as parts of a worker pool's work."""
    found = {"tasks per second": n / seconds(lambda: cl.run_all(nothing, range(n), executor=ray))}
    pool = ray.worker_pool(None, nothing)  # has all the cores from here on
    found["parts per second"] = n / seconds(lambda: pool.map(nothing, None, range(n)))
    found["one part and back, s"] = seconds(lambda: pool.map(nothing, None, [0]), 20)
    pool.close()
    return found


def measured(about: dict[str, Any], ray: cl.Ray) -> dict[str, float]:
    """Seconds and bytes of one iteration."""
    near = simulator(about)
    policy = Design().fitted(near.obs_shape, near.action)
    sampler = Practical(near, policy)
    acting = Acting(policy, policy.init(), Normaliser.identity(policy.inputs), about["T"])
    keys = streams(np.uint64(1), about["groups"])
    N, world = about["groups"] * about["T"] * near.n, sampler.begin()
    found = {"steps per iteration": float(N), "theta": float(policy.d)}
    found["sampling alone, s"] = seconds(lambda: map_jobs(near, walk, acting, keys))
    whole = seconds(lambda: sampler.batch(np.uint64(1), world, policy.init(), N))
    found["critic and advantages, s"] = max(whole - found["sampling alone, s"], 0.0)
    found["bytes to each worker"] = float(len(cloudpickle.dumps(acting)))
    found["bytes back"] = float(len(cloudpickle.dumps(map_jobs(near, walk, acting, keys))))
    for workers in (1, 2):
        with cl.Fleet(near, cl.Ray(ray.address, workers=workers)) as fleet:
            assert _same(map_jobs(fleet, walk, acting, keys), map_jobs(near, walk, acting, keys))
            found[f"sampling, {workers} on Ray, s"] = seconds(lambda f=fleet: map_jobs(f, walk, acting, keys))
    near.close()
    return found


def _same(a: Any, b: Any) -> bool:
    flat = [[x for steps, latent in found for x in (*steps, latent)] for found in (a, b)]
    return all(np.array_equal(x, y) for x, y in zip(*flat, strict=True))


def certified(ray: cl.Ray) -> dict[str, float]:
    """Episodes of a finite model, far from a verdict: all of the budget."""
    cmdp = cl.zoo.altman_queue_discounted()
    pi = cl.optimum(cmdp).policy
    how: dict[str, Any] = {"evidence": "samples", "budget": 2e7}
    found = {"alone, s": seconds(lambda: cl.certify(cmdp, pi, **how))}
    for workers in (1, 2):
        many = cl.Ray(ray.address, workers=workers)
        found[f"{workers} on Ray, s"] = seconds(lambda many=many: cl.certify(cmdp, pi, **how, executor=many))
    return found


def break_even(found: dict[str, float], groups: int) -> dict[str, float]:
    """c, what one group costs beyond its own work; and the work t of a group from which two workers are faster than
    none: t G > (t + c) G/2, or t > c.
    """
    alone, one = found["sampling alone, s"] / groups, found["sampling, 1 on Ray, s"] / groups
    cost = max(one - alone, 0.0)
    return {"a group alone, s": alone, "cost of a group on Ray, s": cost, "break-even work of a group, s": cost}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="results/scale.json")
    args = parser.parse_args()
    ray = cl.Ray()
    began = time.perf_counter()
    with ray:
        results: dict[str, Any] = {"cores": os.cpu_count(), "start of Ray, s": time.perf_counter() - began}
        results["rates"] = rates(ray)
        print(json.dumps(results), flush=True)
        for name, about in SIMULATORS.items():
            results[name] = measured(about, ray)
            results[name] |= break_even(results[name], about["groups"])
            print(name, json.dumps(results[name]), flush=True)
        results["certificate"] = certified(ray)
    os.makedirs(os.path.dirname(args.out) or ".", exist_ok=True)
    save_json(args.out, results)
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
