"""The diagnosis of infeasible limits: the proof, which limits conflict, and the smallest relaxations that help.

    φ = max_π min_i (J_gi − b_i) < 0,   proven by λ ≥ 0, Σλ = 1 with max_π Σ_i λ_i (J_gi − b_i) < 0 (Farkas)

The limits with λ_i > 0 cannot be met together: the same λ proves it. From these, a deletion filter (Chinneck and
Dravnieks 1991) drops limits as long as the rest is proven infeasible. The remaining set is irreducible: if any one of
its limits is dropped, the others can be met. Relaxing one limit alone helps only if it belongs to every conflict, so
only the limits of the conflict that was found are tried:

    relax all by    t   = −φ
    relax i alone   t_i = b_i − max {J_gi(π) : J_gj(π) ≥ b_j, j ≠ i}

Both amounts are computed from policies with proven bounds on J, so a known policy meets the relaxed limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clearance.certificates.certificate import Certificate
from clearance.certificates.verdict_words import bound_words, join_some
from clearance.core.arrays import Array
from clearance.core.errors import InputError, relaxed_limit
from clearance.core.validation import check_model
from clearance.exact.exact_certificate import certify_exactly
from clearance.exact.feasibility import Scaled, farkas_bound, safest_policy
from clearance.exact.optimum import Optimum, optimum
from clearance.exact.policy_bounds import bound_policy, lower_bounds
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import scale_of
from clearance.finite.mixture import Mixture

# If the limits are relaxed by exactly −φ, the set of feasible policies has no interior, and solvers are unreliable. So
# the limits are lowered a little more: by these amounts, relative to the scale of each J_gi, until the best policy is
# CERTIFIED.
HAIRS = (1e-9, 1e-8, 1e-7)


@dataclass(frozen=True, eq=False, repr=False)
class Infeasibility:
    """The diagnosis of infeasible limits: a proof, a minimal conflicting set, and the smallest relaxations.

    slater      φ = max_π min_i (J_gi − b_i) < 0, attained by `policy`
    lam, bound  the proof: λ [I], Σλ = 1, and max_π Σ_i λ_i (J_gi − b_i) ≤ bound < 0
    policy      the least violating policy [S, A] (see `Optimum.policy`), with values J [1+I]
    conflict    indices of limits that provably cannot be met together; if any one of them is dropped, the others can be
                met
    relax_all   the smallest amount by which all limits must be lowered so that they can be met; at least −bound
    relax_each  [I] the smallest amount by which limit i alone must be lowered; None if that cannot help
    relax_together  [I] amounts by which to lower the limits so that they can be met. The limits are lowered in their
                order, each as little as the limits before it allow
    relaxed, certificate  the best policy under limits relaxed by relax_all, and its certificate
    """

    cmdp: CMDP
    slater: float
    lam: Array
    bound: float
    policy: Any  # an array, or a Mixture where no stationary policy is as good
    J: Array
    conflict: tuple[int, ...]
    relax_all: float
    relax_each: tuple[float | None, ...]

    def __repr__(self) -> str:
        conflict = join_some([self.cmdp.limits_in_words[i] for i in self.conflict])
        together = "cannot be met together" if len(self.conflict) > 1 else "cannot be met"
        return f"<Infeasibility: {together}: {conflict}; {self.advice}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the limits in conflict."""
        return tuple(self.cmdp.names[i] for i in self.conflict)

    @property
    def helps_alone(self) -> tuple[int, ...]:
        """The indices of the limits for which it is enough to relax this one limit."""
        return tuple(i for i, amount in enumerate(self.relax_each) if amount is not None)

    @property
    def advice(self) -> str:
        """A sentence that says what to relax: one limit if that is enough, else several together."""
        alone = [self._relaxed_in_words(i, self.relax_each[i]) for i in self.helps_alone]
        if len(alone) == 1:
            return f"relax this limit: {alone[0]}"
        if alone:
            return f"relax one of these limits: {'; or '.join(alone)}"
        amounts = enumerate(self.relax_together)
        return f"relax these limits together: {join_some([self._relaxed_in_words(i, t) for i, t in amounts if t > 0])}"

    def _relaxed_in_words(self, i: int, amount: float | None) -> str:
        assert amount is not None
        b = relaxed_limit(float(self.cmdp.b[i]), amount)
        return bound_words(self.cmdp.names[i], b, cost=self.cmdp.costs[i])

    @cached_property
    def relax_together(self) -> tuple[float, ...]:
        return _relax_in_order(self.cmdp)

    @cached_property
    def relaxed(self) -> Optimum:
        return self._best_relaxed[0]

    @cached_property
    def certificate(self) -> Certificate:
        """The certificate of the best policy under the relaxed limits."""
        return self._best_relaxed[1]

    @cached_property
    def _best_relaxed(self) -> tuple[Optimum, Certificate]:
        cmdp, scale = self.cmdp, Scaled.of(self.cmdp).g * scale_of(self.cmdp)
        for hair in HAIRS:
            relaxed = cmdp.replace(b=cmdp.b - self.relax_all - hair * scale)
            best = optimum(relaxed)
            certificate = certify_exactly(relaxed, Mixture.of(best.policy), best)
            if certificate.verdict == "CERTIFIED":
                break
        return best, certificate  # pyright: ignore[reportPossiblyUnboundVariable]


def diagnose(cmdp: CMDP) -> Infeasibility:
    """Return why the limits of a model cannot be met; raise InputError if it is not proven that they cannot."""
    check_model(cmdp)
    slater, policy, lam, bound = _proof(cmdp)
    if not bound < 0:
        raise InputError("the limits can be met, or it is not proven that they cannot: there is nothing to diagnose")
    seen = bound_policy(cmdp, Mixture.of(policy))
    conflict = _irreducible(cmdp, lam)
    each = tuple(_alone(cmdp, i) if i in conflict else None for i in range(cmdp.I))
    return Infeasibility(cmdp, slater, lam, bound, policy, seen.J, conflict, _enough(cmdp.b, seen.lower[1:]), each)


def select_signals(cmdp: CMDP, signals: Sequence[int], b: Array) -> CMDP:
    """Return the same model with only the signals h[i] for i in `signals`.

    The first of them becomes the reward; the others become constraints with the lower limits b.
    """
    names = ("reward", *cmdp.names)
    return cmdp.replace(h=cmdp.h[list(signals)], b=b, names=[names[i] for i in signals[1:]])


def maximise_constraint(cmdp: CMDP, i: int) -> CMDP:
    """Return the model whose reward is the utility g_i of constraint i; the other constraints keep their limits."""
    others = [j for j in range(cmdp.I) if j != i]
    return select_signals(cmdp, [1 + i, *(1 + j for j in others)], cmdp.b[others])


def _proof(cmdp: CMDP) -> tuple[float, Array | Mixture, Array, float]:
    """Return (slater, policy, lam, bound) for limits that no policy meets.

    `slater` is the Slater margin φ, which `policy` attains. `bound` is an upper bound of max_π Σ_i λ_i (J_gi − b_i) for
    λ = `lam` [I]. A negative bound proves that no policy meets the limits.
    """
    if cmdp.I == 0:
        return np.inf, np.zeros((cmdp.S, cmdp.A)), np.zeros(0), np.inf
    scaled = Scaled.of(cmdp)
    _, J, policy, lam = safest_policy(scaled, scaled.margin_unit, "auto")
    slater = float(np.min(J[1:] - cmdp.b))
    bound = farkas_bound(cmdp, lam)
    if bound >= 0 or -bound < -0.9999 * slater:  # the scales differ so much that rounding hides a common margin
        across = _proof_across_scales(cmdp)
        return across if across[-1] <= bound else (slater, policy, lam, bound)
    return slater, policy, lam, bound


def _proof_across_scales(cmdp: CMDP) -> tuple[float, Array | Mixture, Array, float]:
    """Return the same as `_proof`, if the scales of the constraints differ so much that solvers do not see the margin.

    Newton's method finds the smallest t for which the limits b_i − t can be met. Every λ with Σλ = 1 gives a lower
    bound on t: −max_π Σ_i λ_i (J_gi − b_i). The limits are relaxed by this bound. The λ of the relaxed problem gives a
    larger bound, and so on until the bound no longer grows.
    """
    best_lam, bound, t = np.zeros(cmdp.I), np.inf, 0.0
    policy: Array | Mixture = np.zeros((cmdp.S, cmdp.A))
    for _ in range(50):
        relaxed = cmdp.replace(b=cmdp.b - t)
        _, _, policy, lam = safest_policy(Scaled.of(relaxed), np.ones(cmdp.I), "auto")
        value = farkas_bound(cmdp, lam)
        if value < bound:
            best_lam, bound = lam, value
        if not -value > t * (1 + 1e-9):
            break
        t = -value
    J = bound_policy(cmdp, Mixture.of(policy)).J
    return float(np.min(J[1:] - cmdp.b)), policy, best_lam, bound


def _irreducible(cmdp: CMDP, lam: Array) -> tuple[int, ...]:
    """Return the indices of limits that cannot be met together; without any one of them, the others can be met.

    `lam` [I] proves that all limits together are infeasible.
    """
    keep, needed = _support(cmdp, list(range(cmdp.I)), lam), []
    while left := [i for i in keep if i not in needed]:
        # The limit with the smallest share of the proof first: it is the likeliest to be superfluous.
        i = min(left, key=lambda i: lam[i])
        rest = [j for j in keep if j != i]
        proof = _clash(cmdp, rest)
        if proof is None:
            needed.append(i)  # it stays needed: if other limits are dropped too, the rest is even easier to meet
        else:
            lam = np.zeros(cmdp.I)
            lam[rest] = proof
            keep = _support(cmdp, rest, lam)
    return tuple(sorted(keep))


def _support(cmdp: CMDP, keep: list[int], lam: Array) -> list[int]:
    """Return the limits in `keep` whose multiplier in `lam` [I] is not negligible.

    If these limits alone cannot be proven infeasible with the same multipliers, return all of `keep`.
    """
    share = lam * Scaled.of(cmdp).g
    few = [i for i in keep if share[i] > 1e-9 * share.max()]
    return few if len(few) == len(keep) or farkas_bound(_only(cmdp, few), lam[few]) < 0 else keep


def _clash(cmdp: CMDP, keep: list[int]) -> Array | None:
    """Return multipliers λ that prove that the limits in `keep` alone cannot be met; None if no proof is found."""
    if not keep:
        return None
    part = _only(cmdp, keep)
    _, _, _, lam = safest_policy(Scaled.of(part), np.ones(part.I), "auto", enough=1e-4 * scale_of(cmdp))
    return lam if farkas_bound(part, lam) < 0 else None


def _only(cmdp: CMDP, keep: list[int]) -> CMDP:
    return select_signals(cmdp, [0, *(1 + i for i in keep)], cmdp.b[keep])


def _alone(cmdp: CMDP, i: int) -> float | None:
    """Return the smallest amount by which b_i must be lowered if no other limit changes.

    Return None if the other limits cannot be met even without limit i.
    """
    best = optimum(maximise_constraint(cmdp, i))
    if best.status == "infeasible":
        return None
    return _enough(cmdp.b[[i]], lower_bounds(cmdp, best.policy)[[1 + i]])


def _relax_in_order(cmdp: CMDP) -> tuple[float, ...]:
    """Return amounts [I] by which to lower the limits so that they can be met.

    The limits are lowered in their order, each as little as the limits before it allow. A tiny amount is added, since
    solvers may fail at limits that leave no room at all. The last policy found proves that the lowered limits can be
    met.
    """
    b, hair = cmdp.b.copy(), HAIRS[1] * Scaled.of(cmdp).g * scale_of(cmdp)
    lower = b
    for i in range(cmdp.I):
        best = optimum(select_signals(cmdp, [1 + i, *range(1, 1 + i)], b[:i]))
        lower = lower_bounds(cmdp, best.policy)[1:]
        b[i] = min(b[i], lower[i] - hair[i])
    met = np.minimum(b, lower)
    return tuple(_enough(cmdp.b[[i]], met[[i]]) if met[i] < cmdp.b[i] else 0.0 for i in range(cmdp.I))


def _enough(b: Array, lower: Array) -> float:
    """Return the smallest t such that b − t ≤ lower holds for all entries in floating-point arithmetic."""
    t = float(np.max(b - lower))
    while np.any(b - t > lower):
        t += float(np.spacing(max(np.abs(b).max(), np.abs(lower).max(), abs(t))))
    return t
