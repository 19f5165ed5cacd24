"""Development tasks on Gymnasium's own environments: Box2D and MuJoCo."""

from __future__ import annotations

from typing import Any

import numpy as np

import clearance as cl
from clearance.zoo.robots import too_fast


def lunar() -> Any:
    """LunarLander-v3 with the main engine on in at most 60 steps: falling is cheaper than landing."""

    def engine(obs: Any, action: Any, after: Any, info: Any) -> float:
        return float(action == 2)

    facts = {"limits": {"engine": 60.0}, "horizon": 400, "bounds": (0.0, 1.0), "num_envs": 8, "name": "lunar"}
    return cl.gymnasium("LunarLander-v3", constraints={"engine": engine}, **facts)


def reacher() -> Any:
    """Reacher-v5 with a budget of torque, Σ mean |a| ≤ 2 in 50 steps."""

    def torque(obs: Any, action: Any, after: Any, info: Any) -> float:
        return float(np.mean(np.abs(action)))

    facts = {"limits": {"torque": 2.0}, "horizon": 50, "bounds": (0.0, 1.0), "num_envs": 8, "name": "reacher"}
    return cl.gymnasium("Reacher-v5", constraints={"torque": torque}, **facts)


def hopper() -> Any:
    """Hopper-v5 over 300 steps, of which 20 may be above the speed of Safety-Gymnasium's velocity task."""
    facts = {"limits": {"speed": 20.0}, "horizon": 300, "bounds": (0.0, 1.0), "num_envs": 8, "name": "hopper"}
    return cl.gymnasium("Hopper-v5", constraints={"speed": too_fast(0.7402)}, **facts)
