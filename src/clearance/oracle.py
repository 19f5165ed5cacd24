"""The exact optimum, its multipliers, and the Slater margin.

Small models go through one linear program (`lp`), large ones through column generation (`columns`). Whatever a solver
says is measured again: J is the exact value of the policy returned, and `bound` is the dual function at λ*,

    D(λ) = max_π J_r(π) + Σ_i λ_i (J_gi(π) − b_i)  ≥  J_r(π')   for every feasible π' and every λ ≥ 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clearance import columns, lp
from clearance.bellman import Operator
from clearance.direction import lagrangian
from clearance.mixture import Mixture
from clearance.problem import CMDP, Array, occupancy, policy_of, values

# An LP vertex lies on the limit, so its policy is off by ±1e-15. The solvers are asked for this much more (relative to
# the scale of J_g), so that the policy returned meets the limits in floating point too, at a price of λ* · 1e-10.
TIGHTEN = 1e-10
# Up to this many pairs (s, a) the whole program is solved at once.
LP_PAIRS = 1500
# The proven gap at which column generation stops, relative to the scale of J.
GAP = 5e-8

Method = Literal["auto", "lp", "columns"]


@dataclass(frozen=True, eq=False)
class Optimum:
    """What the solvers say, measured again.

    status   "optimal" or "infeasible"
    J        exact [1+I] of `policy`; of the least violating policy when infeasible
    lam      λ* [I], what one unit less of limit i would earn; when infeasible the proof: λ with Σλ = 1 and
             max_π Σ_i λ_i (J_gi − b_i) < 0
    policy   π [S, A], stationary; the least violating policy when infeasible
    mixture  the same values as at most I + 1 deterministic policies (column generation), or `policy` alone (LP)
    d        the occupancy [S, A] of `policy`
    bound    proven upper bound on the reward of every feasible policy, D(λ*); −inf when infeasible
    slater   a margin min_i (J_gi − b_i) that some policy attains: the largest one for small models and when negative;
             inf without constraints. `slater_margin` computes the largest for any model
    """

    status: Literal["optimal", "infeasible"]
    J: Array
    lam: Array
    policy: Array
    mixture: Mixture
    d: Array
    bound: float
    slater: float
    b: Array

    @property
    def J_r(self) -> float:
        return float(self.J[0])

    @property
    def slack(self) -> Array:
        """J_g − b [I]."""
        return self.J[1:] - self.b

    @property
    def gap(self) -> float:
        """bound − J_r ≥ 0: how far from optimal the policy can be."""
        return self.bound - self.J_r

    @property
    def complementarity(self) -> Array:
        """λ*_i (J_gi − b_i) [I]: zero, up to the tightening, at an optimum."""
        return self.lam * self.slack


def optimum(cmdp: CMDP, *, method: Method = "auto") -> Optimum:
    """The best policy among those that meet the limits, with multipliers and a proven bound."""
    if method == "columns" or (method == "auto" and cmdp.S * cmdp.A > LP_PAIRS):
        return _by_columns(cmdp)
    slater, safest, farkas = _slater_by_lp(cmdp)
    if not can_be_met(cmdp, slater):
        return _infeasible(cmdp, safest, farkas, slater)
    for tighten in _tightenings(cmdp, slater):
        x, lam = lp.richest(cmdp, cmdp.b + tighten)
        _, bound, greedy = dual_function(cmdp, lam)
        pi = _policy_of(x, greedy)
        d, J = _measured(cmdp, pi)
        if np.all(J[1:] >= cmdp.b):
            break
    return Optimum("optimal", J, lam, pi, Mixture.single(pi), d, bound, slater, cmdp.b)  # pyright: ignore[reportPossiblyUnboundVariable]


def slater_margin(cmdp: CMDP, *, method: Method = "auto") -> tuple[float, Array]:
    """φ = max_π min_i (J_gi(π) − b_i) and a policy [S, A] that attains it; inf without constraints.

    The margin is the exact one of the policy returned, so it is attained, not a solver's word.
    """
    if method == "columns" or (method == "auto" and cmdp.S * cmdp.A > LP_PAIRS and cmdp.I):
        found = columns.columns_of(cmdp)
        mixed = columns.slater(found, GAP * float(np.max(_scale(cmdp))))
        pi = _stationary(*columns.mixture_of(found, mixed))
        return float(np.min(_measured(cmdp, pi)[1][1:] - cmdp.b)), pi
    slater, safest, _ = _slater_by_lp(cmdp)
    return slater, safest


def can_be_met(cmdp: CMDP, slater: float) -> bool:
    """Whether a margin that some policy attains means that the limits can be met: not negative, beyond rounding."""
    return slater >= -_tolerance(cmdp)


def dual_function(cmdp: CMDP, lam: Array) -> tuple[Array, float, NDArray[np.int64]]:
    """V [S], D(λ) = max_π J_r + λ·(J_g − b) rounded up by the Bellman residual, and a greedy policy [S]."""
    model, act = Operator.of(cmdp), np.zeros(cmdp.S, np.int64)
    h_L = np.ascontiguousarray(lagrangian(np.moveaxis(cmdp.h, 0, -1), lam).ravel())
    size = max(float(np.abs(h_L).max()), 1e-300)
    V, most = model.maximise(h_L, np.zeros(cmdp.S), act, 1e-15 * size / (1 - cmdp.gamma))
    return V, float(cmdp.rho @ V + max(most, 0.0) / (1 - cmdp.gamma) - lam @ cmdp.b), act


def _by_columns(cmdp: CMDP) -> Optimum:
    scale = max(float(np.max(np.abs(cmdp.r))), float(np.max(np.abs(cmdp.h)))) / (1 - cmdp.gamma)
    found, slater = columns.columns_of(cmdp), np.inf
    if cmdp.I:
        mixed = columns.slater(found, GAP * scale, enough=1e-4 * scale)
        if mixed.bound < 0:
            pi = _stationary(*columns.mixture_of(found, mixed))
            return _infeasible(cmdp, pi, mixed.lam, float(np.min(_measured(cmdp, pi)[1][1:] - cmdp.b)))
        slater = mixed.value
    for tighten in _tightenings(cmdp, slater):
        found.b = cmdp.b + tighten
        mixed = columns.best_mixture(found, GAP, scale)
        weights, pi_m, d_m = columns.mixture_of(found, mixed)
        pi = _stationary(weights, pi_m, d_m)
        d, J = _measured(cmdp, pi)
        if np.all(J[1:] >= cmdp.b):
            break
    bound = mixed.bound + float(mixed.lam @ tighten)  # pyright: ignore[reportPossiblyUnboundVariable]
    mixture = Mixture(weights, pi_m)  # pyright: ignore[reportPossiblyUnboundVariable]
    return Optimum("optimal", J, mixed.lam, pi, mixture, d, bound, slater, cmdp.b)  # pyright: ignore[reportPossiblyUnboundVariable]


def _slater_by_lp(cmdp: CMDP) -> tuple[float, Array, Array]:
    if cmdp.I == 0:
        return np.inf, policy_of(cmdp.available), np.zeros(0)
    x, farkas = lp.safest(cmdp)
    pi = policy_of(x, cmdp.available)
    return float(np.min(_measured(cmdp, pi)[1][1:] - cmdp.b)), pi, farkas


def _infeasible(cmdp: CMDP, pi: Array, farkas: Array, slater: float) -> Optimum:
    d, J = _measured(cmdp, pi)
    return Optimum("infeasible", J, farkas, pi, Mixture.single(pi), d, -np.inf, slater, cmdp.b)


def _measured(cmdp: CMDP, pi: Array) -> tuple[Array, Array]:
    d = occupancy(cmdp, pi)
    return d, values(cmdp, d)


def _policy_of(x: Array, greedy: NDArray[np.int64]) -> Array:
    """π from visits x [S, A]; greedy for r + λ·g where the state is never visited."""
    x = np.where(x > 1e-12 * x.max(), x, 0.0)
    return np.where(x.sum(1, keepdims=True) > 0, policy_of(x), np.eye(x.shape[1])[greedy])


def _stationary(weights: Array, pi: Array, d: Array) -> Array:
    """One stationary policy with the occupancy of a mixture; where nobody goes, the first component's choice."""
    total = np.einsum("m,msa->sa", weights, d)
    return np.where(total.sum(1, keepdims=True) > 0, policy_of(total), pi[0])


def _tightenings(cmdp: CMDP, slater: float):
    """What to add to b: once, except where the solver's own tolerance eats it; nothing where there is no room."""
    if cmdp.I == 0:
        return [np.zeros(0)]
    first = TIGHTEN * _scale(cmdp)
    if slater <= 0:  # feasible at the limit only: the program must not be refused for rounding
        return [-_tolerance(cmdp) * np.ones(cmdp.I)]
    return [np.minimum(first * 10.0**i, slater / 2) for i in range(4)]


def _scale(cmdp: CMDP) -> Array:
    """The size of J_gi − b_i [I], against which tolerances are meant."""
    return np.maximum(np.abs(cmdp.g).max(axis=(1, 2)) / (1 - cmdp.gamma), np.abs(cmdp.b)) if cmdp.I else np.zeros(0)


def _tolerance(cmdp: CMDP) -> float:
    return 10 * TIGHTEN * float(np.max(_scale(cmdp), initial=0.0))
