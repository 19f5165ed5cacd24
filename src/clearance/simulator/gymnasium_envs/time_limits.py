"""Find and remove TimeLimit wrappers around an environment.

This file imports nothing of clearance, because environments may run in a separate process under another Python
interpreter, in which clearance is not installed.
"""

from __future__ import annotations

import copy
from typing import Any


def time_limit(env: Any) -> float | None:
    """Return the smallest limit, in steps, of the TimeLimit wrappers around an environment; None if there are none."""
    return min((e._max_episode_steps for e in _chain(env) if _limits(e)), default=None)


def lift_time_limit(env: Any, least: float = float("inf")) -> Any:
    """Return the environment; its TimeLimit wrappers are removed if they end episodes before `least` steps.

    A subclass with a `step` or `reset` of its own may do more than limit the time: it may add costs, for example. Such
    a wrapper is kept, and only its limit is removed.
    """
    limit = time_limit(env)
    if limit is None or limit >= least:
        return env
    *wrappers, inner = (e for e in _chain(env) if not _only_limits(e))
    for wrapper in reversed(wrappers):
        outer = copy.copy(wrapper)  # a copy: the user's own wrapper object must keep its limit
        outer.env = inner
        if _limits(outer):
            outer._max_episode_steps = float("inf")
        inner = outer
    return inner


def _chain(env: Any) -> Any:
    while env is not None:
        yield env
        env = getattr(env, "__dict__", {}).get("env")


def _limits(env: Any) -> bool:
    return _base(env) is not None and hasattr(env, "_max_episode_steps")


def _only_limits(env: Any) -> bool:
    """Return whether the environment is a TimeLimit wrapper that does no more than limit the time."""
    base, own = _base(env), type(env)
    return _limits(env) and own.step is base.step and own.reset is base.reset


def _base(env: Any) -> Any:
    """Return the class TimeLimit that the environment's class is or derives from; None if there is none."""
    return next((c for c in type(env).__mro__[::-1] if c.__name__ == "TimeLimit"), None)
