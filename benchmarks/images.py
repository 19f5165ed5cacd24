"""Image observations: a task for convolutions and one for stacked frames, learned and certified.

    python benchmarks/images.py

A column of bright pixels is in the left or the right half (convolutions), or moves to the left or to the right, which
one image does not show (two stacked frames). Chance earns 5 of 10; 10 is possible at a cost of 5; the limit of 4 leaves
9 on average.
"""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import clearance as cl

TESTS = Path(__file__).resolve().parents[1] / "tests/simulator/test_images.py"


def task(still: bool) -> Any:
    """Return the problem of the test of the same task."""
    spec = importlib.util.spec_from_file_location("test_images", TESTS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    how: dict[str, Any] = {"limits": 4.0, "horizon": 10, "bounds": (0.0, 1.0), "num_envs": 8}
    return cl.gymnasium(lambda: module.Spot(still), **how, frames=None if still else 2)


def main() -> None:
    for name, still in (("convolutions", True), ("stacked frames", False)):
        began, method = time.perf_counter(), cl.PracticalCNPGPD(K=80, N=480)
        with task(still) as problem:
            found = cl.solve(problem, method, policy=cl.categorical((16,)), budget=80_000, delta=0.05)
        seen, front = found.certificate, found.policy.policy.front
        said = f"{seen.verdict}, return {seen.J_r:.3f}, cost {-seen.J_g[0]:.3f} ≤ 4, at δ = {seen.delta}"
        print(f"{name}: {problem.obs_shape}, {front.layers}: {said}; {found.env_steps:,} steps, "
              f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
