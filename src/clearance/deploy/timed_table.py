"""Run policies of finite models with a horizon, with NumPy alone. A policy has one table for each step."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.deploy.running_policy import Components, Rng
from clearance.deploy.table_policy import TablePolicy


class TimedTablePolicy(TablePolicy):
    """A mixture of M policies pi [M, H, S, A] of a finite model with horizon H: each has one table for each step.

    Steps are counted from `reset` on.
    """

    axes = 4
    frames = 6

    def reset(self, n: int | None = None, rng: Rng | None = None) -> None:
        super().reset(n, rng)
        self.step = 0

    @property
    def H(self) -> int:
        return self.pi.shape[1]

    def act(
        self, obs: Any, deterministic: bool = False, rng: Rng | None = None, *, cost_so_far: Any = None, t: Any = None
    ) -> Any:
        """Return an action for the current step, which is counted from `reset` on, or given as `t`."""
        self.step = self.step if t is None else t
        action = super().act(obs, deterministic, rng, cost_so_far=cost_so_far)
        self.step += 1
        return action

    def predict(
        self,
        observation: Any,
        state: tuple[Any, ...] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return (actions, state) like `RunningPolicy.predict`.

        `state` holds, for every row, the index of the policy in the mixture and the step.
        """
        kept = self.step
        began = np.broadcast_to(
            False if episode_start is None else np.asarray(episode_start, bool), np.shape(observation) or (1,)
        )
        self.step = 0 if state is None else np.where(began, 0, np.asarray(state[1]))
        try:
            actions, (components,) = super().predict(observation, state, episode_start, deterministic)
            return actions, (components, np.broadcast_to(self.step, len(components)) + 1)
        finally:
            self.step = kept

    def _table(self, components: Components, rows: NDArray[Any]) -> Array:
        if not np.all(np.asarray(self.step) < self.H):
            raise InputError(f"the episode is over after {self.H} steps: call reset() at the beginning of the next one")
        return self.pi[components, self.step, rows]
