"""Certificates: the policy is measured again, from nothing but the problem and the policy; never read from a trace.

For a finite model the values are enclosed in real arithmetic for the stored numbers (`enclosure`): CERTIFIED means
proven.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from clearance.enclosure import enclose, mix
from clearance.errors import SolverError, infeasible_message
from clearance.mixture import Mixture
from clearance.oracle import Optimum, optimum
from clearance.problem import CMDP, Array

Verdict = Literal["CERTIFIED", "VIOLATED", "UNDECIDED"]


@dataclass(frozen=True)
class Certificate:
    """What is proven of one policy of one problem.

    verdict          CERTIFIED: J_gi ≥ b_i is proven for all i. VIOLATED: J_gi < b_i is proven for some i.
                     UNDECIDED: a limit lies inside the enclosure
    J_r, J_g, slack  values, and J_g − b
    J_lower, J_upper the enclosure [1+I]
    bound, gap       proven upper bound on the reward of every feasible policy, and bound − J_r; None if infeasible
    lam, complementarity  λ* of the problem and λ*_i · slack_i
    worst_slack      the smallest slack of any single component of a mixture: one episode follows one component
    """

    verdict: Verdict
    J_r: float
    J_g: list[float]
    b: list[float]
    slack: list[float]
    J_lower: list[float]
    J_upper: list[float]
    bound: float | None
    gap: float | None
    lam: list[float] | None
    complementarity: list[float] | None
    worst_slack: float | None
    components: int
    evidence: Literal["exact"]
    message: str

    @property
    def J_r_lower(self) -> float:
        return self.J_lower[0]

    @property
    def J_g_lower(self) -> list[float]:
        return self.J_lower[1:]

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"J_r_lower": self.J_r_lower, "J_g_lower": self.J_g_lower}


def certify(cmdp: CMDP, policy: Mixture | ArrayLike, *, best: Optimum | None = None) -> Certificate:
    """Does this policy meet every limit of this finite model? Proven, with its distance from the optimum.

    policy  a table [S, A] or a `Mixture`;  best  the problem's `optimum`, if it is at hand already.
    """
    mixture = policy if isinstance(policy, Mixture) else Mixture.single(policy)
    mixture.check(cmdp)
    J, lower, upper = enclose(cmdp, mixture.pi)
    J_lower, J_upper = mix(mixture.weights, lower, upper)
    J_mean = mixture.weights @ J
    verdict = _verdict(J_lower[1:], J_upper[1:], cmdp.b)
    best = _best(cmdp) if best is None else best
    known = best if best is not None and best.status == "optimal" else None
    slack = J_mean[1:] - cmdp.b
    return Certificate(
        verdict=verdict,
        J_r=float(J_mean[0]),
        J_g=J_mean[1:].tolist(),
        b=cmdp.b.tolist(),
        slack=slack.tolist(),
        J_lower=J_lower.tolist(),
        J_upper=J_upper.tolist(),
        bound=None if known is None else known.bound,
        gap=None if known is None else known.bound - float(J_mean[0]),
        lam=None if known is None else known.lam.tolist(),
        complementarity=None if known is None else (known.lam * slack).tolist(),
        worst_slack=float(np.min(J[:, 1:] - cmdp.b)) if cmdp.I else None,
        components=mixture.M,
        evidence="exact",
        message=_message(cmdp, verdict, J_lower, J_upper, best),
    )


def _best(cmdp: CMDP) -> Optimum | None:
    """The optimum to compare with; the verdict does not need it, so a solver that gives up costs only the gap."""
    try:
        return optimum(cmdp)
    except SolverError:
        return None


def _verdict(lower: Array, upper: Array, b: Array) -> Verdict:
    if np.all(lower >= b):
        return "CERTIFIED"
    return "VIOLATED" if np.any(upper < b) else "UNDECIDED"


def _message(cmdp: CMDP, verdict: Verdict, lower: Array, upper: Array, best: Optimum | None) -> str:
    if verdict == "CERTIFIED":
        return "every limit is met, proven for the numbers as stored"
    if best is not None and best.status == "infeasible":
        return infeasible_message(best.slater)
    if verdict == "VIOLATED":
        broken = [f"{cmdp.names[i]} by {cmdp.b[i] - upper[1 + i]:.3g}" for i in np.flatnonzero(upper[1:] < cmdp.b)]
        return "limits broken: " + ", ".join(broken)
    i = int(np.argmin(lower[1:] - cmdp.b))
    width = upper[1 + i] - lower[1 + i]
    return f"{cmdp.names[i]} lies within {width:.1e} of its limit: tighten b a little and solve again"
