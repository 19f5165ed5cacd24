"""From iterates to a certified policy, by samples: choose, test on fresh episodes, choose again.

The j-th candidate that is put to the test spends δ/(j(j+1)), so that all tests together spend δ. What a test has seen
is known to the next choice; its own verdict rests on its own episodes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clearance.kernels import fold
from clearance.margin import Margin
from clearance.mixture import Mixture
from clearance.problem import CMDP, Array
from clearance.sample import Returns
from clearance.selection import Candidates
from clearance.solution import Attempt
from clearance.statistical import gather

# Choices and their tests: shares of what is left for the choice and for the test, and the share of the test after which
# it is expected to pass. First a short and safe one, then a bold one with nearly all, then what is left.
PLAN = ((0.15, 0.12, 0.4), (0.25, 0.74, 0.85), (0.3, 0.6, 0.4))
LOOK = 0.08  # share of the budget for a first look at all candidates
FEW = 30  # episodes of that look for each of them, at least: else there are fewer candidates


@dataclass(eq=False)
class Trials:
    """The candidates, the strictly feasible policy to fall back to, and what is left of the budget."""

    cmdp: CMDP
    candidates: Candidates
    margin: Margin
    key: np.uint64
    budget: float
    delta: float
    attempts: list[Attempt] = field(default_factory=list)
    weights: list[Array | None] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return self.candidates.steps + sum(a.evidence.steps for a in self.attempts)

    @property
    def passed(self) -> bool:
        return any(a.evidence.verdict == "CERTIFIED" for a in self.attempts)

    @property
    def reserve(self) -> float:
        """What the test of the safest policy may need: kept until another one has passed."""
        return 0.0 if self.passed else min(max(3.0 * self.margin.tested, 0.02 * self.budget), 0.3 * self.budget)

    def run(self) -> tuple[Attempt, ...]:
        """All tests that the budget allows; the last, if none has passed, is for the safest policy."""
        pi, look = self.candidates.pi, LOOK * self.budget / self.candidates.episode_steps
        for m in range(len(pi)):
            self.candidates.measure(m, max(2, int(look / len(pi))))
        for j, (choice, trial, plan) in enumerate(PLAN, 1):
            left = self.budget - self.steps - self.reserve
            if self.passed and left < 0.1 * self.budget:
                break
            episodes = plan * trial * left / self.candidates.episode_steps
            w = self.candidates.choose(choice * left - self.candidates.steps * (j == 1), episodes, self._level(j))
            if w is not None:
                used = np.flatnonzero(w)
                self._test(j, Mixture(w[used] / w[used].sum(), pi[used]), trial * left, w)
            elif not self.passed and self.margin.policy is not None:
                self._test(j, self.margin.policy, trial * left)
        if not self.passed and self.margin.policy is not None:
            self._test(len(PLAN) + 1, self.margin.policy, self.budget - self.steps)
        J_r = self.candidates.J[:, 0]
        pairs = zip(self.weights, self.attempts, strict=True)
        return tuple(a if w is None else a._replace(worth=float(w @ J_r)) for w, a in pairs)

    def _level(self, j: int) -> float:
        return self.delta / (j * (j + 1))

    def _test(self, j: int, mixture: Mixture, budget: float, w: Array | None = None) -> None:
        """One policy on fresh episodes; what they say of its components is for the next choice."""
        evidence = gather(
            Returns(self.cmdp, mixture, self.candidates.base),
            self.cmdp.b,
            self._level(j),
            np.uint64(fold(self.key, j)),
            budget,
            likely=None if w is None else self.candidates.expected(w),
            impatient=j <= len(PLAN),
        )
        self.attempts.append(Attempt(mixture, evidence, self._level(j), float(evidence.mean[0])))
        self.weights.append(w)
        if w is not None:
            used = np.flatnonzero(w)
            for m, seen in evidence.components.items():
                self.candidates.learn(int(used[m]), seen)
