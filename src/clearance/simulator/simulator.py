"""What every simulator has, whatever it is made of; and the checks of what it gives in one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.spaces import Space
from clearance.core.statement import Bounds, Statement, read_limits, read_vector

# By how much what a simulator computes may pass a declared bound, as a share of it: in float64, and in float32. The
# bounds of a certificate are wider by as much (`simulator_episodes`).
SLIP, ROUGHLY = 1e-9, 1e-6


class Steps(NamedTuple):
    """Steps of n lanes, time-major, as NumPy or JAX arrays.

    obs [T, n, …]          before the step;  action [T, n, …]
    h [T, n, 1+I]          reward first, then utilities g = −cost
    terminated [T, n]      the episode ended by itself;  truncated [T, n]: it was cut off
    after [T, n, …]        the true next observation, before any reset
    valid [T, n]           False for rows that are no step (the reset row of NEXT_STEP autoreset)
    """

    obs: Any
    action: Any
    h: Any
    terminated: Any
    truncated: Any
    after: Any
    valid: Any


Exact = Callable[[Any, Any, Any], tuple[Array, Array, Array]]


class LaneCheck(NamedTuple):
    """Why episodes of different lanes may depend on each other, empty without a sign of it; and the steps it took."""

    why: str
    steps: int


class Simulator:
    """What every simulator has; `Gym`, `Environment` and `Fleet` inherit from it.

    statement  what is asked of it;  action: the space of actions, as policies see it
    n          lanes that run side by side
    sign       −1 where the user's own code gives costs, so that faults are reported in the user's terms
    exact      (policy, θ, normaliser) → J [1+I], its proven lower and its upper bounds, where they can be computed
    lane_check  whether episodes of different lanes may depend on each other
    """

    statement: Statement
    obs_shape: tuple[int, ...]
    action: Space
    n: int
    sign: float
    exact: Exact | None
    lane_check: Any = LaneCheck("", 0)

    def replace(self, **limits: Any) -> Any:
        """Return the same simulator with other limits: `limit=` as the user writes them (a number, a vector, or by
        name), or `b=`. For another γ or horizon, make the problem again.
        """
        s = self.statement
        if set(limits) == {"limit"}:
            b = read_limits(limits["limit"], s.b, s.costs, s.names)
        elif set(limits) == {"b"}:
            b = read_vector("b", limits["b"])
        else:
            raise InputError(f"replace takes limit or b, got {', '.join(limits) or 'nothing'}")
        if len(b) != s.I:
            raise InputError(f"b has {len(b)} entries for {s.I} constraints; give one each")
        again: Any = self
        return replace(again, statement=replace(s, b=b))

    @property
    def shared_randomness(self) -> str:
        """Why episodes of different lanes may depend on each other; empty where they do not."""
        return self.lane_check.why


def widen_bounds(bounds: Bounds, slip: float) -> Bounds:
    """(low, high) that floating point may come to where the real numbers keep the bounds."""
    size = slip * np.max([np.where(np.isfinite(x), np.abs(x), 0.0) for x in bounds], axis=0)
    return bounds[0] - size, bounds[1] + size


def find_wrong_signal(s: Statement, h: Array, sign: float) -> tuple[str, float] | None:
    """What is wrong with the signals h [1+I] of a step, and the value as the simulator gives it (sign −1: a cost)."""
    bounds = None if s.bounds is None else widen_bounds(s.bounds, ROUGHLY)
    for j, (label, turn) in enumerate(zip(("reward", *s.names), (1.0, *[sign] * s.I), strict=True)):
        if not np.isfinite(h[j]):
            return f"{label} is not finite", turn * float(h[j])
        if bounds is not None and not bounds[0][j] <= h[j] <= bounds[1][j]:
            low, high = sorted(turn * x[j] + 0.0 for x in s.bounds or ())
            return f"{label} lies outside its declared bounds [{low:.9g}, {high:.9g}]", turn * float(h[j])
    return None
