"""A maintenance problem: replace a machine before it breaks."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.finite.cmdp import CMDP
from clearance.finite.transition_rows import number_names, start_at, transitions


def maintenance(
    conditions: int = 10,
    *,
    breakdowns: float = 0.01,
    wear: float = 0.4,
    price: float = 5.0,
) -> CMDP:
    """Return a machine that wears and earns less when worn, with a limit on its breakdowns (criterion: average).

    State: the condition i = 0 (new) .. n−1 (worn out), or n = `conditions` (10) for a broken machine. Action: 0 run,
    1 replace. A machine that runs breaks with probability (i + 1)²/(10 n²). If it does not break, its condition rises
    by one with probability `wear` (.4); at n−1 it stays. Replacing takes one step and gives a new machine. A broken
    machine is replaced under either action.

        r = 1 − i/(2n) running;   −price replacing;   −2 price replacing a broken machine
        cost = the probability of a breakdown: (i + 1)²/(10 n²) running, else 0;   limit = breakdowns

    The machine is new at the start.

    Known: as i grows, income falls and the risk of breaking rises (stochastically monotone). So for any fixed price of
    a breakdown, the optimum is a control limit: it replaces the machine from some condition on. The constrained optimum
    is randomised in at most one condition, between two neighbouring control limits.

    Source: Derman 1963 (control limit rules); Puterman 1994, section 4.7. The numbers are choices of this library.
    """
    return _machine(conditions, wear, price, breakdowns, criterion="average")


def maintenance_discounted(
    conditions: int = 10,
    *,
    breakdowns: float = 0.01,
    wear: float = 0.4,
    price: float = 5.0,
    gamma: float = 0.95,
) -> CMDP:
    """Return the machine of `maintenance` with discounted sums: limit = breakdowns / (1−γ).

    The first steps, with a new machine, count most. So in the long run, breakdowns are more frequent than `breakdowns`.
    """
    return _machine(conditions, wear, price, breakdowns / (1 - gamma), gamma=gamma)


def _machine(conditions: int, wear: float, price: float, limit: float, **criterion: Any) -> CMDP:
    n, S = conditions, conditions + 1
    i = np.arange(n)
    breaks = (i + 1.0) ** 2 / (10 * n**2)
    worn = np.where(i < n - 1, (1 - breaks) * wear, 0.0)
    s = np.concatenate([i, i, i, i, [n, n]])
    a = np.concatenate([np.zeros(3 * n, int), np.ones(n, int), [0, 1]])
    s_next = np.concatenate([np.full(n, n), np.minimum(i + 1, n - 1), i, np.zeros(n + 2, int)])
    P = transitions(S, 2, s, a, s_next, np.concatenate([breaks, worn, 1 - breaks - worn, np.ones(n + 2)]))
    r, cost = np.full((S, 2), -price), np.zeros((S, 2))
    r[:n, 0], r[n] = 1 - i / (2 * n), -2 * price
    cost[:n, 0] = breaks
    labels: Any = {"states": [*number_names("condition", n), "broken"], "actions": ["run", "replace"]}
    return CMDP(P, r, rho=start_at(S, 0), cost=cost, limit=limit, names=["breakdowns"], **labels, **criterion)
