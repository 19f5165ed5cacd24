"""Warm starts: steps until the return that a run has certified is reached again under another limit.

    python benchmarks/warm_start.py [TASK …]

For each task and seed: a first run under the old limit; then, under the new limit, a run that begins from it and one
that begins from nothing, with the same budget. Counted are the learning steps until five iterations in a row have, on
average, at least the old certified return less a tolerance, within the new limit; and what the runs certify.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

import clearance as cl
from clearance.zoo import simulated

# The task with its old and its new limit, the budget of each run, and how much less return counts as reached again.
TASKS: dict[str, tuple[Any, Any, float, float]] = {
    "navigation": (simulated.navigation(5.0, 40), simulated.navigation(3.0, 40), 6e5, 1.0),
    "cartpole": (simulated.cartpole((50.0, 50.0), 200), simulated.cartpole((40.0, 40.0), 200), 6e5, 10.0),
    "pendulum": (simulated.pendulum(30.0, 100), simulated.pendulum(25.0, 100), 1.2e6, 10.0),
}
WINDOW, SEEDS = 5, (0, 1, 2)


def steps_until(trace: Any, least: float, b: Any) -> int | None:
    """Learning steps until WINDOW iterations have on average at least so much return, within the limits."""
    J = np.array([trace.J_hat[i : i + WINDOW].mean(0) for i in range(len(trace) - WINDOW + 1)])
    good = np.flatnonzero((J[:, 0] >= least) & np.all(J[:, 1:] >= b, axis=1))
    return None if not len(good) else int(np.cumsum(trace.steps)[good[0] + WINDOW - 1])


def main() -> None:
    for name in sys.argv[1:] or TASKS:
        old, new, budget, less = TASKS[name]
        for seed in SEEDS:
            first = cl.solve(old, budget=budget, seed=seed)
            row: dict[str, Any] = {
                "task": name,
                "seed": seed,
                "old": [first.certificate.verdict, first.certificate.J_r],
            }
            for kind, init in (("warm", first), ("afresh", None)):
                found = cl.solve(new, budget=budget, seed=seed + 100, init=init)
                reached = steps_until(found.trace, first.certificate.J_r - less, new.statement.b)
                row[kind] = {"steps": reached, "of": found.learning_steps, "verdict": found.certificate.verdict}
                row[kind]["J_r"] = round(found.certificate.J_r, 3)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
