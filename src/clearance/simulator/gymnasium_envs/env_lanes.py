"""Step several environment objects in turn, in this process or in a side process (`env_server.py`).

This file imports nothing of clearance: it needs only Python 3.8 or newer, NumPy and the environment's own package. So
an old interpreter, which some environments need, can run it, and both processes read steps and costs with the same
code.

The method `step` of an environment must return one of the two kinds of tuples below. They are told apart by the types
of the values: their number is not enough, because Gymnax also returns six values.

    Gymnasium          obs, reward, terminated, truncated, info            the cost in info["cost"]
    Safety-Gymnasium   obs, reward, cost, terminated, truncated, info
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np


class Fault(Exception):
    """An error of an environment: the index of its lane (parallel environment), a description, and the wrong value."""

    def __init__(self, lane: int, what: str, value: Any = None) -> None:
        super().__init__(what)
        self.lane, self.what, self.value = lane, what, value


CHOICES = 10_000  # the most choices that an integer box may have, summed over its entries


class Row:
    """The results of one step in n lanes (parallel environments), as arrays.

    after [n, …] are the next observations. `valid` [n] is False for lanes that made no step. reward [n], cost [n, I],
    terminated [n] and truncated [n] have their usual meaning.
    """

    def __init__(self, n: int, shape: tuple[int, ...], dtype: Any, I: int) -> None:
        self.after, self.reward, self.cost = np.zeros((n, *shape), dtype), np.zeros(n), np.zeros((n, I))
        self.terminated, self.truncated, self.valid = (np.zeros(n, bool) for _ in range(3))

    def arrays(self) -> tuple[Any, ...]:
        return self.after, self.reward, self.cost, self.terminated, self.truncated, self.valid


class EnvLanes:
    """n environment objects (lanes) that are stepped in a loop.

    A loop is faster here than Gymnasium's vector environment.

    names  the names of the costs [I]
    own    the user's cost function f(obs, action, next_obs, info); None if the environment reports its costs
    given  copies of the last observations [n], in the environments' own form. Copies are needed because environments,
           rules and cost functions may change an array later
    """

    def __init__(self, envs: Any, names: Any, own: Any = None) -> None:
        self.envs, self.names, self.own = list(envs), tuple(names), own
        self.given: list[Any] = [None] * len(self.envs)
        self.six: bool | None = None
        self.n, first = len(self.envs), self.envs[0]
        self.observe, self.obs_shape, self.dtype = observation(first.observation_space)
        self.action, self.native = action(first.action_space)
        self.row = Row(self.n, self.obs_shape, self.dtype, len(self.names))
        self.obs = np.zeros((self.n, *self.obs_shape), self.dtype)

    def reset(self, seeds: Any, which: Any = None) -> Any:
        """Reset the environments where the mask `which` [n] is true (default: all), each with its own seed.

        Return the current observations [n, …] of all environments.
        """
        for i, env in enumerate(self.envs):
            if which is None or which[i]:
                try:
                    out = env.reset(seed=int(seeds[i]))
                except Exception as e:
                    raise Fault(i, f"reset raised {describe_error(e)}", int(seeds[i])) from e
                if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], Mapping)):
                    raise Fault(i, "reset must give (obs, info)", out)
                self.given[i] = copy_observation(out[0])
                self.obs[i] = self._read_observation(i, out[0])
        return self.obs

    def step(self, actions: Any, live: Any) -> Row:
        """Apply actions [n, …] to the environments where the mask `live` [n] is true.

        Return a row of results, which is valid for these environments only.
        """
        native = self.native(actions)
        self.row.valid[:] = live
        for i in range(self.n):
            if live[i]:
                self._step(i, native[i])
        return self.row

    def reset_first(self, seed: int) -> Any:
        """Reset the first environment alone; return its observation in the environment's own form."""
        self.reset([seed] * self.n, np.arange(self.n) == 0)
        return self.given[0]

    def step_first(self, action: Any) -> tuple[Any, Row]:
        """Step the first environment alone; return its observation, and a row of results that is valid for it alone.

        Action and observation are in the environment's own form.
        """
        check_action(self.envs[0].action_space, action)
        self.row.valid[:] = np.arange(self.n) == 0
        self._step(0, action)
        return self.given[0], self.row

    def first(self) -> EnvLanes:
        """Return new `EnvLanes` that contain the first environment only."""
        return EnvLanes(self.envs[:1], self.names, self.own)

    def _step(self, i: int, action: Any) -> None:
        before, acted = self.given[i], copy_observation(action)  # an environment may scale its action in place
        try:
            out = self.envs[i].step(action)
        except Exception as e:
            raise Fault(i, f"step raised {describe_error(e)}", acted) from e
        self._read_step(i, before, acted, out)

    def next(self, over: Any, seeds: Any) -> Any:
        """Reset the environments where the mask `over` [n] is true, because their episodes have ended.

        Return the observations [n, …] for the next actions.
        """
        self.obs[:] = self.row.after
        return self.reset(seeds, over) if over.any() else self.obs

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _read_step(self, i: int, obs: Any, a: Any, out: Any) -> None:
        if self.six is None:
            self.six = speaks_six(i, out)
        if len(out) != (6 if self.six else 5):
            raise Fault(i, f"step gave {len(out)} values, {6 if self.six else 5} before", None)
        after, reward, cost, terminated, truncated, info = out if self.six else (*out[:2], None, *out[2:])
        row, self.given[i] = self.row, copy_observation(after)
        row.after[i] = self._read_observation(i, after)
        row.reward[i] = scalar(i, "reward", reward)
        row.terminated[i], row.truncated[i] = flag(i, "terminated", terminated), flag(i, "truncated", truncated)
        if self.names:
            given = self._cost(i, obs, a, cost, info)
            row.cost[i] = given if type(given) is float and len(self.names) == 1 else vector(i, given, self.names)

    def _cost(self, i: int, obs: Any, a: Any, cost: Any, info: Any) -> Any:
        if self.own is None:
            return cost if self.six else from_info(i, info)
        return own_cost(i, self.own, obs, a, self.given[i], info)

    def _read_observation(self, i: int, x: Any) -> Any:
        try:
            encoded = self.observe(x)
        except Exception as e:
            raise Fault(i, f"the observation does not fit its space: {describe_error(e)}", x) from e
        if encoded.shape != self.obs_shape:
            raise Fault(i, f"the observation has shape {encoded.shape}, its space {self.obs_shape}", None)
        return encoded


# ------------------------------------------------------------------------------------------------ reading a step


def describe_error(e: BaseException) -> str:
    """Return the type and the first line of an exception."""
    lines = str(e).strip().splitlines()
    return f"{type(e).__name__}: {lines[0]}" if lines else type(e).__name__


def speaks_six(lane: int, out: Any) -> bool:
    """Return True if the result `out` of a step has Safety-Gymnasium's six values, and False for Gymnasium's five.

    Raise Fault for any other result. `lane` is the index of the environment, for the error message.
    """
    if isinstance(out, tuple) and len(out) in (5, 6) and isinstance(out[-1], Mapping):
        kinds = [np.asarray(x).dtype.kind for x in out[1:-1]]
        numbers, flags = kinds[: len(out) - 4], kinds[len(out) - 4 :]
        if all(k in "iuf" for k in numbers) and all(k == "b" for k in flags):
            return len(out) == 6
    kinds = ", ".join(type(x).__name__ for x in out) if isinstance(out, tuple) else type(out).__name__
    six = "(obs, reward, terminated, truncated, info), or with cost after reward as Safety-Gymnasium has it"
    raise Fault(lane, f"step must give {six}; it gave ({kinds})", None)


def own_cost(lane: int, own: Any, obs: Any, a: Any, after: Any, info: Any) -> Any:
    """Call the user's cost function `own` with copies of its arguments, and return its result.

    `a` is the action, `obs` the observation before it, and `after` the observation after it. An exception in the
    function becomes a Fault of the environment with index `lane`.
    """
    try:
        return own(*(copy_observation(x) for x in (obs, a, after)), copy_data(info))
    except Exception as e:
        raise Fault(lane, f"constraints raised {describe_error(e)}", a) from e


SHALLOW = (str, bytes, int, float, complex, type(None), np.generic)  # cannot be changed in place


def copy_observation(x: Any) -> Any:
    """Return a copy of x, an observation or action of any type. Later changes of x in place do not change the copy."""
    return copy_data(x, _copy_any)


def _copy_any(x: Any) -> Any:
    if isinstance(x, SHALLOW):
        return x
    try:
        return copy.deepcopy(x)
    except Exception as e:
        raise Fault(0, f"a {type(x).__name__} cannot be copied ({describe_error(e)}): give arrays") from e


def copy_data(x: Any, other: Any = lambda x: x) -> Any:
    """Return a copy of x if it is an array, or a dict, list or tuple that contains arrays; else return `other(x)`."""
    if isinstance(x, np.ndarray):
        return x.copy()
    if isinstance(x, dict):
        found = copy.copy(x)
        found.update({k: copy_data(v, other) for k, v in x.items()})
        return found
    if isinstance(x, (list, tuple)):
        parts = [copy_data(v, other) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return other(x)


def from_info(lane: int, info: Any) -> Any:
    if "cost" not in info:
        has = ", ".join(sorted(map(str, info))) or "nothing"
        raise Fault(lane, f"info has no 'cost' (it has {has}): give constraints=f(obs, action, next_obs, info)", None)
    return info["cost"]


def vector(lane: int, cost: Any, names: Any) -> Any:
    """Convert a cost (a number, a vector or a dict) to a vector [I] in the order of `names`.

    Raise Fault, with the index `lane` of the environment, if the cost does not fit.
    """
    if isinstance(cost, Mapping):
        missing = [name for name in names if name not in cost]
        if missing:
            has = ", ".join(sorted(map(str, cost))) or "nothing"
            raise Fault(lane, f"the cost has no entry {missing[0]!r} (it has {has})", None)
        return [scalar(lane, f"the cost {name!r}", cost[name]) for name in names]
    try:
        c = np.asarray(None if np.ma.is_masked(cost) else cost)  # a masked entry is missing, whatever lies under it
    except (TypeError, ValueError):  # rows of different length
        c = np.asarray(None)
    if c.dtype.kind not in "iufb":  # text, None, complex numbers and objects are not taken for numbers
        raise Fault(lane, "the cost must be a number, a vector or a dict", cost)
    if c.shape != (len(names),) and not (c.ndim == 0 and len(names) == 1):
        raise Fault(lane, f"the cost has shape {c.shape} for {len(names)} constraints", cost)
    return c


def scalar(lane: int, what: str, x: Any) -> float:
    if type(x) is float:
        return x
    a = np.asarray(x)
    if a.ndim or a.dtype.kind not in "iufb" or np.ma.is_masked(x):
        raise Fault(lane, f"{what} must be one number", x)
    return float(a)


def flag(lane: int, what: str, x: Any) -> bool:
    if x is True or x is False:
        return x
    a = np.asarray(x)
    if a.ndim or a.dtype.kind != "b":
        raise Fault(lane, f"{what} must be True or False", x)
    return bool(a)


# ------------------------------------------------------------------------------------------------ spaces


def observation(space: Any) -> tuple[Any, tuple[int, ...], Any]:
    """Return (encode, shape, dtype) for an observation space.

    `encode` turns an observation into an array of this shape. Observations of a `Box` stay as they are, those of a
    `Discrete` space become one-hot, and all others are flattened.
    """
    kind = type(space).__name__
    if kind == "Box":
        return np.asarray, tuple(space.shape), np.dtype("f8" if space.dtype == np.float64 else "f4")
    if kind == "Discrete":
        rows, start = np.eye(int(space.n), dtype="f4"), int(getattr(space, "start", 0))
        return (lambda x: rows[_choice(x, start, len(rows))]), (len(rows),), np.dtype("f4")
    from gymnasium.spaces import utils

    if not getattr(space, "is_np_flattenable", False):
        raise TypeError(f"observation space {space} cannot be made a vector: wrap the environment")
    return (lambda x: np.asarray(utils.flatten(space, x))), (utils.flatdim(space),), np.dtype("f8")


def _choice(x: Any, start: int, n: int) -> int:
    k = int(x) - start
    if not 0 <= k < n:
        raise ValueError(f"{x!r} is none of {n} from {start}")
    return k


def action(space: Any) -> tuple[dict[str, Any], Any]:
    """Return a description of an action space as JSON data, and a function that converts actions.

    The function turns actions [n, …] of a policy into the form that the environments expect. If the space is a box,
    actions are clipped to it.
    """
    kind = type(space).__name__
    if kind == "Discrete":
        start = int(getattr(space, "start", 0))
        said = {"kind": "discrete", "n": int(space.n), **({"start": start} if start else {})}
        return said, lambda a: [start + int(x) for x in a]
    if kind in ("MultiDiscrete", "MultiBinary"):
        nvec = np.ravel(space.nvec if kind == "MultiDiscrete" else np.full(space.shape, 2))
        start = np.ravel(getattr(space, "start", 0))
        native = lambda a: (np.asarray(a) + start).reshape(-1, *space.shape).astype(space.dtype)  # noqa: E731
        first = {"start": np.broadcast_to(start, nvec.shape).tolist()} if start.any() else {}
        return {"kind": "multi-discrete", "nvec": nvec.tolist(), **first, **_form(space)}, native
    if kind == "Box" and np.issubdtype(space.dtype, np.integer):
        start, count = np.ravel(space.low).astype(int), np.ravel(space.high).astype(float) - np.ravel(space.low) + 1
        if count.sum() > CHOICES:
            raise TypeError(f"action space {space} has more than {CHOICES:,} choices: wrap the environment")
        whole = lambda a: (np.asarray(a) + start).reshape(-1, *space.shape).astype(space.dtype)  # noqa: E731
        said = {"kind": "multi-discrete", "nvec": count.astype(int).tolist(), "start": start.tolist(), **_form(space)}
        return said, whole
    if kind != "Box" or not np.issubdtype(space.dtype, np.floating):
        raise TypeError(f"action space {space} is none of Discrete, MultiDiscrete, MultiBinary and Box")
    low, high = np.ravel(space.low).astype(float), np.ravel(space.high).astype(float)
    listed = {k: [float(x) if np.isfinite(x) else None for x in v] for k, v in (("low", low), ("high", high))}
    cut = lambda a: np.clip(a, low, high).astype(space.dtype).reshape(-1, *space.shape)  # noqa: E731
    return {"kind": "box", **listed, **_form(space)}, cut


def check_action(space: Any, action: Any) -> None:
    """Raise Fault unless the action, given in the environment's own form, belongs to the space.

    A real number belongs to a box if it lies inside after rounding to the box's dtype: 0.1 belongs to a float32 box
    whose lower end is np.float32(0.1).
    """
    if not _fits(space, action):
        raise Fault(0, f"the policy gave an action outside of {space}: give one that the space has", action)


def _fits(space: Any, action: Any) -> bool:
    try:
        x, kind = np.asarray(action), type(space).__name__
    except ValueError:  # a ragged list
        return False
    if kind == "Discrete":
        return x.size == 1 and x.dtype.kind in "iub" and space.start <= x.item() < space.start + space.n
    real = kind == "Box" and np.issubdtype(space.dtype, np.floating)
    if x.shape != space.shape or x.dtype.kind not in ("iuf" if real else "iu" if kind == "Box" else "iub"):
        return False
    if kind == "Box":
        with np.errstate(over="ignore"):
            near = x.astype(space.dtype)
        inside = [(space.low <= v) & (v <= space.high) & np.isfinite(x) for v in (x, near)]
        return bool((inside[0] | inside[1]).all())
    least, count = getattr(space, "start", 0), getattr(space, "nvec", 2)
    return bool(((least <= x) & (x < least + count)).all())


def _form(space: Any) -> dict[str, Any]:
    """Return {"form": shape} if the actions of a space are not vectors, else {}.

    The result becomes part of the description of the action space.
    """
    return {} if len(space.shape) == 1 else {"form": list(space.shape)}
