"""The exact optimum of a finite model under limits on single episodes, and the exact tails of an episode's cost.

A chance limit gives one linear program on the product of the model with the cost so far (`finite.cost_product`). The
CVaR of level α of a cost C is the minimum over a threshold ν of E[ν + (C − ν)₊/(1 − α)]. For a fixed ν, this is linear
in the occupancy. If all costs are multiples of a unit, the minimum is attained at a ν that is a possible sum of costs.
So one program is solved for each such ν, and the best solution is the optimum. All policies of a mixture share one ν,
since CVaR is not linear in the policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from clearance.core.errors import InputError
from clearance.core.tail_limits import CVaR, Rule, split_limits
from clearance.exact.optimum import Optimum, optimum
from clearance.finite.cmdp import CMDP
from clearance.finite.cost_product import WHOLE, CostProduct, cost_product, find_unit, refuse_means

LEVELS = 1000  # the largest number of thresholds ν that are tried


@dataclass(frozen=True, eq=False)
class EpisodeOptimum:
    """The optimum under limits on single episodes.

    optimum  the optimum of the product model
    product  the product model, whose states are those of the model together with the costs so far
    nu       the threshold ν that was chosen for a CVaR limit; None if the user gave ν or if there is no CVaR
    """

    optimum: Optimum
    product: CostProduct
    nu: float | None = None

    @property
    def status(self) -> str:
        return self.optimum.status

    @property
    def J_r(self) -> float:
        return self.optimum.J_r

    @property
    def policy(self) -> Any:
        """The policy π of the product, whose states are (state, cost so far); `product.actor(policy, rng)` runs it."""
        return self.optimum.policy


def episode_optimum(model: CMDP, limits: Mapping[str, Any]) -> EpisodeOptimum:
    """Return the best policy under limits on single episodes, for a model with a horizon or sums until absorption.

    limits  a dict from the name of a cost to its limits, such as {"energy": cl.Chance(above=40, at_most=0.05),
            "wear": [cl.CVaR(level=0.9, at_most=12), 5.0]}; a plain number limits the mean

    Costs must be whole multiples of some unit.
    """
    asked = split_limits(limits)
    free = _without_level(asked)
    if not free:
        product = cost_product(model, limits)
        return EpisodeOptimum(optimum(product.cmdp), product)
    if len(free) > 1:
        raise InputError("limits: more than one CVaR without a level: give at=ν to all but one of them")
    return _best_level(model, asked, free[0])


def limit_episodes(model: CMDP, limits: Mapping[str, Any]) -> CostProduct:
    """Return the model whose states include the costs so far, with the given limits on single episodes as constraints.

    `limits` is as for `episode_optimum`. If a CVaR is given without its threshold ν (`at`), the best ν is used.
    """
    found = _without_level(split_limits(limits))
    return episode_optimum(model, limits).product if found else cost_product(model, limits)


def _without_level(asked: list[tuple[str, float | Rule]]) -> list[int]:
    return [k for k, (_, rule) in enumerate(asked) if isinstance(rule, CVaR) and rule.at is None]


def _best_level(model: CMDP, asked: list[tuple[str, float | Rule]], k: int) -> EpisodeOptimum:
    """Solve one program for each possible threshold ν of a CVaR limit without ν; return the best optimum.

    The CVaR is limit k of `asked`, which lists (cost, limit). The values of ν are the multiples of the cost's unit from
    the CVaR's limit down to 0. The result is infeasible only if all programs are.
    """
    name, rule = asked[k]
    assert isinstance(rule, CVaR)
    if name not in model.names:
        cost_product(model, {name: rule})  # says that there is no such cost
    refuse_means(model, name, rule)
    unit = _unit(model, name)
    most = math.floor(rule.at_most / unit + WHOLE)
    if most < 0:
        raise InputError(f"limits: {rule.words(name)} is below 0, and costs are not")
    if most >= LEVELS:
        raise InputError(f"limits: {most + 1} levels ν for {rule.words(name)} are too many: give at=ν")
    best: EpisodeOptimum | None = None
    for level in range(most, -1, -1):
        product = cost_product(model, _at(asked, k, level * unit))
        found = EpisodeOptimum(optimum(product.cmdp), product, level * unit)
        if best is None or _rank(found) > _rank(best):
            best = found
    assert best is not None
    return best


def _unit(model: CMDP, cost: str) -> float:
    return find_unit(cost, np.where(model.available, -model.h[1 + model.names.index(cost)], 0.0))


def _rank(found: EpisodeOptimum) -> tuple[int, float]:
    order = {"infeasible": 0, "borderline": 1, "optimal": 2}[found.status]
    return order, found.J_r if order == 2 else found.optimum.attained_margin


def _at(asked: list[tuple[str, float | Rule]], k: int, nu: float) -> dict[str, list[Any]]:
    """Return the limits of `asked` as {cost: [limits]}, with the threshold ν = `nu` for the CVaR at index k."""
    found: dict[str, list[Any]] = {}
    for i, (name, rule) in enumerate(asked):
        found.setdefault(name, []).append(replace(rule, at=nu) if i == k and isinstance(rule, CVaR) else rule)
    return found


def tail_of(model: CMDP, policy: Any, cost: str, rule: Rule) -> float:
    """Return P(C > above) for a `Chance`, or the CVaR of C for a `CVaR`, where C is an episode's cost under `policy`.

    `policy` is a policy of `model`; it does not see the cost so far. The value is computed on the product of the model
    with the cost so far. A CVaR of level α is E[ν + (C − ν)₊/(1 − α)] at its threshold ν. If `rule` gives no ν, the
    value is the minimum over all ν that are multiples of the cost's unit. The expectation is convex in ν, so the search
    over increasing ν ends as soon as the expectation rises.
    """
    if not isinstance(rule, CVaR) or rule.at is not None:
        return _tail_at(model, policy, cost, rule)
    refuse_means(model, cost, rule)
    unit, least = _unit(model, cost), math.inf
    for level in range(LEVELS):
        found = _tail_at(model, policy, cost, replace(rule, at=level * unit))
        if found > least:
            return least
        least = found
    raise InputError(f"{rule.label(cost)}: more than {LEVELS} levels ν: give at=ν")


def _tail_at(model: CMDP, policy: Any, cost: str, rule: Rule) -> float:
    product = cost_product(model, {cost: rule})
    i = [name.startswith(rule.label(cost)) for name in product.cmdp.names].index(True)
    return float(rule.offset - product.lift(policy).J(product.cmdp)[1 + i])
