"""Test several mixtures of two policies on the same episodes, and certify the boldest one that passes.

The mixtures are the rungs of a ladder. Each rung draws a bold policy with probability α and a safe one otherwise.
Episodes are drawn from only one of these mixtures, with probability `share` for the bold policy. For another rung, an
episode of component m is reweighted by v_m/w_m, so that the estimate stays unbiased:

    Y = a + (v_m/w_m)(X − a),    v = (α, 1 − α),    w = (share, 1 − share),    a any number;    E Y = J(rung)

The rungs are tested in order, from the safe end on, each at the full level δ. The first rung that fails ends the test.
No correction for the number of rungs is needed. To see this, suppose that some rung breaks a limit, and let k be the
first such rung. A rung that breaks a limit can be certified only if rung k has passed its own test, which has
probability at most δ (`betting`; the order of the rungs is fixed before the episodes are drawn). So the data of the
test itself decide how much slack the policy keeps. No allowance for bad luck or for errors of an estimated model has to
be made in advance.

The capital of the bets of every rung is bounded from below by four moments of the samples of each component.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from clearance.certificates.betting import check_within
from clearance.certificates.episode_source import Batch, Episodes
from clearance.certificates.sequential_test import (
    Component,
    Evidence,
    Likely,
    Tally,
    affordable_episodes,
    look_size,
    should_pass,
)
from clearance.core.arrays import Array

ALPHAS = np.arange(65) / 64  # the rungs, from the safe policy to the bold one
# After the share HALF of the budget, a test ends unless the safe end should pass with TRUST standard errors more slack.
HALF, TRUST = 0.5, 0.5


@dataclass(frozen=True, eq=False)
class Reweighted:
    """Episodes of the mixture with the weights `wanted` [M], drawn from the mixture with the weights `share` [M].

    drawn  the source of episodes, which draws component m with probability share[m]
    about  the numbers a [1+I] around which estimates are stretched; close to J, so that the variance stays small
    """

    drawn: Episodes
    share: Array
    wanted: Array
    about: Array

    @property
    def ratio(self) -> Array:
        return self.wanted / self.share

    @property
    def bounds(self) -> tuple[Array, Array]:
        (low, high), most = self.drawn.bounds, self.ratio.max()
        below, above = np.maximum(self.about - low, 0.0), np.maximum(high - self.about, 0.0)
        slip = 2.0**-48 * most * (np.abs(low) + np.abs(high) + np.abs(self.about))
        # The ratio may be 0, so the point `about` itself is a possible estimate.
        return self.about - most * below - slip, self.about + most * above + slip

    @property
    def bias(self) -> Array:
        """A bound on |E Y − J|: weights stretch the bias of X, and errors of the probabilities of the components."""
        low, high = self.drawn.bounds
        slip = 2.0**-44 * (np.abs(low) + np.abs(high) + np.abs(self.about))
        return 2 * self.ratio.max() * (self.drawn.bias + slip)

    @property
    def episode_steps(self) -> float:
        return self.drawn.episode_steps

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        X, component, steps = self.drawn.draw(key, begin, n)
        return self.about + self.ratio[component][:, None] * (X - self.about), component, steps


class Rung(NamedTuple):
    """One rung: the weight α of the bold policy, its source of episodes, and the evidence for this rung."""

    alpha: float
    source: Reweighted
    seen: Evidence


@dataclass(eq=False)
class Ladder:
    """A test of all mixtures of a bold and a safe policy within a budget.

    source  episodes of the mixture (bold, safe) with the weights (share, 1 − share)
    b       the limits [I];  delta: the level of the test
    about   the reward around which estimates are stretched
    likely  slack and standard deviation [I] that earlier samples suggest, for better bets
    """

    source: Episodes
    share: float
    b: Array
    delta: float
    about: float
    likely: Likely | None = None
    episodes: int = 0
    steps: int = 0
    batches: int = 0
    moments: Array = field(init=False)  # Σ (X − a)^k of each component, k = 0..4 [2, 5, 1+I]

    def __post_init__(self) -> None:
        self.moments = np.zeros((2, 5, 1 + len(self.b)))
        (low, high), about = self.source.bounds, np.append(self.about, self.b)
        self.centre = np.clip(about, low, high)

    def climb(self, key: np.uint64, budget: float) -> Rung:
        """Draw episodes of the random stream `key`, and return the boldest rung that passes, or else the safe end.

        Half of the budget is used first. The rest is used only if the safe end can still pass.
        """
        self._draw(key, HALF * budget)
        safe = self.rung(0.0, key)
        most = self.episodes + affordable_episodes(budget - self.steps, self.source.episode_steps)
        if safe.seen.verdict == "CERTIFIED" or should_pass(safe.seen, self.b, most, TRUST):
            self._draw(key, budget)
        return self.highest(key)

    def highest(self, key: np.uint64) -> Rung:
        """Return the last rung before the first that fails; the safe end if that one fails."""
        best = self.rung(0.0, key)
        if best.seen.verdict == "CERTIFIED":
            for alpha in ALPHAS[1:]:
                rung = self.rung(float(alpha), key)
                if rung.seen.verdict != "CERTIFIED":
                    break
                best = rung
        return best

    def rung(self, alpha: float, key: np.uint64) -> Rung:
        """Return the rung α with the evidence that the episodes so far give for it."""
        share = np.array([self.share, 1 - self.share])
        source = Reweighted(self.source, share, np.array([alpha, 1 - alpha]), self.centre)
        tally = Tally.of(source, self.b, self.likely)
        stretched = self.moments * source.ratio[:, None, None] ** np.arange(5)[:, None]
        for j, (up, down) in enumerate(zip(tally.up, tally.down, strict=True)):
            sums = stretched[:, :, j].sum(0)
            up.take_moments(sums, float(self.centre[j]), self.batches)
            down.take_moments(sums * (-1.0) ** np.arange(5), -float(self.centre[j]), self.batches)
        tally.parts |= self._parts(alpha)
        verdict = tally.verdict(self.delta)
        return Rung(alpha, source, Evidence(verdict, self.episodes, self.steps, self.delta, tally, key))

    def _parts(self, alpha: float) -> dict[int, Component]:
        """Return the sums of the samples of each component, as if it had been drawn with its weight in the rung α."""
        bold = round(alpha * self.episodes)
        parts = {}
        for m, n in enumerate((bold, self.episodes - bold)):
            _, first, second = self.moments[m, :3] / max(self.moments[m, 0, 0], 1.0)
            if n:
                square = self.centre**2 + 2 * self.centre * first + second
                parts[m] = Component(n, n * (self.centre + first), n * square)
        return parts

    def _draw(self, key: np.uint64, budget: float) -> None:
        """Draw episodes until `budget` steps are spent, and add up the moments of each component."""
        (low, high), each = self.source.bounds, self.source.episode_steps
        while size := min(look_size(self.episodes), affordable_episodes(budget - self.steps, each)):
            X, component, taken = self.source.draw(key, self.episodes, size)
            for j, column in enumerate(X.T):
                check_within(column, low[j], high[j])
            for m in range(2):
                away = X[component == m] - self.centre
                self.moments[m] += [(away**k).sum(0) for k in range(5)]
            self.episodes, self.steps, self.batches = self.episodes + size, self.steps + taken, self.batches + 1
