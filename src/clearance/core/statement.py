"""The statement of a problem with a simulator: its limits, and the definition of J.

Let h_t be the reward or a utility at step t. Then

horizon None   J(π) = E Σ_t γ^t h_t, infinite horizon; after termination nothing is added
horizon H      J(π) = E Σ_{t<H} γ^t h_t; with γ = 1 the limits are limits per episode, as usual in safe RL
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.core.atomic_files import without_non_finite
from clearance.core.criterion import DISCOUNTED, TOTAL, Criterion, check_horizon
from clearance.core.errors import InputError
from clearance.core.tail_limits import CVaR, TailLimit, describe_tail, restore_tail, tail_offsets
from clearance.core.text import find_name
from clearance.core.validation import freeze, read_flags, read_names, read_number, read_numbers

Bounds = tuple[Array, Array]
PROBLEM = "clearance/problem/1"  # the schema of problem.json
MOST_TELLING = 64  # the largest number of episodes that a batch has because rare events should occur in it


@dataclass(frozen=True, eq=False)
class Statement:
    """The problem: maximise J_r subject to J_gi ≥ b_i, on the simulator `name`. The module's docstring defines J.

    gamma    γ; 1 only with a horizon
    b        limits [I]
    names    names of the constraints [I]
    horizon  number of steps of an episode that count, or None
    bounds   declared (low, high) of the signals h [1+I] in one step; without them (None), samples cannot certify
    costs    mask [I] of the constraints that the user gave as costs; messages and reports show these as costs
    tails    the `Chance` or `CVaR` limit of each constraint [I], or None if the constraint limits a mean. With such a
             limit, the signals of the constraint are the increments of the limited quantity, and its name is a formula
    """

    name: str
    gamma: float
    b: Array
    names: tuple[str, ...] = ()
    horizon: int | None = None
    bounds: Bounds | None = None
    costs: tuple[bool, ...] = ()
    tails: tuple[TailLimit | None, ...] = ()

    def __post_init__(self) -> None:
        b = read_vector("b", self.b)
        gamma, horizon = read_number("gamma", self.gamma), check_horizon(self.horizon)
        if not 0 < gamma <= 1 or (gamma == 1 and horizon is None):
            raise InputError(f"gamma must be in (0, 1), or 1 with a horizon, got {gamma:.12g}")
        values = {"gamma": gamma, "b": freeze(b), "horizon": horizon}
        values |= {"names": read_names(self.names or None, len(b)), "bounds": _bounds(self.bounds, 1 + len(b))}
        values |= {"costs": read_flags("costs", self.costs, len(b)), "tails": self.tails or (None,) * len(b)}
        for field, value in values.items():
            object.__setattr__(self, field, value)
        _check_tails(self)

    @property
    def I(self) -> int:  # noqa: E743
        return len(self.b)

    @property
    def length(self) -> float:
        """The sum Σ_t γ^t over an episode that never terminates; |J| is at most this sum times the largest |signal|."""
        return self.full_criterion.length

    @property
    def full_criterion(self) -> Criterion:
        """The criterion of J: discounted or total, with γ and the horizon."""
        return Criterion(TOTAL if self.gamma == 1 else DISCOUNTED, self.gamma, self.horizon)

    @property
    def signal_ranges(self) -> tuple[float, Array]:
        """The declared ranges (high − low) of the reward and of each utility [I] in one step; 1 if none is declared."""
        low, high = (np.zeros(1 + self.I), np.ones(1 + self.I)) if self.bounds is None else self.bounds
        size = np.where(np.isfinite(high - low) & (high > low), high - low, 1.0)
        return float(size[0]), size[1:]

    def sum_ranges(self, low: Array, high: Array, weight: float, slip: float = 0.0) -> Bounds:
        """Return the smallest and the largest possible sums (low [1+I], high [1+I]) of the signals over an episode.

        The signals of one step lie in [low, high], and the weights of all steps sum to `weight`. Episodes may end
        early, so every range contains 0. A constraint with a `Chance` or `CVaR` limit instead has the range of −φ,
        where φ is the quantity whose mean is limited. This range is widened by its size times `slip`, the largest
        relative rounding error.
        """
        least, most = weight * np.minimum(low, 0.0), weight * np.maximum(high, 0.0)
        for i, tail in enumerate(self.tails, 1):
            if tail is not None:
                least[i], most[i] = -tail.high - slip * abs(tail.high), -tail.low + slip * abs(tail.low)
        return least, most

    @property
    def offset(self) -> Array:
        """The constants [1+I] to add to the summed signals of an episode.

        For a `Chance` or `CVaR` limit, the constant is −φ(0), where φ(C) is the quantity whose mean is limited and C is
        the episode's cost. For the reward and for limits on means, the constant is 0.
        """
        return tail_offsets(self.tails)

    @property
    def one_sided(self) -> tuple[bool, ...]:
        """A flag for each constraint [I]: true if samples can confirm its limit but cannot refute it."""
        return tuple(tail is not None and tail.rule.one_sided for tail in self.tails)

    @property
    def nu(self) -> tuple[float | None, ...]:
        """The threshold ν of each CVaR limit [I]; only cost above ν counts. None for other limits."""
        rules = (None if tail is None else tail.rule for tail in self.tails)
        return tuple(rule.nu if isinstance(rule, CVaR) else None for rule in rules)

    @property
    def telling_episodes(self) -> int:
        """The number of episodes after which the rare events of `Chance` and `CVaR` limits have probably occurred.

        The number is 1 if there are no such limits, and at most MOST_TELLING.
        """
        rare = [1.0, *(tail.rule.share for tail in self.tails if tail is not None)]
        return min(round(2 / min(rare)), MOST_TELLING) if any(self.tails) else 1

    @property
    def tail_words(self) -> list[str]:
        """One sentence for each `Chance` or `CVaR` limit that explains the limited quantity."""
        return [tail.rule.explain(tail.cost) for tail in self.tails if tail is not None]

    @property
    def meaning(self) -> str:
        """The definition of J in words, for the scope of a certificate."""
        discount = "undiscounted" if self.gamma == 1 else f"discounted by γ = {self.gamma:g}"
        end = "without a time limit" if self.horizon is None else f"over the first {self.horizon} steps of an episode"
        mean = f"J is the expected sum of signals, {discount}, {end}; nothing is added after termination"
        return "; ".join([mean, *self.tail_words])


def describe_statement(s: Statement) -> dict[str, Any]:
    """Return the statement as JSON data; infinite bounds become null."""
    bounds = None if s.bounds is None else dict(zip(("low", "high"), (x.tolist() for x in s.bounds), strict=True))
    data = {"name": s.name, "gamma": s.gamma, "b": s.b.tolist(), "names": list(s.names), "horizon": s.horizon}
    data |= {"tails": [describe_tail(tail) for tail in s.tails]} if any(s.tails) else {}
    return without_non_finite(data | {"bounds": bounds, "meaning": s.meaning, "costs": list(s.costs)})


def restore_statement(data: dict[str, Any]) -> Statement:
    """Return the statement from JSON data that `describe_statement` returned."""
    bounds = data["bounds"]
    if bounds is not None:
        ends = (("low", -np.inf), ("high", np.inf))
        low, high = (np.array([end if x is None else x for x in bounds[key]], float) for key, end in ends)
        bounds = low, high
    costs = tuple(data.get("costs", ()))  # version 0.1 did not store them
    tails = tuple(restore_tail(tail) for tail in data.get("tails", ()))
    asked = data["gamma"], data["b"], tuple(data["names"]), data["horizon"]
    return Statement(str(data["name"]), *asked, bounds, costs, tails)


def _check_tails(s: Statement) -> None:
    """Raise InputError unless the statement fits its `Chance` and `CVaR` limits.

    Such limits need γ = 1 and a horizon, and their entry of b must be −at_most.
    """
    if len(s.tails) != s.I:
        raise InputError(f"tails has {len(s.tails)} entries for {s.I} constraints; give one each")
    for tail, b in zip(s.tails, s.b, strict=True):
        if tail is None:
            continue
        if s.gamma != 1 or s.horizon is None:
            way = "give horizon=…, the steps of an episode, and no gamma"
            raise InputError(f"{tail.label} is about the undiscounted sum of a whole episode: {way}")
        if tail.rule.at_most != -b:
            raise InputError(f"b of {tail.label} is {b:g}, its limit is {tail.rule.at_most:g}")


def values_in_order(what: str, given: Mapping[Any, Any], names: Sequence[str]) -> list[Any]:
    """Return the values of `given` in the order of `names`; raise InputError unless both contain the same names.

    what  what `given` is called in the error message
    """
    missing = [k for k in names if k not in given] + [k for k in given if k not in names]
    if missing:
        raise InputError(f"{what} and constraints must have the same names; see {missing[0]!r}")
    return [given[k] for k in names]


def read_vector(name: str, x: Any) -> Array:
    """Return x, one number or several, as a vector of finite numbers; `name` is for error messages."""
    try:
        return read_numbers(name, np.atleast_1d(np.asarray(x, float)), ndim=1)
    except (TypeError, ValueError) as e:
        told = str(e) if isinstance(e, InputError) else f"{name} must be a number or a vector of numbers, got {x!r}"
        raise InputError(told) from None


def _finite(name: str, x: Any) -> float:
    return float(read_numbers(name, [read_number(name, x)], ndim=1)[0])


def read_limits(limit: Any, b: Array, costs: Sequence[bool], names: Sequence[str]) -> Array:
    """Return a copy of b [I] with the limits that the user gave.

    limit  one number or a vector for the constraints that are costs, or a dict by name for any constraints
    costs  mask [I] of the constraints that are costs; their limits enter b with a minus sign
    """
    if isinstance(limit, Mapping):
        limit = {find_name(name, names) or name: x for name, x in limit.items()}
        unknown = [name for name in limit if name not in names]
        if unknown:
            raise InputError(f"limit: {unknown[0]!r} is no constraint; there are: {', '.join(names) or 'none'}")
        twice = [name for name in limit if list(names).count(name) > 1]
        if twice:
            raise InputError(f"limit: several constraints are called {twice[0]!r}; give a vector, or different names")
        at = [list(names).index(name) for name in limit]
        values = [_finite(f"limit of {name}", x) for name, x in limit.items()]
    else:
        at = [i for i, cost in enumerate(costs) if cost]
        if not at:
            raise InputError("limit: no constraint was written as a cost; give b, or limits by name {name: limit}")
        values = read_vector("limit", limit)
        if len(values) not in (1, len(at)):
            raise InputError(f"limit has {len(values)} entries for {len(at)} costs; give one number, or one each")
    found = b.copy()
    found[at] = np.where(np.asarray(costs)[at], -1.0, 1.0) * values
    return found


def read_lower_limits(b: Any, before: Array, costs: Sequence[bool], names: Sequence[str]) -> Array:
    """Return a copy of `before` [I] with the lower limits b that the user gave for utilities.

    b      one number or a vector for all utilities, or a dict by name
    costs  mask [I] of the constraints that are costs; their limits stay as they are in `before`
    """
    free = [i for i, cost in enumerate(costs) if not cost]
    if isinstance(b, Mapping):
        b = {find_name(name, names) or name: x for name, x in b.items()}
        wrong = [name for name in b if name in names and costs[list(names).index(name)]]
        if wrong:
            raise InputError(f"b: {wrong[0]!r} is a cost; give its upper limit (limit)")
        return read_limits(b, before, costs, names)
    values = read_vector("b", b)
    if not free or len(values) not in (1, len(free)):
        raise InputError(f"b has {len(values)} entries for {len(free)} utilities; give one number, or one each")
    found = before.copy()
    found[free] = values
    return found


def _bounds(bounds: Any, n: int) -> Bounds | None:
    if bounds is None:
        return None
    try:
        low, high = (np.asarray(x, float) for x in bounds)
    except (TypeError, ValueError):
        raise InputError(f"bounds must be (low, high) with {n} numbers each, got {bounds!r}") from None
    if low.shape != (n,) or high.shape != (n,):
        raise InputError(f"bounds must be (low, high) with {n} entries each: reward first, then the constraints")
    if not np.all(low <= high):
        at = int(np.argmin(low <= high))
        raise InputError(f"bounds[{at}] has low {low[at]:g} above high {high[at]:g}")
    return low, high
