"""Candidates for the policy of a finite model: tables, stored iterates, and averages of the iterates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.best_mixture import spread_evenly
from clearance.certificates.episode_source import Episodes
from clearance.core.arrays import Array
from clearance.exact.exact_certificate import certify_exactly
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy, policy_from_occupancy, values_from_occupancy
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
from clearance.finite.two_layer_policy import Policy
from clearance.learning.loop import Run
from clearance.learning.trace import Trace

MOST_ITERATES = 200  # most iterates to choose from, if their exact J was not recorded


@dataclass(frozen=True, eq=False)
class PolicyTables:
    """Candidate policies pi [n, S, A] of a finite model.

    base  estimated values V̂ [S, 1+I], the control variate when episodes are drawn; None: no control variate
    """

    cmdp: CMDP
    pi: Array
    base: Array | None = None

    @property
    def count(self) -> int:
        return len(self.pi)

    def mixture(self, weights: Array) -> Mixture:
        used = np.flatnonzero(weights)
        return Mixture(weights[used] / weights[used].sum(), self.pi[used])

    def episodes(self, mixture: Mixture) -> Episodes:
        return MixtureEpisodes(self.cmdp, mixture, self.base)


@dataclass(frozen=True, eq=False)
class Iterates:
    """Stored iterates of a run as candidates. They are turned into tables of probabilities only when used.

    index   the rows of the stored θ that are candidates
    safest  the safest policy, as the last candidate; None if there is none
    """

    cmdp: CMDP
    policy: Policy
    trace: Trace
    index: NDArray[np.int64]
    safest: Mixture | None

    @property
    def count(self) -> int:
        return len(self.index) + (self.safest is not None)

    def mixture(self, weights: Array) -> Mixture:
        used = np.flatnonzero(weights)
        pi = self.policy.pi(self.trace.theta[self.index[used[used < len(self.index)]]])
        if self.safest is not None and used[-1] == len(self.index):
            pi = np.concatenate([pi, self.safest.pi])
        return Mixture(weights[used] / weights[used].sum(), pi)

    def episodes(self, mixture: Mixture) -> MixtureEpisodes:
        return MixtureEpisodes(self.cmdp, mixture)


def evaluated_iterates(cmdp: CMDP, policy: Policy, trace: Trace) -> tuple[NDArray[np.int64], Array]:
    """Return the iterates that are candidates: their rows [n] in `trace.theta`, and their exact values [n, 1+I].

    If the exact J was recorded during learning, all stored iterates are candidates. If not, up to 200 of them are
    evaluated here.
    """
    if len(trace.J):
        return np.arange(len(trace.theta), dtype=np.int64), trace.J[trace.kept]
    index = trace.rows_of(spread_evenly(len(trace), MOST_ITERATES))
    pi = policy.pi(trace.theta[index])
    return index, np.concatenate([values_from_occupancy(cmdp, occupancy(cmdp, p[None])) for p in pi])


def averaged_occupancy(run: Run) -> Array | None:
    """Return the averaged occupancy [S, A] of the iterates; None if it was not recorded.

    The average is over the iterates that count in the method's average.
    """
    counted = float(run.trace.counts.sum())
    return None if run.d_sum is None or counted == 0 else run.d_sum / counted


def uniform_mixture(policy: Policy, trace: Trace) -> Mixture:
    """Return π̄, the uniform mixture of the iterates that count in the method's average.

    In long runs only some θ are stored. Each stored θ gets the weight of all iterates up to the next stored one.
    """
    counts, pi = trace.counts, policy.pi(trace.theta)
    if not np.any(counts):  # the method counts none of its iterates
        counts = np.ones(len(counts))
    share = np.add.reduceat(counts, trace.kept)
    used = np.flatnonzero(share)
    return Mixture(share[used] / counts.sum(), pi[used])


def averaged_policy(cmdp: CMDP, policy: Policy, trace: Trace, d_bar: Array | None) -> Mixture:
    """Return the stationary policy whose occupancy is the average over the iterates.

    `d_bar` [S, A] is this average; if None, it is computed from the trace.
    """
    d = uniform_mixture(policy, trace).occupancy(cmdp) if d_bar is None else d_bar
    return Mixture.single(policy_from_occupancy(d, cmdp.available))


def best_single_iterate(cmdp: CMDP, policy: Policy, trace: Trace) -> Mixture | None:
    """Return the iterate with the highest reward that is certified by itself; None if none of the ten best is."""
    index, J = evaluated_iterates(cmdp, policy, trace)
    kept = np.flatnonzero(np.all(J[:, 1:] >= cmdp.b, axis=1))
    for m in kept[np.argsort(-J[kept, 0])][:10]:
        pi = Mixture.single(policy.pi(trace.theta[index[m]]))
        if certify_exactly(cmdp, pi, compare=False).verdict == "CERTIFIED":
            return pi
    return None
