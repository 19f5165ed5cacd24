"""The certificate: what is proven, or statistically confident, about one policy of one problem."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from clearance.certificates.verdict_words import LIMIT_HEADS, describe_certificate, limit_cells
from clearance.core.arrays import Array
from clearance.core.html_card import html_card
from clearance.core.text import visible

Verdict = Literal["CERTIFIED", "VIOLATED", "UNDECIDED"]
EvidenceKind = Literal["exact", "samples"]


@dataclass(frozen=True, repr=False)
class Certificate:
    """The verdict on a policy, with its values, bounds and scope; `str` gives it in words.

    verdict          CERTIFIED: J_gi ≥ b_i for all i. VIOLATED: J_gi < b_i for some i. UNDECIDED: neither is shown
    J_r, J_g, slack  values, and J_g − b
    J_lower, J_upper lower and upper bounds of J [1+I]: proven if the evidence is exact; from samples, confidence bounds
                     that each hold at level δ
    bound, gap       proven upper bound on the reward of every feasible policy, and bound − J_r of a policy that is
                     CERTIFIED; None if not known
    lam, complementarity  the price λ_i of each limit, and λ_i · slack_i: at the margin, tightening limit i by one
                     unit costs at least λ_i reward; loosening it gains at most λ_i
    worst_component_slack  the smallest slack of any single component of a mixture: one episode follows one component,
                     which may violate a limit on its own
    components       the number of components of the mixture; 1 for a single policy
    scope            the problem, criterion and policy that the verdict holds for
    delta            δ, the error probability (samples); the test took `episodes` episodes and `env_steps` steps
    interval         bounds (low, high) of J [1+I] that hold together at level δ (samples)
    level, spent     shares of δ: the level of the test that gave this verdict, and the sum of the levels of all tests
                     so far that share δ with it, in its folder or in its run (samples)
    greedy_verdict   the verdict on the greedy policy, which always takes the most likely action; None if it was not
                     tested, for example because the policy takes other actions in at most 10⁻⁶ of its steps
    names, costs     the names of the constraints [I], and which of them are costs; for a cost, J_g and b are negated
    origin           the policy from which learning started, if it was given (`init` of `solve`)
    neighbours       estimated values J [1+I] of other policies, for comparison: the policy before learning, one that
                     does nothing, and the safest one (simulators)
    nu               the threshold ν of each CVaR limit [I], fixed before the test; None for other limits. The mean
                     excess over ν bounds the CVaR (samples)
    proof            the data for an independent checker, tools/check_certificate.py (exact evidence)
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
    worst_component_slack: float | None
    components: int
    evidence: EvidenceKind
    message: str
    scope: str
    delta: float | None = None
    interval: tuple[list[float], list[float]] | None = None
    episodes: int = 0
    env_steps: int = 0
    greedy_verdict: Verdict | None = None
    names: list[str] | None = None
    costs: list[bool] | None = None
    level: float | None = None
    spent: float | None = None
    origin: str | None = None
    neighbours: dict[str, list[float]] | None = None
    nu: list[float | None] | None = None
    proof: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def J_r_lower(self) -> float:
        return self.J_lower[0]

    @property
    def J_g_lower(self) -> list[float]:
        return self.J_lower[1:]

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def __repr__(self) -> str:
        return f"<Certificate: J_r = {self.J_r:.6g}. {' '.join(self.sentences)}>"

    def _repr_html_(self) -> str:
        I = len(self.b)
        said = asdict(self) | {"names": self.names or [f"g{i}" for i in range(I)], "costs": self.costs or [False] * I}
        sentences = [x for x in self.sentences if not x.startswith("Limits: ")]  # the table has them
        return html_card(f"Certificate: J_r = {self.J_r:.6g}", sentences, LIMIT_HEADS, limit_cells(said))

    @property
    def sentences(self) -> list[str]:
        """The certificate in sentences that are safe to print: verdict, limits, scope, and what is not covered."""
        return [visible(sentence) for sentence in describe_certificate(asdict(self))]

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"J_r_lower": self.J_r_lower, "J_g_lower": self.J_g_lower}


def build_certificate(
    verdict: Verdict,
    J: Array,
    bounds: tuple[Array, Array],
    b: Array,
    *,
    evidence: EvidenceKind,
    parts: list[Array],
    components: int,
    message: str,
    scope: str,
    lam: Array | None = None,
    bound: float | None = None,
    **more: Any,
) -> Certificate:
    """Return the certificate of a policy with values J [1+I] between `bounds`; all certificates are made here.

    parts       the values [1+I] of each component of a mixture
    components  the number of components
    lam, bound  the prices of the limits, and an upper bound on the optimum, if known
    more        further fields of the certificate. The docstring of `Certificate` explains these and the other arguments
    """
    slack = J[1:] - b
    return Certificate(
        verdict=verdict,
        J_r=float(J[0]),
        J_g=J[1:].tolist(),
        b=b.tolist(),
        slack=slack.tolist(),
        J_lower=bounds[0].tolist(),
        J_upper=bounds[1].tolist(),
        bound=bound,
        gap=None if bound is None or verdict != "CERTIFIED" else bound - float(J[0]),
        lam=None if lam is None else lam.tolist(),
        complementarity=None if lam is None else (lam * slack).tolist(),
        worst_component_slack=min((float(np.min(p[1:] - b)) for p in parts), default=None) if len(b) else None,
        components=components,
        evidence=evidence,
        message=message,
        scope=scope,
        **more,
    )


def verdict_of(lower: Array, upper: Array, b: Array) -> Verdict:
    """Return the verdict that follows from proven lower and upper bounds of J_g [I] and the limits b [I]."""
    if np.all(lower >= b):
        return "CERTIFIED"
    return "VIOLATED" if np.any(upper < b) else "UNDECIDED"
