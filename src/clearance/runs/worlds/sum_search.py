"""The search for the best certified policy with criterion "total"; it tests mixtures if no single policy is best.

An episode may stay for ever in a part of the model where all signals are 0. If a limit binds, it is then often best to
choose once per episode whether to leave this part. A stationary policy that leaves it with some probability in each
step leaves it sooner or later, so its discounted values differ from its sums until absorption. The search recognises
such a plan, because its values depend on the discount factor, and tests mixtures of deterministic plans instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clearance.certificates.candidate_search import LEVELS, Attempt, CandidateSearch
from clearance.certificates.episode_source import Episodes
from clearance.core.arrays import Array
from clearance.core.random_streams import fold
from clearance.exact.bellman import Operator
from clearance.exact.estimated_model import EstimatedModel
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import evaluate
from clearance.finite.mixture import Mixture
from clearance.runs.worlds.explored_model import ExploredSums
from clearance.runs.worlds.finite_candidates import PolicyTables
from clearance.runs.worlds.planned_policy import Planned
from clearance.runs.worlds.planned_search import PlannedSearch

LONGER = 10.0  # 1 − γ is divided by this factor, to see whether the values depend on γ
CHANGED = 0.2  # the values may change by this share of the slack that a test needs
PRICES = (0.0, 0.5, 0.9, 1.1, 2.0, 10.0, 1e3)  # factors on the prices of the limits, for deterministic plans


@dataclass(frozen=True, eq=False)
class Plans(PolicyTables):
    """Planned policies as candidates. An episode gives sums until absorption, and its transitions are counted."""

    explored: ExploredSums = field(kw_only=True)

    def episodes(self, mixture: Mixture) -> Episodes:
        return self.explored.episodes(mixture, None, 0.0)


@dataclass(eq=False)
class SumSearch(PlannedSearch):
    """The search of `planned_search`; it tests mixtures of plans if the best plan would choose at random when to leave.

    mixtures  the search among mixtures, once it has begun
    """

    mixtures: CandidateSearch | None = None

    def test_plans(self) -> tuple[Attempt, ...]:
        """Test plans or, if the values of the best plan depend on the discount, mixtures of plans; return all tests."""
        assert isinstance(self.explored, ExploredSums)
        model, left = self.explored.model(), self.budget - self.steps
        planned = self._fit(model, LEVELS[0] * self.delta, left, 0.0, None)
        if not self.plans or not _depends_on_discount(model.cmdp, planned):
            return super().test_plans()
        tables = plans_without_chance(model, planned)
        tables = tables if self.fallback is None else np.concatenate([tables, self.fallback.pi])
        self.mixtures = CandidateSearch(
            Plans(self.explored.cmdp, tables, explored=self.explored), self.b, fold(self.key, 77), left, self.delta,
            single=self.single,
        )  # fmt: skip
        self.attempts = list(self.mixtures.run())
        self.steps += self.mixtures.steps
        self.tolerated_loss = self.mixtures.tolerated_loss
        return tuple(self.attempts)

    def episodes(self, policy: Mixture) -> Episodes:
        return super().episodes(policy) if self.mixtures is None else self.mixtures.episodes(policy)

    def explain(self, attempt: Attempt) -> str:
        return super().explain(attempt) if self.mixtures is None else ""


def _depends_on_discount(model: CMDP, planned: Planned) -> bool:
    """Return whether the values of a plan change by much if the discount factor of the model is closer to 1."""
    J = evaluate(model.replace(gamma=1 - (1 - model.gamma) / LONGER), planned.seen.pi).J
    change = np.abs(J - planned.seen.J)
    return bool(np.any(change[1:] > CHANGED * planned.need) or change[0] > 0.01 * np.abs(planned.seen.J[0]))


def plans_without_chance(model: EstimatedModel, planned: Planned) -> Array:
    """Return deterministic policies [n, S, A], each of which is best for some prices of the limits."""
    cmdp, lam, found = model.cmdp, planned.lam, []
    if not np.any(lam > 0):
        J = planned.seen.J
        lam = np.full(cmdp.I, max(abs(J[0]), 1e-9) / max(float(np.abs(J[1:]).max(initial=0.0)), 1e-9))
    h = cmdp.h.reshape(1 + cmdp.I, -1)
    for factor in PRICES:
        signal = np.append(1.0, factor * lam) @ h
        act = np.argmax(cmdp.available, axis=1).astype(np.int64)
        Operator.of(cmdp).maximise(signal, np.zeros(cmdp.S), act, 1e-9 * max(float(np.abs(signal).max()), 1e-300))
        found.append(act)
    return np.eye(cmdp.A)[np.unique(found, axis=0)]
