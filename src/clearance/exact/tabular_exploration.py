"""Learn a tabular policy without a model: plan on the counted transitions, explore, and repeat.

Every iteration walks N environment steps. Most of them follow an optimistic policy, which assumes that rarely seen
pairs are better than estimated; the others follow the best policy on the estimated model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearance.core.arrays import Array
from clearance.exact.planning import plan_best, plan_exploration
from clearance.learning.methods.method_base import first_state, setting
from clearance.learning.state import Info, State

CURIOUS = 0.7  # share of the walks that look for better pairs


@dataclass(frozen=True)
class TabularExploration:
    """The learning method of problems made with `cl.tabular`."""

    K: int = setting(40, "iterations")
    N: int | None = setting(None, "environment steps of an iteration; as many as the budget allows")

    draw_kind: ClassVar[str] = "table"

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    def step(self, key: np.uint64, sampler: Any, state: State, lam_max: float) -> tuple[State, Info]:
        """Plan on the present counts, and walk N steps with the plan and the exploring policy.

        Return the new state, and the information on the iteration.
        """
        explored, N = sampler.explored, self.N or 10_000
        model = explored.model()
        plan = plan_best(model.cmdp, sampler.statement.b)
        seen = model.evaluate(plan.pi)
        curious = plan_exploration(model, seen.V, np.append(1.0, plan.lam), explored.high, most=explored.most)
        steps = explored.walk_both(key, plan.pi, curious, N, CURIOUS)
        theta = np.log(np.maximum(plan.pi, 1e-300)).ravel()
        return State(theta, plan.lam, state.k + 1, state.sampler_memory), Info(seen.J, 0.0, steps)
