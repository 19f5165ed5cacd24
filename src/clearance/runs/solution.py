"""Solution: the result of `solve`, with the policy to use, its certificate, and the run that produced them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from clearance.certificates.candidate_search import Attempt
from clearance.certificates.certificate import Certificate, EvidenceKind
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.figures import finish_figure, load_pyplot
from clearance.core.html_card import html_card, html_curve
from clearance.learning.dual import path_bound
from clearance.learning.methods.method_base import kappa_value
from clearance.learning.state import State
from clearance.learning.trace import Trace
from clearance.runs.run_folder import write_finished
from clearance.runs.selection import Selection
from clearance.runs.solution_figure import draw_solution
from clearance.runs.worlds.world import Alternative, Margin, NamedLimits, World


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """The result of `solve`. Use `policy`; `alternatives` holds the other policies of the run.

    policy       the best certified policy: a mixture of at most I + 1 iterates, found by a linear program over their
                 values. A single policy replaces it (`single` of `solve`) if a stationary policy of the class has the
                 same values, or if one iterate loses little reward; with exact evidence, `alternatives` then has the
                 mixture. If policies are planned from samples, it is one plan or a mixture of two plans
    certificate  the verdict on this policy: proven, or with confidence 1 − δ
    attempts     with samples: the policies that were tested, in order
    recalled     True if this is the stored result of a finished run: nothing was tested again, `attempts` is empty
    d_bar        the averaged occupancy [S, A] of the iterates; None if it was not recorded
    """

    world: World
    method: Any
    policy_class: Any
    trace: Trace
    state: State
    margin: Margin | None
    lam_max: float
    status: Literal["done", "interrupted"]
    seed: int
    seconds: float
    evidence: EvidenceKind
    delta: float
    learning_steps: int
    d_bar: Array | None = None
    select: Callable[[], Selection] | None = None
    last_policy: Callable[[], Any] | None = None
    recalled: bool = False

    def __repr__(self) -> str:
        """Return method, iterations, status and verdict as text, without computing a missing certificate."""
        run = f"{type(self.method).__name__}, {len(self.trace):,} iterations, {self.status}, {self.seconds:.1f} s"
        certificate = self.selection.certificate if "selection" in self.__dict__ else None
        found = "not certified yet: see .certificate" if certificate is None else repr(certificate)
        return f"<Solution: {run}; {found}>"

    def _repr_html_(self) -> str:
        """Return the certificate and a curve of the iterates' reward as HTML; compute the certificate if needed."""
        J = self.trace.J if len(self.trace.J) else self.trace.J_hat
        run = f"{type(self.method).__name__}, {len(self.trace):,} iterations, {self.status}, {self.seconds:.1f} s"
        label = "J_r of the iterates, first to last; the dot is the policy that was chosen"
        last = (float(len(J)), self.certificate.J_r)
        curve = html_curve(list(range(1, 1 + len(J))), J[:, 0].tolist(), label, at=last) if len(J) else ""
        return html_card(f"Solution: {run}", curve=self.certificate._repr_html_() + curve)

    def plot(self) -> Any:
        """Return a matplotlib figure: the values of the iterates and of the chosen policy, with the limits."""
        return finish_figure(draw_solution(load_pyplot(), self.trace, self.certificate, self.statement))

    @cached_property
    def selection(self) -> Selection:
        """The selected policy and its certificate; with exact evidence they are computed when first used."""
        assert self.select is not None
        return self.select()

    @property
    def policy(self) -> Any:
        return self.selection.policy

    @property
    def certificate(self) -> Certificate:
        return self.selection.certificate

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return self.selection.attempts

    @property
    def env_steps(self) -> int:
        """All environment steps of the run: for the margin, learning, the choice of a policy, and its certificate."""
        before = self.world.spent_before(self.margin)
        return before + self.learning_steps + (0 if self.evidence == "exact" else self.selection.steps)

    @property
    def problem(self) -> Any:
        return self.world.problem

    @property
    def statement(self) -> NamedLimits:
        """The problem's γ, limits b and names of the constraints."""
        return self.world.statement

    @property
    def lam(self) -> Array:
        """The multipliers λ [I] of the last iterate."""
        return self.state.lam

    @property
    def slater(self) -> float | None:
        """The Slater margin φ: exact, or its lower confidence bound; None if it was not measured."""
        return None if self.margin is None else self.margin.slater

    @property
    def kappa(self) -> float | Array:
        """The margin κ that learning used: one number, or one for each constraint."""
        return kappa_value(getattr(self.method, "kappa", 0.0))

    @cached_property
    def last(self) -> Any:
        """The policy of the last iterate, about which nothing is guaranteed."""
        assert self.last_policy is not None
        return self.last_policy()

    @cached_property
    def alternatives(self) -> dict[str, Alternative]:
        """All policies of the run by name, each with its guarantee in words."""
        proven = "proven" if self.evidence == "exact" else f"with confidence {1 - self.delta:g}"
        kept = self.certificate.verdict == "CERTIFIED"
        first = {"best": Alternative(self.policy, f"meets every limit, {proven}" if kept else "not certified")}
        last = {"last": Alternative(self.last, "nothing is guaranteed of the last iterate")}
        return first | self._best_mixture() | self.world.alternatives(self) | last

    def _best_mixture(self) -> dict[str, Alternative]:
        """Return {"best_mixture": the best mixture with its guarantee} if a single policy replaced it, else {}."""
        mixture = self.selection.mixture
        if mixture is None or mixture is self.policy or mixture.M == 1:
            return {}
        found = self.world.certify(mixture, compare=False)
        kept = "meets every limit on average over its components, proven"
        return {"best_mixture": Alternative(mixture, kept if found.verdict == "CERTIFIED" else "not certified")}

    def _alternative(self, name: str) -> Any:
        if name not in self.alternatives:
            raise InputError(f"this run has no {name!r} policy; it has {', '.join(self.alternatives)}")
        return self.alternatives[name].policy

    @property
    def mixture(self) -> Any:
        """The uniform mixture π̄ of the iterates that count in the method's average; Theorem 1 is about this policy."""
        return self._alternative("mixture")

    @property
    def average(self) -> Any:
        """The averaged-occupancy policy: one stationary policy with the same values J as the uniform mixture π̄."""
        return self._alternative("average")

    @property
    def single(self) -> Any:
        """The best single iterate that meets every limit; None if there is none."""
        return self._alternative("single") if "single" in self.alternatives else None

    @property
    def path_bound(self) -> Array | None:
        """A lower bound [I] on the mean of Ĵ_g − b over the iterations, where Ĵ_g is the estimate of J_g.

        The bound follows from the values of λ alone.

        It is None if λ reached its upper bound Λ, or if the run learned on a discounted surrogate of the model.
        """
        schedule = getattr(self.method, "dual_schedule", None)
        if schedule is None or hasattr(self.world, "stand_in"):
            return None
        eta2, kappa = schedule(self.statement, len(self.trace))
        return path_bound(self.trace.lam, self.lam, eta2, kappa, self.lam_max)

    def save(self, folder: str | Path) -> None:
        """Write the finished run to a new run folder. It cannot be resumed, unlike the folder of `solve(…, out=…)`."""
        write_finished(self, folder)
