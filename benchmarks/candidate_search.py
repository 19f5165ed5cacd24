"""The search for the best certified policy: its constants, compared on problems whose optimum is known.

    python benchmarks/candidate_search.py                     choose: problems 0 .. 23, all variants
    python benchmarks/candidate_search.py --first 24          judge: problems 24 .. 47, drawn after the choice
    python benchmarks/candidate_search.py --variants now,first

Every problem is solved from samples with two budgets. A row says how many were certified, the share of the optimum that
the certified policies earn (exact values), and the environment steps spent. A certified policy that breaks a limit
would be an error of the whole library: the script stops there.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np  # noqa: E402

import clearance as cl  # noqa: E402
from clearance.certificates import candidate_search, sequential_test  # noqa: E402

BUDGETS = (3e5, 2e6)
VARIANTS: dict[str, dict[str, Any]] = {
    "now": {},
    "first certified is taken": {"WORTHWHILE": 2.0},
    "prior 1.5": {"PRIOR": 1.5},
    "planned .85": {"PLANNED": 0.85},
    "planned .5": {"PLANNED": 0.5},
    "pessimism 1.5": {"PESSIMISM": 1.5},
    "levels .8 .1 .05 .05": {"LEVELS": (0.8, 0.1, 0.05, 0.05)},
}


def problem(i: int) -> cl.CMDP:
    """Four kinds in turn: dense random, sparse random, two limits with little room, and models of the zoo."""
    if i % 4 == 0:
        return cl.zoo.random_cmdp(100 + i)
    if i % 4 == 1:
        return cl.zoo.garnet(seed=i)
    if i % 4 == 3:
        return (cl.zoo.altman_queue_discounted, cl.zoo.streaming_discounted, cl.zoo.inventory, cl.zoo.lazar_discounted)[
            (i // 4) % 4
        ]()
    rng, S, A = np.random.default_rng(1000 + i), 8, 3
    P, r = rng.dirichlet(np.ones(S), size=(S, A)), rng.uniform(size=(S, A))
    model = cl.CMDP(P, r, rng.uniform(-1, 1, size=(2, S, A)), [0.0, 0.0], gamma=0.9)
    slater, _ = cl.slater_margin(model)
    return model.replace(b=np.full(2, slater - 0.25 * abs(slater) - 0.3))


def run(problems: list[tuple[int, cl.CMDP, Any]], budget: float) -> str:
    shares, steps = [], []
    for i, model, best in problems:
        try:
            solution = cl.solve(model, evidence="samples", budget=budget, seed=i)
        except cl.InfeasibleError:  # none was found within the budget
            continue
        if solution.certificate.verdict == "CERTIFIED":
            J = solution.policy.J(model)
            assert np.all(J[1:] >= model.b - 1e-12), f"problem {i}: certified, but it breaks a limit"
            shares.append(J[0] / best.J_r)
            steps.append(solution.env_steps)
    earned = f"median {np.median(shares):.4f} mean {np.mean(shares):.4f} least {np.min(shares):.3f}"
    return f"{len(shares)}/{len(problems)} {earned} steps {np.mean(steps):.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description="The constants of the search for the best certified policy.")
    parser.add_argument("--first", type=int, default=0, help="the first problem (default: 0)")
    parser.add_argument("--count", type=int, default=24, help="how many problems (default: 24)")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="names with commas between them (default: all)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    models = [(i, problem(i)) for i in range(args.first, args.first + args.count)]
    problems = [(i, model, cl.optimum(model)) for i, model in models]
    problems = [p for p in problems if p[2].status == "optimal"]
    for name in args.variants.split(","):
        homes = {k: sequential_test if k == "PRIOR" else candidate_search for k in VARIANTS[name]}
        before = {k: getattr(home, k) for k, home in homes.items()}
        for k, value in VARIANTS[name].items():
            setattr(homes[k], k, value)
        print(f"{name:26}", " | ".join(run(problems, budget) for budget in BUDGETS), flush=True)
        for k, value in before.items():
            setattr(homes[k], k, value)


if __name__ == "__main__":
    main()
