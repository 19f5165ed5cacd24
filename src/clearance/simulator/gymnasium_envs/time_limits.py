"""TimeLimit wrappers around an environment: where they are, and the environment without them.

This file stands alone, as `env_lanes.py` does: the interpreter of a side process runs it, too.
"""

from __future__ import annotations

import copy
from typing import Any


def time_limit(env: Any) -> float | None:
    """The least number of steps after which a TimeLimit around the environment cuts episodes off; None without one."""
    return min((e._max_episode_steps for e in _chain(env) if _limits(e)), default=None)


def lift_time_limit(env: Any, least: float = float("inf")) -> Any:
    """Return the environment with its TimeLimits taken off if they come before so many steps, wherever they stand."""
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
