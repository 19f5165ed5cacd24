"""A limit on a chance beside one on the mean, on the pendulum: P(Σ|u|/2 > 40) ≤ 0.05 and E Σ|u|/2 ≤ 40.

    python benchmarks/chance_pendulum.py chance|blind|mean --seed 0 --budget 1.6e6

chance: policies see the cost so far;  blind: they do not;  mean: the limit is on the mean. Each policy is then looked
at in 2,048 further episodes.
"""

from __future__ import annotations

import argparse

import numpy as np

import clearance as cl
from clearance.simulator.samplers.simulator_episodes import NetworkEpisodes
from clearance.zoo import simulated

LIMIT = cl.Chance(above=40, at_most=0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("chance", "blind", "mean"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=1.6e6)
    args = parser.parse_args()
    plain = simulated.pendulum(budget=40.0)
    problem = plain if args.kind == "mean" else plain.with_limits({"torque": LIMIT}, cost_so_far=args.kind == "chance")
    solution = cl.solve(problem, budget=args.budget, seed=args.seed)
    print(f"J_r {solution.certificate.J_r:.4g}", solution.certificate)
    seen = plain.with_limits({"torque": [40.0, LIMIT]}).remembering(solution.policy.policy.memory)
    X = NetworkEpisodes(seen, solution.policy).draw(np.uint64(77), 0, 2048)[0]
    C = -X[:, 1]
    print(
        f"2,048 episodes: reward {X[:, 0].mean():.4g}, mean cost {C.mean():.4g}, share above 40 {(C > 40).mean():.4g}"
    )
    print("quantiles 50, 95, 99, 100 %:", np.quantile(C, [0.5, 0.95, 0.99, 1]).round(1).tolist())


if __name__ == "__main__":
    main()
