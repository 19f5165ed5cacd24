"""Signals for limits on single episodes (`Chance` and `CVaR` of `core.tail_limits`), from the costs of steps.

A problem with such limits is made from the plain problem, which has limits on means only, by changing the signals. For
each limit, the signal of a step is the increase of φ(C_t), where C_t is the cost so far and φ is a function that
belongs to the limit. So learning and testing see an ordinary expected sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.cost_memory import CostMemory
from clearance.core.errors import InputError
from clearance.core.statement import Bounds, Statement
from clearance.core.tail_limits import Chance, Rule, TailLimit, split_limits


class TailCosts(NamedTuple):
    """The rules that compute the constraints of a problem from the costs of the plain problem.

    The plain problem is the same problem without limits on single episodes (`Chance`, `CVaR`). All of its constraints
    are limits on the means of costs.

    plain    the statement of the plain problem
    columns  for each constraint the index of its cost [I];  rules: its `Chance` or `CVaR`, None for a limit on the mean
    memory   the costs so far that policies see; None if they see none
    slip     relative rounding error of a sum
    slope    for learning: slope added to the indicator of a `Chance` beyond its threshold. The indicator is flat there,
             and if all episodes are beyond it, learning would have no gradient
    """

    plain: Statement
    columns: tuple[int, ...]
    rules: tuple[Rule | None, ...]
    memory: CostMemory | None
    slip: float
    slope: float = 0.0

    @property
    def remembered(self) -> list[int]:
        """The costs that a policy sees as sums over the episode so far, as indices into the costs of `plain`."""
        return [] if self.memory is None else [self.plain.names.index(name) for name in self.memory.names]

    @property
    def bounds(self) -> Bounds | None:
        """The declared bounds (low, high) of the costs in one step, widened by rounding errors; None if undeclared."""
        if self.plain.bounds is None:
            return None
        low, high = _step_bounds(self.plain)
        more = self.slip * np.maximum(*(np.where(np.isfinite(x), np.abs(x), 0.0) for x in (low, high)))
        return low - more, high + more

    def remembering(self, memory: CostMemory | None, obs_shape: tuple[int, ...]) -> TailCosts:
        """Return the same rules for policies that see the costs so far, as `memory` describes them.

        If `memory` is None, policies do not see the costs so far.
        Raise InputError if the costs, observations or horizon of `memory` are not those of the problem.
        """
        if memory is not None:
            unknown = [name for name in memory.names if name not in self.plain.names]
            if unknown:
                raise InputError(
                    f"policy acts on the sum of {unknown[0]} so far, which is no cost of {self.plain.name}"
                )
            if (memory.obs_shape, memory.horizon) != (tuple(obs_shape), self.plain.horizon):
                seen = f"observations {memory.obs_shape} over {memory.horizon} steps"
                raise InputError(f"policy is for {seen}, {self.plain.name} has {obs_shape} over {self.plain.horizon}")
        return self._replace(memory=memory)

    def signals(self, cost: Any, before: Any, after: Any, xp: Any) -> Any:
        """Return the signals of the constraints in one step, as costs [..., I].

        cost           the costs of the step, one for each cost of the plain problem (which has no limits on episodes)
        before, after  the sums of these costs over the episode, before and after the step
        xp             the array module of the arguments: numpy or jax.numpy
        """
        found = []
        for column, rule in zip(self.columns, self.rules, strict=True):
            if rule is None:
                found.append(cost[..., column])
            else:
                last, first = (self._value(rule, x[..., column], xp) for x in (after, before))
                found.append((last - first).astype(cost.dtype))
        return xp.stack(found, -1)

    def _value(self, rule: Rule, C: Any, xp: Any) -> Any:
        """Return φ(C), the function of a `Chance` or `CVaR` limit at costs so far C, without its constant `offset`.

        If `slope` is not 0, the φ of a `Chance` also grows with this slope beyond its threshold. xp is numpy or
        jax.numpy.
        """
        if self.slope and isinstance(rule, Chance):
            return rule.value(C, xp, self.slip) + self.slope * xp.maximum(C - rule.above, 0.0) / rule.scale
        return rule.value(C, xp, self.slip)

    def limited_sums(self, X: Any, xp: Any) -> Any:
        """Return the sums X [n, 1+I] of n episodes without the slope that is added for learning.

        If `slope` is not 0, the sums of `Chance` limits are turned back into 0 (threshold not exceeded) or −1
        (exceeded). All other sums are returned unchanged. xp is numpy or jax.numpy.
        """
        flat = np.array([False, *(self.slope > 0 and isinstance(rule, Chance) for rule in self.rules)])
        return xp.where(flat, xp.where(X < -0.5, -1.0, 0.0), X)

    def wrong(self, cost: Any, xp: Any) -> Any:
        """Return a mask that is true for each entry of `cost` that is not finite, or is outside the declared bounds.

        xp is the array module of `cost`: numpy or jax.numpy.
        """
        fine = xp.isfinite(cost)
        if self.bounds is not None:
            fine &= (cost >= self.bounds[0].astype(cost.dtype)) & (cost <= self.bounds[1].astype(cost.dtype))
        return ~fine


def mean_costs(plain: Statement, slip: float) -> TailCosts:
    """Return rules that leave the constraints of the problem `plain` unchanged.

    `slip` is the relative rounding error of a sum.
    """
    return TailCosts(plain, tuple(range(plain.I)), (None,) * plain.I, None, slip)


def limit_tails(
    plain: Statement, limits: Any, obs_shape: tuple[int, ...], slip: float, *, cost_so_far: bool = True
) -> tuple[Statement, TailCosts]:
    """Add limits to the statement `plain`; return the new statement, and the rules that compute its signals from costs.

    limits       by name, as numbers, `Chance`, `CVaR`, or lists of them; costs that are not named keep their limits
    obs_shape    the shape of the observations;  slip: relative rounding error of a sum
    cost_so_far  whether policies see the sums of the limited costs so far
    """
    asked = _in_order(plain, limits)
    columns = tuple(plain.names.index(name) for name, _ in asked)
    rules = tuple(rule if isinstance(rule, Rule) else None for _, rule in asked)
    low, high = _step_bounds(plain)
    tails = tuple(_tail(plain, *x, low, high) for x in zip(columns, rules, strict=True))
    names = tuple(plain.names[j] if tail is None else tail.label for j, tail in zip(columns, tails, strict=True))
    b = np.array([-(x.at_most if isinstance(x, Rule) else x) for _, x in asked])
    bounds = _signal_bounds(plain, columns, rules, low, high)
    told = replace(plain, b=b, names=names, bounds=bounds, costs=(True,) * len(b), tails=tails)
    memory = _memory(plain, columns, rules, obs_shape) if cost_so_far and any(rules) else None
    return told, TailCosts(plain, columns, rules, memory, slip)


def slope_chances(told: Statement, costs: TailCosts, slope: float) -> tuple[Statement, TailCosts]:
    """Give the signals of `Chance` limits a slope beyond their thresholds, so that learning has a gradient there.

    Return the statement `told` with wider bounds of these signals, and the rules `costs` with this slope. The limits
    and the other signals stay the same.
    """
    assert told.bounds is not None
    low, high = (x.copy() for x in told.bounds)
    least, most = _step_bounds(costs.plain)
    for i, (column, rule) in enumerate(zip(costs.columns, costs.rules, strict=True), 1):
        if isinstance(rule, Chance):
            low[i] -= slope * max(float(most[column]), 0.0) / rule.scale
            high[i] += slope * max(-float(least[column]), 0.0) / rule.scale
    return replace(told, bounds=(low, high)), costs._replace(slope=slope)


def _in_order(plain: Statement, limits: Any) -> list[tuple[str, float | Rule]]:
    """Return a list with (name of the cost, limit) for each constraint, in the order of the costs of `plain`.

    `plain` is the problem without limits on single episodes. Costs that `limits` does not name keep their limit.
    """
    if not isinstance(limits, Mapping):
        values = list(limits) if isinstance(limits, list | tuple) else [limits]
        if len(values) != plain.I:
            raise InputError(f"limits has {len(values)} entries for {plain.I} costs; give one each, or by name")
        limits = dict(zip(plain.names, values, strict=True))
    if not all(plain.costs):
        raise InputError("limits on chances and tails are for costs: state the problem with limits=…, not b=…")
    unknown = [name for name in limits if name not in plain.names]
    if unknown:
        raise InputError(f"limits: {unknown[0]!r} is no cost; there are: {', '.join(plain.names) or 'none'}")
    kept = {name: -float(b) for name, b in zip(plain.names, plain.b, strict=True)}
    found = split_limits({name: limits.get(name, kept[name]) for name in plain.names})
    never = [f"limits: {x.words(name)}" for name, x in found if isinstance(x, Rule) and x.at_most == 0]
    if never:
        raise InputError(f"{never[0]} cannot be shown by samples: give a positive at_most")
    return found


def _step_bounds(plain: Statement) -> Bounds:
    """Return the bounds (low, high) of the costs of `plain` in one step [I each]; they are infinite if not declared."""
    if plain.bounds is None:
        return np.full(plain.I, -np.inf), np.full(plain.I, np.inf)
    return -plain.bounds[1][1:], -plain.bounds[0][1:]


def _tail(plain: Statement, column: int, rule: Rule | None, low: Array, high: Array) -> TailLimit | None:
    if rule is None:
        return None
    name, H = plain.names[column], plain.horizon or np.inf
    ends = H * min(float(low[column]), 0.0), H * max(float(high[column]), 0.0)
    return TailLimit(name, rule, *rule.sum_range(*ends))


def _signal_bounds(
    plain: Statement, columns: Sequence[int], rules: Sequence[Rule | None], low: Array, high: Array
) -> Bounds:
    """Return bounds (low, high) of the signals [1+I] in one step: the reward, then the constraints.

    plain           the problem without limits on single episodes;  low, high: bounds of its costs in one step
    columns, rules  for each constraint, the index of its cost and its `Chance` or `CVaR` (None: a limit on the mean)
    """
    reward = (-np.inf, np.inf) if plain.bounds is None else (plain.bounds[0][0], plain.bounds[1][0])
    parts = [reward]
    for j, rule in zip(columns, rules, strict=True):
        least, most = (low[j], high[j]) if rule is None else rule.step_range(float(low[j]), float(high[j]))
        parts.append((-most, -least))
    least, most = np.array(parts, float).T
    return least, most


def _memory(
    plain: Statement, columns: Sequence[int], rules: Sequence[Rule | None], obs_shape: tuple[int, ...]
) -> CostMemory:
    if len(obs_shape) > 1:
        way = "give cost_so_far=False, or an environment whose observations are vectors"
        raise InputError(f"limits: the cost so far cannot be added to observations of shape {obs_shape}: {way}")
    scales: dict[str, float] = {}
    for j, rule in zip(columns, rules, strict=True):
        if rule is not None:
            scales.setdefault(plain.names[j], rule.scale)
    assert plain.horizon is not None
    return CostMemory(tuple(obs_shape), tuple(scales), tuple(scales.values()), plain.horizon)
