"""A heuristic as `init` on the hazards task: what it earns and costs, and what a run that begins from it certifies.

    python benchmarks/heuristic_start.py [SEED …]

The heuristic drives to the goal and around hazards. Beside it: the run with `init=heuristic`, and one from nothing with
the same budget. All three are then measured on the same number of fresh episodes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import clearance as cl

sys.path.insert(0, str(Path(__file__).resolve().parent))
from tasks.moving import RADIUS, hazards

BUDGET, EPISODES = 5e5, 600
WIDE = RADIUS + 0.35  # where the heuristic begins to turn


def heuristic(obs: Any) -> Any:
    """Drive to the goal; near a hazard, first keep off it and go around on the side of the goal."""
    speed, goal, hazard = obs[2:4] / 10, obs[4:6], obs[6:8]
    far = np.linalg.norm(hazard) + 1e-6
    wanted = 0.12 * goal / max(np.linalg.norm(goal), 0.3)
    outward = -hazard / far
    if far < WIDE and wanted @ outward < 0:
        along = np.array([-outward[1], outward[0]])
        along = along if along @ goal >= 0 else -along
        wanted = 0.1 * along + 0.3 * (RADIUS + 0.2 - far) * outward
    return np.clip((wanted - 0.9 * speed) / 0.03, -1.0, 1.0).astype(np.float32)


def measure(policy: Any) -> dict[str, Any]:
    seen = cl.evaluate(hazards(), policy, episodes=EPISODES, seed=77)
    low, high = seen.interval
    return {"J_r": [round(float(x), 3) for x in (seen.mean[0], low[0], high[0])],
            "cost": [round(float(x), 3) for x in (seen.mean[1], low[1], high[1])]}  # fmt: skip


def main() -> None:
    print(json.dumps({"heuristic": measure(heuristic)}), flush=True)
    for seed in [int(x) for x in sys.argv[1:]] or [0, 1, 2]:
        for kind, init in (("from the heuristic", heuristic), ("afresh", None)):
            found = cl.solve(hazards(), budget=BUDGET, seed=seed, init=init)
            row = {"seed": seed, "run": kind, "verdict": found.certificate.verdict, "steps": found.env_steps}
            row |= {"J_r": round(found.certificate.J_r, 3), "cost": round(-found.certificate.J_g[0], 3)}
            row |= {"policy": repr(found.policy)[:90], "neighbours": found.certificate.neighbours}
            print(json.dumps(row), flush=True)
            print(json.dumps({"fresh episodes": measure(found.policy)}), flush=True)


if __name__ == "__main__":
    main()
