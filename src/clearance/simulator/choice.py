"""From late iterates to a certified mixture: look at all, choose, test on fresh episodes, choose again.

Three mixtures may be put to the test, and spend .8 δ, .15 δ and .05 δ: the first matters most. A test takes a
part of what is left if some mixture should pass with that, else everything: small tests would all fail. What a test has
seen of its components is known to the next choice; its own verdict rests on its own episodes alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clearance.kernels import fold
from clearance.problem import Array
from clearance.selection import best_weights, safest_weights
from clearance.simulator.mixture import NetworkMixture
from clearance.simulator.problem import Simulator
from clearance.simulator.returns import Simulated
from clearance.solution import Attempt
from clearance.statistical import Component, affordable_episodes, gather

LOOK, AGAIN = 0.1, 0.05  # shares of the budget: a first look at all candidates, a second one at those in use
TESTS = (0.8, 0.15, 0.05)  # shares of δ
PART = 0.6  # the share of what is left that is enough for a test, if some mixture should pass with it
PLANNED = 0.85  # the share of a test within which it should pass
PRIOR = 0.6  # logarithm of what it costs the bets not to know the best one
GLANCE, SMALLEST = 4, 32  # episodes of a look at one candidate, and of a test, at least
PESSIMISM = 1.0  # standard errors by which candidates are lowered


def slack_needed(sd: Array, width: Array, n: float, delta: float) -> Array:
    """The slack [I] at which bets on samples of that spread and range reach 1/δ within n episodes, about.

    Capital grows by c·slack/width − c²sd²/2width² per episode; the best c is slack·width/sd², but at most 1.
    """
    L = (np.log(1 / delta) + PRIOR) / max(n, 1.0)
    free = sd * slack_per_sd(n, delta)
    return np.where(free * width <= sd**2, free, width * L + sd**2 / (2 * width))


def slack_per_sd(n: float, delta: float) -> float:
    """The same in standard deviations, where the bets are limited by the spread and not by the range."""
    return float(np.sqrt(2 * (np.log(1 / delta) + PRIOR) / max(n, 1.0)))


def least_episodes(candidates: int) -> int:
    """Fewer are not enough for a look at all candidates, a second one, and a test."""
    return 2 * GLANCE * candidates + SMALLEST


@dataclass(eq=False)
class Choice:
    """The candidates as one mixture, estimates of their J that grow, and what may be spent."""

    simulator: Simulator
    candidates: NetworkMixture
    key: np.uint64
    budget: float
    delta: float
    steps: int = 0
    attempts: list[Attempt] = field(default_factory=list)

    def __post_init__(self) -> None:
        n, H = self.candidates.M, 1 + self.simulator.statement.I
        self.n, self.total, self.squares = np.zeros(n), np.zeros((n, H)), np.zeros((n, H))
        low, high = self.source(np.eye(n)[0]).bounds
        self.width = (high - low)[1:]

    def source(self, w: Array) -> Simulated:
        return Simulated(self.simulator, self.candidates.part(w))

    @property
    def J(self) -> Array:
        return self.total / self.n[:, None]

    @property
    def variance(self) -> Array:
        return np.maximum(self.squares / self.n[:, None] - self.J**2, 0.0)

    @property
    def episode(self) -> float:
        return self.source(np.ones(self.candidates.M)).episode_steps

    def learn(self, m: int, seen: Component) -> None:
        self.n[m] += seen.episodes
        self.total[m] += seen.total
        self.squares[m] += seen.squares

    def measure(self, m: int, n: int) -> None:
        """n more episodes of candidate m."""
        stream = np.uint64(fold(self.key, 1000 + m))
        X, _, steps = self.source(np.eye(self.candidates.M)[m]).draw(stream, int(self.n[m]), n)
        self.steps += steps
        self.learn(m, Component(n, X.sum(0), (X**2).sum(0)))

    def run(self) -> tuple[Attempt, ...]:
        """All tests until one has passed or the budget is spent."""
        M = self.candidates.M
        for m in range(M):
            self.measure(m, max(GLANCE, int(LOOK * self.budget / self.episode / M)))
        for j, part in enumerate(TESTS, 1):
            level, left = part * self.delta, self.budget - self.steps
            if self.attempts and left < SMALLEST * self.episode:
                break
            for m in np.flatnonzero(self.planned(level)[0]):
                self.measure(int(m), max(GLANCE, int(AGAIN * left / self.episode)))
            self._test(j, *self.planned(level), level)
            if self.attempts[-1].evidence.verdict == "CERTIFIED":
                break
        return tuple(self.attempts)

    def planned(self, delta: float) -> tuple[Array, float]:
        """w [M] of the best mixture that a test should pass, or of the safest one where none would; and its steps."""
        b, left = self.simulator.statement.b, self.budget - self.steps
        sd = np.sqrt(np.median(self.variance[:, 1:], axis=0))
        low = self.J - PESSIMISM * np.sqrt(self.variance / self.n[:, None])
        for steps in (PART * left, left):
            episodes = PLANNED * affordable_episodes(steps, self.episode)
            w = best_weights(low, b, slack_needed(sd, self.width, episodes, delta))
            if w is not None:
                return w, steps
        return safest_weights(low, b), left

    def _test(self, j: int, w: Array, budget: float, delta: float) -> None:
        mean = w @ self.J
        spread = np.sqrt(w @ (self.variance + (self.J - mean) ** 2))
        likely = mean[1:] - self.simulator.statement.b, spread[1:]
        source, stream = self.source(w), np.uint64(fold(self.key, j))
        seen = gather(source, self.simulator.statement.b, delta, stream, budget, likely=likely)
        self.steps += seen.steps
        self.attempts.append(Attempt(source.mixture, seen, delta, float(seen.mean[0])))  # type: ignore[arg-type]
        for m, part in seen.components.items():
            self.learn(int(np.flatnonzero(w)[m]), part)
