"""Plan a run on a simulator: the budget for learning, the margin κ, and how many batches the critics learn from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from clearance.certificates.best_mixture import spread_evenly
from clearance.certificates.candidate_search import LEVELS, least_episodes
from clearance.certificates.sequential_test import slack_needed, slack_per_sd
from clearance.core.arrays import Array
from clearance.core.errors import InputError, SmallBudgetError
from clearance.core.statement import Statement
from clearance.learning.methods.natural_step import NaturalSteps
from clearance.runs.worlds.simulator_candidates import CANDIDATES, LATE, WARM
from clearance.simulator.samplers.simulator_episodes import episode_steps, total_weight

LEARNING = 0.5, 0.45, 0.4, 0.35, 0.3  # shares of the budget for learning; the first that leaves enough, see ROOM
ROOM, TIGHTEST = 0.5, 0.85  # largest κ as a share of the largest possible slack: as planned, and if that is too little
RARE, KEPT = 0.02, 8  # if `rarity` is below RARE, the critics learn from the last KEPT batches
TESTED, SPREAD = 0.7, 0.05  # κ assumes a test with this share of the rest, and sums with this sd per range
ENDLESS = 0.2  # as SPREAD, but without a horizon: the length of an episode is then random


def check_budget(statement: Statement, method: Any, budget: float) -> None:
    """Raise SmallBudgetError if the budget leaves too few episodes for choosing and certifying a policy."""
    candidates = len(spread_evenly(method.K or CANDIDATES, CANDIDATES, first=max(LATE, WARM)))
    least = least_episodes(candidates) * episode_steps(statement)
    if (1 - LEARNING[0]) * budget < least:
        why = f"choice and certificate need at least {least:.0f} steps, and have half of it"
        raise SmallBudgetError(f"budget {budget:.6g} is too small: {why}: give {least / (1 - LEARNING[0]):.0f} or more")


def check_limits(s: Statement) -> None:
    """Raise InputError if the limit is 0 for a cost that is never negative.

    No number of episodes can show that the mean of such a cost is 0.
    """
    if s.bounds is None:
        return
    highest = s.sum_ranges(*s.bounds, s.length)[1][1:]
    for name, cost, b, high in zip(s.names, s.costs, s.b, highest, strict=True):
        if cost and b == 0 and high == 0:
            raise InputError(
                f"limit of {name} is 0, which no number of episodes can certify: give a limit above 0, or the "
                f"chance of any cost, limits={{{name!r}: cl.Chance(above=0.0, at_most=0.01)}}"
            )


def learning_share(s: Statement, budget: float, delta: float) -> float:
    """Return the share of the budget for learning: half, or less if the certificate would then need too much slack."""
    if not _bounded(s):
        return LEARNING[0]
    enough = (x for x in LEARNING if np.all(np.less_equal(*_slack_planned(s, (1 - x) * budget, delta))))
    return next(enough, LEARNING[-1])


def rarity(s: Statement) -> float:
    """Return a measure of how rare violations must be; it is 1 if no bounds are declared.

    For each limit, the largest possible slack is divided by the range of an episode's sum. The smallest of these ratios
    is returned. A small ratio means that violations must be rare.
    """
    if not _bounded(s):
        return 1.0
    assert s.bounds is not None
    low, high = (x[1:] for x in s.sum_ranges(*s.bounds, s.length))
    return float(np.min((high - s.b) / np.maximum(high - low, 1e-300)))


def kept_batches(s: Statement) -> int:
    """Return the number of recent batches that the critics learn from; it is larger if violations must be rare."""
    return KEPT if rarity(s) < RARE else 1


def with_kappa(method: Any, statement: Statement, budget: float, delta: float) -> Any:
    """Return the method with its margin κ computed, if its κ is "auto"; else unchanged.

    κ is the slack that a certificate from `budget` steps will need, but at most the share TIGHTEST of the largest
    possible slack. Without declared bounds there is no certificate from samples, and κ is one hundredth of each limit.
    """
    s, given = statement, getattr(method, "kappa", 0.0)
    if not s.I or given != "auto":
        return method if given != "auto" else replace(method, kappa=0.0)
    if not _bounded(s):
        return replace(method, kappa=tuple(0.01 * np.abs(s.b)))
    need, most = _slack_planned(s, budget, delta)
    kappa = tuple(np.minimum(need, TIGHTEST / ROOM * most).tolist())
    if not isinstance(method, NaturalSteps) or np.any(need > most):
        return replace(method, kappa=kappa)
    return replace(method, kappa=kappa, kappa_sd=slack_per_sd(_episodes(s, budget), LEVELS[0] * delta))


def _bounded(s: Statement) -> bool:
    return bool(s.I) and s.bounds is not None and bool(np.all(np.isfinite([x[1:] for x in s.bounds])))


def _episodes(s: Statement, budget: float) -> float:
    return TESTED * budget / episode_steps(s)


def _slack_planned(s: Statement, budget: float, delta: float) -> tuple[Array, Array]:
    """Return two arrays [I]: the slack that a certificate from `budget` steps will need, and the slack that is allowed.

    The allowed slack is ROOM times the largest possible slack.
    """
    assert s.bounds is not None
    low, high = (x[1:] for x in s.sum_ranges(*s.bounds, total_weight(s)))
    spread = ENDLESS if s.horizon is None else SPREAD
    need = slack_needed(spread * (high - low), high - low, _episodes(s, budget), LEVELS[0] * delta)
    return need, ROOM * np.maximum(s.sum_ranges(*s.bounds, s.length)[1][1:] - s.b, 0.0)
