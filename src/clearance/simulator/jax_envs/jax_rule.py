"""Run a user's rule in a JAX environment: one episode at a time, with one compiled call per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import EnvironmentFault, InputError
from clearance.core.spaces import Box
from clearance.simulator.jax_backend import jax, jax_key, jnp
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.simulator import ROUGHLY, find_wrong_signal, widen_bounds


def follow_jax_rule(
    env: Environment, rule: Callable[[Any], Any], key: np.uint64, T: int, seen: list[Any] | None = None
) -> Array:
    """Run one episode of a rule `observation -> action`, of at most T steps, in a JAX environment.

    Return its signals h [t, 1+I]: in each step the reward, then the utilities.

    seen  a list to which the pair (observation, action) of each step is appended
    """
    begin, step = _compiled(env)
    bounds = None if env.statement.bounds is None else widen_bounds(env.statement.bounds, ROUGHLY)
    stream, H = jax_key(key), np.empty((T, 1 + env.statement.I))
    state, obs = begin(stream)
    for t in range(T):
        shown = np.array(obs)
        action = _action(rule(shown.copy()), env)
        if seen is not None:
            seen.append((shown, action))
        state, obs, h, terminated = step(stream, t, state, action)
        H[t] = h
        if not np.isfinite(H[t]).all() or (
            bounds is not None and not np.all((bounds[0] <= H[t]) & (H[t] <= bounds[1]))
        ):
            raise EnvironmentFault(env.name, 0, t, *(find_wrong_signal(env.statement, H[t], env.sign) or ("", None)))
        if terminated:
            return H[: t + 1]
    return H


def _compiled(env: Environment) -> Any:
    made = env.__dict__.setdefault("_compiled_rule", [])
    if not made:

        def begin(key: Any) -> Any:
            state = env.reset(key)
            return state, env.observe(state)

        def step(stream: Any, t: Any, state: Any, action: Any) -> Any:
            moved, h, terminated = env.step(jax.random.fold_in(stream, t), state, action)
            return moved, env.observe(moved), h, terminated

        made += [jax.jit(begin), jax.jit(step)]
    return made


def _action(given: Any, env: Environment) -> Any:
    """Return the action `given` by a rule as an array of the environment's type.

    Raise InputError if the action is not in the action space.
    """
    space, a = env.action, np.asarray(given)
    if isinstance(space, Box):
        fits = a.shape == space.shape and a.dtype.kind in "iuf" and np.isfinite(a).all()
        fits = fits and bool(np.all((a.astype(np.float32) >= space.low.astype(np.float32))
                                    & (a.astype(np.float32) <= space.high.astype(np.float32))))  # fmt: skip
        kind: Any = jnp.zeros(0).dtype
    else:
        fits = (
            a.shape == space.shape
            and a.dtype.kind in "iub"
            and bool(np.all((a >= 0) & (a < np.asarray(space.nvec).reshape(a.shape))))
        )
        kind = jnp.zeros(0, int).dtype
    if not fits:
        raise InputError(f"{env.name}: the policy gave {given!r}, which is no action of {space}")
    return a.astype(kind)
