"""Problems from Gymnasium environments with finitely many observations and actions, whose model is not known.

    cl.tabular("FrozenLake-v1", constraints=f, limits=0.3, bounds=([0, 0], [1, 1]), gamma=0.95)

An observation is a row of a table: a number (`Discrete`), or a small tuple of numbers (`MultiDiscrete`, `Tuple` of
`Discrete`). The environment is only reset and stepped, never put into a chosen state; which rows occur is discovered
while learning. One more row at the end stands for episodes that have ended; all signals are 0 there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearance.certificates.verdict_words import bound_words, join_some
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.statement import Bounds, Statement
from clearance.core.text import visible
from clearance.simulator.gymnasium_envs.gymnasium_problem import Gym, gymnasium, read_signal_bounds
from clearance.simulator.table_problem import TableProblem

MOST_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class TableShape:
    """A mapping from observations to rows of a table. An observation is a tuple of whole numbers, or a single one.

    sizes  for each number of the tuple, how many values it can take;  first: the smallest of these values
    """

    sizes: tuple[int, ...]
    first: tuple[int, ...]

    @property
    def rows(self) -> int:
        return int(np.prod(self.sizes))

    def row(self, obs: Any) -> int:
        """Return the index of an observation's row; raise InputError if the observation is not in its space."""
        at = 0
        parts = (obs,) if len(self.sizes) == 1 and np.ndim(obs) == 0 else obs
        for x, n, first in zip(parts, self.sizes, self.first, strict=True):
            k = int(x) - first
            if not 0 <= k < n:
                raise InputError(f"the observation {obs!r} does not fit its space")
            at = at * n + k
        return at


@dataclass(frozen=True, eq=False, repr=False)
class TabularProblem(TableProblem):
    """An environment with finitely many observations and actions, made by `cl.tabular`.

    S, A    number of rows, including the last one for episodes that have ended, and number of actions
    totals  bounds (low, high) of the sums of reward and utilities [1+I], from the start of an episode to any step
    """

    gym: Gym
    shape: TableShape
    A: int
    first_action: int = 0
    totals: Bounds | None = None

    def __repr__(self) -> str:
        s = self.statement
        limits = [bound_words(name, b, cost=c) for name, b, c in zip(s.names, s.b.tolist(), s.costs, strict=True)]
        size = f"{self.shape.rows:,} observations, {self.A:,} actions, γ = {s.gamma:g}"
        return f"<TabularProblem {visible(s.name)}: {size}; {join_some(limits) or 'no limits'}>"

    @property
    def statement(self) -> Statement:
        return self.gym.statement

    @property
    def S(self) -> int:
        return self.shape.rows + 1

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The declared bounds (low, high) of reward and utilities [1+I] in one step."""
        assert self.statement.bounds is not None
        return self.statement.bounds

    def reset(self, seed: int) -> int:
        """Begin an episode and return the row of its first observation."""
        return self.shape.row(self.gym.lanes.reset_first(seed))

    def step(self, action: int) -> tuple[int, Array]:
        """Make one step; return the row of the next observation, and the signals [1+I]: the reward, then the utilities.

        If the episode has ended, the returned row is the last row of the table.
        """
        obs, row = self.gym.lanes.step_first(action + self.first_action)
        costs = np.ravel(row.cost[0]) if self.statement.I else np.zeros(0)
        h = np.append(row.reward[0], self.gym.sign * costs)
        if row.truncated[0] and not row.terminated[0]:
            raise InputError(f"{self.statement.name} cuts episodes off by itself, but J has no time limit: remove it")
        return (self.shape.rows if row.terminated[0] else self.shape.row(obs)), h

    def close(self) -> None:
        self.gym.close()


def tabular(env: Any, *, totals: tuple[ArrayLike, ArrayLike] | None = None, **settings: Any) -> TabularProblem:
    """Return a finite problem made from a Gymnasium environment with discrete observations.

    `env` is an id, a factory or an environment object. The settings are those of `clearance.gymnasium`, without a
    horizon. Some have a special meaning here:

    gamma   discount in (0, 1); J has no horizon, and ends where an episode terminates
    bounds  (low, high) of the reward and of every constraint in one step, [1+I] numbers each
    totals  (low, high) of the undiscounted sums of reward and constraints from the start of an episode to any of its
            steps, if known: an agent falls into a hole only once, for example. Certificates then need fewer episodes. A
            sum outside of these bounds is an error
    """
    if settings.get("horizon") is not None:
        raise InputError(
            "horizon is not for tables: give gamma (J is discounted, and ends where an episode terminates)"
        )
    gym = gymnasium(env, num_envs=1, **settings)
    bounds = gym.statement.bounds
    if bounds is None or not np.all(np.isfinite(bounds)):
        raise InputError(f"bounds must be (low, high) with {1 + gym.statement.I} finite numbers each, reward first")
    inner: Any = gym.lanes
    space, actions = inner.envs[0].observation_space, inner.envs[0].action_space
    if type(actions).__name__ != "Discrete":
        raise InputError(f"action space {actions} is not Discrete: use cl.gymnasium")
    shape = _shape(space)
    if shape.rows > MOST_ROWS:
        raise InputError(f"observation space {space} has {shape.rows:,} values, a table {MOST_ROWS:,} at most")
    known = _read_totals(totals, gym.statement.I, gym.sign)
    return TabularProblem(gym, shape, int(actions.n), int(getattr(actions, "start", 0)), known)


def _read_totals(totals: Any, I: int, sign: float) -> Bounds | None:
    """Return the bounds (low, high) of the summed reward and utilities [1+I] that the user gave as `totals`.

    Return None if `totals` is None. Raise InputError unless low ≤ 0 ≤ high. `sign` is −1 if the constraints are costs.
    """
    found = read_signal_bounds(totals, I, sign)
    if found is not None and not (np.all(found[0] <= 0) and np.all(found[1] >= 0)):
        raise InputError("totals must be (low, high) with low ≤ 0 ≤ high: every sum begins with 0")
    return found


def _shape(space: Any) -> TableShape:
    kind = type(space).__name__
    parts = list(space.spaces) if kind == "Tuple" else [space]
    if all(type(p).__name__ == "Discrete" for p in parts):
        return TableShape(tuple(int(p.n) for p in parts), tuple(int(getattr(p, "start", 0)) for p in parts))
    if kind == "MultiDiscrete":
        nvec: NDArray[np.int64] = np.asarray(space.nvec).ravel()
        start = np.broadcast_to(np.asarray(getattr(space, "start", 0)), np.shape(space.nvec)).ravel()
        return TableShape(tuple(int(n) for n in nvec), tuple(int(x) for x in start))
    raise InputError(
        f"observation space {space} is neither Discrete, MultiDiscrete nor a Tuple of Discrete: use cl.gymnasium"
    )
