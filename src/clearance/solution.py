"""What `solve` gives back: the policy to use with its certificate, and the others that a run holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance import dual, selection
from clearance.certificate import Certificate, by_samples, certify
from clearance.errors import InputError
from clearance.margin import Margin
from clearance.methods import CNPGPD, NPGPD, PDANPG, Method, RegularisedCNPGPD, State
from clearance.methods.method import margin_of
from clearance.mixture import Mixture
from clearance.network import Policy
from clearance.problem import CMDP, Array, occupancy, policy_of, values
from clearance.statistical import Evidence
from clearance.trace import Trace

EvidenceKind = Literal["exact", "samples"]
# What the choice among iterates adds to the limits, relative to the scale of J_g; the first that is certified is taken.
TIGHTEN = (1e-9, 1e-8, 1e-7, 1e-6, 0.0)


class Attempt(NamedTuple):
    """One candidate that was put to the test on fresh samples, at its own level δ/(j(j+1)).

    worth  its reward by all samples that were drawn of its components, for the choice between certified candidates: the
           highest of their own estimates would be the luckiest one
    """

    policy: Mixture
    evidence: Evidence
    delta: float
    worth: float


class Offer(NamedTuple):
    """A policy of a run, and what is guaranteed of it."""

    policy: Mixture
    guarantee: str


@dataclass(frozen=True, eq=False)
class Solution:
    """What `solve` gives back. `policy` is the one to use; `offers` holds the others that can be taken from the run.

    policy       the best certified mixture: at most I + 1 iterates, chosen by a linear program over their values
    certificate  what is proven of it, or holds with confidence 1 − δ
    mixture      π̄, uniform over the iterates that the method counts (all, but for CRPO's): what theorems speak of (in
                 long runs each θ that is kept stands for the iterates up to the next one)
    average      the averaged-occupancy policy: one stationary policy with exactly the J of π̄
    last         π_{θ^{K+1}}: no guarantee
    single       the best iterate that meets the limits on its own; None if there is none
    """

    cmdp: CMDP
    method: Method
    policy_class: Policy
    trace: Trace
    state: State
    margin: Margin
    lam_max: float
    status: Literal["done", "interrupted"]
    seed: int
    seconds: float
    d_bar: Array | None
    evidence: EvidenceKind = "exact"
    attempts: tuple[Attempt, ...] = ()
    env_steps: int = 0
    delta: float | None = None

    @property
    def lam(self) -> Array:
        """λ of the last iterate [I]."""
        return self.state.lam

    @property
    def slater(self) -> float:
        """The Slater margin φ: exact, or its lower confidence bound."""
        return self.margin.slater

    @property
    def kappa(self) -> float | Array:
        """κ as it was used: one number, or one for each constraint."""
        return margin_of(self.method.kappa)

    @cached_property
    def chosen(self) -> Attempt | None:
        """From samples: the certified candidate that earned most, or the last one tried."""
        certified = [a for a in self.attempts if a.evidence.verdict == "CERTIFIED"]
        return max(certified, key=lambda a: a.worth, default=self.attempts[-1] if self.attempts else None)

    @cached_property
    def policy(self) -> Mixture:
        if self.evidence == "exact":
            return self._choice
        return self.last if self.chosen is None else self.chosen.policy

    @cached_property
    def certificate(self) -> Certificate:
        if self.evidence == "exact":
            return certify(self.cmdp, self.policy)
        if self.chosen is None:
            raise InputError("nothing was put to the test: give a larger budget")
        lam = self.trace.lam[len(self.trace) // 2 :].mean(0)
        at = f"at level {self.chosen.delta:.3g}"
        tried = f"candidate {self.attempts.index(self.chosen) + 1} of {len(self.attempts)} tried, tested {at}"
        assert self.delta is not None
        return by_samples(self.cmdp, self.chosen.policy, self.chosen.evidence, self.delta, lam=lam, note=tried)

    @cached_property
    def _iterates(self) -> tuple[NDArray[np.int64], Array]:
        """Rows [n] of θ and exact values [n, 1+I] of the iterates to choose from: all kept where J was recorded."""
        if len(self.trace.J):
            return np.arange(len(self.trace.theta), dtype=np.int64), self.trace.J[self.trace.kept]
        index = self.trace.rows_of(selection.thinned(len(self.trace), 200))
        pi = self.policy_class.pi(self.trace.theta[index])
        return index, np.concatenate([values(self.cmdp, occupancy(self.cmdp, p[None])) for p in pi])

    @cached_property
    def _choice(self) -> Mixture:
        """The best mixture of the iterates, and of the safest policy where that is in the class.

        The program's own tolerance may leave it a hair outside: the limits are tightened until it provably meets them.
        """
        index, J = self._iterates
        safest = self.margin.policy
        if safest is not None:
            J = np.concatenate([J, values(self.cmdp, occupancy(self.cmdp, safest.pi))])
        size = np.maximum(np.abs(self.cmdp.g).max(axis=(1, 2)) / (1 - self.cmdp.gamma), np.abs(self.cmdp.b))
        found = None
        for tighten in TIGHTEN:
            w = selection.best_weights(J, self.cmdp.b, tighten * size)
            if w is not None:
                found = self._mixed(index, w)
                if certify(self.cmdp, found, compare=False).verdict == "CERTIFIED":
                    return found
        return self.average if found is None else found

    def _mixed(self, index: NDArray[np.int64], w: Array) -> Mixture:
        """The mixture of the iterates `index` and, with the weight behind theirs, of the safest policy."""
        used = np.flatnonzero(w)
        pi = self.policy_class.pi(self.trace.theta[index[used[used < len(index)]]])
        if self.margin.policy is not None and used[-1] == len(index):
            pi = np.concatenate([pi, self.margin.policy.pi])
        return Mixture(w[used] / w[used].sum(), pi)

    @cached_property
    def mixture(self) -> Mixture:
        counts, pi = self.trace.counts, self.policy_class.pi(self.trace.theta)
        if not np.any(counts):  # the method counts none of its iterates
            counts = np.ones(len(counts))
        share = np.add.reduceat(counts, self.trace.kept)  # of a long run: each stands for those up to the next
        used = np.flatnonzero(share)
        return Mixture(share[used] / counts.sum(), pi[used])

    @cached_property
    def average(self) -> Mixture:
        d = self.mixture.occupancy(self.cmdp) if self.d_bar is None else self.d_bar
        return Mixture.single(policy_of(d, self.cmdp.available))

    @cached_property
    def last(self) -> Mixture:
        return Mixture.single(self.policy_class.pi(self.state.theta))

    @cached_property
    def single(self) -> Mixture | None:
        index, J = self._iterates
        kept = np.flatnonzero(np.all(J[:, 1:] >= self.cmdp.b, axis=1))
        for m in kept[np.argsort(-J[kept, 0])][:10]:
            pi = Mixture.single(self.policy_class.pi(self.trace.theta[index[m]]))
            if certify(self.cmdp, pi, compare=False).verdict == "CERTIFIED":
                return pi
        return None

    @property
    def offers(self) -> dict[str, Offer]:
        """Every policy of the run, labelled with what is guaranteed of it."""
        proven = "proven" if self.evidence == "exact" else f"with confidence {1 - (self.delta or 0):g}"
        kept = self.certificate.verdict == "CERTIFIED"
        offers = {
            "best": Offer(self.policy, f"meets every limit, {proven}" if kept else "not certified"),
            "mixture": Offer(self.mixture, "Theorem 1: meets the limits in expectation, if κ and K are as it asks"),
            "last": Offer(self.last, "nothing is guaranteed of the last iterate"),
        }
        if self.evidence == "exact":  # the others need the model
            offers["average"] = Offer(self.average, "has exactly the values of the uniform mixture")
            if self.single is not None:
                offers["single"] = Offer(self.single, "one iterate, meets every limit, proven")
        return offers

    @property
    def path_bound(self) -> Array | None:
        """The free bound on mean_k (Ĵ_g − b) from the path of λ; None if the clip at Λ was active."""
        if isinstance(self.method, RegularisedCNPGPD):
            k = np.arange(len(self.trace))
            eta2, kappa = self.method.dual_step(self.cmdp, k), self.method.kappa_at(k).mean(0)
        elif isinstance(self.method, CNPGPD | NPGPD | PDANPG):
            eta2, kappa = self.method.eta2, self.kappa
        else:
            return None
        return dual.path_bound(self.trace.lam, self.lam, eta2, kappa, self.lam_max)

    def save(self, folder: str | Path) -> None:
        """Write the run folder after the run. `solve(…, out=…)` writes it while the run goes on, and can be resumed."""
        from clearance.resuming import write_solution

        write_solution(self, folder)
