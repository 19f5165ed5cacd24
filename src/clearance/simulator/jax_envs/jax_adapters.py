"""Adapters for JAX environments of other libraries: gymnax-style and brax-style objects become problems.

The user names the cost: a function of (state, action, next state) of the wrapped environment, or an entry of `info` or
`metrics`. A missing cost is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from clearance.core.errors import InputError
from clearance.core.spaces import Box, Discrete, MultiDiscrete, Space
from clearance.simulator.jax_backend import jnp
from clearance.simulator.jax_envs.jax_environment import LANES, Environment, environment

Cost = Callable[[Any, Any, Any], Any]
FAR = 2**30  # a time limit that no episode reaches


def from_gymnax(
    env: Any,
    cost: Cost | str,
    limits: Any,
    *,
    gamma: float,
    horizon: int | None = None,
    params: Any = None,
    **more: Any,
) -> Environment:
    """Return a problem made from a gymnax environment.

    `env` has the methods `reset(key, params)` and `step_env(key, state, action, params)`.

    `cost` is a function of (state, action, next state), or the name of an entry of `info`. `step_env` is used because,
    unlike `step`, it does not reset by itself. It must return (obs, state, reward, done, info) or (obs, state, reward,
    terminated, truncated, info). The time limit `max_steps_in_episode` is raised if it is below the horizon, because
    `done` does not distinguish it from termination.
    """
    _needs(env, "gymnax", ("reset", "step_env"))
    params = _lift_time_limit(env.default_params if params is None else params, np.inf if horizon is None else horizon)

    def reset(key: Any) -> Any:
        obs, state = env.reset(key, params)[:2]
        return obs, state

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        obs, after, r, *ends, info = env.step_env(key, state[1], action, params)
        costs = _costs(cost, state[1], action, after, info, "info")
        return (obs, after), jnp.concatenate([jnp.reshape(r, 1).astype(costs.dtype), costs]), jnp.asarray(ends[0], bool)

    space = _space(env.action_space(params) if callable(getattr(env, "action_space", None)) else env.action_space)
    name = str(getattr(env, "name", type(env).__name__))
    more = _check_arguments({"name": name, "lanes": LANES, **more})
    return environment(
        reset, step, lambda state: state[0], action=space, gamma=gamma, limits=limits, horizon=horizon, **more
    )


def from_brax(
    env: Any, cost: Cost | str, limits: Any, *, gamma: float, horizon: int | None = None, **more: Any
) -> Environment:
    """Return a problem made from a brax environment.

    `env` has the methods `reset(key) → state` and `step(state, action) → state`.

    `cost` is a function of (state, action, next state), or the name of an entry of `metrics`. A state has `obs`,
    `reward`, `done` and `metrics`; actions lie in [−1, 1]^action_size. Pass the environment without wrappers that end
    or restart episodes.
    """
    _needs(env, "brax", ("reset", "step", "action_size"))

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        after = env.step(state, action)
        costs = _costs(cost, state, action, after, after.metrics, "metrics")
        return after, jnp.concatenate([jnp.reshape(after.reward, 1), costs]), after.done.astype(bool)

    space = Box(-np.ones(int(env.action_size)), np.ones(int(env.action_size)))
    more = _check_arguments({"name": type(env).__name__, "lanes": LANES, **more})
    return environment(
        env.reset, step, lambda state: state.obs, action=space, gamma=gamma, limits=limits, horizon=horizon, **more
    )


def _lift_time_limit(params: Any, least: float) -> Any:
    """Return the parameters of a gymnax environment without a time limit that is shorter than `least` steps.

    The time limit is the entry `max_steps_in_episode`.
    """
    limit = getattr(params, "max_steps_in_episode", None)
    if limit is None or limit >= least:
        return params
    try:
        return replace(params, max_steps_in_episode=FAR)
    except TypeError:
        raise InputError(
            f"max_steps_in_episode is {limit} and cannot be lifted: give horizon={limit}, or parameters without it"
        ) from None


def _check_arguments(more: dict[str, Any]) -> dict[str, Any]:
    allowed = {"names", "bounds", "lanes", "name"}
    unknown = sorted(set(more) - allowed)
    if unknown:
        raise InputError(f"{unknown[0]} is not known here: {', '.join(sorted(allowed))}")
    return more


def _costs(cost: Cost | str, state: Any, action: Any, after: Any, told: Any, where: str) -> Any:
    """Return the costs [I] of one step: `cost` called as a function, or the entry of `told` that has the name `cost`.

    state, after  the states before and after the step
    told          the info or metrics of the step;  where: "info" or "metrics", for the error about a missing entry
    """
    if callable(cost):
        return jnp.atleast_1d(jnp.asarray(cost(state, action, after), jnp.zeros(0).dtype))
    if cost not in told:
        raise InputError(
            f"{where} has no {cost!r}, only {sorted(told)}: name the cost, or give a function of the state"
        )
    return jnp.atleast_1d(jnp.asarray(told[cost], jnp.zeros(0).dtype))


def _needs(env: Any, style: str, names: Sequence[str]) -> None:
    missing = [n for n in names if not hasattr(env, n)]
    if missing:
        raise InputError(f"{type(env).__name__} does not speak {style}: it has no {missing[0]}")


def _space(space: Any) -> Space:
    """Convert an action space of a gymnax-style environment to an action space of clearance."""
    if hasattr(space, "low"):
        shape = tuple(getattr(space, "shape", np.shape(space.low)))
        low, high = (np.broadcast_to(np.asarray(x, float), shape).ravel() for x in (space.low, space.high))
        return Box(low, high)
    if hasattr(space, "nvec"):
        return MultiDiscrete(tuple(int(n) for n in np.ravel(space.nvec)))
    if hasattr(space, "n"):
        return Discrete(int(space.n))
    raise InputError(f"action space {type(space).__name__} is not known: it has neither n, nvec nor low and high")
