"""The exact optimum, its multipliers, and the Slater margin.

Small models go through one linear program (`lp`), large ones through column generation (`columns`). Whatever a solver
says is measured again: J is the exact value of the policy returned, and `bound` is the dual function at λ*,

    D(λ) = max_π J_r(π) + Σ_i λ_i (J_gi(π) − b_i)  ≥  J_r(π')   for every feasible π' and every λ ≥ 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError, SolverError
from clearance.core.validation import check_model
from clearance.exact import column_generation, linear_program
from clearance.exact.bellman import Operator
from clearance.exact.enclosure import dual_function, enclose
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import evaluate, occupancy, policy_from_occupancy, values_from_occupancy
from clearance.finite.mixture import Mixture

# An LP vertex lies on the limit, so its policy is off by ±1e-15. The solvers are asked for this much more (relative to
# the scale of J_g) or, if that is not enough, for ten times as much and so on, until the policy provably meets the
# limits; the price is λ* times as much.
TIGHTEN = 1e-10
# Up to this many pairs (s, a) the whole program is solved at once.
LP_PAIRS = 1500
# The proven gap at which column generation stops, relative to the scale of J.
GAP = 5e-8

Method = Literal["auto", "lp", "columns"]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Optimum:
    """What the solvers say, measured again.

    status   "optimal" or "infeasible"
    J        exact [1+I] of `policy`; of the least violating policy when infeasible
    lam      λ* [I], what one unit less of limit i would earn; when infeasible the proof: λ with Σλ = 1 and
             max_π Σ_i λ_i (J_gi − b_i) < 0, enclosed
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
    check_model(cmdp)
    return _or_by_columns(lambda by: _optimum(cmdp, by), cmdp, method)


def _optimum(cmdp: CMDP, method: Method) -> Optimum:
    scaled = Scaled.of(cmdp)
    d, J, safest, farkas = safest_policy(scaled, scaled.margin_unit, method, enough=1e-4 / (1 - cmdp.gamma))
    slater = _margin(cmdp, J)
    if slater < 0 and farkas_bound(cmdp, farkas) < 0:
        return Optimum("infeasible", J, farkas, safest, Mixture.single(safest), d, -np.inf, slater, cmdp.b)
    for tighten in _tightenings(scaled, J, method):
        pi, mixture, lam, V, act = _richest(scaled, tighten, method)
        exact = evaluate(cmdp, pi)
        _, lower, _ = enclose(cmdp, pi[None], exact.V[None])
        if np.all(lower[0, 1:] >= cmdp.b):
            break
    bound, _, _ = dual_function(cmdp, lam, V, act)  # pyright: ignore[reportPossiblyUnboundVariable]
    d, J = exact.d, values_from_occupancy(cmdp, exact.d)  # pyright: ignore[reportPossiblyUnboundVariable]
    return Optimum("optimal", J, lam, pi, mixture, d, bound, slater, cmdp.b)  # pyright: ignore[reportPossiblyUnboundVariable]


def slater_margin(cmdp: CMDP, *, method: Method = "auto") -> tuple[float, Array]:
    """φ = max_π min_i (J_gi(π) − b_i) and a policy [S, A] that attains it; inf without constraints.

    The margin is the exact one of the policy returned, so it is attained, not a solver's word.
    """
    check_model(cmdp)
    scaled = Scaled.of(cmdp)
    _, J, safest, _ = safest_policy(scaled, scaled.margin_unit, method)
    return _margin(cmdp, J), safest


def can_be_met(cmdp: CMDP, slater: float) -> bool:
    """Whether a margin that some policy attains means that the limits can be met: not negative, beyond rounding."""
    return slater >= -1e-9 * float(np.min(Scaled.of(cmdp).g, initial=np.inf)) / (1 - cmdp.gamma) if cmdp.I else True


def farkas_bound(cmdp: CMDP, lam: Array) -> float:
    """max_π Σ_i λ_i (J_gi − b_i), rounded up: if negative for some λ ≥ 0, no policy meets all limits, proven."""
    h = cmdp.h.copy()
    h[0] = 0.0
    return dual_function(cmdp.replace(h=h), lam)[0]


@dataclass(frozen=True, eq=False)
class Scaled:
    """A problem in units in which r and every g_i are of size 1, since solvers have absolute tolerances.

    r_unit = r / r_size,  g_i and b_i likewise by g[i]; then λ = λ_unit · r_size / g[i].
    """

    cmdp: CMDP
    unit: CMDP
    r: float
    g: Array

    @classmethod
    def of(cls, cmdp: CMDP) -> Scaled:
        r = float(np.abs(cmdp.r).max()) or 1.0
        g = np.maximum(np.abs(cmdp.g).max(axis=(1, 2)), np.abs(cmdp.b) * (1 - cmdp.gamma)) if cmdp.I else np.zeros(0)
        g = np.where(g > 0, g, 1.0)
        size = np.concatenate([[r], g])
        return cls(cmdp, cmdp.replace(h=cmdp.h / size[:, None, None], b=cmdp.b / g), r, g)

    @cached_property
    def found(self) -> column_generation.Columns:
        """The columns found so far."""
        model = replace(Operator.of(self.cmdp), h=self.unit.h.reshape(1 + self.cmdp.I, -1))
        return column_generation.Columns(model, self.unit.b)

    @property
    def margin_unit(self) -> Array:
        """The same margin in every J_gi, seen in the units of each: the smallest size is 1.

        Beyond a factor of 10⁶ between two constraints it would be lost in the solvers' tolerance, and is cut.
        """
        return np.maximum(self.g.min(initial=np.inf) / self.g, 1e-6)


def _by_columns(cmdp: CMDP, method: Method) -> bool:
    if method not in get_args(Method):
        raise InputError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    return method == "columns" or (method == "auto" and cmdp.S * cmdp.A > LP_PAIRS)


def _or_by_columns(solve: Callable[[Method], T], cmdp: CMDP, method: Method) -> T:
    """The answer of the method; of column generation where "auto" took a linear program that was refused: near the
    border of the feasible, with γ near 1, it stands where the linear program falls.
    """
    try:
        return solve(method)
    except SolverError as refused:
        if method != "auto" or _by_columns(cmdp, method):
            raise
        try:
            return solve("columns")
        except SolverError:
            raise refused from None


def _margin(cmdp: CMDP, J: Array) -> float:
    """min_i (J_gi − b_i); inf without constraints."""
    return float(np.min(J[1:] - cmdp.b, initial=np.inf))


def safest_policy(
    scaled: Scaled, measure: Array, method: Method, enough: float = np.inf
) -> tuple[Array, Array, Array, Array]:
    """A policy that maximises min_i slack_i/measure_i in units (or reaches `enough` of it, where that takes long): its
    occupancy d, its J, itself, and λ with Σλ = 1.
    """
    cmdp = scaled.cmdp
    if cmdp.I == 0:
        uniform = policy_from_occupancy(np.zeros((cmdp.S, cmdp.A)), cmdp.available)
        return uniform, np.zeros(1), uniform, np.zeros(0)  # nothing to measure

    def solved(by: Method) -> tuple[Array, Array]:
        if _by_columns(cmdp, by):
            return _safest_by_columns(scaled, measure, enough)
        return _safest_by_lp(scaled, measure)

    pi, lam = _or_by_columns(solved, cmdp, method)
    lam = lam / scaled.g
    d = occupancy(cmdp, pi)
    return d, values_from_occupancy(cmdp, d), pi, lam / max(lam.sum(), 1e-300)


def _safest_by_lp(scaled: Scaled, measure: Array) -> tuple[Array, Array]:
    x, lam = linear_program.safest(scaled.unit, measure)
    return policy_from_occupancy(x, scaled.cmdp.available), lam


def _safest_by_columns(scaled: Scaled, measure: Array, enough: float) -> tuple[Array, Array]:
    found = scaled.found
    found.b = scaled.unit.b
    mixed = column_generation.slater(found, measure, GAP / (1 - scaled.cmdp.gamma), enough=enough)
    return _stationary(*column_generation.mixture_of(found, mixed)), mixed.lam


def _richest(scaled: Scaled, tighten: float, method: Method):
    """The best policy for limits tightened by so much, in units: π, as a mixture, λ, and V and greedy actions at λ."""
    cmdp, unit = scaled.cmdp, scaled.unit
    b = unit.b + tighten
    if _by_columns(cmdp, method):
        found = scaled.found
        found.b = b  # the policies of phase one, and of a smaller tightening, are columns for this one too
        mixed = column_generation.best_mixture(found, GAP, 1 / (1 - cmdp.gamma))
        weights, pi_m, d_m = column_generation.mixture_of(found, mixed)
        pi, mixture, lam = _stationary(weights, pi_m, d_m), Mixture(weights, pi_m), mixed.lam
        V, act = found.V * scaled.r, found.act[-1]
    else:
        x, lam = linear_program.richest(unit, b)
        _, V, act = dual_function(unit, lam)
        pi = _policy_of(x, act)
        V, mixture = V * scaled.r, Mixture.single(pi)
    return pi, mixture, lam * scaled.r / scaled.g, V, act


def _tightenings(scaled: Scaled, J: Array, method: Method) -> list[float]:
    """What to add to b, in units: the first that makes the policy provably feasible; a little less than nothing where
    there is no room (J is that of the safest policy), so that the program is not refused for rounding.
    """
    cmdp, full = scaled.cmdp, 1 / (1 - scaled.cmdp.gamma)
    if cmdp.I == 0:
        return [0.0]
    if np.any(scaled.margin_unit < 0.1):  # the room that matters is the one in units
        _, J, _, _ = safest_policy(scaled, np.ones(cmdp.I), method, enough=1e-4 * full)
    room = float(np.min((J[1:] - cmdp.b) / scaled.g)) / 2
    if room <= 1e-14 * full:
        return [-10 * TIGHTEN * full]
    return [min(TIGHTEN * full * 10.0**i, room) for i in range(6)]


def _policy_of(x: Array, greedy: NDArray[np.int64]) -> Array:
    """π from visits x [S, A]; greedy for r + λ·g where the state is never visited."""
    x = np.where(x > 1e-12 * x.max(), x, 0.0)
    return np.where(x.sum(1, keepdims=True) > 0, policy_from_occupancy(x), np.eye(x.shape[1])[greedy])


def _stationary(weights: Array, pi: Array, d: Array) -> Array:
    """One stationary policy with the occupancy of a mixture; where nobody goes, the first component's choice."""
    total = np.einsum("m,msa->sa", weights, d)
    return np.where(total.sum(1, keepdims=True) > 0, policy_from_occupancy(total), pi[0])
