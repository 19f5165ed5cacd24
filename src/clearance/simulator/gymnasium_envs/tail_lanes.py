"""Lanes (parallel environments) of a Gymnasium problem with limits on single episodes (`Chance`, `CVaR`).

They wrap the lanes of the plain problem, which has no such limits. They replace the costs by the signals of the limits,
and add the costs so far to the observations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.simulator.gymnasium_envs.env_lanes import Fault, Row
from clearance.simulator.tail_costs import TailCosts


class TailLanes:
    """A wrapper that adds limits on single episodes (`Chance`, `CVaR`) to lanes (parallel environments) without them.

    It sums the costs of each lane's current episode.
    """

    def __init__(self, lanes: Any, tail_costs: TailCosts) -> None:
        self.plain, self.tail_costs, memory = lanes, tail_costs, tail_costs.memory
        self.n, self.dtype, self.action = lanes.n, lanes.dtype, lanes.action
        self.obs_shape = lanes.obs_shape if memory is None else (memory.inputs,)
        self.row = Row(self.n, self.obs_shape, self.dtype, len(tail_costs.rules))
        self.sums = np.zeros((self.n, tail_costs.plain.I))
        self.age = np.zeros(self.n, np.int64)

    @property
    def separate(self) -> bool:
        return getattr(self.plain, "separate", True)

    @property
    def one_seed(self) -> bool:
        return getattr(self.plain, "one_seed", False)

    def reset(self, seeds: Any, which: Any = None) -> Any:
        self._forget(np.ones(self.n, bool) if which is None else which)
        return self._seen(self.plain.reset(seeds, which))

    def step(self, actions: Any, live: Any) -> Row:
        return self._read(self.plain.step(actions, live))

    def next(self, over: Any, seeds: Any) -> Any:
        self._forget(over)
        return self._seen(self.plain.next(over, seeds))

    def reset_first(self, seed: int) -> Any:
        """Reset the first environment; return its own observation, to which the costs so far are not added."""
        self._forget(np.ones(self.n, bool))
        return self.plain.reset_first(seed)

    def step_first(self, action: Any) -> tuple[Any, Row]:
        obs, row = self.plain.step_first(action)
        return obs, self._read(row)

    def first(self) -> TailLanes | None:
        lanes = self.plain.first()
        return None if lanes is None else TailLanes(lanes, self.tail_costs)

    def close(self) -> None:
        self.plain.close()

    def _forget(self, which: Any) -> None:
        self.sums[which], self.age[which] = 0.0, 0

    def _seen(self, obs: Any) -> Any:
        memory = self.tail_costs.memory
        return obs if memory is None else memory.join(obs, self.sums[:, self.tail_costs.remembered], self.age)

    def _read(self, plain: Row) -> Row:
        """Convert `plain`, the results of one step of the wrapped parallel environments, and return the new row.

        The costs are replaced by the signals of the limits. The costs so far are added to the observations.
        """
        row, valid = self.row, plain.valid
        self._check(plain)
        cost = np.where(valid[:, None], plain.cost, 0.0)
        before, self.sums = self.sums, self.sums + cost
        self.age += valid
        row.cost[:] = self.tail_costs.signals(cost, before, self.sums, np)
        row.reward[:], row.terminated[:], row.truncated[:] = plain.reward, plain.terminated, plain.truncated
        row.valid[:], row.after[:] = valid, self._seen(plain.after)
        return row

    def _check(self, plain: Row) -> None:
        wrong = self.tail_costs.wrong(plain.cost, np) & plain.valid[:, None]
        if wrong.any():
            lane, j = np.argwhere(wrong)[0].tolist()
            value, name = float(plain.cost[lane, j]), self.tail_costs.plain.names[j]
            what = "lies outside its declared bounds" if np.isfinite(value) else "is not finite"
            raise Fault(lane, f"the cost {name} {what}", value)
