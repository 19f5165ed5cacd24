"""What every simulator has, whatever it is made of; and the checks of what it gives in one step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.cost_memory import CostMemory
from clearance.core.errors import InputError
from clearance.core.spaces import Space
from clearance.core.statement import Bounds, Statement, read_limits, read_vector
from clearance.core.tail_limits import Chance
from clearance.simulator.tail_costs import TailCosts, limit_tails, mean_costs, slope_chances

# By how much what a simulator computes may pass a declared bound, as a share of it: in float64, and in float32. The
# bounds of a certificate are wider by as much (`simulator_episodes`).
SLIP, ROUGHLY = 1e-9, 1e-6
SLOPE = 5.0  # of a chance's signal for learners, beyond the sum that it is about and in units of that


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
    plain      where limits are on chances and tails: the same simulator with the costs as its signals
    tail_costs how the signals follow from those costs then
    slip       what rounding may add to a number that it computes, as a share of it
    """

    slip: ClassVar[float] = SLIP

    statement: Statement
    obs_shape: tuple[int, ...]
    action: Space
    n: int
    sign: float
    exact: Exact | None
    lane_check: Any = LaneCheck("", 0)
    plain: Any = None
    tail_costs: TailCosts | None = None

    def with_limits(self, limits: Any, *, cost_so_far: bool = True) -> Any:
        """The same problem with limits on what single episodes cost (`cl.Chance`, `cl.CVaR`).

        limits       by name, as numbers, `Chance`, `CVaR`, or lists of them; costs not named keep their limits
        cost_so_far  whether policies see the sums of these costs so far, and the time
        """
        plain = self if self.plain is None else self.plain
        return plain.restate(*limit_tails(plain.statement, limits, plain.obs_shape, self.slip, cost_so_far=cost_so_far))

    def remembering(self, memory: CostMemory | None) -> Any:
        """The same problem for policies that see so much of the costs so far."""
        if memory == self.memory:
            return self
        plain = self if self.plain is None else self.plain
        costs = mean_costs(plain.statement, self.slip) if self.tail_costs is None else self.tail_costs
        return plain.restate(self.statement, costs.remembering(memory, plain.obs_shape))

    def for_learning(self) -> Any:
        """The same problem with signals that have a slope where a chance is lost (`TailCosts.slope`)."""
        costs = self.tail_costs
        if costs is None or not any(isinstance(rule, Chance) for rule in costs.rules):
            return self
        return self.plain.restate(*slope_chances(self.statement, costs, SLOPE))

    def restate(self, told: Statement, costs: TailCosts) -> Any:
        """The plain problem with other limits and signals."""
        raise InputError(f"{self.statement.name}: state the limits of a fleet's simulator, then make the fleet")

    @property
    def memory(self) -> CostMemory | None:
        """What policies see of the costs so far; None if they see observations alone."""
        return None if self.tail_costs is None else self.tail_costs.memory

    def replace(self, **limits: Any) -> Any:
        """Return the same simulator with other limits: `limit=` as the user writes them (a number, a vector, or by
        name), or `b=`. For another γ or horizon, make the problem again.
        """
        s = self.statement
        if any(s.tails):
            raise InputError("replace is for limits on means: state limits on chances and tails by with_limits")
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
            summed = j > 0 and s.tails[j - 1] is not None
            return f"{label} is not finite{', or a cost is outside its bounds' * summed}", turn * float(h[j])
        if bounds is not None and not bounds[0][j] <= h[j] <= bounds[1][j]:
            low, high = sorted(turn * x[j] + 0.0 for x in s.bounds or ())
            return f"{label} lies outside its declared bounds [{low:.9g}, {high:.9g}]", turn * float(h[j])
    return None
