"""Prove bounds on the values of one policy, in floating point or, if a limit stays undecided, in exact arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from clearance.certificates.certificate import Verdict, verdict_of
from clearance.core.arrays import Array
from clearance.core.rational_algebra import Matrix
from clearance.exact import rational
from clearance.exact.enclosure import approximate_values, enclose, mix
from clearance.exact.never import decide_by_support
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture


@dataclass(frozen=True, eq=False)
class PolicyBounds:
    """Proven bounds on J of a policy, and the values that prove them.

    verdict       whether the policy meets the limits of the model
    J             the values [1+I] in floating point
    lower, upper  proven bounds of J [1+I]
    parts         J of the M components [M, 1+I]
    V             values [M, 1+I, S] whose residuals prove the bounds; for criteria other than discounted, see `oracles`
    fractions     the exact values of each component in rational arithmetic; None if they were not computed
    """

    verdict: Verdict
    J: Array
    lower: Array
    upper: Array
    parts: Array
    V: Array
    fractions: list[Matrix] | None = None


def bound_policy(cmdp: CMDP, mixture: Mixture, V: Array | None = None) -> PolicyBounds:
    """Return proven bounds of J of a policy, and the verdict on the limits.

    V [M, 1+I, S] are approximate values of the M components, if they are known; the bounds hold for any V.
    """
    pi = mixture.tables(cmdp)
    V = approximate_values(cmdp, pi) if V is None else V
    parts, lower, upper = enclose(cmdp, pi, V)
    lower, upper = mix(mixture.weights, lower, upper)
    parts, lower, upper = decide_by_support(cmdp, mixture, parts, lower, upper)
    verdict = verdict_of(lower[1:], upper[1:], cmdp.b)
    J = np.clip(mixture.weights @ parts, lower, upper)
    found = PolicyBounds(verdict, J, lower, upper, parts, V)
    return (
        _bound_exactly(cmdp, mixture, found) if verdict == "UNDECIDED" and rational.is_small(cmdp, mixture) else found
    )


def meets_limits(cmdp: CMDP, pi: Array | Mixture, V: Array | None = None) -> bool:
    """Return whether it is proven that the policy π [S, A] meets all limits; V [1+I, S] are its approximate values."""
    return bound_policy(cmdp, Mixture.of(pi), None if V is None else V[None]).verdict == "CERTIFIED"


def _bound_exactly(cmdp: CMDP, mixture: Mixture, near: PolicyBounds) -> PolicyBounds:
    """Return bounds from values in rational arithmetic, which decide every limit.

    `near` are the bounds from floating point; they are returned if sums are infinite.
    """
    fractions = [rational.exact_values(cmdp, pi) for pi in mixture.tables(cmdp)]
    if any(values is None for values in fractions):
        return near
    J_parts = [[rational.expect(cmdp.rho, v) for v in rational.at_start(cmdp, values)] for values in fractions]
    J = [rational.expect(mixture.weights, [part[h] for part in J_parts]) for h in range(1 + cmdp.I)]
    ends = np.array([rational.round_outwards(x) for x in J])
    met = [x >= Fraction(float(b)) for x, b in zip(J[1:], cmdp.b, strict=True)]
    J_float, parts = np.array([float(x) for x in J]), np.array([[float(x) for x in part] for part in J_parts])
    return PolicyBounds(
        "CERTIFIED" if all(met) else "VIOLATED", J_float, ends[:, 0], ends[:, 1], parts, near.V, fractions
    )


def lower_bounds(cmdp: CMDP, policy: Array | Mixture) -> Array:
    """Return proven lower bounds of J [1+I] of a policy."""
    return bound_policy(cmdp, Mixture.of(policy)).lower
