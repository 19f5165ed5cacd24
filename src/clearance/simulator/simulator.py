"""The base class of all simulators, the arrays of their steps, and checks of the signals in one step."""

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

# By rounding, a signal may exceed a declared bound by this share of the bound: SLIP if the simulator computes in
# float64, ROUGHLY if in float32. The bounds of a certificate are widened by as much (`simulator_episodes`).
SLIP, ROUGHLY = 1e-9, 1e-6
SLOPE = 5.0  # for learning: slope of the signal of a `Chance` beyond its threshold, per `scale` of the limit


class Steps(NamedTuple):
    """Steps of n lanes (parallel environments), as NumPy or JAX arrays whose first axis is time.

    obs [T, n, …]          the observation before the step;  action [T, n, …]: the action
    h [T, n, 1+I]          the signals: the reward, then the utilities g = −cost
    terminated [T, n]      whether the episode ended by itself;  truncated [T, n]: whether it was cut off
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
    """The result of checking whether lanes (parallel environments) are independent.

    why    the reason why lanes may depend on each other; empty if none was found
    steps  the environment steps that the check has taken
    """

    why: str
    steps: int


class Simulator:
    """The base class of all simulators: `Gym`, `Environment` and `Fleet`.

    statement   the limits, γ, horizon and names of the problem;  action: the action space, as policies see it
    n           number of lanes (parallel environments)
    sign        −1 if the user's code returns costs, so that errors are reported with the user's sign
    exact       function (policy, θ, normaliser) → exact J [1+I] with proven lower and upper bounds; None if unknown
    lane_check  the result of checking whether lanes are independent
    plain       for limits on single episodes (`Chance`, `CVaR`): the problem without such limits; else None
    tail_costs  for limits on single episodes: the rules that turn costs into signals; else None
    slip        largest relative rounding error of a number that the simulator computes
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
        """Return the same problem with limits on the cost of single episodes (`cl.Chance`, `cl.CVaR`).

        limits       by name, as numbers, `Chance`, `CVaR`, or lists of them; costs that are not named keep their limits
        cost_so_far  whether policies see the sums of these costs so far, and the time
        """
        plain = self if self.plain is None else self.plain
        return plain.restate(*limit_tails(plain.statement, limits, plain.obs_shape, self.slip, cost_so_far=cost_so_far))

    def remembering(self, memory: CostMemory | None) -> Any:
        """Return the same problem whose observations contain the costs so far, as `memory` describes them.

        If `memory` is None, the observations do not contain the costs so far.
        """
        if memory == self.memory:
            return self
        plain = self if self.plain is None else self.plain
        costs = mean_costs(plain.statement, self.slip) if self.tail_costs is None else self.tail_costs
        return plain.restate(self.statement, costs.remembering(memory, plain.obs_shape))

    def for_learning(self) -> Any:
        """Return the same problem with signals that are easier to learn from.

        Only `Chance` limits are changed. Their indicator gets a slope beyond the threshold (`TailCosts.slope`).
        """
        costs = self.tail_costs
        if costs is None or not any(isinstance(rule, Chance) for rule in costs.rules):
            return self
        return self.plain.restate(*slope_chances(self.statement, costs, SLOPE))

    def restate(self, told: Statement, costs: TailCosts) -> Any:
        """Return a copy of this problem with other limits and signals, as the statement `told` describes them.

        `costs` holds the rules that compute these signals from the costs of each step. This problem must not have
        limits on single episodes (`Chance`, `CVaR`) yet. This default, which only a fleet uses, raises InputError.
        """
        raise InputError(f"{self.statement.name}: state the limits of a fleet's simulator, then make the fleet")

    @property
    def memory(self) -> CostMemory | None:
        """The costs so far that policies see as part of the observation; None if they see no costs."""
        return None if self.tail_costs is None else self.tail_costs.memory

    def replace(self, **limits: Any) -> Any:
        """Return the same simulator with other limits.

        Give either `limit=` (a number, a vector, or a dict by name) with the sign that the user wrote, or `b=`, lower
        limits of utilities. For another γ or horizon, make the problem again.
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
        """The reason why episodes of different parallel environments may depend on each other; "" if none is known."""
        return self.lane_check.why


def widen_bounds(bounds: Bounds, slip: float) -> Bounds:
    """Return (low, high) widened by rounding errors, which are at most `slip` times the larger absolute bound."""
    size = slip * np.max([np.where(np.isfinite(x), np.abs(x), 0.0) for x in bounds], axis=0)
    return bounds[0] - size, bounds[1] + size


def find_wrong_signal(s: Statement, h: Array, sign: float) -> tuple[str, float] | None:
    """Return (a description, the wrong value) for the first wrong signal of a step; None if all signals are right.

    A signal in h [1+I] (reward, then utilities) is wrong if it is not finite or outside its declared bounds. `sign` is
    −1 if the simulator returns costs; the wrong value is then returned as a cost.
    """
    bounds = None if s.bounds is None else widen_bounds(s.bounds, ROUGHLY)
    for j, (label, turn) in enumerate(zip(("reward", *s.names), (1.0, *[sign] * s.I), strict=True)):
        if not np.isfinite(h[j]):
            summed = j > 0 and s.tails[j - 1] is not None
            return f"{label} is not finite{', or a cost is outside its bounds' * summed}", turn * float(h[j])
        if bounds is not None and not bounds[0][j] <= h[j] <= bounds[1][j]:
            low, high = sorted(turn * x[j] + 0.0 for x in s.bounds or ())
            return f"{label} lies outside its declared bounds [{low:.9g}, {high:.9g}]", turn * float(h[j])
    return None
