"""Run all lanes (parallel environments) of a Gymnasium problem for T steps; the first axis of the results is time.

An episode ends when the environment terminates or truncates it, or when it reaches the horizon of the problem. Reaching
the horizon counts as truncation. If the environment itself truncates an episode before the horizon, an error is raised,
because the measured sums would not be those of the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import EnvironmentFault, InputError
from clearance.core.spaces import Box, Space
from clearance.core.statement import Statement
from clearance.simulator.gymnasium_envs.env_lanes import Fault, Row, copy_observation
from clearance.simulator.simulator import SLIP, Steps, widen_bounds

Act = Callable[[Any, int], Any]
Mask = NDArray[np.bool_]


def episode_seed(seed: int, episode: int) -> int:
    """Return the seed of one episode of a lane (parallel environment); episodes are counted from 0.

    Episode 0 uses `seed` itself. Later episodes use 32 bits that are mixed from `seed` and `episode`.
    """
    if episode == 0:
        return int(seed)
    z = (int(seed) * 0x9E3779B1 + episode * 0x85EBCA77) & 0xFFFFFFFF
    z = ((z ^ (z >> 16)) * 0x21F0AAAD) & 0xFFFFFFFF
    z = ((z ^ (z >> 15)) * 0x735A2D97) & 0xFFFFFFFF
    return z ^ (z >> 15)


def roll_out(sim: Any, act: Act, seeds: Sequence[int], T: int | NDArray[np.int64], *, once: bool) -> Steps:
    """Run the lanes (parallel environments) of a Gymnasium problem and return the recorded steps.

    The arguments are those of `Gym.walk`: `act` gives the actions, and with `once` a lane stops after its first
    episode.
    """
    n, lanes = sim.n, sim.lanes
    if len(seeds) != n:
        raise InputError(f"seeds must be one per lane: {n}, got {len(seeds)}")
    last = np.broadcast_to(T, (n,))
    steps, clock = _empty(sim, int(last.max())), Clock(sim.statement, list(seeds))
    obs = clock.watched(lambda: lanes.reset(clock.seeds()))
    clock.check_finite("the observation", obs, np.ones(n, bool))
    for t in range(len(steps.valid)):
        clock.t = t
        steps.obs[t] = obs
        actions = steps.action[t]
        actions[...] = check_actions(act(steps.obs[t], t), sim.action, n)
        row = clock.watched(lambda: lanes.step(actions, clock.live))  # noqa: B023
        _store(steps, t, row, sim.sign)
        clock.check(row, steps.h[t])
        over = clock.tick(row, once)
        steps.truncated[t] = over & ~row.terminated
        clock.live &= t + 1 < last
        if not clock.live.any():
            return Steps(*(x[: t + 1] for x in steps))
        seeds = clock.seeds() if over.any() or not row.valid.all() else seeds
        obs = clock.watched(lambda: lanes.next(over & clock.live, seeds))  # noqa: B023
    return steps


def follow_rule(
    sim: Any, rule: Callable[[Any], Any], seed: int, T: int, seen: list[tuple[Any, Any]] | None = None
) -> Array:
    """Run one episode of a rule (a function from observation to action), of at most T steps, in the first environment.

    Return its signals h [t, 1+I]: in each step the reward, then the utilities. The rule gets copies of the
    environment's own observations, and its actions go to the environment unchanged.

    seen  a list to which a pair is appended in each step: the observation as networks see it, and the action
    """
    lanes, H = sim.lanes, np.empty((T, 1 + sim.statement.I))
    clock = Clock(sim.statement, [seed] * sim.n)
    obs, encoded = clock.watched(lambda: lanes.reset_first(seed)), None
    for t in range(T):
        clock.t = t
        action = rule(copy_observation(obs))
        if seen is not None:
            seen.append((np.array(lanes.obs[0] if encoded is None else encoded), copy_observation(action)))
        obs, row = clock.watched(lambda: lanes.step_first(action))  # noqa: B023
        h = np.concatenate([row.reward[:, None], sim.sign * row.cost], axis=1)
        clock.check(row, h)
        H[t], encoded = h[0], row.after[0]
        if clock.tick(row, once=True)[0]:
            return H[: t + 1]
    return H


class Clock:
    """A counter of episodes and steps for each of n parallel environments (lanes).

    It also checks each step, and raises errors that name the environment, the step and the seed.
    """

    def __init__(self, statement: Statement, seeds: list[int]) -> None:
        n = len(seeds)
        self.statement, self.first, self.t = statement, seeds, -1
        self.age, self.episode, self.live = np.zeros(n, np.int64), np.zeros(n, np.int64), np.ones(n, bool)
        self.bounds = None if statement.bounds is None else widen_bounds(statement.bounds, SLIP)

    def seeds(self) -> list[int]:
        """Return the seed of the current episode of each lane (parallel environment)."""
        return [episode_seed(s, int(e)) for s, e in zip(self.first, self.episode, strict=True)]

    def tick(self, row: Row, once: bool) -> Mask:
        """Count one step of each environment that is valid in `row`; return a mask [n] of the episodes that have ended.

        With `once`, an environment stops when its episode has ended. Raise an error if an environment truncated an
        episode before the horizon.
        """
        H, cut = self.statement.horizon, row.truncated & ~row.terminated & row.valid
        early = cut & (self.age + 1 < (np.inf if H is None else H))
        if early.any():
            i = int(np.argmax(early))
            steps, asked = int(self.age[i]) + 1, "has no end" if H is None else f"is over {H} steps"
            ways = f"give horizon={steps}, or let it say terminated where nothing follows"
            raise self.fault(i, f"an episode was cut off after {steps} steps, but J {asked}: {ways}")
        self.age += row.valid
        over = row.valid & (row.terminated | row.truncated)
        if H is not None:
            over |= row.valid & (self.age >= H)
        if over.any():
            self.age[over] = 0
            self.episode[over] += 1
            if once:
                self.live &= ~over
        return over

    def check(self, row: Row, h: Array) -> None:
        """Raise EnvironmentFault if an observation or a signal in `h` is not finite, or a signal is out of bounds."""
        if not np.isfinite(row.after).all():
            self.check_finite("the observation", row.after, row.valid)
        if not np.isfinite(h).all():
            self.check_finite("the reward", row.reward, row.valid)
            self.check_finite("the cost", row.cost, row.valid)
        if self.bounds is not None:
            outside = ((h < self.bounds[0]) | (h > self.bounds[1])) & row.valid[:, None]
            if outside.any():
                i, j = np.argwhere(outside)[0].tolist()
                raise self._outside(i, j, row)

    def check_finite(self, what: str, x: Array, valid: Mask) -> None:
        rows = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1) & valid
        if rows.any():
            i = int(np.argmax(rows))
            raise self.fault(i, f"{what} is not finite", x[i].tolist())

    def _outside(self, i: int, j: int, row: Row) -> EnvironmentFault:
        which, value = ("reward", row.reward[i]) if j == 0 else (self.statement.names[j - 1], row.cost[i, j - 1])
        return self.fault(i, f"{which} lies outside its declared bounds", float(value))

    def watched(self, call: Callable[[], Any]) -> Any:
        """Call `call`, a function without arguments that uses the environments, and return its result.

        An error of an environment is raised again with the index of the environment and the step.
        """
        try:
            return call()
        except Fault as e:
            raise self.fault(e.lane, e.what, e.value) from e

    def fault(self, lane: int, what: str, value: object = None) -> EnvironmentFault:
        seed = episode_seed(self.first[lane], int(self.episode[lane]))
        where = f" (step {self.age[lane]} of the episode with seed {seed})"
        return EnvironmentFault(self.statement.name, lane, None if self.t < 0 else self.t, what, value, where)


def check_actions(actions: Any, space: Space, n: int) -> Any:
    """Return the policy's actions as an array; raise InputError unless they are n valid actions."""
    a = np.asarray(actions)
    if a.shape != (n, *space.shape):
        raise InputError(f"the policy gave actions of shape {a.shape}, {n} lanes need {(n, *space.shape)}")
    if isinstance(space, Box):
        if not np.isfinite(a).all():
            raise InputError("the policy gave an action that is not finite: smaller steps may help")
    elif a.size and not (a.min() >= 0 and np.all(a < np.asarray(space.nvec))):
        raise InputError(f"the policy gave an action outside 0..{max(space.nvec) - 1}")
    return a


def _empty(sim: Any, T: int) -> Steps:
    n, H, kind = sim.n, 1 + sim.statement.I, sim.lanes.dtype
    actions = np.empty((T, n, *sim.action.shape), np.float32 if isinstance(sim.action, Box) else np.int64)
    obs, after = np.empty((T, n, *sim.obs_shape), kind), np.empty((T, n, *sim.obs_shape), kind)
    flags = (np.zeros((T, n), bool) for _ in range(3))
    terminated, truncated, valid = flags
    return Steps(obs, actions, np.empty((T, n, H)), terminated, truncated, after, valid)


def _store(steps: Steps, t: int, row: Row, sign: float) -> None:
    steps.after[t], steps.valid[t] = row.after, row.valid
    steps.terminated[t] = row.terminated & row.valid
    steps.h[t, :, 0], steps.h[t, :, 1:] = row.reward, sign * row.cost
    if not row.valid.all():
        steps.h[t, ~row.valid] = 0.0
