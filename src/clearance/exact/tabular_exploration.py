"""Learn a tabular policy without a model: plan on the counted transitions, explore, and repeat.

An iteration takes N environment steps. Most of them follow optimistic values, which assume that rarely seen pairs are
better than estimated, and which are updated after each step. The other steps follow the plan: the best policy on the
estimated model. An iteration of the second half takes steps only if the optimistic value of the start states exceeds
the value of the plan by much. Steps that are left unused are spent on choosing and testing a policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from clearance.core.arrays import Array
from clearance.core.random_streams import fold
from clearance.exact.optimistic_values import optimistic_values
from clearance.exact.planning import plan_best
from clearance.learning.methods.method_base import first_state, setting
from clearance.learning.state import Info, State

CURIOUS = 0.7  # share of the steps that follow optimistic values
ALWAYS = 0.5  # share of the iterations, the first ones, that always take steps; later ones only if it is promising
WORTH = 0.03  # promising: a possible gain above this share of the best value of an episode minus the plan's value


@dataclass(frozen=True)
class TabularExploration:
    """The learning method of problems made with `cl.tabular`."""

    K: int = setting(60, "iterations")
    N: int | None = setting(None, "environment steps of an iteration; as many as the budget allows")

    draw_kind: ClassVar[str] = "table"

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    def step(self, key: np.uint64, sampler: Any, state: State, lam_max: float) -> tuple[State, Info]:
        """Plan on the present counts, then take N environment steps with the plan and with optimistic values.

        In the second half of the iterations, steps are taken only if they are promising (see the module's head). Return
        the new state, and the information on the iteration.
        """
        explored, N = sampler.explored, self.N or 10_000
        explored.recall(state.sampler_memory)
        model = explored.model()
        plan = plan_best(model.cmdp, sampler.statement.b)
        seen, weights = model.evaluate(plan.pi), np.append(1.0, plan.lam)
        hopes = optimistic_values(model, seen.V, weights, float(weights @ explored.most), explored.transitions)
        L = float(weights @ seen.J)
        promise = float(model.cmdp.rho @ hopes.Q.max(1)) - L
        steps = 0
        if state.k < ALWAYS * self.K or promise > WORTH * (hopes.best - L):
            steps = explored.walk(fold(key, 0), 0.95 * plan.pi + 0.05 / model.cmdp.A, (1 - CURIOUS) * N)
            steps += explored.walk_hopeful(fold(key, 1), hopes, CURIOUS * N)
        theta = np.log(np.maximum(plan.pi, 1e-300)).ravel()
        return State(theta, plan.lam, state.k + 1, explored.memory), Info(seen.J, 0.0, steps)
