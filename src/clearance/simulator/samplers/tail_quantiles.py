"""Choose the threshold ν of CVaR limits: a quantile of an episode's cost, from separate episodes that no test uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from clearance.certificates.episode_source import Episodes
from clearance.core.errors import InputError
from clearance.core.tail_limits import at_nu
from clearance.simulator.simulator import Simulator

EPISODES = 200  # the most episodes for the quantiles
SHARE = 0.05  # the largest share of the budget for these episodes


def fit_nu(
    simulator: Simulator, episodes: Callable[[Simulator], Episodes], key: np.uint64, budget: float
) -> tuple[Any, int]:
    """Choose the threshold ν for each CVaR limit that has none; return the problem with these ν, and the steps taken.

    ν is the `level` quantile of the cost in a few episodes, or the limit itself if that is smaller. If the budget is
    too small for two episodes, the problem is returned unchanged.

    episodes  function that takes the problem with provisional ν and returns a source of episodes of the policy
    """
    s = simulator.statement
    free = [i for i, tail in enumerate(s.tails) if tail is not None and getattr(tail.rule, "at", 0.0) is None]
    if not free:
        return simulator, 0
    lowest = {i: cost_range(simulator, i)[0] for i in free}
    source = episodes(with_nu(simulator, lowest))
    n = int(min(EPISODES, SHARE * budget / source.episode_steps))
    if n < 2:
        return simulator, 0
    X, _, steps = source.draw(key, 0, n)
    found = {}
    for i in free:
        tail: Any = s.tails[i]
        C = lowest[i] + (-X[:, 1 + i] - lowest[i]) * (1 - tail.rule.level)
        found[i] = min(float(np.quantile(C, tail.rule.level)), tail.rule.at_most)
    return with_nu(simulator, found), steps


def with_nu(simulator: Simulator, nu: dict[int, float]) -> Any:
    """Return the same problem with other thresholds ν of its CVaR limits: `nu` is {index of the constraint: ν}."""
    s, costs = simulator.statement, simulator.tail_costs
    assert costs is not None
    tails: list[Any] = list(s.tails)
    for i, value in nu.items():
        tails[i] = at_nu(tails[i], value, *cost_range(simulator, i))
    rules = tuple(None if tail is None else tail.rule for tail in tails)
    return simulator.plain.restate(replace(s, tails=tuple(tails)), costs._replace(rules=rules))


def cost_range(simulator: Simulator, i: int) -> tuple[float, float]:
    """Return the smallest and the largest possible cost of an episode, for the cost that constraint i limits."""
    costs, s = simulator.tail_costs, simulator.plain.statement
    assert costs is not None
    if s.bounds is None or not np.all(np.isfinite([x[1 + costs.columns[i]] for x in s.bounds])):
        raise InputError(f"{s.name}: {s.names[costs.columns[i]]} has no bounds: declare bounds, which its CVaR needs")
    low, high = (-float(x[1 + costs.columns[i]]) for x in (s.bounds[1], s.bounds[0]))
    return s.horizon * min(low, 0.0), s.horizon * max(high, 0.0)
