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
    """Return the environment; its TimeLimit wrappers are removed if they end episodes before `least` steps."""
    chain, limit = list(_chain(env)), time_limit(env)
    if limit is None or limit >= least:
        return env
    kept = [e for e in chain if not _limits(e)]
    inner = kept.pop()
    for wrapper in reversed(kept):
        outer = copy.copy(wrapper)  # the wrapper itself may be the user's, who keeps its limit
        outer.env = inner
        inner = outer
    return inner


def _chain(env: Any) -> Any:
    while env is not None:
        yield env
        env = getattr(env, "__dict__", {}).get("env")


def _limits(env: Any) -> bool:
    return any(c.__name__ == "TimeLimit" for c in type(env).__mro__) and hasattr(env, "_max_episode_steps")
