"""Search for the best certified policy by samples: measure all candidates, choose a mixture, test it, repeat.

A linear program over the estimated values (`best_mixture`) chooses a mixture with the slack that its test will need. If
some mixture should pass a short test, the first test is short, with a safe mixture. Once a mixture has passed, the rest
of the budget is used to test the mixture with the largest reward that should pass, if it beats the certified one.

The tests use fresh episodes and spend fixed shares of δ, which sum to δ. The samples of a test also improve later
estimates, but its verdict depends only on its own episodes. The best certified mixture is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from clearance.certificates.best_mixture import (
    Single,
    best_weights,
    choose_weights,
    safest_single,
    safest_weights,
    tolerated_loss,
)
from clearance.certificates.episode_source import Episodes
from clearance.certificates.sequential_test import (
    Component,
    Evidence,
    affordable_episodes,
    gather,
    should_pass,
    slack_needed,
)
from clearance.core.arrays import Array
from clearance.core.random_streams import fold

LEVELS = (0.6, 0.2, 0.1, 0.1)  # the shares of the search's δ that its tests spend (`ledger` defines this δ)
LOOK = 0.08  # the share of the budget for the first measurement of all candidates
AGAIN = 0.15  # the share of the remaining steps for measuring again the candidates that the program chooses
PARTS = (0.15, 0.6, 1.0)  # shares of the remaining steps for a test: the first one with which a mixture should pass
LONG = 0.5  # a test that takes at least this share of the remaining steps is long
LONGER = 1.2  # plans use the mean length of the episodes so far times this factor, since later ones may be longer
PLANNED = 0.7  # a test should pass within this share of its length
LUCK = (PLANNED, 1.5), (0.95, 1.5), (PLANNED, 0.75), (PLANNED, 0.0), (0.95, 0.0)  # (share, errors), tried in turn: a
# long test should pass within the share of its length even if its samples are worse by that many standard errors
PESSIMISM = 1.0  # standard errors by which the values of candidates are lowered
WORTHWHILE = 0.1  # once a test has passed, no further test is made with less than this share of the budget
SPREADS = 4  # how often the program is solved, at most, until its solution has the spread that was assumed
GLANCE, SMALLEST = 4, 32  # the smallest number of episodes of a measurement of one candidate, and of a test


class Candidates(Protocol):
    """A protocol for a list of `count` policies from which the search chooses."""

    @property
    def count(self) -> int: ...

    def mixture(self, weights: Array) -> Any:
        """Return the policy that draws one candidate per episode; candidate m has probability weights[m]."""
        ...

    def episodes(self, mixture: Any) -> Episodes:
        """Return a source of episodes of `mixture`, a policy made by the method `mixture`."""
        ...


class Attempt(NamedTuple):
    """One mixture that was tested on fresh samples at the level `delta`, its own share of δ.

    worth    the reward of the mixture, estimated from all samples of its components. It is used to choose between
             certified mixtures, because the estimates of single tests would favour the luckiest mixture
    subject  the digest that identifies the tested policy and problem in a ledger of tests; empty if there is no ledger
    """

    policy: Any
    evidence: Evidence
    delta: float
    worth: float
    subject: str = ""


class Search(Protocol):
    """A protocol for objects that test policies on samples to find the best certified one.

    steps  environment steps of the search so far
    spent  environment steps that were spent on the candidates before the search
    """

    steps: int
    spent: int

    def run(self) -> tuple[Attempt, ...]:
        """Run all tests that the budget allows and that seem useful; return one attempt for each test."""
        ...

    def episodes(self, policy: Any, /) -> Episodes:
        """Return a source of episodes of `policy`, one of the policies that the search has tested."""
        ...

    @property
    def tolerated_loss(self) -> float:
        """The loss of reward with which a certified single policy is still preferred to the best certified mixture."""
        ...

    def explain(self, attempt: Attempt, /) -> str:
        """Return a sentence that explains why the policy of `attempt` does not have a larger reward; "" if unknown."""
        ...


def least_episodes(candidates: int) -> int:
    """Return the smallest number of episodes for a search: two measurements of each candidate, and one test."""
    return 2 * GLANCE * candidates + SMALLEST


@dataclass(eq=False)
class CandidateSearch:
    """The search by samples. It holds the candidates, the estimates of their J so far, and the budget.

    b, delta  the limits [I], and the error probability δ of all tests together
    budget    environment steps of the whole search; `key` is its random stream
    fallback  weights [count] of a mixture that is known to be safe, or None; it is the last test if no other has passed
    reserve   environment steps reserved for the test of the fallback
    single    whether to test single candidates instead of mixtures (see `best_mixture`)
    attempts  the tests so far; `weights` are the weights of the tested mixtures. `steps` and `spent` are as in `Search`
    """

    candidates: Candidates
    b: Array
    key: np.uint64
    budget: float
    delta: float
    fallback: Array | None = None
    reserve: float = 0.0
    single: Single = "never"
    steps: int = 0
    spent: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    weights: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        n, H = self.candidates.count, 1 + len(self.b)
        if self.single == "require" and self.fallback is not None and np.count_nonzero(self.fallback) > 1:
            self.fallback = None
        self.n, self.total, self.squares = np.zeros(n), np.zeros((n, H)), np.zeros((n, H))
        self.looked, self.walked = np.zeros(n, np.int64), np.zeros(n)
        self.sources = [self._source(row) for row in np.eye(n)]
        low, high = self.sources[0].bounds
        self.reach = np.clip(self.b - low[1:], 0.0, (high - low)[1:])

    def _source(self, w: Array) -> Episodes:
        return self.episodes(self.candidates.mixture(w))

    def episodes(self, policy: Any) -> Episodes:
        """Return a source of episodes of `policy`, which is a mixture of the candidates."""
        return self.candidates.episodes(policy)

    def explain(self, attempt: Attempt) -> str:
        return ""

    # ------------------------------------------------------------------------------------------------- the estimates

    @property
    def J(self) -> Array:
        return self.total / self.n[:, None]

    @property
    def variance(self) -> Array:
        """The variance [count, 1+I] of one episode's estimate of J, for every candidate."""
        return np.maximum(self.squares / self.n[:, None] - self.J**2, 0.0)

    @property
    def doubt(self) -> Array:
        """The standard error [count, 1+I] of the estimated values of every candidate."""
        return np.sqrt(self.variance / self.n[:, None])

    @property
    def _lengths(self) -> Array:
        """The environment steps per episode of each candidate [count] that plans assume.

        The number is the mean so far times a factor above 1, but at most the expected length that the problem states.
        """
        longest = np.full(len(self.n), self.sources[0].episode_steps)
        if np.any(self.looked < GLANCE):
            return longest
        return np.minimum(longest, LONGER * self.walked / self.looked)

    @property
    def episode(self) -> float:
        """The environment steps per episode that plans assume for the candidate with the longest episodes."""
        return float(self._lengths.max())

    def _learn(self, m: int, seen: Component) -> None:
        self.n[m] += seen.episodes
        self.total[m] += seen.total
        self.squares[m] += seen.squares

    def _look(self, m: int, n: int) -> None:
        """Draw n more episodes of candidate m and update its estimate."""
        X, _, steps = self.sources[m].draw(fold(self.key, 1000 + m), int(self.looked[m]), n)
        self.looked[m] += n
        self.walked[m] += steps
        self.steps += steps
        self._learn(m, Component(n, X.sum(0), (X**2).sum(0)))

    # ------------------------------------------------------------------------------------------------- the search

    @property
    def certified(self) -> list[int]:
        """The indices of the attempts that have passed their tests."""
        return [j for j, a in enumerate(self.attempts) if a.evidence.verdict == "CERTIFIED"]

    def run(self) -> tuple[Attempt, ...]:
        """Run all tests that the budget allows and that seem useful; return one attempt for each test."""
        count = self.candidates.count
        for m in range(count):
            self._look(m, max(GLANCE, int(LOOK * self.budget / self.episode / count)))
        wanted = int(LOOK * self.budget / self.episode / count)  # more than before if episodes were short
        for m in range(count):
            if wanted > self.looked[m]:
                self._look(m, wanted - int(self.looked[m]))
        for j, share in enumerate(LEVELS):
            left = self.budget - self.steps
            if left < SMALLEST * self.episode and self.attempts:
                break
            if j == len(LEVELS) - 1 and self.fallback is not None and not self.certified:
                self._test(j, self.fallback, left, left, share * self.delta, patient=True)
            elif not self._next(j, share * self.delta, left):
                break
        J_r = self.J[:, 0]
        return tuple(a._replace(worth=float(w @ J_r)) for a, w in zip(self.attempts, self.weights, strict=True))

    def _next(self, j: int, delta: float, left: float) -> bool:
        """Choose and test a mixture, as test j at level `delta` within `left` steps; return False if none is useful."""
        if self.certified and left < WORTHWHILE * self.budget:
            return False
        left -= 0.0 if self.certified or self.fallback is None else self.reserve
        end = self.steps + left
        w, part = self._choose(delta, left, PARTS if not self.attempts else PARTS[1:])
        if self.certified and (w is None or not self._earns_more(w)):
            return False
        if w is None and self.fallback is None:
            w, part = self._look_again(delta, end - self.steps)
        w = self.fallback if w is None else w
        assert w is not None
        most = max(end - self.steps, 0.0)
        self._test(j, w, part * most, most, delta)
        return True

    def _look_again(self, delta: float, left: float) -> tuple[Array, float]:
        """Choose a mixture for a test at level `delta`, after repeated measurements of the one that looks safest.

        Of many mixtures measured with few samples, the one that looks safest is usually just the luckiest. Return
        (weights, share of the budget for the test). The mixture is the one with the largest reward among those expected
        to pass, or the safest one if none is expected to pass. `left` are the steps that remain.
        """
        stop, end = self.steps + AGAIN * left, self.steps + left
        for _ in range(200):
            affordable = affordable_episodes(stop - self.steps, self.episode)
            if affordable < GLANCE:
                break
            self._refine(self._safest(delta, left), affordable)
        w, part = self._best(delta, end - self.steps, PARTS[1:], PESSIMISM)
        return self._safest(delta, left) if w is None else w, part

    def _safest(self, delta: float, left: float) -> Array:
        """Return the weights of the mixture whose smallest slack is largest, for values lowered by PESSIMISM.

        Slacks are measured in units of the slack that a test at level `delta` with `left` steps needs.
        """
        sd = np.sqrt(np.median(self.variance[:, 1:], axis=0))
        episodes = max(PLANNED * affordable_episodes(left, self.episode), 1)
        need = slack_needed(sd, self.reach, episodes, delta)
        unit = np.where(need > 0, need, 1.0)
        low = np.concatenate([self.J[:, :1], ((self.J - PESSIMISM * self.doubt)[:, 1:] - self.b) / unit], axis=1)
        safest = safest_single if self.single == "require" else safest_weights
        return safest(low, np.zeros(len(self.b)))

    def _choose(self, delta: float, left: float, parts: tuple[float, ...]) -> tuple[Array | None, float]:
        """Return (weights, share): the best mixture that should pass a test, and the share of the `left` steps for it.

        The weights are None if there is no such mixture. The shares in `parts` are tried in order. Before the final
        choice, the mixtures that the linear program chooses are measured again, until the steps reserved for this are
        spent. The final choice uses pessimistic values: those of policies with few samples are lowered most.
        """
        stop, end = self.steps + AGAIN * left, self.steps + left
        parts = parts if not self.certified else (1.0,)
        for turn in range(200):  # alternate between optimistic and pessimistic values: a test may use either mixture
            affordable = affordable_episodes(stop - self.steps, self.episode)
            w, _ = self._best(delta, left, parts, turn % 2 * PESSIMISM)
            w = best_weights(self.J, self.b) if w is None else w
            if affordable < GLANCE or w is None:
                break
            self._refine(w, affordable)
        return self._best(delta, end - self.steps, parts, PESSIMISM)

    def _best(
        self, delta: float, left: float, parts: tuple[float, ...], pessimism: float
    ) -> tuple[Array | None, float]:
        """Return (weights, share) of the best mixture for values lowered by `pessimism` standard errors.

        The share is the first one in `parts` such that some mixture should pass a test with this share of the `left`
        steps. The result is (None, 1) if there is no such share.
        """
        low = self.J - pessimism * self.doubt
        careful = not self.certified and self.fallback is None
        for part in parts:
            w = None if careful and part >= LONG else self._best_for(low, part * left, delta)
            if w is not None:
                return w, part
        return self._best_long(low, delta, left, [part for part in parts if part >= LONG]) if careful else (None, 1.0)

    def _best_long(self, low: Array, delta: float, left: float, parts: list[float]) -> tuple[Array | None, float]:
        """Return (weights, share) for a long test, which uses most of the steps; (None, 1) if no mixture should pass.

        `low` [count, 1+I] are the assumed values. If possible, the mixture should pass even with unlucky samples. With
        a shorter test it may have less reward: return the smallest share of `left` in `parts` that loses little reward.
        """
        for planned, errors in LUCK:
            found = [(self._best_for(low, part * left, delta, errors, planned), part) for part in parts]
            tests = [(w, part, float(w @ low[:, 0])) for w, part in found if w is not None]
            if tests:
                most = max(J_r for _, _, J_r in tests)
                least = most - tolerated_loss(low, self.b, most)
                return next((w, part) for w, part, J_r in tests if J_r >= least)
        return None, 1.0

    def _best_for(
        self, low: Array, steps: float, delta: float, errors: float = 0.0, planned: float = PLANNED
    ) -> Array | None:
        """Return the weights of the best mixture that should pass a test with `steps` steps; None if none should.

        It should pass within the share `planned` of the test, even if samples are worse by `errors` standard errors.
        `low` [count, 1+I] are the assumed values. The linear program needs an assumption on the spread and the length
        of episodes. It is solved again with those of its solution, until these are no larger than assumed.
        """
        sd, length, w = np.sqrt(np.median(self.variance[:, 1:], axis=0)), float(np.median(self._lengths)), None
        for _ in range(SPREADS):
            episodes = planned * affordable_episodes(steps, length)
            w = choose_weights(low, self.b, slack_needed(sd, self.reach, episodes, delta, errors), self.single)
            if w is None:
                return None
            spread, longer = self._spread(w)[1:], float(w @ self._lengths)
            if np.all(spread <= sd) and longer <= length:
                break
            sd, length = np.maximum(sd, spread), max(length, longer)
        return w

    def _spread(self, w: Array) -> Array:
        """Return the standard deviation [1+I] of one episode's estimate of J for the mixture with weights w."""
        return np.sqrt(w @ (self.variance + (self.J - w @ self.J) ** 2))

    def _refine(self, w: Array, affordable: int) -> None:
        """Draw more episodes of the candidates with positive weight w: half as many as so far, at most `affordable`."""
        used = np.flatnonzero(w)
        add = np.minimum(max(self.n[used].sum() / 2, SMALLEST), affordable) * w[used]
        for m, extra in zip(used, add, strict=True):
            self._look(int(m), max(1, int(extra)))

    def _earns_more(self, w: Array) -> bool:
        """Return whether weights w seem to have more reward than any certified mixture, by over one standard error."""
        best = max((self.weights[j] for j in self.certified), key=lambda v: float(v @ self.J[:, 0]))
        doubt = float(np.sqrt(((w - best) ** 2) @ self.doubt[:, 0] ** 2))
        return float((w - best) @ self.J[:, 0]) > doubt

    def _test(self, j: int, w: Array, budget: float, most: float, delta: float, *, patient: bool = False) -> None:
        """Test the mixture with weights w on fresh episodes, as test j of the search, at level `delta`.

        The test takes `budget` steps; if it should then pass with `most` steps, it is continued up to `most`. Unless
        `patient` is true, it stops when a pass has become unlikely. Its episodes also update later estimates.
        """
        used, mixture = np.flatnonzero(w), self.candidates.mixture(w)
        source, likely = self.candidates.episodes(mixture), ((w @ self.J)[1:] - self.b, self._spread(w)[1:])
        seen = gather(source, self.b, delta, fold(self.key, j), budget, likely=likely, impatient=not patient)
        if should_pass(seen, self.b, affordable_episodes(most, self.episode)):  # continue a test that nearly passed
            seen = gather(source, self.b, delta, seen.key, most, impatient=not patient, start=seen.standing)
        self.steps += seen.steps
        self.attempts.append(Attempt(mixture, seen, delta, float(seen.mean[0])))
        self.weights.append(w)
        for m, part in seen.components.items():
            self._learn(int(used[m]), part)

    @property
    def tolerated_loss(self) -> float:
        """The loss of reward with which a certified single policy is still preferred to the best certified mixture."""
        if self.single == "never" or not self.certified:
            return 0.0
        return tolerated_loss(self.J, self.b, max(float(self.weights[j] @ self.J[:, 0]) for j in self.certified))


def best_attempt(attempts: tuple[Attempt, ...], tolerated_loss: float = 0.0) -> Attempt | None:
    """Return the certified attempt with the largest reward; if none is certified, the one closest to passing, if any.

    A single policy is preferred to a mixture whose reward is larger by at most `tolerated_loss`.
    """
    certified = sorted((a for a in attempts if a.evidence.verdict == "CERTIFIED"), key=lambda a: -a.worth)
    if not certified:
        return max(attempts, key=lambda a: a.evidence.shortfall, default=None)
    close = [a for a in certified if a.worth >= certified[0].worth - tolerated_loss]
    return next((a for a in close if tolerated_loss and a.policy.M == 1), certified[0])
