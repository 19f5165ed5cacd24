"""Problems from Gymnasium environments.

    cl.gymnasium("HalfCheetah-v5", constraints=f, limits=25.0, horizon=1000)       E Σ_{t<1000} cost ≤ 25, undiscounted
    cl.gymnasium(make_env, limits={"heat": 3.0, "noise": 1.0}, gamma=0.99)         E Σ γ^t cost_i ≤ limit_i, without end

The horizon is part of the problem. The environment's TimeLimit wrapper is removed if the problem has no horizon, or a
horizon that is longer than this time limit. If the environment itself truncates an episode earlier, an error is raised
at that moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearance.core.arrays import Array
from clearance.core.criterion import check_horizon, check_sampled
from clearance.core.errors import InputError, MissingExtraError
from clearance.core.spaces import Space, restore_space
from clearance.core.statement import Statement, values_in_order
from clearance.core.tail_limits import has_tails, plain_limits
from clearance.simulator.gymnasium_envs import env_lanes
from clearance.simulator.gymnasium_envs.env_client import RemoteEnvLanes, SideProcess
from clearance.simulator.gymnasium_envs.env_lanes import EnvLanes
from clearance.simulator.gymnasium_envs.lane_independence import check_lanes
from clearance.simulator.gymnasium_envs.lane_rollout import Act, roll_out
from clearance.simulator.gymnasium_envs.tail_lanes import TailLanes
from clearance.simulator.gymnasium_envs.time_limits import lift_time_limit
from clearance.simulator.simulator import Exact, LaneCheck, Simulator, Steps
from clearance.simulator.tail_costs import TailCosts

LANES = 8
Cost = Callable[[Any, Any, Any, Any], Any]


class Lanes(Protocol):
    """The interface of n lanes (parallel environments): `EnvLanes`, `VectorLanes` or `RemoteEnvLanes`.

    `first` returns an object with the first lane alone, or None if lanes cannot run alone. `reset_first` and
    `step_first` use only the first lane, with observations and actions in the environment's own form.
    """

    n: int
    obs_shape: tuple[int, ...]
    dtype: Any
    action: dict[str, Any]

    def reset(self, seeds: Sequence[int], which: NDArray[np.bool_] | None = None) -> Any: ...
    def step(self, actions: Any, live: NDArray[np.bool_]) -> env_lanes.Row: ...
    def next(self, over: NDArray[np.bool_], seeds: Sequence[int]) -> Any: ...
    def reset_first(self, seed: int) -> Any: ...
    def step_first(self, action: Any) -> tuple[Any, env_lanes.Row]: ...
    def first(self) -> Lanes | None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, eq=False)
class Gym(Simulator):
    """A problem made of Gymnasium environments by `cl.gymnasium`.

    statement   limits, γ, horizon and names of the problem
    lanes       the parallel environments;  sign: −1 if they return costs, 1 if they return utilities
    action      the action space, as policies see it
    again       function that makes the same problem in another process; None if the environment was given as an object
    plain       for limits on single episodes (`Chance`, `CVaR`): the problem without such limits; else None
    tail_costs  for limits on single episodes: the rules that turn costs into signals; else None
    """

    statement: Statement
    lanes: Lanes
    sign: float
    action: Space
    again: Callable[[], Gym] | None = None
    plain: Gym | None = None
    tail_costs: TailCosts | None = None
    n: int = field(init=False)
    exact: Exact | None = field(init=False, default=None)
    obs_shape: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", self.lanes.n)
        object.__setattr__(self, "obs_shape", self.lanes.obs_shape)

    def walk(self, act: Act, seeds: Sequence[int], T: int | NDArray[np.int64], *, once: bool = False) -> Steps:
        """Run every lane (parallel environment) for T steps from `reset(seed=seeds[lane])`; return the recorded steps.

        `T` is one number, or an array [n] with one number per lane. `act(obs [n, …], t) → actions [n, …]` is called
        once per step. When an episode ends, the lane begins the next one; with `once`, the lane stops instead. If the
        environment is deterministic given its seed, the result is a pure function of `seeds` and `act`.
        """
        return roll_out(self, act, seeds, T, once=once)

    @cached_property
    def lane_check(self) -> LaneCheck:
        """The result of checking whether lanes (parallel environments) are independent.

        A single lane needs no check.
        """
        return check_lanes(self) if self.n > 1 else LaneCheck("", 0)

    @cached_property
    def first_lane(self) -> Gym | None:
        """The same problem with only the first of its parallel environments; None if that one cannot run alone."""
        lanes = self.lanes.first()
        return None if lanes is None else replace(self, lanes=lanes, again=None)

    def restate(self, told: Statement, costs: TailCosts) -> Gym:
        again = None if self.again is None else partial(_restate, self.again, told, costs)
        return Gym(told, TailLanes(self.lanes, costs), self.sign, self.action, again, self, costs)

    def close(self) -> None:
        self.lanes.close()

    def __enter__(self) -> Gym:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def gymnasium(
    env: Any,
    *,
    constraints: Cost | Mapping[str, Cost] | None = None,
    b: ArrayLike | Mapping[str, float] | None = None,
    limits: Any = None,
    gamma: float | None = None,
    horizon: int | None = None,
    num_envs: int | None = None,
    names: Sequence[str] | None = None,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    name: str | None = None,
    frames: int | None = None,
    cost_so_far: bool = True,
    criterion: str | None = None,
) -> Gym:
    """Return a problem made from a Gymnasium environment.

    env          an id, a factory, an environment object, a vector environment or a `SideProcess`
    constraints  f(obs, action, next_obs, info) that returns a number, a vector or a dict; or {name: f}. Default: the
                 environment reports its costs, in `info["cost"]` or as Safety-Gymnasium's six-value step
    limits, b    give one of them, as a number, a vector or a dict by name. `limits` are upper limits of costs,
                 E Σ γ^t cost ≤ limit; `b` are lower limits of utilities, E Σ γ^t g ≥ b. An entry of `limits` may be
                 `cl.Chance` or `cl.CVaR`, which limit the cost of single episodes; a list gives one cost several limits
    gamma        discount factor; default with a horizon: 1
    horizon      steps per episode: J = E Σ_{t<horizon} γ^t h. Without it, J is an infinite sum and needs γ < 1
    num_envs     number of parallel environments (default: 8; an environment object is one)
    frames       stack the last `frames` observations of the environment: [frames, …]
    bounds       (low, high) of the constraints in one step, as costs if `limits` is given; one number each, [I], or
                 [1+I] with the reward first. Needed for certificates; a value outside the bounds is an error
    cost_so_far  with limits on single episodes: whether policies see the sums of the costs so far
    criterion    follows from gamma and horizon; "average" is refused, since samples cannot certify it
    """
    check_sampled(criterion)
    if has_tails(limits):
        rest = {"constraints": constraints, "gamma": gamma, "horizon": horizon, "num_envs": num_envs, "names": names}
        rest |= {"frames": frames}
        plain = gymnasium(env, limits=plain_limits(limits), b=b, bounds=bounds, name=name, **rest)
        return plain.with_limits(limits, cost_so_far=cost_so_far)
    labels, limit, sign = _limits(constraints, b, limits, names)
    horizon = check_horizon(horizon)
    if gamma is None and horizon is None:
        raise InputError("give gamma (J is discounted, without end), or horizon (undiscounted, steps per episode)")
    own = _function(constraints)
    if own is None and sign > 0 and len(limit):
        raise InputError(
            "b is for utilities that `constraints` gives; what the environment reports is a cost: use limits"
        )
    least = np.inf if horizon is None else horizon
    lanes, found = _lanes(env, num_envs, labels, own, least, frames)
    statement = Statement(
        name=name or found,
        gamma=1.0 if gamma is None else gamma,
        b=sign * limit,
        names=labels,
        horizon=horizon,
        bounds=read_signal_bounds(bounds, len(limit), sign),
        costs=(sign < 0,) * len(limit),
    )
    settings = {"constraints": constraints, "b": b, "limits": limits, "gamma": gamma, "horizon": horizon}
    settings |= {"num_envs": num_envs, "names": names, "bounds": bounds, "name": name, "frames": frames}
    again = None if is_object(env) else partial(gymnasium, env, **settings)
    return Gym(statement, lanes, sign, restore_space(lanes.action), again)


def _restate(again: Callable[[], Gym], told: Statement, costs: TailCosts) -> Gym:
    return again().restate(told, costs)


# ------------------------------------------------------------------------------------------------ limits, constraints


def _limits(constraints: Any, b: Any, limits: Any, names: Sequence[str] | None) -> tuple[tuple[str, ...], Array, float]:
    """Return the names of the constraints [I], their limits [I] as the user wrote them, and a sign.

    The sign is −1 for upper limits of costs (`limits`) and 1 for lower limits of utilities (`b`). Multiplied by the
    sign, all limits are lower limits of utilities.
    """
    if (b is None) == (limits is None):
        both = "limits and b are both given" if b is not None else "limits is missing"
        raise InputError(f"{both}: give limits=… for costs, or b=… for utilities (limits=[] for no constraint)")
    given, sign = (limits, -1.0) if b is None else (b, 1.0)
    what = "limits" if b is None else "b"
    keys = tuple(constraints) if isinstance(constraints, Mapping) else None
    if isinstance(given, Mapping):
        keys = tuple(names) if names is not None else keys or tuple(str(k) for k in given)
        given = values_in_order(what, given, keys)
    try:
        values = np.atleast_1d(np.asarray(given, float))
    except (TypeError, ValueError):
        raise InputError(f"{what} must be a number, a vector or a dict of numbers, got {given!r}") from None
    if values.ndim != 1 or not np.all(np.isfinite(values)):
        raise InputError(f"{what} must be finite numbers, one per constraint, got {given!r}")
    labels = tuple(names) if names is not None else keys or _default_names(len(values), "cost" if sign < 0 else "g")
    if len(labels) != len(values):
        raise InputError(f"{what} has {len(values)} entries for {len(labels)} constraints; give one each")
    return labels, values, sign


def _default_names(I: int, word: str) -> tuple[str, ...]:
    return (word,) if I == 1 else tuple(f"{word}{i + 1}" for i in range(I))


def _function(constraints: Any) -> Cost | None:
    if isinstance(constraints, Mapping):
        parts = dict(constraints)
        wrong = [k for k, f in parts.items() if not callable(f)]
        if wrong:
            raise InputError(f"constraints[{wrong[0]!r}] must be a function of (obs, action, next_obs, info)")
        return lambda obs, action, after, info: {k: f(obs, action, after, info) for k, f in parts.items()}
    if constraints is not None and not callable(constraints):
        raise InputError(f"constraints must be a function of (obs, action, next_obs, info), got {constraints!r}")
    return constraints


def read_signal_bounds(bounds: Any, I: int, sign: float) -> tuple[Array, Array] | None:
    """Return the bounds (low, high) of the signals [1+I] in one step: the reward, then the utilities.

    Return None if `bounds` is None. The user may leave out the reward, which is then unbounded. `sign` is −1 if the
    user's bounds are those of costs.
    """
    if bounds is None:
        return None
    try:
        low, high = (np.asarray(x, float) for x in bounds)
        low, high = (np.full(I, x) if x.ndim == 0 else x for x in (low, high))
    except (TypeError, ValueError):
        raise InputError(f"bounds must be (low, high), got {bounds!r}") from None
    if low.shape != high.shape or low.shape not in ((I,), (1 + I,)):
        raise InputError(f"bounds must be (low, high) with 1, {I} or {1 + I} (reward first) numbers each")
    if low.shape == (I,):
        low, high = np.concatenate([[-np.inf], low]), np.concatenate([[np.inf], high])
    if sign < 0:
        low, high = np.append(low[0], -high[1:]), np.append(high[0], -low[1:])
    return low, high


# ------------------------------------------------------------------------------------------------ lanes


def _lanes(
    env: Any, n: int | None, names: tuple[str, ...], own: Cost | None, least: float, frames: int | None
) -> tuple[Lanes, str]:
    """Return the lanes (parallel environments) and the name of the environment.

    n       the number of lanes; None: the default;  names: the names of the costs
    own     the user's cost function; None: the environment reports its costs
    least   TimeLimit wrappers are removed if they end episodes before this number of steps
    frames  the number of observations to stack; None: no stacking
    """
    if n is not None and (isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1):
        raise InputError(f"num_envs must be a whole number of at least 1, got {n!r}")
    if isinstance(env, SideProcess):
        if frames is not None:
            raise InputError("frames cannot go to a side process: let it wrap its environment in FrameStackObservation")
        if own is not None:
            raise InputError("constraints cannot go to a side process: let the environment give info['cost']")
        return RemoteEnvLanes(env, n or LANES, names, min(least, 1e18)), env.name
    made = _make_envs(env, n)
    if hasattr(made[0], "num_envs"):
        if frames is not None:
            raise InputError("frames is not for a vector environment: wrap its parts in FrameStackObservation")
        return _vector(made[0], n, names, own, least), _name(made[0])
    made = [_stack_frames(lift_time_limit(e, least), frames) for e in made]
    return _build_lanes(lambda: EnvLanes(made, names, own)), _name(made[0])


def _stack_frames(env: Any, frames: int | None) -> Any:
    if frames is None:
        return env
    if isinstance(frames, bool) or not isinstance(frames, int | np.integer) or frames < 2:
        raise InputError(f"frames must be a whole number of at least 2, got {frames!r}")
    from gymnasium.wrappers import FrameStackObservation

    return FrameStackObservation(env, int(frames))


def _make_envs(env: Any, n: int | None) -> list[Any]:
    """Return n environment objects, or a list with one vector environment.

    `env` is an id, a factory or an environment object. With n = None, an id makes the default number of environments.
    """
    if isinstance(env, str):
        gym = _package()
        try:
            return [gym.make(env, disable_env_checker=True) for _ in range(n or LANES)]
        except (gym.error.Error, ImportError, ValueError, TypeError) as e:
            raise InputError(f"Gymnasium cannot make {env!r}: {env_lanes.describe_error(e)}") from None
    if is_object(env):
        if not hasattr(env, "num_envs") and n not in (None, 1):
            raise InputError(f"num_envs is {n}, but an environment object is one: give a factory or an id")
        return [env]
    if not callable(env):
        raise InputError(f"env must be an id, a factory, an environment or a SideProcess, got {env!r}")
    try:
        first = env()
        made = [first] if hasattr(first, "num_envs") else [first, *(env() for _ in range((n or LANES) - 1))]
    except Exception as e:
        raise InputError(f"the factory raised {env_lanes.describe_error(e)}") from e
    if not is_object(first):
        raise InputError(f"the factory gave {first!r}, which is no environment: it has no reset and step")
    if len({id(getattr(x, "unwrapped", x)) for x in made}) < len(made):
        raise InputError("the factory gave the same environment twice: it must make a new one each time")
    return made


def is_object(env: Any) -> bool:
    """Return whether `env` is an environment object, and not a class or a factory of environments."""
    return hasattr(env, "step") and hasattr(env, "reset") and not isinstance(env, type)


def _vector(env: Any, n: int | None, names: tuple[str, ...], own: Cost | None, least: float) -> Lanes:
    from clearance.simulator.gymnasium_envs.vector_lanes import VectorLanes

    if n not in (None, env.num_envs):
        raise InputError(f"num_envs is {n}, but the vector environment has {env.num_envs}: leave it out")
    parts, limit = getattr(env.unwrapped, "envs", None), getattr(env.spec, "max_episode_steps", None)
    if isinstance(parts, list):
        parts[:] = [lift_time_limit(e, least) for e in parts]
    elif limit is not None and limit < least:
        raise InputError(f"{_name(env)} has a time limit of {limit} steps that cannot be lifted: give horizon={limit}")
    return _build_lanes(lambda: VectorLanes(env, names, own))


def _build_lanes(make: Callable[[], Lanes]) -> Lanes:
    try:
        return make()
    except (TypeError, AttributeError) as e:  # spaces that are not supported, or missing
        raise InputError(str(e)) from None


def _name(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return getattr(spec, "id", None) or type(getattr(env, "unwrapped", env)).__name__


def _package() -> Any:
    try:
        import gymnasium as package
    except ImportError:
        raise MissingExtraError("gymnasium", "sim") from None
    return package
