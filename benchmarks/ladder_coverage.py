"""How often does a ladder certify a rung that breaks a limit? (`clearance.certificates.ladder`)

    python benchmarks/ladder_coverage.py --runs 10000

The limit is placed so that a rung, α = 1/4, 1/2 or 3/4, breaks it by a millionth. A rung that breaks a limit can only
be certified if the first such rung passes its own test. This is counted, so the order of the rungs hides nothing.
"""

from __future__ import annotations

import argparse
import os

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

import clearance as cl  # noqa: E402
from clearance.certificates.ladder import Ladder  # noqa: E402
from clearance.core.random_streams import fold, key_of  # noqa: E402
from clearance.finite.samplers.finite_episodes import MixtureEpisodes  # noqa: E402

Pair = tuple[cl.CMDP, np.ndarray]


def rare(p: float) -> Pair:
    """Costs of 1 with a small probability at each step; the bold policy doubles it."""
    P = np.array([[[1 - 2 * p, 2 * p], [1 - p, p]]] * 2)
    cmdp = cl.CMDP(P, np.zeros((2, 2)), [[[0.0, 0.0], [-1.0, -1.0]]], 0.0, rho=[1.0, 0.0], gamma=0.9)
    return cmdp, np.array([[[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2])


def with_safest(cmdp: cl.CMDP) -> Pair:
    """The optimum as the bold policy, the uniform one as the safe one."""
    return cmdp, np.stack([cl.optimum(cmdp).policy, np.full((cmdp.S, cmdp.A), 1 / cmdp.A)])


CASES = {
    "two states": lambda: (
        cl.zoo.two_state(),
        np.array([[[0.6, 0.4], [1.0, 0.0]], [[0.3, 0.7], [1.0, 0.0]]]),
    ),
    "the paper's instance": lambda: with_safest(cl.zoo.bai2023()),
    "queue, two limits": lambda: with_safest(cl.zoo.altman_queue_discounted()),
    "rare cost, 1 in 100": lambda: rare(0.01),
    "rare cost, 1 in 1000": lambda: rare(0.001),
}


def errors(pair: Pair, alpha: float, delta: float, runs: int, *, control: bool, budget: float) -> int:
    """How many of the runs certify the rung α, which breaks the first limit by a millionth."""
    cmdp, pi = pair
    each = [cl.evaluate(cmdp, own) for own in pi]
    J = alpha * each[0].J + (1 - alpha) * each[1].J
    b = J[1:] - 0.2 / (1 - cmdp.gamma) * np.ptp(cmdp.g, axis=(1, 2))
    b[0] = J[1] + 1e-6
    base, wrong = np.stack([at.V.T for at in each]) if control else None, 0
    source = MixtureEpisodes(cmdp, cl.Mixture([0.5, 0.5], pi), base)
    for seed in range(runs):
        ladder = Ladder(source, 0.5, b, delta, float(J[0]))
        ladder.climb(fold(key_of(seed), 11), budget)
        wrong += ladder.rung(alpha, key_of(seed)).seen.verdict == "CERTIFIED"
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--budget", type=float, default=2e4)
    args = parser.parse_args()
    print("| policies | control variate | α | δ | runs | false |\n|---|---|---|---|---|---|")
    for name, make in CASES.items():
        pair = make()
        for control, alpha, delta in ((True, 0.5, 0.05), (False, 0.75, 0.05), (False, 0.25, 0.01)):
            wrong = errors(pair, alpha, delta, args.runs, control=control, budget=args.budget)
            told = "V" if control else "none"
            print(f"| {name} | {told} | {alpha} | {delta} | {args.runs:,} | {wrong} |", flush=True)


if __name__ == "__main__":
    main()
