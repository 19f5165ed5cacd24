"""The adapter for finite models with a criterion other than discounted sums, or with a cost limit of 0.

An adapter gives the pipeline of `solve` its interface to a kind of problem. Learning uses a discounted surrogate of the
model, the "stand-in" (`exact.stand_ins`). The margin, the choice of a policy and the certificate use the model itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.best_mixture import Single
from clearance.certificates.candidate_search import Attempt, Search
from clearance.certificates.certificate import EvidenceKind
from clearance.certificates.episode_source import Episodes
from clearance.core.arrays import Array
from clearance.core.errors import InfeasibleError, InputError, infeasible_message
from clearance.exact.feasibility import decide_feasibility
from clearance.exact.infeasibility import diagnose
from clearance.exact.never import never_words, zero_limits
from clearance.exact.stand_ins import StandIn, stand_in_of
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import evaluate
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.total_episodes import SumEpisodes
from clearance.finite.samplers.transition_counts import TransitionCounts
from clearance.finite.two_layer_policy import Policy
from clearance.learning.loop import Run
from clearance.learning.state import State
from clearance.runs.worlds.explored_model import ExploredSums, FiniteExplored
from clearance.runs.worlds.finite_candidates import Iterates, PolicyTables
from clearance.runs.worlds.finite_certify import check_samples
from clearance.runs.worlds.finite_margin import FiniteMargin
from clearance.runs.worlds.finite_world import FiniteWorld
from clearance.runs.worlds.planned_search import PlannedSearch
from clearance.runs.worlds.sum_search import SumSearch
from clearance.runs.worlds.world import Alternative, Choice, ExactValues, Settled, Task

MOST = 200  # largest number of candidates whose values under the true criterion are computed
PILOT, PILOT_KEY = 5000, np.uint64(2**62 + 21)  # steps to measure the mean length of episodes
# 1/(1 − γ) of the surrogate model as a multiple of that mean length: for learning, where a larger value takes more
# steps, and for plans, where it costs almost nothing.
LEARNED, PLANNED = 10.0, 1000.0


@dataclass(frozen=True, eq=False)
class BackCandidates:
    """Candidate policies that were learned on the surrogate model, translated back to policies of the model itself.

    stand_in  the surrogate model, which also translates policies;  inner: the candidates on the surrogate model
    some      indices of the candidates to use; None means all
    """

    stand_in: StandIn
    inner: Iterates | PolicyTables
    some: NDArray[np.int64] | None = None

    @property
    def count(self) -> int:
        return self.inner.count if self.some is None else len(self.some)

    def mixture(self, weights: Array) -> Mixture:
        share = weights
        if self.some is not None:
            share = np.zeros(self.inner.count)
            share[self.some] = weights
        return self.stand_in.back(self.inner.mixture(share))

    def episodes(self, mixture: Mixture) -> Episodes:
        return self.inner.episodes(self.stand_in.forward(mixture))


@dataclass(eq=False)
class BackSearch:
    """A search among policies of the surrogate model, whose tested policies are translated back to the model itself.

    stand_in  the surrogate model, which also translates policies;  inner: the search on the surrogate model
    """

    stand_in: StandIn
    inner: PlannedSearch
    attempts: list[tuple[Attempt, Attempt]] = field(default_factory=list)  # on the model itself, and on the surrogate
    steps: int = 0
    spent: int = 0

    @property
    def tolerated_loss(self) -> float:
        return self.inner.tolerated_loss

    def run(self) -> tuple[Attempt, ...]:
        found = self.inner.run()
        self.steps, self.spent = self.inner.steps, self.inner.spent
        self.attempts = [(a._replace(policy=self.stand_in.back(a.policy)), a) for a in found]
        return tuple(own for own, _ in self.attempts)

    def _inner(self, policy: Mixture) -> Attempt:
        return next(inner for own, inner in self.attempts if own.policy is policy)

    def episodes(self, policy: Mixture) -> Episodes:
        return self.inner.episodes(self._inner(policy).policy)

    def explain(self, attempt: Attempt) -> str:
        return self.inner.explain(self._inner(attempt.policy))


@dataclass(frozen=True, eq=False)
class CriterionWorld(FiniteWorld):
    """The adapter for a finite model that is learned on a discounted surrogate model, the "stand-in"."""

    @cached_property
    def stand_in(self) -> StandIn:
        found = stand_in_of(self.problem)
        assert found is not None
        return found

    @property
    def model(self) -> CMDP:
        return self.stand_in.model

    def evidence(self, asked: EvidenceKind | None, exact_J: bool | None) -> EvidenceKind:
        kind = super().evidence(asked, exact_J)
        if kind == "samples":
            check_samples(self.problem)
            if zero_limits(self.problem):
                raise InputError(
                    "a cost that must never be paid is kept by proof, not by samples: use evidence='exact'"
                )
        return kind

    def with_evidence(self, kind: EvidenceKind) -> CriterionWorld:
        sampled = kind == "samples" and self.problem.kind == "total"
        return SampledTotalWorld(self.problem) if sampled else self

    def measure_margin(self, task: Task) -> FiniteMargin:
        if task.evidence == "samples":
            return super().measure_margin(task)
        found = decide_feasibility(self.problem)
        if found.proof is not None:
            why = never_words(self.problem) or infeasible_message(found.slater, self.problem.I)
            raise InfeasibleError(why, found.slater, self.problem, diagnose=diagnose)
        safest = self.stand_in.forward(Mixture.of(found.policy)) if self.problem.I else None
        slater = found.slater if not zero_limits(self.problem) else self._room_besides(found.slater)
        return FiniteMargin(slater, safest, "FEASIBLE" if found.verdict == "feasible" else "UNDECIDED")

    def _room_besides(self, slater: float) -> float:
        """Return the Slater margin of all limits except cost limits of 0, which no policy can meet with a margin.

        `slater` is the margin of all limits together. On the surrogate model, the limits of 0 are loosened; the result
        is at most the amount by which they are loosened.
        """
        never = zero_limits(self.problem)
        others = [i for i in range(self.problem.I) if i not in never]
        room = float(np.min(-self.model.b[never]))  # by how much the stand-in loosens these limits
        if not others:
            return room
        cmdp = self.problem
        part = cmdp.replace(
            h=cmdp.h[[0, *(1 + i for i in others)]], b=cmdp.b[others], names=[cmdp.names[i] for i in others]
        )
        return min(max(decide_feasibility(part).slater, slater), room)

    def exact_choice(self, settled: Settled, run: Run, margin: FiniteMargin) -> tuple[Any, ExactValues]:
        inner, values = super().exact_choice(settled, run, margin)
        if self.stand_in.exact:
            found, J = BackCandidates(self.stand_in, inner), values.J.copy()
        else:  # the values that were recorded are those of the stand-in
            some = np.unique(np.linspace(0, inner.count - 1, min(inner.count, MOST)).astype(np.int64))
            found = BackCandidates(self.stand_in, inner, some)
            J = np.array([self._true_values(found.mixture(one)) for one in np.eye(len(some))])
            finite = np.isfinite(J).all(axis=1)
            found, J = BackCandidates(self.stand_in, inner, some[finite]), J[finite]
        never, size = zero_limits(self.problem), np.array(values.size, float)
        J[:, [1 + i for i in never]], size[never] = 0.0, 0.0
        return found, ExactValues(J, values.error, size)

    def _true_values(self, one: Mixture) -> Array:
        """Return the values J [1+I] of one candidate under the criterion of the model itself."""
        return one.weights @ np.array([evaluate(self.problem, pi).J for pi in one.pi])

    def sampled_choice(self, settled: Settled, run: Run, margin: FiniteMargin, budget: float) -> Choice:
        found = super().sampled_choice(settled, run, margin, budget)
        inner: Any = found.candidates
        return found._replace(candidates=BackCandidates(self.stand_in, inner))

    def search(
        self,
        settled: Settled,
        run: Run,
        margin: FiniteMargin,
        key: np.uint64,
        budget: float,
        delta: float,
        single: Single,
    ) -> Search:
        found = super().search(settled, run, margin, key, budget, delta, single)
        return BackSearch(self.stand_in, found) if isinstance(found, PlannedSearch) else found

    def as_one_policy(self, settled: Settled, mixture: Mixture) -> Mixture | None:
        """Return the stationary policy with the mixture's averaged occupancy if both have the same values J, else None.

        The result is also None if the policy class is not tabular softmax, because no other class contains this policy.
        A mixture of one policy is returned unchanged.
        """
        if mixture.M == 1:
            return mixture
        if not settled.sampler.policy.tabular:
            return None
        one = mixture.stationary(self.problem)
        J, wanted = one.J(self.problem), mixture.J(self.problem)
        return one if np.allclose(J, wanted, rtol=1e-9, atol=1e-9) else None

    def uncertified(self, settled: Settled, run: Run, candidates: Any, exact: ExactValues) -> Mixture:
        inner: Any = candidates.inner
        return self.stand_in.back(super().uncertified(settled, run, inner, exact))

    def last_policy(self, settled: Settled, state: State) -> Mixture:
        return self.stand_in.back(super().last_policy(settled, state))

    def alternatives(self, solution: Any) -> dict[str, Alternative]:
        """Return {"mixture": π̄}, the uniform mixture of the iterates; its guarantee is about the surrogate model."""
        found = super().alternatives(solution)
        return {"mixture": Alternative(self.stand_in.back(found["mixture"].policy), found["mixture"].guarantee)}


@dataclass(frozen=True, eq=False)
class SumCandidates(BackCandidates):
    """`BackCandidates` for a model with criterion "total": their tests add up whole episodes of the model itself."""

    def episodes(self, mixture: Mixture) -> SumEpisodes:
        return SumEpisodes(self.stand_in.true, mixture)


@dataclass(frozen=True, eq=False)
class SampledTotalWorld(CriterionWorld):
    """The adapter for sums until absorption with evidence from samples.

    Learning uses the same model with a discount factor close to 1; its episodes are those of the model itself. The
    discount factor follows from the length of a few episodes with uniformly random actions. Tests add up whole episodes
    (`total_episodes`).
    """

    @cached_property
    def _pilot(self) -> tuple[float, int]:
        """The mean number of steps of an episode with uniform actions, and the environment steps used to measure it."""
        uniform = self.problem.available / self.problem.available.sum(1, keepdims=True)
        steps, episodes = SumEpisodes(self.problem, Mixture.single(uniform)).walk(PILOT_KEY, PILOT)
        return max(steps / episodes, 1.0), steps

    def _discounted(self, longer: float) -> CMDP:
        return self.problem.replace(criterion="discounted", gamma=1 - 1 / (1 + longer * self._pilot[0]))

    @cached_property
    def stand_in(self) -> StandIn:
        return StandIn(self.problem, self._discounted(LEARNED), False)

    def explored(self, policy: Policy) -> ExploredSums:
        counts = TransitionCounts.none(self.model)
        return ExploredSums(self._discounted(PLANNED), policy, counts, true=self.problem)

    def planned_search(self, explored: FiniteExplored, **how: Any) -> PlannedSearch:
        return SumSearch(explored, **how)

    def measure_margin(self, task: Task) -> FiniteMargin:
        found = super().measure_margin(task)
        return replace(found, steps=found.steps + self._pilot[1])

    def sampled_choice(self, settled: Settled, run: Run, margin: FiniteMargin, budget: float) -> Choice:
        found = super().sampled_choice(settled, run, margin, budget)
        inner: Any = found.candidates
        return found._replace(candidates=SumCandidates(self.stand_in, inner.inner))
