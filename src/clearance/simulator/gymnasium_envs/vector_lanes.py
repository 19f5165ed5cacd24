"""Gymnasium's vector environments as lanes: what each autoreset mode means for a step.

NEXT_STEP   the call after an end resets that lane and is no step: its row is not valid, its observation begins the next
            episode
SAME_STEP   the call that ends an episode also begins the next one: the true last observation and info stand in
            `final_obs` and `final_info`; `infos["cost"]` of that lane, if there is one, belongs to the reset
DISABLED    nothing is reset until we say which: `reset(options={"reset_mask": …})`

An info of one lane is read by its mask, where there is one: `infos["cost"][i]` is there only if `infos["_cost"][i]`.
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


class VectorLanes:
    """The lanes of a vector environment; see `clearance.simulator.gymnasium_envs.env_lanes.EnvLanes` for what lanes do.

    Where the statement's horizon comes before the environment's own end, a lane that resets itself cannot be told to
    begin again: it waits for its own end, with rows that are not valid, or until all lanes wait.
    """

    def __init__(self, env: Any, names: Sequence[str], own: Callable[..., Any] | None) -> None:
        self.env, self.names, self.own, self.n = env, tuple(names), own, int(env.num_envs)
        self.mode = mode_of(env)
        self.six: bool | None = None
        self.one_seed = False
        self.observe, self.obs_shape, self.dtype = env_lanes.observation(env.single_observation_space)
        self.action, self.native = env_lanes.action(env.single_action_space)
        self.row = Row(self.n, self.obs_shape, self.dtype, len(self.names))
        self.obs = np.zeros((self.n, *self.obs_shape), self.dtype)
        self.pending, self.waiting, self.ended = (np.zeros(self.n, bool) for _ in range(3))

    def reset(self, seeds: Sequence[int], which: Mask | None = None) -> Any:
        """Reset all lanes; some of them only where autoreset is DISABLED."""
        options = None if which is None or which.all() else {"reset_mask": np.array(which)}
        try:
            out = self._reset([int(s) for s in seeds], options)
        except Exception as e:
            raise Fault(0, f"reset raised {env_lanes.describe_error(e)}", list(seeds)) from e
        begun = np.ones(self.n, bool) if which is None else which
        self.pending[begun], self.waiting[begun], self.ended[begun] = False, False, False
        self.obs[begun] = self._read_observations(out[0])[begun]
        return self.obs

    def _reset(self, seeds: list[int], options: Any) -> Any:
        """One seed per lane; or one for all, where the environment takes no more."""
        if self.one_seed:
            return self.env.reset(seed=seeds[0], options=options)
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

    def step(self, obs: Array, actions: Array, live: Mask) -> Row:
        try:
            out = self.env.step(self._batch(self.native(actions)))
        except Exception as e:
            raise Fault(0, f"step raised {env_lanes.describe_error(e)}", None) from e
        if self.six is None:
            self.six = env_lanes.speaks_six(0, out)
        after, reward, cost, terminated, truncated, infos = out if self.six else (*out[:2], None, *out[2:])
        row, native = self.row, self.native(actions)
        row.valid[:] = live & ~self.pending & ~self.waiting
        self.obs[:] = self._read_observations(after)
        row.after[:] = self.obs
        row.reward[:] = self._numbers("reward", reward)
        row.terminated[:], row.truncated[:] = (
            self._flags(*pair) & ~self.pending for pair in (("terminated", terminated), ("truncated", truncated))
        )
        self.ended = row.terminated | row.truncated
        for i in np.flatnonzero(row.valid).tolist():
            info = self._info(i, infos)
            if self.names:
                row.cost[i] = self._cost(i, obs[i], native[i], None if cost is None else cost[i], info)
        return row

    def next(self, over: Mask, seeds: Sequence[int]) -> Any:
        if self.mode == "DISABLED":
            return self.reset(seeds, over | self.ended) if (over | self.ended).any() else self.obs
        self.waiting = (self.waiting | over) & ~self.ended
        self.pending = self.ended.copy() if self.mode == "NEXT_STEP" else self.pending
        return self.reset(seeds) if self.waiting.all() else self.obs

    def close(self) -> None:
        self.env.close()

    def _info(self, i: int, infos: Any) -> dict[str, Any]:
        """The info of lane i for the step just made; with SAME_STEP the last observation is put right, too."""
        if not (self.mode == "SAME_STEP" and self.ended[i]):
            return lane_info(infos, i, self.n)
        last = lane_info({k: v for k, v in infos.items() if k.lstrip("_") in ("final_obs", "final_info")}, i, self.n)
        if "final_obs" not in last or "final_info" not in last:
            raise Fault(i, "SAME_STEP autoreset must give final_obs and final_info at an end", sorted(infos))
        self.row.after[i] = self.observe(last["final_obs"])
        return last["final_info"]

    def _cost(self, i: int, obs: Array, a: Any, cost: Any, info: dict[str, Any]) -> Any:
        if self.own is not None:
            try:
                cost = self.own(obs, a, self.row.after[i], info)
            except Exception as e:
                raise Fault(i, f"constraints raised {env_lanes.describe_error(e)}", a) from e
        elif not self.six:
            cost = env_lanes.from_info(i, info)
        return env_lanes.vector(i, cost, self.names)

    def _read_observations(self, obs: Any) -> Any:
        if isinstance(obs, np.ndarray) and obs.shape == self.obs.shape:
            return obs
        from gymnasium.vector.utils import iterate

        try:
            rows = np.stack([self.observe(x) for x in iterate(self.env.observation_space, obs)])
        except Exception as e:
            raise Fault(0, f"the observations do not fit their space: {env_lanes.describe_error(e)}", None) from e
        if rows.shape != self.obs.shape:
            raise Fault(0, f"the observations have shape {rows.shape}, expected {self.obs.shape}", None)
        return rows

    def _batch(self, native: Any) -> Any:
        return np.asarray(native, self.env.single_action_space.dtype)

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
    """The info of lane i from those of all n: the entries whose mask says that the lane has them, dicts within too. An
    array over the lanes without a mask is there for all of them.
    """
    found: dict[str, Any] = {}
    for key, value in infos.items():
        mask = infos.get(f"_{key}")
        whole = isinstance(value, np.ndarray) and value.shape[:1] == (n,) and not key.startswith("_")
        if whole if mask is None else mask[i]:
            found[key] = lane_info(value, i, n) if isinstance(value, Mapping) else value[i]
    return found
