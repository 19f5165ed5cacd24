"""The search for the best certified policy where the states can be counted: plan on the estimated model, test the plan.

Every walk teaches the model: of the margin, of learning, of this search and of its tests. A plan is the best policy on
the estimated model that keeps the slack which its own test will need, computed from the variance that the test's
estimator has on that model; with the plan's V̂ as control variate. Before the first test the search walks by its plans,
and where the model says that a pair which was seen too rarely could be better than it looks. A plan that fails has
taught the model what it does, and the next one knows. Tests use fresh samples and fixed shares of δ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from clearance.certificates.best_mixture import Single, best_weights
from clearance.certificates.candidate_search import LEVELS, SMALLEST, WORTHWHILE, Attempt
from clearance.certificates.episode_source import Episodes
from clearance.certificates.sequential_test import affordable_episodes, gather, should_pass, slack_needed
from clearance.core.arrays import Array
from clearance.core.errors import SolverError
from clearance.core.random_streams import fold
from clearance.exact.estimated_model import EstimatedModel, PolicyEstimate
from clearance.exact.planning import penalise, plan_best, plan_exploration
from clearance.finite.mixture import Mixture

EXPLORED = 0.2  # share of the budget for walks before the first test
ROUNDS = 4  # in so many rounds, each with the plan of all that was seen before
CURIOUS = 0.3  # share of these walks that look for better pairs
SOFT = 0.05  # share of uniform actions in these walks
FIRST_TEST = 0.85  # share of what is left that the first test may take
PLANNED = 0.6  # share of a test within which it should pass
DOUBT = 0.7  # standard errors of the model that a plan keeps from the limits beside what its test needs
CAUTION = (0.0, 0.3)  # standard errors by which the signals of a plan are lowered, pair by pair: one plan for each
POWERS = (0.5, 0.7, 0.85, 0.93)  # of γ, with which an episode of a test may continue
PASSES = 3  # solutions of the program until the slack is the one that its own answer needs


class Explored(Protocol):
    """A problem whose transitions are counted."""

    policy: Any

    def model(self) -> EstimatedModel:
        """Return what was seen so far."""
        ...

    @property
    def high(self) -> Array:
        """The declared upper bounds of the signals [1+I]."""
        ...

    def walk(self, key: np.uint64, pi: Array, steps: float) -> int:
        """Walk about so many environment steps by π [S, A] and count; returns the steps taken."""
        ...

    def episodes(self, mixture: Mixture, base: Array | None, power: float) -> Episodes:
        """Return a source of episodes, whose transitions are counted."""
        ...


class Planned(NamedTuple):
    """A policy to test: its estimate, the power of γ of the test's episodes, and the slack [I] that it needs."""

    seen: PolicyEstimate
    power: float
    need: Array
    lam: Array

    def source(self, explored: Explored) -> Episodes:
        return explored.episodes(Mixture.single(self.seen.pi), self.seen.V, self.power)


@dataclass(eq=False)
class PlannedSearch:
    """The search, its budget of environment steps, and its share δ.

    others    further policies [n, S, A] that were learned, as candidates beside the plans
    plans     whether the policy class has plans: a linear program
    fallback  a mixture that is known to be safe, tested last if nothing else has passed; reserve: steps kept for it
    """

    explored: Explored
    b: Array
    key: np.uint64
    budget: float
    delta: float
    others: Array
    plans: bool = True
    fallback: Mixture | None = None
    reserve: float = 0.0
    single: Single = "prefer"
    steps: int = 0
    tolerated_loss: float = 0.0
    attempts: list[Attempt] = field(default_factory=list)
    tested: list[Planned | None] = field(default_factory=list)

    def episodes(self, policy: Mixture) -> Episodes:
        """The source that a policy was tested with."""
        planned = next(p for p, a in zip(self.tested, self.attempts, strict=True) if a.policy is policy)
        return self.explored.episodes(policy, None, 0.5) if planned is None else planned.source(self.explored)

    @property
    def certified(self) -> list[int]:
        return [j for j, a in enumerate(self.attempts) if a.evidence.verdict == "CERTIFIED"]

    def run(self) -> tuple[Attempt, ...]:
        """Explore, then make all tests that the budget allows and that promise anything."""
        self._explore(LEVELS[0] * self.delta)
        for j, share in enumerate(LEVELS):
            left = self.budget - self.steps
            if self.attempts and left < WORTHWHILE * self.budget * bool(self.certified):
                break
            if not self._next(j, share * self.delta, left):
                break
        model = self.explored.model()
        worth = [_reward(model, a.policy) for a in self.attempts]
        return tuple(a._replace(worth=w) for a, w in zip(self.attempts, worth, strict=True))

    def _explore(self, delta: float) -> None:
        share = EXPLORED * self.budget / ROUNDS
        for k in range(ROUNDS if self.plans else 0):
            model = self.explored.model()
            planned = self._plan(model, delta, FIRST_TEST * (1 - EXPLORED) * self.budget)
            curious = plan_exploration(model, planned.seen.V, planned.lam, self.explored.high)
            for part, pi in ((1 - CURIOUS, planned.seen.pi), (CURIOUS, curious)):
                soft = (1 - SOFT) * pi + SOFT * _uniform(model)
                key = fold(fold(self.key, 100 + k), int(pi is curious))
                self.steps += self.explored.walk(key, soft, part * share)

    def _next(self, j: int, delta: float, left: float) -> bool:
        """Plan and test one more policy; False where another test promises nothing."""
        last = j == len(LEVELS) - 1
        if self.fallback is not None and not self.certified and (last or left <= 2 * self.reserve):
            self._test(j, self.fallback, None, left, left, delta)
            return False
        left -= 0.0 if self.certified or self.fallback is None else self.reserve
        part = FIRST_TEST if not self.attempts else 1.0
        model = self.explored.model()
        planned = self._plan(model, delta, part * left)
        if self.certified:
            best = max((model.evaluate(self.attempts[i].policy.pi[0]) for i in self.certified), key=lambda e: e.J[0])
            if planned.seen.J[0] - planned.seen.doubt[0] <= best.J[0]:
                return False
        self._test(j, Mixture.single(planned.seen.pi), planned, part * left, left, delta)
        return True

    def _plan(self, model: EstimatedModel, delta: float, steps: float) -> Planned:
        """The best policy on the model that a test of so many steps should pass; else the one closest to that."""
        found: list[Planned] = []
        for errors in CAUTION if self.plans else ():
            cautious = model.cmdp
            if errors and found:
                cautious = penalise(model, found[0].seen.V, errors)
            found.append(self._fit(model, cautious, delta, steps, found[0] if found else None))
        found += [self._judge(model, pi, delta, steps, None, found) for pi in self.others]
        return max(found, key=lambda p: self._merit(p))

    def _merit(self, planned: Planned) -> tuple[float, float]:
        """First whether it should pass, then its reward less the doubt about it."""
        seen = planned.seen
        lacking = np.min((seen.J[1:] - self.b - planned.need) / np.maximum(planned.need, 1e-300), initial=0.0)
        return min(float(lacking), -0.1) if lacking < -0.1 else 0.0, float(seen.J[0] - seen.doubt[0])

    def _fit(
        self, model: EstimatedModel, cautious: Any, delta: float, steps: float, start: Planned | None
    ) -> Planned:
        """The plan that keeps the slack which it needs itself."""
        need = np.zeros(len(self.b)) if start is None else start.need
        planned = start
        for _ in range(PASSES if start is None else 1):
            plan = plan_best(cautious, self.b + need, self.explored.policy)
            planned = self._judge(model, plan.pi, delta, steps, plan.lam, [] if planned is None else [planned])
            need = planned.need
        assert planned is not None
        return planned

    def _judge(
        self, model: EstimatedModel, pi: Array, delta: float, steps: float, lam: Array | None, like: list[Planned]
    ) -> Planned:
        """What a test of π will need: with the power of γ at which that costs least, or the one of a plan before."""
        seen = model.evaluate(pi)
        lam = like[0].lam if lam is None and like else np.zeros(len(self.b)) if lam is None else lam
        weights = np.where(lam > 0, lam, 1e-6 * max(float(lam.max(initial=0.0)), 1.0))
        options = [
            Planned(seen, power, self._need(seen, power, delta, steps), lam)
            for power in ((like[0].power,) if like else POWERS)
        ]
        return min(options, key=lambda p: float(weights @ p.need))

    def _need(self, seen: PolicyEstimate, power: float, delta: float, steps: float) -> Array:
        source = self.explored.episodes(Mixture.single(seen.pi), seen.V, power)
        low, high = source.bounds
        n = PLANNED * affordable_episodes(steps, source.episode_steps)
        return slack_needed(seen.spread(power)[1:], (high - low)[1:], n, delta) + DOUBT * seen.doubt[1:]

    def _test(
        self, j: int, mixture: Mixture, planned: Planned | None, budget: float, most: float, delta: float
    ) -> None:
        """Test one policy on fresh episodes, with `budget` steps, or up to `most` if it should pass then."""
        if planned is None:
            source, likely = self.explored.episodes(mixture, None, 0.5), None
        else:
            source = planned.source(self.explored)
            likely = np.maximum(planned.seen.J[1:] - self.b, planned.need), planned.seen.spread(planned.power)[1:]
        patient = planned is None
        seen = gather(source, self.b, delta, fold(self.key, j), budget, likely=likely, impatient=not patient)
        if should_pass(seen, self.b, affordable_episodes(most, source.episode_steps)):
            seen = gather(source, self.b, delta, seen.key, most, impatient=not patient, start=seen.standing)
        self.steps += seen.steps
        self.attempts.append(Attempt(mixture, seen, delta, float(seen.mean[0])))
        self.tested.append(planned)


def _uniform(model: EstimatedModel) -> Array:
    can = model.cmdp.available
    return can / can.sum(1, keepdims=True)


def _reward(model: EstimatedModel, mixture: Mixture) -> float:
    """J_r of a mixture on the model."""
    return float(mixture.weights @ [model.evaluate(pi).J[0] for pi in mixture.pi])
