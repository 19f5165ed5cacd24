"""Exact certificates for policies of finite models: proven bounds on the values, for the model as stored."""

from __future__ import annotations

import numpy as np

from clearance.certificates.certificate import Certificate, Verdict, build_certificate
from clearance.certificates.verdict_words import policy_words, scope_words
from clearance.core.arrays import Array
from clearance.core.errors import SolverError
from clearance.core.tail_limits import name_of_tail
from clearance.exact.never import never_words, zero_limits
from clearance.exact.optimum import Optimum, optimum
from clearance.exact.policy_bounds import PolicyBounds, bound_policy
from clearance.exact.proof import proof_of
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.finite.start_words import start_words


def certify_exactly(cmdp: CMDP, mixture: Mixture, best: Optimum | None = None, *, compare: bool = True) -> Certificate:
    """Return the exact certificate of a policy, with its gap to the optimum.

    best     the optimum, if it is known already
    compare  whether to compute the optimum if `best` is not given; without an optimum no gap is stated
    """
    seen = bound_policy(cmdp, mixture)
    verdict, bounds = seen.verdict, (seen.lower, seen.upper)
    best = _optimum_if_found(cmdp) if best is None and compare else best
    known = best if best is not None and best.status != "infeasible" else None
    return build_certificate(
        verdict,
        seen.J,
        bounds,
        cmdp.b,
        evidence="exact",
        parts=list(seen.parts),
        components=mixture.M,
        message=_message(cmdp, verdict, *bounds, best),
        scope=scope_of(cmdp, mixture, "this model as stored"),
        lam=None if known is None else known.lam,
        bound=None if known is None else _bound(known, seen),
        names=list(cmdp.names),
        costs=list(cmdp.costs),
        proof=proof_of(seen, best),
    )


def _bound(best: Optimum, seen: PolicyBounds) -> float:
    """Return an upper bound on the reward of every policy that meets the limits.

    This is `best.bound`. If the policy with the bounds `seen` is CERTIFIED, the upper bound of its own reward may be
    larger because of rounding; then this larger number is returned.
    """
    return max(best.bound, float(seen.upper[0])) if seen.verdict == "CERTIFIED" else best.bound


def scope_of(cmdp: CMDP, mixture: Mixture | None, what: str) -> str:
    """Return a sentence that says which model (`what`), criterion and kind of policy a certificate holds for.

    If `mixture` is None, the policy is a rule: a Python function of the user.
    """
    how = "a rule, called as given" if mixture is None else policy_words(mixture.M, _one(mixture))
    found = [tail[0] for name in cmdp.names if cmdp.kind != "average" and (tail := name_of_tail(name))]
    tails = [f"{label} is about the sum of the model's step costs c(s, a) in one episode" for label in found]
    return scope_words(f"{what}, started in {start_words(cmdp)}", cmdp.full_criterion, how, tails, limited=cmdp.I > 0)


def _one(mixture: Mixture) -> str:
    return "one policy that depends on the step" if mixture.pi.ndim == 4 else "one stationary policy"


def _optimum_if_found(cmdp: CMDP) -> Optimum | None:
    """Return the optimum, or None if the solver fails.

    A certificate needs the optimum only for the gap, not for the verdict.
    """
    try:
        return optimum(cmdp)
    except SolverError:
        return None


def _message(cmdp: CMDP, verdict: Verdict, lower: Array, upper: Array, best: Optimum | None) -> str:
    if cmdp.I == 0:
        return "there are no limits, so none is broken"
    if verdict == "CERTIFIED":
        names = [cmdp.names[i] for i in zero_limits(cmdp) if cmdp.kind != "average"]
        never = ", ".join(tail[2] if (tail := name_of_tail(name)) else name for name in names)
        return "every limit is met, proven for the numbers as stored" + (f"; no run can have {never}" if never else "")
    impossible = best is not None and best.status == "infeasible"
    if verdict == "VIOLATED":
        broken = [f"{cmdp.names[i]} by {cmdp.b[i] - upper[1 + i]:.3g}" for i in np.flatnonzero(upper[1:] < cmdp.b)]
        return f"limits broken: {', '.join(broken)}" + (f"; {_impossible_words(cmdp)}" if impossible else "")
    if impossible:
        return _impossible_words(cmdp)
    i = int(np.argmin(lower[1:] - cmdp.b))
    width = upper[1 + i] - lower[1 + i]
    return f"{cmdp.names[i]} lies within {width:.1e} of its limit: tighten b a little and solve again"


def _impossible_words(cmdp: CMDP) -> str:
    """Return a clause for limits that provably no policy meets."""
    never = never_words(cmdp)
    return f"no policy meets the limits: {never or 'see clearance check'}"
