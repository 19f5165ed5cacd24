"""The runtime monitor: false alarms exactly at the limit, delays after shifts, and a kill and restart.

    python benchmarks/monitor.py                    all of it, some minutes
    python benchmarks/monitor.py --deployments 500 --episodes 2000    a quick look

Costs of episodes lie in [0, 1] (three shapes), the limit is 0.1. False alarms: the share of deployments exactly at the
limit that raise one within so many episodes; it must not exceed δ. Delays: the median number of episodes from a shift
of the mean to the alarm, for shifts at the start and after 10⁴ good episodes; "one bet" is a test that begins at the
first episode and never again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

from clearance.certificates.certificate import build_certificate  # noqa: E402
from clearance.core.arrays import Array  # noqa: E402
from clearance.deploy.change_test import BETS, Scale, advance, evidence  # noqa: E402
from clearance.deploy.monitor import Monitor  # noqa: E402

LIMIT, DELTA = 0.1, 0.05
SCALE = Scale(LIMIT, 0.0)
Costs = Callable[[np.random.Generator, float, int], Array]
SHAPES: dict[str, Costs] = {
    "0 or 1": lambda rng, mean, n: (rng.random(n) < mean).astype(float),
    "beta, 0.4 of that deviation": lambda rng, mean, n: rng.beta(5 * mean, 5 * (1 - mean), n),
    "often 0.05, at times 1": lambda rng, mean, n: np.where(rng.random(n) < (mean - 0.05) / 0.95, 1.0, 0.05),
}


def false_alarms(costs: Costs, n: int, T: int, seed: int) -> int:
    """How many of n deployments exactly at the limit raise an alarm within T episodes."""
    rng, S, alarmed = np.random.default_rng(seed), np.zeros((n, len(BETS))), np.zeros(n, bool)
    for t in range(1, T + 1):
        S = advance(S, SCALE.gain(costs(rng, LIMIT, n)), t)
        alarmed |= evidence(S, t, SCALE.rounding) >= 1 / DELTA
    return int(alarmed.sum())


def delays(costs: Costs, good: int, mean: float, n: int, seed: int, most: int = 10**5) -> tuple[float, float]:
    """The median delays, from the shift on, of the monitor and of one bet; the good time has 0.7 of the limit."""
    rng, S, once = np.random.default_rng(seed), np.zeros((n, len(BETS))), np.zeros((n, len(BETS)))
    found = np.full((2, n), np.inf)
    for t in range(1, good + most + 1):
        z = SCALE.gain(costs(rng, mean if t > good else 0.7 * LIMIT, n))
        S, once = advance(S, z, t), once + np.log1p(BETS * z[:, None])
        if t <= good:
            continue
        reached = evidence(S, t, SCALE.rounding), np.exp(np.minimum(np.logaddexp.reduce(once, -1), 600)) / len(BETS)
        for row, value in zip(found, reached, strict=True):
            row[np.isinf(row) & (value >= 1 / DELTA)] = t - good
        if np.median(found[0]) < np.inf and (
            np.median(found[1]) < np.inf or t - good > 10**4 + 50 * np.median(found[0])
        ):
            break
    return float(np.median(found[0])), float(np.median(found[1]))


def watch(state: str) -> None:
    """Record the same episodes, slowly, from where the state stands until the alarm."""
    J = np.array([1.0, -0.05])
    seen = build_certificate("CERTIFIED", J, (J, J), np.array([-LIMIT]), evidence="exact", parts=[J], components=1,
                             message="", scope="", names=["cost"], costs=[True])  # fmt: skip
    monitor, x = Monitor(None, seen, delta=DELTA, state=state), np.random.default_rng(5).random(4000) < 0.2
    while True:
        monitor.record(float(x[monitor.episodes]))
        time.sleep(0.01)


def kill_and_restart(seed: int) -> tuple[int, int, int]:
    """Kill a monitor at random instants until the alarm: kills, and the episodes of the alarm with and without them."""
    rng = np.random.default_rng(seed)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, patience in (("killed.json", (0.6, 1.4)), ("whole.json", (300.0, 300.1))):
            state, kills = Path(folder) / name, 0
            while True:
                process = subprocess.Popen([sys.executable, __file__, "--watch", str(state)], stderr=subprocess.PIPE)
                try:
                    process.communicate(timeout=float(rng.uniform(*patience)))
                    break
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.communicate()
                    kills += 1
            found.append((kills, json.loads(state.read_text())))
    assert found[0][1] == found[1][1], "a restart must not change the test"
    return found[0][0], found[0][1]["episodes"], found[1][1]["episodes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--deployments", type=int, default=10**4)
    parser.add_argument("--episodes", type=int, default=10**4)
    parser.add_argument("--runs", type=int, default=200, help="deployments for each delay")
    parser.add_argument("--watch", metavar="STATE", help="the process that is killed")
    args = parser.parse_args()
    if args.watch:
        return watch(args.watch)
    print(f"limit {LIMIT}, δ = {DELTA}, {args.deployments} deployments exactly at the limit, {args.episodes} episodes")
    for name, costs in SHAPES.items():
        n = false_alarms(costs, args.deployments, args.episodes, seed=0)
        print(f"  {name:30} alarms {n} ({n / args.deployments:.4f})", flush=True)
        assert n <= DELTA * args.deployments
    print(f"median delay after a shift, {args.runs} runs:    at the start    after 10⁴ good (one bet)")
    for name, costs in SHAPES.items():
        for mean in (0.12, 0.15, 0.2, 0.4):
            first, _ = delays(costs, 0, mean, args.runs, seed=1)
            later, once = delays(costs, 10**4, mean, args.runs, seed=2)
            print(f"  {name:30} mean {mean:4}   {first:8.0f}   {later:8.0f}   ({once:.0f})", flush=True)
    kills, killed, whole = kill_and_restart(seed=3)
    print(f"killed {kills} times: alarm at episode {killed}, without a kill at {whole}")


if __name__ == "__main__":
    main()
