"""The candidates of a run on a simulator: late and promising iterates, the safest policy, and constant policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.best_mixture import best_weights, safest_weights, spread_evenly
from clearance.certificates.episode_source import Episodes
from clearance.core.arrays import Array
from clearance.learning.loop import Run
from clearance.learning.methods.practical_cnpgpd import Course
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.rule_mixture import RuleMixture, rule_name

AnyMixture = NetworkMixture | RuleMixture
CANDIDATES = 10  # late iterates to choose from
LATE = 0.6  # late iterates come after this share of the iterations
WARM = 0.2  # share of the iterations in which the normaliser is still updated
SLACKS = 0.0, 1.0, 1.5  # margins in units of κ with which further candidates are found
SMOOTH = 5  # iterations whose Ĵ is averaged to find further candidates


@dataclass(frozen=True, eq=False)
class LateIterates:
    """The candidate policies of a run on a simulator.

    late    the candidate networks, as one mixture
    source  a function from a mixture of candidates to a source of its episodes
    named   {name: index} of the candidates that are not iterates, for comparison
    rule    a rule of the user, which is the last candidate, or None; the last network in `late` imitates it
    """

    late: NetworkMixture
    source: Callable[[AnyMixture], Episodes]
    named: dict[str, int] = field(default_factory=dict)
    rule: Callable[[Any], Any] | None = None

    @property
    def count(self) -> int:
        return self.late.M + (self.rule is not None)

    def mixture(self, weights: Array) -> AnyMixture:
        if self.rule is None or not weights[-1]:
            return self.late.part(weights[: self.late.M])
        networks = weights[:-1] if weights[:-1].any() else np.eye(self.late.M)[-1]
        return RuleMixture(self.late.part(networks), weights[-1] / weights.sum(), self.rule, rule_name(self.rule))

    def episodes(self, mixture: AnyMixture) -> Episodes:
        return self.source(mixture)


def gather_candidates(
    sampler: Any, run: Run, b: Array, kappa: Array, extra: Array | None
) -> tuple[NetworkMixture, dict[str, int]]:
    """Return the candidates of a run as one mixture, and {name: index} of the candidates that are not iterates.

    b      the limits [I];  kappa: the slack [I] that a test is expected to need
    extra  θ [n, d] of the policies that the run began from, as further candidates; or None
    """
    K = len(run.trace)
    index = np.union1d(
        spread_evenly(K, CANDIDATES, first=max(LATE, WARM)),
        promising(run.trace.J_hat, int(WARM * K), b, [x * kappa for x in SLACKS]),
    )
    theta, named = run.trace.theta[run.trace.rows_of(index)], dict[str, int]()
    for name, found in (_safest(run) | (sampler.policy.constants() if len(b) else {})).items():
        named[name] = len(theta)
        theta = np.concatenate([theta, found[None]])
    theta = theta if extra is None else np.concatenate([theta, extra])
    normaliser = sampler.normaliser(run.state.sampler_memory)
    return NetworkMixture(sampler.policy, np.full(len(theta), 1 / len(theta)), theta, normaliser), named


def _safest(run: Run) -> dict[str, Array]:
    course = run.state.method_memory
    return {"the safest policy found": course.safe} if isinstance(course, Course) else {}


def promising(J_hat: Array, first: int, b: Array, margins: Sequence[Array | float] = (0.0,)) -> NDArray[np.int64]:
    """Return the indices of the most promising iterates, by their estimated values `J_hat` [K, 1+I].

    Iterates before index `first` are ignored. For each margin in `margins`, the best mixture that meets the limits b by
    this margin is computed, or the safest mixture if no mixture does so. The result contains the iterates of all these
    mixtures, which have at most I + 1 iterates each. Running means of `J_hat` are used, because they are less noisy.
    """
    width = min(SMOOTH, len(J_hat) - first)
    if width < 1 or not len(b):
        return np.zeros(0, np.int64)
    sums = np.cumsum(np.concatenate([np.zeros((1, J_hat.shape[1])), J_hat[first:]]), axis=0)
    J = (sums[width:] - sums[:-width]) / width
    found = [best_weights(J, b, margin) for margin in margins]
    used = sum(safest_weights(J, b) if w is None else w for w in found)
    return np.flatnonzero(used) + first + width // 2
