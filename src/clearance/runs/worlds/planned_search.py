"""The search for the best certified policy on finite state spaces: plan on an estimated model, then test the plan.

All episodes improve the estimated model: those of the margin, of learning, of this search and of its tests. A plan is
the best policy on the estimated model that keeps the slack which its own test will need. That slack is computed from
the variance of the test's estimator on the estimated model, with the plan's V̂ as control variate.

The first test is a ladder if this promises more reward than the test of one policy. A ladder tests all mixtures of a
bold and a safe plan on the same episodes (`ladder`). If it promises too little, or has failed, one plan is tested.

Before the first test, the search draws episodes with its plans and with exploring policies. Exploring policies visit
state-action pairs that were rarely seen and may be better than estimated. If a plan fails its test, the test's episodes
have improved the model for the next plan. Tests use fresh samples and fixed shares of δ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import norm

from clearance.certificates.best_mixture import Single
from clearance.certificates.candidate_search import LEVELS, WORTHWHILE, Attempt
from clearance.certificates.episode_source import Episodes
from clearance.certificates.ladder import Ladder
from clearance.certificates.sequential_test import Evidence, affordable_episodes, gather, should_pass, slack_needed
from clearance.core.arrays import Array
from clearance.core.random_streams import fold
from clearance.exact.estimated_model import EstimatedModel, PolicyEstimate
from clearance.exact.planning import penalise, plan_best, plan_exploration, plan_safest
from clearance.finite.mixture import Mixture
from clearance.runs.worlds.planned_estimators import SHORTER, Estimator, make_estimator
from clearance.runs.worlds.planned_policy import Explored, Planned, join_ends, loss_words

ROUND = 0.04  # share of the budget for episodes by one plan, before the next plan is computed
ROUNDS = (2, 10)  # fewest and most such rounds before the first test; they stop when the slack it needs stops falling
OPTIMISM = 0.3  # a plan looks better than it is by so many standard errors of the model, since it is the best of many
CURIOUS = 0.3  # share of the steps of a round that explore
SOFT = 0.05  # share of uniformly random actions in these episodes
# For each test: the share of the remaining budget that it may use, and the probability with which it should pass if its
# slacks are as planned. The first test is bold or thorough, whichever needs less slack.
BOLD, THOROUGH = (0.8, 0.65), (0.88, 0.97)
LATER = (BOLD, (0.7, 0.9), (0.8, 0.97), (1.0, 0.995))
HALF, TRUST = (
    0.5,
    0.5,
)  # after the share HALF of its budget, a test continues only if it should pass with TRUST standard errors more
# Numbers of standard errors to subtract from the value of each state-action pair while planning: tried in turn until
# the plan should pass its test.
CAUTION = (0.3, 1.0, 3.0)
WORTH = 0.1  # another policy must promise more reward than a certified one, by this share of λ·(the slack needed)
# For the bold and the safe end of a ladder: a share of the ladder's steps, and the probability with which this end
# should pass a test of so many steps on its own.
ENDS = (1.0, 0.02), (0.5, 0.98)
UNEVEN = 1.12  # factor on the variance for a rung other than the one from which the episodes are drawn
# A ladder, whose result is a mixture, is tested only if it promises to save this share of the reward that the plan
# earns beyond the safest or the uniform policy.
CLEARLY = 1e-4
LEAST = 0.01  # share of the budget below which no test is made
PASSES = 3  # most linear programs until a plan keeps the slack that its own test needs


@dataclass(eq=False)
class PlannedSearch:
    """The search for the best certified policy, within a budget of environment steps and the error probability δ.

    others    further learned policies [n, S, A], used as candidates in addition to the plans
    plans     whether plans can be computed for the policy class by a linear program
    fallback  a mixture that is known to be safe; tested last if no plan has enough slack
    """

    explored: Explored
    b: Array
    key: np.uint64
    budget: float
    delta: float
    others: Array
    plans: bool = True
    fallback: Mixture | None = None
    single: Single = "prefer"
    steps: int = 0
    spent: int = 0
    passing: float = BOLD[1]
    tolerated_loss: float = 0.0
    attempts: list[Attempt] = field(default_factory=list)
    sources: list[Episodes] = field(default_factory=list)

    def episodes(self, policy: Mixture) -> Episodes:
        """Return the source of episodes that a policy was tested with."""
        return next(s for s, a in zip(self.sources, self.attempts, strict=True) if a.policy is policy)

    def explain(self, attempt: Attempt) -> str:
        """Return words on how much reward a tested policy loses against the best policy on the estimated model.

        Return "" if that best policy cannot be computed, or if there are no limits.

        The loss has two parts: the price of the slack that the certificate needs, and the rest, which better learning
        could avoid.
        """
        model = self.explored.model()
        plan = plan_best(model.cmdp, self.b, self.explored.policy) if self.plans else None
        if plan is None or not plan.room or not len(self.b):
            return ""
        most, J = model.evaluate(plan.pi), attempt.policy.weights @ [model.evaluate(p).J for p in attempt.policy.pi]
        price = float(plan.lam @ np.maximum(J[1:] - self.b, 0.0))
        rest = max(float(most.J[0] - J[0]) - price, 0.0)
        return loss_words(float(most.J[0]), float(most.doubt[0]), price, rest)

    @property
    def certified(self) -> list[int]:
        return [j for j, a in enumerate(self.attempts) if a.evidence.verdict == "CERTIFIED"]

    def run(self) -> tuple[Attempt, ...]:
        """Explore, then test policies while the budget allows and another test is promising; return all tests."""
        self._explore(LEVELS[0] * self.delta)
        return self.test_plans()

    def test_plans(self) -> tuple[Attempt, ...]:
        """Test plans while the budget allows and another test is promising; return all tests."""
        for j, share in enumerate(LEVELS):
            left = self.budget - self.steps
            if self.attempts and left < (WORTHWHILE if self.certified else LEAST) * self.budget:
                break
            if not self._next(j, share * self.delta, left):
                break
        model = self.explored.model()
        worth = [_reward(model, a.policy) for a in self.attempts]
        return tuple(a._replace(worth=w) for a, w in zip(self.attempts, worth, strict=True))

    def _explore(self, delta: float) -> None:
        """Draw episodes by plans and by exploring policies, as long as this reduces the slack that a test needs.

        delta  the level of the first test, which follows
        """
        share = ROUND * self.budget
        for k in range(ROUNDS[1] if self.plans else 0):
            model = self.explored.model()
            planned, _ = self._open(model, delta, self.budget - self.steps)
            if k >= ROUNDS[0] and not self._pays(planned, delta, share, np.sqrt(k / (k + 1))):
                break
            weights = np.append(1.0, planned.lam)
            curious = plan_exploration(model, planned.seen.V, weights, self.explored.high)
            self.steps += walk_both(self.explored, fold(self.key, 100 + k), planned.seen.pi, curious, share)

    def _pays(self, planned: Planned, delta: float, share: float, smaller: float) -> bool:
        """Return whether the first test, at level `delta`, would need less slack after another round of exploration.

        planned  the policy that would be tested now
        share    environment steps of the round, by which the budget of the test shrinks
        smaller  factor by which the round reduces the standard error of the model
        """
        left = BOLD[0] * (self.budget - self.steps)
        now, then = (
            float(planned.lam @ self._need(planned.seen, planned.how, delta, steps, factor, planned.lam))
            for steps, factor in ((left, 1.0), (left - BOLD[0] * share, smaller))
        )
        return then < now

    def _next(self, j: int, delta: float, left: float) -> bool:
        """Plan and test one more policy, and return True. If another test is not promising, return False without one.

        j  the index of the test;  delta: its level;  left: the environment steps that are left
        """
        part, self.passing = (1.0, BOLD[1]) if self.certified else LATER[j]
        model = self.explored.model()
        planned, part = (self._plan(model, delta, part * left), part) if j else self._open(model, delta, left)
        if self.certified:
            best = max(_reward(model, self.attempts[i].policy) for i in self.certified)
            if planned.seen.J[0] - best <= WORTH * float(planned.lam @ planned.need):
                return False
        if not j and self._climb(model, planned, delta, left):
            return True
        hopeless = j == len(LEVELS) - 1 and self._merit(planned)[0] < 0
        last = None if self.single == "require" and self.fallback and self.fallback.M > 1 else self.fallback
        if hopeless and last is not None and not self.certified:
            self._test(j, last, None, left, delta)
        else:
            self._test(j, Mixture.single(planned.seen.pi), planned, part * left, delta)
        return True

    def _open(self, model: EstimatedModel, delta: float, left: float) -> tuple[Planned, float]:
        """Return the plan for the first test, and the share of the remaining environment steps `left` for this test.

        A bold test takes a smaller share of the steps and passes less often than a thorough test. The kind of test that
        needs less slack is chosen.
        """
        part, self.passing = BOLD
        bold = self._plan(model, delta, part * left)
        more, self.passing = THOROUGH
        need = self._need(bold.seen, bold.how, delta, more * left, 1.0, bold.lam)
        if bold.lam @ need < bold.lam @ bold.need:
            return self._plan(model, delta, more * left), more
        self.passing = BOLD[1]
        return bold, part

    def _climb(self, model: EstimatedModel, single: Planned, delta: float, left: float) -> bool:
        """Test a ladder of mixtures if it promises clearly more reward than one policy; return whether it was tested.

        single  the plan for the test of one policy;  delta: the level;  left: the environment steps that are left
        """
        if not self.plans or self.single == "require" or not np.any(single.lam > 0):
            return False
        self.passing = 0.5
        need = self._need(single.seen, single.how, delta, left / UNEVEN, 1.0, single.lam)
        if float(single.lam @ (single.need - need)) <= self._enough(model, single):
            return False
        bold, safe = (self._end(model, single, delta, part * left, p) for part, p in ENDS)
        ends = join_ends(self.explored, self.b, bold, safe, single, need)
        if ends is None:
            return False
        about, likely = float(single.seen.J[0]), (need, single.how.sd[1:])
        rung = Ladder(ends.source, ends.share, self.b, delta, about, likely).climb(fold(self.key, 0), left)
        self._record(ends.mixture(rung.alpha), rung.seen, rung.source)
        return True

    def _enough(self, model: EstimatedModel, single: Planned) -> float:
        """Return the least reward that a ladder must save; if it saves less, one policy is preferred to a mixture."""
        if self.single == "never":
            return 0.0
        can = self.explored.available
        safest = plan_safest(model.cmdp.replace(b=self.b), self.explored.policy).pi
        gains = [single.seen.J[0] - model.evaluate(pi).J[0] for pi in (safest, can / can.sum(1, keepdims=True))]
        return CLEARLY * float(min((gain for gain in gains if gain > 0), default=0.0))

    def _end(self, model: EstimatedModel, single: Planned, delta: float, steps: float, passing: float) -> Planned:
        """Return the best policy that passes a test of `steps` steps on its own with probability `passing`."""
        self.passing = passing
        return self._fit(model, delta, steps, CAUTION[0], single)

    def _plan(self, model: EstimatedModel, delta: float, steps: float) -> Planned:
        """Return the best policy on the model that should pass a test of `steps` steps at level `delta`.

        If no policy is expected to pass, return the policy that is closest to passing.
        """
        plain = self._fit(model, delta, steps, 0.0, None) if self.plans else None
        found = [self._judge(model, pi, delta, steps, None, plain) for pi in self.others]
        for errors in () if plain is None else CAUTION:
            found.append(self._fit(model, delta, steps, errors, plain))
            if self._merit(found[-1])[0] == 0:
                break
        return max(found, key=self._merit)

    def _merit(self, planned: Planned) -> tuple[float, float]:
        """Return a sort key of a plan; a larger key is better.

        The first entry is minus the missing share of the slack that the test needs; it is 0 if at most a tenth is
        missing. The second entry is the reward minus one standard error.
        """
        seen = planned.seen
        lacking = np.min((seen.J[1:] - self.b - planned.need) / np.maximum(planned.need, 1e-300), initial=0.0)
        return min(float(lacking), -0.1) if lacking < -0.1 else 0.0, float(seen.J[0] - seen.doubt[0])

    def _fit(self, model: EstimatedModel, delta: float, steps: float, errors: float, start: Planned | None) -> Planned:
        """Return the best plan that keeps the slack its own test needs, found by solving a few linear programs in turn.

        errors  number of standard errors subtracted from the value of every state-action pair while planning. So, of
                two similar pairs, the one seen more often is preferred. The plan is judged without this penalty
        start   an earlier plan to begin from; None: begin without slack and without penalty
        """
        signals = model.cmdp if start is None else penalise(model, start.seen.V, errors)
        like = start if start is not None and self._merit(start)[0] == 0 else None  # otherwise its need says nothing
        target, tried = self.b + (0.0 if like is None else like.need), []
        for _ in range(PASSES):
            plan = plan_best(signals, target, self.explored.policy)
            planned = self._judge(model, plan.pi, delta, steps, plan.lam, like)
            tried.append(planned)
            if plan.room:
                like = planned
                target = target - np.where(plan.lam > 0, planned.seen.J[1:] - self.b - planned.need, 0.0)
            else:  # no policy on the model keeps this slack
                target = self.b + 0.5 * (target - self.b)
        return tried[-1] if self._merit(tried[-1])[0] == 0 else max(tried, key=self._merit)

    def _judge(
        self, model: EstimatedModel, pi: Array, delta: float, steps: float, lam: Array | None, like: Planned | None
    ) -> Planned:
        """Return the policy π as `Planned`, with the slack that a test of `steps` steps at level `delta` will need.

        lam   the prices of the limits; None: those of `like`, or 0 if there is no `like`
        like  an earlier plan, whose kind of estimator is used; None: use the estimator that needs the least slack
        """
        seen = model.evaluate(pi)
        lam = (np.zeros(len(self.b)) if like is None else like.lam) if lam is None else lam
        weights = np.where(lam > 0, lam, 1e-6 * max(float(lam.max(initial=0.0)), 1.0))
        lowest = self.explored.lowest(seen.pi)
        if like is not None:
            how = make_estimator(seen, lowest, like.how.power, like.how.shorter)
            return Planned(seen, how, self._need(seen, how, delta, steps, 1.0, lam), lam)
        options = []
        for power in self.explored.powers:
            shares = (0.0,) if lowest is None else SHORTER
            tried = [make_estimator(seen, lowest, power, np.full(len(seen.J), x)) for x in shares]
            needs = np.array([self._need(seen, how, delta, steps, 1.0, lam) for how in tried])
            how = make_estimator(seen, lowest, power, np.append(0.0, np.array(shares)[needs.argmin(0)]))
            options.append(Planned(seen, how, self._need(seen, how, delta, steps, 1.0, lam), lam))
        return min(options, key=lambda p: float(weights @ p.need))

    def _need(
        self, seen: PolicyEstimate, how: Estimator, delta: float, steps: float, smaller: float, lam: Array
    ) -> Array:
        """Return the slack [I] that a policy needs to pass a test of `steps` steps at level `delta`.

        seen     the policy's estimate on the model;  how: the estimator;  lam: the prices of the limits
        smaller  the factor by which the standard error of the model is multiplied
        """
        source = self.explored.episodes(Mixture.single(seen.pi), how.base, how.power)
        reach, n = np.maximum(self.b - source.bounds[0][1:], 0.0), affordable_episodes(steps, source.episode_steps)
        side = 1.0 if self.passing >= 0.5 else -1.0
        errors = side * float(norm.ppf(max(self.passing, 1 - self.passing) ** (1 / max(1, np.count_nonzero(lam)))))
        doubt = smaller * seen.doubt[1:]
        return slack_needed(how.sd[1:], reach, n, delta, errors, doubt) + OPTIMISM * doubt

    def _test(self, j: int, mixture: Mixture, planned: Planned | None, budget: float, delta: float) -> None:
        """Test one policy on fresh episodes, and record the result in `attempts`.

        Half of the budget is used first. The rest is used only if the test can still pass.

        j        the index of the test;  delta: its level
        planned  the plan that gave the policy; None for the fallback, which always gets the whole budget
        """
        if planned is None:
            source, likely = self.explored.episodes(mixture, None, 0.5), None
        else:
            source = planned.source(self.explored)
            likely = np.maximum(planned.seen.J[1:] - self.b, planned.need), planned.how.sd[1:]
        patient, key = planned is None, fold(self.key, j)
        seen = gather(source, self.b, delta, key, HALF * budget, likely=likely)
        if patient or should_pass(seen, self.b, affordable_episodes(budget, source.episode_steps), TRUST):
            seen = gather(source, self.b, delta, key, budget, impatient=not patient, start=seen.standing)
        self._record(mixture, seen, source)

    def _record(self, policy: Mixture, seen: Evidence, source: Episodes) -> None:
        """Add the test of a policy to `attempts`. `seen` is its evidence, from episodes of `source`."""
        self.steps += seen.steps
        self.attempts.append(Attempt(policy, seen, seen.delta, float(seen.mean[0])))
        self.sources.append(source)


def walk_both(explored: Explored, key: np.uint64, pi: Array, curious: Array, steps: float) -> int:
    """Draw episodes of `explored` by a plan π [S, A] and by the exploring policy `curious` [S, A].

    Each policy is mixed with a few uniform actions. The two together get about `steps` environment steps. Return the
    steps taken.
    """
    can = explored.available
    uniform, taken = can / can.sum(1, keepdims=True), 0
    for i, (part, own) in enumerate(((1 - CURIOUS, pi), (CURIOUS, curious))):
        taken += explored.walk(fold(key, i), (1 - SOFT) * own + SOFT * uniform, part * steps)
    return taken


def _reward(model: EstimatedModel, mixture: Mixture) -> float:
    """Return the reward J_r of a mixture on the estimated model."""
    return float(mixture.weights @ [model.evaluate(pi).J[0] for pi in mixture.pi])
