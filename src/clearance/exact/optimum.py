"""The exact optimum of a finite model and its multipliers.

Small models are solved by one linear program (`linear_program`), large ones by column generation. No solver is trusted.
A policy is called optimal only if it provably meets the limits. J is computed from the policy, and `bound` is the dual
function at λ*:

    D(λ) = max_π J_r(π) + Σ_i λ_i (J_gi(π) − b_i)  ≥  J_r(π')   for every feasible π' and every λ ≥ 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.verdict_words import LIMIT_HEADS, join_some, limit_cells, limit_words
from clearance.core.arrays import Array
from clearance.core.errors import SolverError
from clearance.core.html_card import html_card
from clearance.core.validation import check_model
from clearance.exact import column_generation, linear_program
from clearance.exact.enclosure import dual_function
from clearance.exact.feasibility import (
    GAP,
    FarkasProof,
    Method,
    Safest,
    Scaled,
    find_safest,
    margin_of,
    one_policy,
    or_by_columns,
    prove_infeasible,
    prove_never,
    safest_candidates,
    snap,
    uses_columns,
)
from clearance.exact.multiplier_range import enclose_multipliers
from clearance.exact.never import Never, never_of
from clearance.exact.policy_bounds import PolicyBounds, bound_policy
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import evaluate, policy_from_occupancy
from clearance.finite.long_run import scale_of
from clearance.finite.mixture import Mixture
from clearance.finite.policy_words import NEVER, describe_table

# The policy of an LP vertex lies exactly on a limit, so rounding may put it 1e-15 below. Therefore the solvers get
# limits that are tightened by this amount, relative to the scale of J_g. If the policy does not provably meet the true
# limits, ten times the amount is tried, and so on. The loss of reward is λ* times the amount.
TIGHTEN = 1e-10
LOWERED = tuple(10.0**k * TIGHTEN for k in (1, 3, 5))  # limits that leave no room are lowered by these amounts in turn
# Slacks that differ by less, relative to the scale of J_g, are alike.
ALIKE = 1e-13
# The proven gap, relative to the scale of J_r, beyond which a policy is not called optimal.
WIDE = 1e-3
PRICES = tuple(10.0**k for k in range(0, 13, 2))  # multipliers of costs that must never be paid, relative to r
ONCE = (
    "the optimum is a choice made once, at the start: runs end up in parts of the model that they do not leave, and no "
    "stationary policy has these shares of them"
)


@dataclass(frozen=True, eq=False, repr=False)
class Optimum:
    """The best policy that meets the limits, with its values, multipliers and a proven bound.

    status   "optimal": `policy` provably meets the limits, and no policy that meets them earns more than `bound`.
             "infeasible": `lam` proves that no policy meets the limits. "borderline": the limits leave no room beyond
             rounding. No policy was found that provably meets them and is near the optimum, but it is not proven that
             there is none
    J        [1+I] of `policy`
    lam      λ* [I], the price of each limit. If the limits are infeasible, these are the weights λ ≥ 0 of the proof:
             Σλ = 1, and max_π Σ_i λ_i (J_gi − b_i) is proven to be negative
    lam_range  [2, I]: the lower and the upper end of an interval that contains every optimal λ_i. Only column
             generation (large models) computes it, for the status "optimal"; otherwise it is None
    policy   π [S, A], stationary, or [H, S, A] with a horizon. If the status is "infeasible" or "borderline", it is
             the policy that violates the limits least. Under the average criterion it is a `Mixture`, drawn once, if
             no stationary policy is as good: see `note`
    mixture  at most I + 1 deterministic policies with the same values (column generation), or `policy` alone (LP)
    d        the occupancy [S, A] of `policy`
    bound    D(λ*), a proven upper bound on the reward of every feasible policy; −inf if infeasible
    attained_margin  a margin min_i (J_gi − b_i) that a known policy attains; inf without constraints. In small models
             it is the Slater margin, the largest margin of any policy. In large models it is the Slater margin only if
             it is negative; otherwise call `slater_margin`
    names, costs  the names of the constraints [I], and which of them are costs; for a cost, J_g and b have a minus sign
    states, actions  their names [S], [A], if the model has them
    model    the finite model that this is the optimum of
    V        [S], values whose Bellman residual proves the bound; their signal is r + λ*·g, or λ·g if infeasible
    """

    status: Literal["optimal", "borderline", "infeasible"]
    J: Array
    lam: Array
    policy: Any  # an array in all cases but one: see above
    mixture: Mixture
    d: Array
    bound: float
    attained_margin: float
    b: Array
    V: Array
    names: tuple[str, ...]
    costs: tuple[bool, ...]
    lam_range: Array | None = None
    states: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    model: CMDP | None = None

    def __repr__(self) -> str:
        bound = f", bound = {self.bound:.6g}" if self.status == "optimal" else ""
        S, A = self.mixture.pi.shape[-2:]
        limits = join_some(self.limits_in_words) or "no limits"
        policy = "".join(f"\n{line}" for line in self._policy_in_words())
        return f"<Optimum: {self.status}, J_r = {self.J_r:.6g}{bound}; {limits}; {S:,} states, {A:,} actions>{policy}"

    def _repr_html_(self) -> str:
        title = f"Optimum: {self.status}, J_r = {self.J_r:.6g}"
        most = f"No policy that meets the limits earns more than {self.bound:.10g}."
        sentences = [*([most] if self.status == "optimal" else []), *self._policy_in_words()]
        said = {"names": self.names, "costs": self.costs, "b": self.b, "J_g": self.J[1:], "slack": self.slack}
        return html_card(title, sentences, LIMIT_HEADS, limit_cells(said | {"lam": self.lam}))

    def _policy_in_words(self) -> list[str]:
        """Return sentences that describe a stationary policy by name; [] if the model has no names."""
        if isinstance(self.policy, Mixture) or self.policy.ndim != 2 or (self.states is None and self.actions is None):
            return []
        return describe_table(self.policy, self.d.sum(-1) > NEVER, self.states, self.actions)

    @property
    def limits_in_words(self) -> list[str]:
        """Each limit as the user wrote it, with the value of the policy."""
        rows = zip(self.names, self.J[1:].tolist(), self.b.tolist(), self.costs, strict=True)
        return [limit_words(name, J_g, b, cost=cost) for name, J_g, b, cost in rows]

    @property
    def note(self) -> str:
        """The reason why the answer is a mixture; empty if it is a single policy."""
        return ONCE if isinstance(self.policy, Mixture) else ""

    @property
    def J_r(self) -> float:
        return float(self.J[0])

    @property
    def slack(self) -> Array:
        """The slacks J_g − b [I]."""
        return self.J[1:] - self.b

    @property
    def gap(self) -> float:
        """The gap bound − J_r ≥ 0, a bound on the distance from the optimum; inf unless `status` is "optimal"."""
        return self.bound - self.J_r if self.status == "optimal" else np.inf

    @property
    def complementarity(self) -> Array:
        """The products λ*_i (J_gi − b_i) [I].

        At an exact optimum they are 0. Here they may be slightly positive, since limits are tightened a little for the
        proof.
        """
        return self.lam * self.slack


class Found(NamedTuple):
    """A candidate for the optimum.

    policy   the policy, as in `Optimum.policy`
    mixture  the same policy in the form of a mixture
    seen     the proven bounds on the policy's values
    lam      the multipliers λ [I] of the limits
    V        values [S] of the signal r + λ·g, if they are known
    act      the greedy actions [S] for this signal
    """

    policy: Any  # an array in all cases but one: see above
    mixture: Mixture
    seen: PolicyBounds
    lam: Array
    V: Array | None
    act: NDArray[np.int64]


def optimum(cmdp: CMDP, *, method: Method = "auto") -> Optimum:
    """Return the best policy among those that meet the limits, with multipliers and a proven bound."""
    check_model(cmdp)
    found = or_by_columns(lambda by: _optimum(cmdp, by), cmdp, method)
    return replace(found, states=cmdp.states, actions=cmdp.actions, model=cmdp)


def _optimum(cmdp: CMDP, method: Method) -> Optimum:
    never = never_of(cmdp)
    if never is not None and not never.impossible:
        return _with_never(cmdp, never, _optimum(never.rest, method))
    scaled = Scaled.of(cmdp)
    safest = find_safest(scaled, method, enough=1e-4 * scale_of(cmdp))
    if never is not None:
        return _infeasible(cmdp, safest, prove_never(cmdp, never, safest, method))
    proof = prove_infeasible(cmdp, safest.lam, method) if margin_of(cmdp, safest.J) < 0 else None
    if proof is None:
        best = _best_certified(scaled, safest, method)
        certified = best.seen.verdict == "CERTIFIED"
        proof = None if certified else prove_infeasible(cmdp, safest.lam, method)
        if proof is None:
            return _measured(scaled, safest, best)
    return _infeasible(cmdp, safest, proof)


def _with_never(cmdp: CMDP, never: Never, rest: Optimum) -> Optimum:
    """Return the optimum of the whole model, given the optimum `rest` of the model in which some costs are never paid.

    The bound of `rest` relies on which transitions are possible. To avoid this argument, some finite multipliers of the
    limits on these costs are tried. If one of them proves the same bound, the proof consists of multipliers alone.
    """
    mixture = Mixture.of(rest.policy)
    seen = bound_policy(cmdp, mixture)
    J = seen.J
    about = {"J": J, "b": cmdp.b, "names": cmdp.names, "costs": cmdp.costs, "d": mixture.occupancy(cmdp)}
    about |= {"attained_margin": margin_of(cmdp, J), "lam": never.expand(rest.lam), "lam_range": None}
    if rest.status == "infeasible":
        return replace(rest, **about)
    size = np.abs(cmdp.r).max() * scale_of(cmdp)
    for price in PRICES:
        lam = about["lam"].copy()
        lam[never.limits] = price * (np.abs(cmdp.r).max() or 1.0) / np.abs(cmdp.g[never.limits]).max(axis=(1, 2))
        bound, V, _ = dual_function(cmdp, lam)
        if bound <= rest.bound + 1e-9 * (size + abs(rest.bound)):
            return replace(rest, **about | {"lam": lam, "bound": max(bound, float(seen.upper[0])), "V": V})
    return replace(rest, **about | {"bound": max(rest.bound, float(seen.upper[0]))})


def _measured(scaled: Scaled, safest: Safest, found: Found) -> Optimum:
    cmdp, seen = scaled.cmdp, found.seen
    bound, V, _ = dual_function(cmdp, found.lam, found.V, found.act)
    if seen.verdict == "CERTIFIED":  # the bound must also cover this policy, with its rounding
        bound = max(bound, float(seen.upper[0]))
    near = bound - seen.J[0] <= WIDE * scaled.r * scale_of(cmdp)
    status = "optimal" if seen.verdict == "CERTIFIED" and near else "borderline"
    d, slater = Mixture.of(found.policy).occupancy(cmdp), margin_of(cmdp, safest.J)
    best = Optimum(
        status, seen.J, found.lam, found.policy, found.mixture, d, bound, slater, cmdp.b, V, cmdp.names, cmdp.costs
    )
    return replace(best, lam_range=_accuracy(scaled, bound)) if status == "optimal" else best


def _accuracy(scaled: Scaled, bound: float) -> Array | None:
    """Return [2, I]: the lower and the upper ends of intervals that contain every optimal multiplier λ_i.

    Return None if column generation was not used, or if there are no limits.
    They follow from the columns (policies) of `scaled`, the rescaled problem, and from `bound`, an upper bound on the
    optimum.
    """
    if "found" not in scaled.__dict__ or not scaled.cmdp.I:
        return None
    error = 0.01 * GAP * scale_of(scaled.cmdp)  # of the values of columns
    return enclose_multipliers(np.array(scaled.found.J), scaled.unit.b, bound / scaled.r, error) * scaled.r / scaled.g


def _infeasible(cmdp: CMDP, safest: Safest, proof: FarkasProof) -> Optimum:
    slater, mixture = margin_of(cmdp, safest.J), Mixture.of(safest.policy)
    return Optimum(
        "infeasible",
        safest.J,
        proof.lam,
        safest.policy,
        mixture,
        safest.d,
        -np.inf,
        slater,
        cmdp.b,
        proof.V,
        cmdp.names,
        cmdp.costs,
    )


def _best_certified(scaled: Scaled, safest: Safest, method: Method) -> Found:
    """Tighten the limits more and more, and return the first solution that provably meets the limits.

    `scaled` is the rescaled problem, and `safest` its safest policy. If there is no such candidate, compare the
    candidates of `_on_the_border`: return the one with the largest reward among those that provably meet the limits or,
    if none does, among those that come closest to meeting them.
    """
    for tighten in _tightenings(scaled, safest.J):
        found = _richest(scaled, tighten, method)
        if found.seen.verdict == "CERTIFIED":
            return found
    candidates = list(_on_the_border(scaled, safest, method))
    met = [found for found in candidates if found.seen.verdict == "CERTIFIED"]
    closest = max(scaled.own_margin(found.seen.J) for found in candidates) - ALIKE * scale_of(scaled.cmdp)
    alike = [found for found in candidates if scaled.own_margin(found.seen.J) >= closest]
    return max(met or alike, key=lambda found: found.seen.J[0])


def _on_the_border(scaled: Scaled, safest: Safest, method: Method) -> Iterator[Found]:
    """Yield candidates for limits that leave no room for any policy beyond rounding.

    `scaled` is the rescaled problem, and `safest` its safest policy. The candidates come from slightly lowered limits,
    so that rounding does not stop a solver. The best policy for lowered limits takes, with tiny probabilities, actions
    that break the true limits; without these actions it may meet them exactly.
    """
    cmdp = scaled.cmdp
    relaxed = _richest_of_lowered(scaled, method)
    yield relaxed
    snapped = () if isinstance(relaxed.policy, Mixture) else (snap(relaxed.policy),)
    for pi in (*snapped, *safest_candidates(cmdp, safest)) if cmdp.I else ():
        mixture = Mixture.of(pi)
        yield relaxed._replace(policy=pi, mixture=mixture, seen=bound_policy(cmdp, mixture))


def _richest_of_lowered(scaled: Scaled, method: Method) -> Found:
    """Return the candidate with the largest reward for slightly lowered limits.

    If the solver fails, the limits are lowered more and the problem is solved again.
    """
    for lower in LOWERED if scaled.cmdp.I else ():
        with suppress(SolverError):
            return _richest(scaled, -lower * scale_of(scaled.cmdp), method)
    return _richest(scaled, -LOWERED[-1] * scale_of(scaled.cmdp) if scaled.cmdp.I else 0.0, method)


def _tightenings(scaled: Scaled, J: Array) -> list[float]:
    """Return amounts to add to b of the rescaled problem; they are tried in turn until a policy is provably feasible.

    J [1+I] are the values of the safest policy. The list is empty if that policy has no slack.
    """
    full = scale_of(scaled.cmdp)
    room = scaled.own_margin(J) / 2
    if room <= 1e-14 * full or not scaled.cmdp.I:
        return []
    return [min(TIGHTEN * full * 10.0**i, room) for i in range(6)]


def _richest(scaled: Scaled, tighten: float, method: Method) -> Found:
    """Return the candidate with the largest reward for limits that are tightened by `tighten`.

    The tightened limits are those of the rescaled problem: `scaled.unit.b` + `tighten`.
    """
    cmdp, unit = scaled.cmdp, scaled.unit
    b = unit.b + tighten
    if uses_columns(cmdp, method):
        found = scaled.found
        found.b = b  # the columns of phase one, and of smaller tightenings, are used again
        mixed = column_generation.best_mixture(found, GAP, scale_of(cmdp))
        weights, pi_m, d_m = column_generation.mixture_of(found, mixed)
        pi, mixture, lam = one_policy(cmdp, weights, pi_m, d_m), Mixture(weights, pi_m), mixed.lam
        V, act = None if found.V is None else found.V * scaled.r, found.act[-1]
    else:
        x, lam = linear_program.richest(unit, b)
        _, V, act = dual_function(unit, lam)
        pi = _policy_of(x, act)
        V, mixture = V * scaled.r, Mixture.single(pi)
    values = None if cmdp.kind != "discounted" or isinstance(pi, Mixture) else evaluate(cmdp, pi).V[None]
    seen = bound_policy(cmdp, Mixture.of(pi), values)
    return Found(pi, mixture, seen, lam * scaled.r / scaled.g, V, act)


def _policy_of(x: Array, greedy: NDArray[np.int64]) -> Array:
    """Return the policy π [S, A] that has the visits x [S, A].

    In states that are never visited it takes the action greedy[s].
    """
    x = np.where(x > 1e-12 * x.max(), x, 0.0)
    return np.where(x.sum(1, keepdims=True) > 0, policy_from_occupancy(x), np.eye(x.shape[1])[greedy])
