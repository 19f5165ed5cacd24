"""Bounds that enclose every optimal multiplier λ*, from the values of the policies that column generation found.

Let D be the dual function. For an optimal λ*, D(λ*) = p* is the optimum, and D(λ*) ≥ J_r(π) + Σ_i λ*_i (J_gi(π) − b_i)
for every policy π. So with bound ≥ p*,

    λ* ∈ {λ ≥ 0 :  Σ_i λ_i (J_gi(π_j) − b_i) ≤ bound − J_r(π_j)  for every known policy π_j}

The smallest and the largest λ_i in this set are found by two small linear programs for each limit.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog

from clearance.core.arrays import Array

WIDEN = 1e-9  # relative: the tolerance of the linear programs


def enclose_multipliers(J: Array, b: Array, bound: float, error: float) -> Array:
    """Return [2, I]: the smallest and the largest possible value of each optimal multiplier; inf if it has no bound.

    J      values [n, 1+I] of policies, each accurate to `error`
    bound  an upper bound on the reward of every policy that meets the limits b [I]

    >>> enclose_multipliers(np.array([[2.0, -1.0], [0.0, 1.0]]), np.zeros(1), 1.0, 0.0).round(6).tolist()
    [[1.0], [1.0]]
    """
    slack, room = J[:, 1:] - b - error, bound - J[:, 0] + error
    if len(b) == 1:
        return _one(slack[:, 0], room)
    ends = [[_extreme(slack, room, i, sign) for i in range(len(b))] for sign in (1.0, -1.0)]
    low, high = np.array(ends)
    return np.stack([np.maximum(low - WIDEN * (1 + np.abs(low)), 0.0), high + WIDEN * (1 + np.abs(high))])


def _one(slack: Array, room: Array) -> Array:
    """Return [2, 1], the smallest and the largest λ ≥ 0 with λ·slack_j ≤ room_j for every policy j, for one limit.

    room_j is the upper bound on the optimum minus the reward of policy j. A policy with positive slack bounds λ from
    above, a policy with negative slack from below.
    """
    above, below = slack > 0, slack < 0
    high = np.min(room[above] / slack[above], initial=np.inf)
    low = np.max(room[below] / slack[below], initial=0.0)
    return np.array([[low], [high]])


def _extreme(slack: Array, room: Array, i: int, sign: float) -> float:
    """Return the smallest (sign 1) or the largest (sign −1) λ_i over λ ≥ 0 with slack·λ ≤ room.

    `slack` [n, I] and `room` [n] come from n known policies. If no bound exists, return 0 or inf.
    """
    c = np.zeros(slack.shape[1])
    c[i] = sign
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    found = linprog(c, A_ub=slack, b_ub=room, bounds=(0, None), method="highs", options=options)
    return sign * float(found.fun) if found.status == 0 else (0.0 if sign > 0 else np.inf)
