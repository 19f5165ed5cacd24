"""Decide whether the limits can be met: the safest policy, the Slater margin, and the proof that no policy meets them.

    φ = max_π min_i (J_gi − b_i)
    no policy meets the limits  ⇐  max_π Σ_i λ_i (J_gi − b_i) < 0 for some λ ≥ 0   (Farkas)

A margin φ that a solver computed is no proof. The limits are feasible if a policy provably meets them. They are
infeasible if multipliers λ prove, by a rigorous bound on the maximum above, that no policy meets them. If neither can
be shown because of rounding, they are borderline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError, SolverError
from clearance.core.validation import check_model
from clearance.exact import column_generation, linear_program
from clearance.exact.bellman import Operator
from clearance.exact.enclosure import U, dual_function
from clearance.exact.never import SMALLEST, Never, never_of
from clearance.exact.oracles import OracleColumns, oracle_of
from clearance.exact.policy_bounds import meets_limits
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import evaluate, policy_from_occupancy, values_from_occupancy
from clearance.finite.long_run import Chain, scale_of
from clearance.finite.mixture import Mixture

# Up to this many pairs (s, a) the whole program is solved at once.
LP_PAIRS = 1500
# The proven gap at which column generation stops, relative to the scale of J.
GAP = 5e-8
SAME = 1e-10  # values J that differ by less, relative to their scale, count as equal

Method = Literal["auto", "lp", "columns"]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Scaled:
    """A problem rescaled so that r and every g_i have size 1, since solvers have absolute tolerances.

    `unit` is the rescaled problem: its reward is divided by `r`, and utility and limit i by g[i]. Multipliers of `unit`
    times r / g[i] are multipliers of the original problem `cmdp`.
    """

    cmdp: CMDP
    unit: CMDP
    r: float
    g: Array

    @classmethod
    def of(cls, cmdp: CMDP) -> Scaled:
        r = float(np.abs(cmdp.r).max()) or 1.0
        g = np.maximum(np.abs(cmdp.g).max(axis=(1, 2)), np.abs(cmdp.b) / scale_of(cmdp)) if cmdp.I else np.zeros(0)
        g = np.where(g > 0, g, 1.0)
        size = np.concatenate([[r], g])
        return cls(cmdp, cmdp.replace(h=cmdp.h / size[:, None, None], b=cmdp.b / g), r, g)

    @cached_property
    def found(self) -> column_generation.Columns | OracleColumns:
        """The columns (deterministic policies) found so far for the rescaled problem."""
        if self.cmdp.kind != "discounted":
            return OracleColumns(oracle_of(self.unit), self.unit.b)
        model = replace(Operator.of(self.cmdp), h=self.unit.h.reshape(1 + self.cmdp.I, -1))
        return column_generation.Columns(model, self.unit.b)

    @property
    def margin_unit(self) -> Array:
        """The sizes [I] that slacks have in the rescaled problem if they are equal in the original problem.

        They are scaled so that the largest is 1. Entries are at least 1e-6, since smaller ones would vanish in the
        tolerance of the solvers.
        """
        return np.maximum(self.g.min(initial=np.inf) / self.g, 1e-6)

    def own_margin(self, J: Array) -> float:
        """Return the smallest of (J_gi − b_i)/g[i], where g[i] is the size of signal i; inf without constraints."""
        return float(np.min((J[1:] - self.cmdp.b) / self.g, initial=np.inf))


class Safest(NamedTuple):
    """A policy whose smallest slack is large.

    d       its occupancy
    J       its values [1+I]
    policy  a table [S, A], or [H, S, A] with a horizon. Under the average criterion it is a mixture if no stationary
            policy has these values
    lam     multipliers λ [I] of the limits, with Σλ = 1
    """

    d: Array
    J: Array
    policy: Any  # an array, or a Mixture where no stationary policy is as good
    lam: Array


class FarkasProof(NamedTuple):
    """A proof that no policy meets the limits: λ ≥ 0 [I] with max_π Σ_i λ_i (J_gi − b_i) ≤ bound < 0.

    V [S] are the values that prove the bound.
    """

    lam: Array
    bound: float
    V: Array


@dataclass(frozen=True, eq=False)
class Feasibility:
    """The answer whether the limits can be met, with its proof.

    verdict  "feasible": `policy` provably meets the limits. "infeasible": `proof` shows that no policy meets them.
             "borderline": neither is known
    slater   the margin min_i (J_gi − b_i) that `policy` attains; inf without constraints
    """

    verdict: Literal["feasible", "infeasible", "borderline"]
    slater: float
    policy: Any  # an array, or a Mixture where no stationary policy is as good
    proof: FarkasProof | None = None


def decide_feasibility(cmdp: CMDP, *, method: Method = "auto") -> Feasibility:
    """Decide whether the limits can be met; return the answer with a policy or a multiplier vector that proves it."""
    check_model(cmdp)
    never = never_of(cmdp)
    if never is not None and not never.impossible:
        rest = decide_feasibility(never.rest, method=method)
        proof = None if rest.proof is None else rest.proof._replace(lam=never.expand(rest.proof.lam))
        return replace(rest, slater=min(rest.slater, 0.0), proof=proof)
    safest = find_safest(Scaled.of(cmdp), method)
    slater = margin_of(cmdp, safest.J)
    if never is not None:
        proof = prove_never(cmdp, never, safest, method)
        return Feasibility("infeasible", min(slater, -SMALLEST), safest.policy, proof)
    for pi in safest_candidates(cmdp, safest):
        if meets_limits(cmdp, pi):
            return Feasibility("feasible", slater, pi)
    proof = prove_infeasible(cmdp, safest.lam, method)
    return Feasibility("borderline" if proof is None else "infeasible", slater, safest.policy, proof)


def slater_margin(cmdp: CMDP, *, method: Method = "auto") -> tuple[float, Any]:
    """Return the Slater margin φ = max_π min_i (J_gi(π) − b_i) and a policy that attains it; inf without constraints.

    The margin is computed from the values of the returned policy, not taken from the solver.
    """
    check_model(cmdp)
    safest = find_safest(Scaled.of(cmdp), method)
    return margin_of(cmdp, safest.J), safest.policy


def margin_of(cmdp: CMDP, J: Array) -> float:
    """Return the margin min_i (J_gi − b_i) of a policy with values J [1+I]; inf without constraints."""
    return float(np.min(J[1:] - cmdp.b, initial=np.inf))


# ---------------------------------------------------------------------------------------------------------- the proof


def prove_infeasible(cmdp: CMDP, lam: Array, method: Method = "auto") -> FarkasProof | None:
    """Return a proof that no policy meets the limits; None if none was found.

    The multipliers `lam` [I] are tried first. Then the problem is rescaled so that every signal has size 1, and the
    multipliers of its safest policy are tried.
    """
    for candidate in _multipliers(cmdp, lam, method):
        bound, V, _ = enclose_farkas(cmdp, candidate)
        if bound < 0:
            return FarkasProof(candidate, bound, V)
    return None


def prove_never(cmdp: CMDP, never: Never, safest: Safest, method: Method = "auto") -> FarkasProof:
    """Return a proof that no policy meets the limits, for a model in which a cost with the limit 0 cannot be avoided.

    The multipliers of the safest policy (`safest`) are tried first. If they prove nothing, the proof relies on which
    transitions are possible (`never`).
    """
    proof = prove_infeasible(cmdp, safest.lam, method)
    if proof is not None:
        return proof
    lam = np.zeros(cmdp.I)
    lam[never.limits] = 1 / len(never.limits)
    return FarkasProof(lam, -SMALLEST, enclose_farkas(cmdp, lam)[1])


def _multipliers(cmdp: CMDP, lam: Array, method: Method) -> Iterator[Array]:
    yield lam
    scaled = Scaled.of(cmdp)
    if np.any(scaled.margin_unit < 1):
        yield safest_policy(scaled, np.ones(cmdp.I), method).lam


def enclose_farkas(cmdp: CMDP, lam: Array) -> tuple[float, Array, NDArray[np.int64]]:
    """Bound the maximum over policies of Σ_i λ_i (J_gi − b_i); return (bound, V, act).

    `bound` is the maximum rounded up. V [S] proves the bound, and act [S] are the greedy actions of V.
    """
    if cmdp.kind != "discounted":
        return oracle_of(cmdp).dual(lam, reward=0.0)
    return dual_function(cmdp.replace(h=np.concatenate([np.zeros_like(cmdp.h[:1]), cmdp.g])), lam)


def farkas_bound(cmdp: CMDP, lam: Array) -> float:
    """Return max_π Σ_i λ_i (J_gi − b_i) rounded up; if it is negative for some λ ≥ 0, no policy meets all limits."""
    return enclose_farkas(cmdp, lam)[0]


def holds_after_rounding(cmdp: CMDP, proof: FarkasProof) -> bool:
    """Return whether the proof also holds for the exact model of which `cmdp` is the rounded version.

    Models made by `class_model` are such versions: their P and signals are averages over actions. If rows of P are off
    by ε, and signals by ε of their size, J_gi changes by at most ε |g_i| (1 + γ/(1−γ))/(1−γ).
    """
    error = 8 * (cmdp.A + 1) * U * np.abs(cmdp.g).max(axis=(1, 2)) * scale_of(cmdp) ** 2
    return proof.bound + float(proof.lam @ error) < 0


# --------------------------------------------------------------------------------------------------- the safest policy


def find_safest(scaled: Scaled, method: Method, enough: float = np.inf) -> Safest:
    """Return the policy whose smallest slack is largest, or the first one found whose smallest slack reaches `enough`.

    `scaled` is the rescaled problem. If the scales of the constraints are so far apart that this slack vanishes in
    rounding, return the policy with the largest slack relative to the scale of each constraint.
    """
    found = safest_policy(scaled, scaled.margin_unit, method, enough)
    rounding = 1e-9 * scale_of(scaled.cmdp)
    if scaled.own_margin(found.J) > rounding or not np.any(scaled.margin_unit < 0.1):
        return found
    own = safest_policy(scaled, np.ones(scaled.cmdp.I), method, enough)
    return own if scaled.own_margin(own.J) > max(scaled.own_margin(found.J), -rounding) else found


def safest_candidates(cmdp: CMDP, safest: Safest) -> Iterator[Array | Mixture]:
    """Yield the safest policy, then policies that may be slightly safer; this matters if the limits leave no room.

    The second candidate is the first without its tiny probabilities, which may be a solver's rounding. The last
    candidate is deterministic: it is greedy for Σ_i λ_i J_gi with the multipliers λ of `safest`. If only one limit is
    in conflict, it attains the largest J_gi exactly.
    """
    yield safest.policy
    if cmdp.I:
        if not isinstance(safest.policy, Mixture):
            yield snap(safest.policy)
        yield np.eye(cmdp.A)[enclose_farkas(cmdp, safest.lam)[2]]


def safest_policy(scaled: Scaled, measure: Array, method: Method, enough: float = np.inf) -> Safest:
    """Return a policy that maximises min_i slack_i/measure_i of the rescaled problem `scaled`.

    `measure` [I] are the units in which the slacks are compared. The search stops early at a policy for which this
    minimum reaches `enough`.
    """
    cmdp = scaled.cmdp
    if cmdp.I == 0 and cmdp.recurring is not None:
        pi = np.eye(cmdp.A)[oracle_of(cmdp).best(np.zeros(1))[0]]
        return Safest(pi, np.zeros(1), pi, np.zeros(0))
    if cmdp.I == 0:
        pairs = cmdp.available if cmdp.allowed is None else cmdp.allowed
        uniform = policy_from_occupancy(np.zeros(cmdp.policy_shape), pairs)
        return Safest(uniform, np.zeros(1), uniform, np.zeros(0))  # nothing to measure

    def solved(by: Method) -> tuple[Array | Mixture, Array]:
        if uses_columns(cmdp, by):
            return _safest_by_columns(scaled, measure, enough)
        return _safest_by_lp(scaled, measure)

    pi, lam = or_by_columns(solved, cmdp, method)
    lam = lam / scaled.g
    d = Mixture.of(pi).occupancy(cmdp)
    return Safest(d, values_from_occupancy(cmdp, d), pi, lam / max(lam.sum(), 1e-300))


def _safest_by_lp(scaled: Scaled, measure: Array) -> tuple[Array, Array]:
    x, lam = linear_program.safest(scaled.unit, measure)
    return policy_from_occupancy(x, scaled.cmdp.available), lam


def _safest_by_columns(scaled: Scaled, measure: Array, enough: float) -> tuple[Array | Mixture, Array]:
    found = scaled.found
    found.b = scaled.unit.b
    mixed = column_generation.slater(found, measure, GAP * scale_of(scaled.cmdp), enough=enough)
    return one_policy(scaled.cmdp, *column_generation.mixture_of(found, mixed)), mixed.lam


def snap(pi: Array) -> Array:
    """Return π [S, A] without those actions whose probabilities are so small that they may be a solver's rounding."""
    kept = np.where(pi >= 1e-6 * pi.max(-1, keepdims=True), pi, 0.0)
    return kept / kept.sum(-1, keepdims=True)


def one_policy(cmdp: CMDP, weights: Array, pi: Array, d: Array) -> Array | Mixture:
    """Return one policy with the same values as a mixture of M policies pi [M, …] with occupancies d [M, …].

    If no stationary policy has these values, return the mixture. For example, a run may either stay in some states for
    ever or leave them: to do both in given shares, it must choose once at the start.
    """
    if cmdp.kind in ("discounted", "horizon") or len(weights) == 1:
        return stationary_policy(weights, pi, d)
    wanted = weights @ values_from_occupancy(cmdp, d)
    if cmdp.kind == "average":  # in states with frequency 0, expected visits give the shares
        nobody = np.tensordot(weights, d, 1).sum(-1)[:, None] <= 0
        d = np.where(nobody, np.stack([Chain.of(cmdp, p).visits()[:, None] * p for p in pi]), d)
    single = stationary_policy(weights, pi, d)
    size = np.abs(cmdp.h).max(axis=(1, 2)) * scale_of(cmdp)
    same = np.all(np.abs(evaluate(cmdp, single).J - wanted) <= SAME * size)
    return single if same else Mixture(weights, pi)


def stationary_policy(weights: Array, pi: Array, d: Array) -> Array:
    """Return one stationary policy with the same occupancy as a mixture of M policies pi [M, …].

    The mixture has the occupancy Σ_m w_m d_m, where w are the weights and d [M, …] the occupancies of its components.
    In states that are never visited, the result acts like the first component.
    """
    total = np.tensordot(weights, d, 1)
    return np.where(total.sum(-1, keepdims=True) > 0, policy_from_occupancy(total), pi[0])


# ---------------------------------------------------------------------------------------------------- which solver


def uses_columns(cmdp: CMDP, method: Method) -> bool:
    if method not in get_args(Method):
        raise InputError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")
    return cmdp.kind != "discounted" or method == "columns" or (method == "auto" and cmdp.S * cmdp.A > LP_PAIRS)


def or_by_columns(solve: Callable[[Method], T], cmdp: CMDP, method: Method) -> T:
    """Return solve(method); if "auto" chose a linear program and the solver fails, return solve("columns").

    Column generation still works near the border of feasibility and with γ near 1, where the linear program fails.
    """
    try:
        return solve(method)
    except SolverError as refused:
        if method != "auto" or uses_columns(cmdp, method):
            raise
        try:
            return solve("columns")
        except SolverError:
            raise refused from None
