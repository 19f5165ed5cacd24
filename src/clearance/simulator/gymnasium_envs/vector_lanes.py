"""Gymnasium's vector environments as lanes (parallel environments), for each autoreset mode.

NEXT_STEP   the call after the end of an episode resets that lane and makes no step: its results are marked as not
            valid, and its observation begins the next episode
SAME_STEP   the call that ends an episode also begins the next one: the true last observation and info are in
            `final_obs` and `final_info`; `infos["cost"]` of that lane, if present, belongs to the reset
DISABLED    lanes are reset only by `reset(options={"reset_mask": …})`

If an info has a mask, the mask is used: `infos["cost"][i]` counts only if `infos["_cost"][i]` is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.simulator.gymnasium_envs import env_lanes
from clearance.simulator.gymnasium_envs.env_lanes import Fault, Row

Mask = NDArray[np.bool_]
MODES = ("NEXT_STEP", "SAME_STEP", "DISABLED")


# Gymnasium's own vector environments that run separate environments, each with a seed of its own.
SEPARATE = "gymnasium.vector.sync_vector_env.SyncVectorEnv", "gymnasium.vector.async_vector_env.AsyncVectorEnv"
WRAPPERS = "gymnasium.wrappers."


class VectorLanes:
    """The lanes (parallel environments) of a vector environment, with the interface of `env_lanes.EnvLanes`.

    A lane may reach the horizon of the problem before its environment ends the episode. If the vector environment
    resets lanes by itself, such a lane cannot be restarted alone. Its next steps are marked as not valid, until its
    environment ends the episode or until all lanes have reached the horizon.
    """

    def __init__(self, env: Any, names: Sequence[str], own: Callable[..., Any] | None) -> None:
        self.env, self.names, self.own, self.n = env, tuple(names), own, int(env.num_envs)
        self.mode = mode_of(env)
        self.six: bool | None = None
        self.one_seed = False
        self.separate = runs_apart(env)
        self.given: list[Any] = [None] * self.n  # the observations as the environment gave them, in copies
        self.observe, self.obs_shape, self.dtype = env_lanes.observation(env.single_observation_space)
        self.action, self.native = env_lanes.action(env.single_action_space)
        self.row = Row(self.n, self.obs_shape, self.dtype, len(self.names))
        self.obs = np.zeros((self.n, *self.obs_shape), self.dtype)
        self.pending, self.waiting, self.ended = (np.zeros(self.n, bool) for _ in range(3))

    def reset(self, seeds: Sequence[int], which: Mask | None = None) -> Any:
        """Reset all environments and return the observations [n, …].

        With DISABLED autoreset, the mask `which` [n] selects the environments to reset.
        """
        begun = np.ones(self.n, bool) if which is None else which
        options = None if begun.all() else {"reset_mask": np.array(begun)}
        try:
            out = self._reset([int(s) if new else None for s, new in zip(seeds, begun, strict=True)], options)
        except Exception as e:
            raise Fault(0, f"reset raised {env_lanes.describe_error(e)}", list(seeds)) from e
        self.pending[begun], self.waiting[begun], self.ended[begun] = False, False, False
        rows, given = self._read_observations(out[0])
        self.obs[begun] = rows[begun]
        self.given = [new if k else old for k, new, old in zip(begun, given, self.given, strict=True)]
        return self.obs

    def _reset(self, seeds: list[int | None], options: Any) -> Any:
        """Reset with one seed per environment, or with a single seed if the vector environment accepts no more.

        Environments in the middle of an episode get no seed, since seeding a shared generator would repeat their random
        numbers.
        """
        if self.one_seed:
            return self.env.reset(seed=None if None in seeds else seeds[0], options=options)
        try:
            return self.env.reset(seed=seeds, options=options)
        except Exception:
            try:
                out = self.env.reset(seed=seeds[0], options=options)
            except Exception:
                out = None
            if out is None:
                raise
            self.one_seed = True
            return out

    def step(self, actions: Array, live: Mask) -> Row:
        native = self.native(actions)
        return self._step(np.array(native, self.env.single_action_space.dtype), native, live)

    def reset_first(self, seed: int) -> Any:
        """Reset all environments; return the observation of the first one in the environment's own form."""
        self.others = np.random.default_rng(int(seed))
        self.reset([int(seed), *self._other_seeds()[1:]])
        return self.given[0]

    def step_first(self, action: Any) -> tuple[Any, Row]:
        """Give the same action to all environments; return the observation of the first one and a row of results.

        The row is marked as valid for the first environment only.
        """
        env_lanes.check_action(self.env.single_action_space, action)
        row = self._step(np.stack([np.asarray(action)] * self.n), [action] * self.n, np.arange(self.n) == 0)
        after = self.given[0]
        self.next(np.zeros(self.n, bool), self._other_seeds())
        return after, row

    def first(self) -> None:
        """Return None, since a single environment of a vector environment cannot run alone."""

    def _other_seeds(self) -> list[int]:
        return self.others.integers(2**31, size=self.n).tolist()

    def _step(self, batch: Any, acted: Any, live: Mask) -> Row:
        before, acted = self.given, [env_lanes.copy_observation(a) for a in acted]
        try:
            out = self.env.step(batch)
        except Exception as e:
            raise Fault(0, f"step raised {env_lanes.describe_error(e)}", None) from e
        if self.six is None:
            self.six = env_lanes.speaks_six(0, out)
        after, reward, cost, terminated, truncated, infos = out if self.six else (*out[:2], None, *out[2:])
        row = self.row
        row.valid[:] = live & ~self.pending & ~self.waiting
        self.obs[:], self.given = self._read_observations(after)
        row.after[:] = self.obs
        row.reward[:] = self._numbers("reward", reward)
        row.terminated[:], row.truncated[:] = (
            self._flags(*pair) & ~self.pending for pair in (("terminated", terminated), ("truncated", truncated))
        )
        self.ended = row.terminated | row.truncated
        for i in np.flatnonzero(row.valid).tolist():
            after, info = self._last(i, infos)
            if self.names:
                step = before[i], acted[i], after, info
                row.cost[i] = self._cost(i, None if cost is None else cost[i], *step)
        return row

    def next(self, over: Mask, seeds: Sequence[int]) -> Any:
        if self.mode == "DISABLED":
            return self.reset(seeds, over | self.ended) if (over | self.ended).any() else self.obs
        self.waiting = (self.waiting | over) & ~self.ended
        self.pending = self.ended.copy() if self.mode == "NEXT_STEP" else self.pending
        return self.reset(seeds) if self.waiting.all() else self.obs

    def close(self) -> None:
        self.env.close()

    def _last(self, i: int, infos: Any) -> tuple[Any, Any]:
        """Return the observation and the info of environment i after its step.

        If the step ended an episode in mode SAME_STEP, they are taken from `final_obs` and `final_info`.
        """
        if not (self.mode == "SAME_STEP" and self.ended[i]):
            return self.given[i], lane_info(infos, i, self.n)
        last = lane_info({k: v for k, v in infos.items() if k.lstrip("_") in ("final_obs", "final_info")}, i, self.n)
        if "final_obs" not in last or "final_info" not in last:
            raise Fault(i, "SAME_STEP autoreset must give final_obs and final_info at an end", sorted(infos))
        self.row.after[i] = self.observe(last["final_obs"])
        return last["final_obs"], last["final_info"]

    def _cost(self, i: int, cost: Any, obs: Any, a: Any, after: Any, info: Any) -> Any:
        if self.own is not None:
            cost = env_lanes.own_cost(i, self.own, obs, a, after, info)
        elif not self.six:
            cost = env_lanes.from_info(i, info)
        return env_lanes.vector(i, cost, self.names)

    def _read_observations(self, obs: Any) -> tuple[Any, list[Any]]:
        """Return the observations as one array [n, …], and as a list of n observations in the environment's form."""
        if isinstance(obs, np.ndarray) and obs.shape == self.obs.shape:
            return obs, list(obs.copy())
        from gymnasium.vector.utils import iterate

        try:
            given = [env_lanes.copy_observation(x) for x in iterate(self.env.observation_space, obs)]
            rows = np.stack([self.observe(x) for x in given])
        except Exception as e:
            raise Fault(0, f"the observations do not fit their space: {env_lanes.describe_error(e)}", None) from e
        if rows.shape != self.obs.shape:
            raise Fault(0, f"the observations have shape {rows.shape}, expected {self.obs.shape}", None)
        return rows, given

    def _numbers(self, what: str, x: Any) -> Array:
        a = np.asarray(x)
        if a.shape != (self.n,) or a.dtype.kind not in "iufb":
            raise Fault(0, f"{what} must be {self.n} numbers, got shape {a.shape}", None)
        return a.astype(float)

    def _flags(self, what: str, x: Any) -> Mask:
        a = np.asarray(x)
        if a.shape != (self.n,) or a.dtype.kind != "b":
            raise Fault(0, f"{what} must be {self.n} booleans, got {a.dtype} of shape {a.shape}", None)
        return a


def runs_apart(env: Any) -> bool:
    """Return whether a vector environment is known to run separate environments, one for each lane.

    A subclass may seed its parts in another way. A wrapper may add something that all lanes share, such as a common
    disturbance. So both count as unknown. Gymnasium's own wrappers are an exception: if they make lanes share
    something, this shows at every step.
    """
    kinds = [type(env)]
    while getattr(env, "unwrapped", env) is not env:
        env = env.env
        kinds.append(type(env))
    *wrappers, last = (f"{kind.__module__}.{kind.__name__}" for kind in kinds)
    return last in SEPARATE and all(name.startswith(WRAPPERS) for name in wrappers)


def mode_of(env: Any) -> str:
    mode = env.metadata.get("autoreset_mode")
    name = getattr(mode, "name", None)
    if name not in MODES:
        raise InputError(
            f"{env}: metadata['autoreset_mode'] is {mode!r}; set it to gymnasium.vector.AutoresetMode.NEXT_STEP, "
            "SAME_STEP or DISABLED, whichever the environment does"
        )
    return name


def lane_info(infos: Any, i: int, n: int) -> dict[str, Any]:
    """Return the info of environment i, from the infos of a vector environment with n environments.

    An entry with a mask is included if the mask is true for i. Without a mask, arrays with n rows are included.
    """
    found: dict[str, Any] = {}
    for key, value in infos.items():
        mask = infos.get(f"_{key}")
        whole = isinstance(value, np.ndarray) and value.shape[:1] == (n,) and not key.startswith("_")
        if whole if mask is None else mask[i]:
            found[key] = lane_info(value, i, n) if isinstance(value, Mapping) else value[i]
    return found
