"""Confidence at any stopping time for means of bounded samples, by betting (Waudby-Smith and Ramdas 2024).

To test E X ≤ m for X ∈ [low, high], bet a share c of the capital on every sample:

    W_n(m) = Σ_c p_c Π_{i≤n} (1 + c z_i),    z_i = (X_i − m)/(high − low) ∈ [−1, 1],    c on a fixed grid in (0, 1)

If E[X_i | past] ≤ m, no bet gains on average, so by Ville's inequality P(W_n ≥ 1/δ for some n) ≤ δ: whenever the
capital reaches 1/δ the hypothesis is rejected; the test may be checked after every sample. The bets do not depend on
m, so the capital falls with m, and the smallest m that is not rejected is a lower confidence bound of the mean. One
event, "the capital at the true mean has reached 1/δ", holds all the errors of tests and bounds together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clearance.core.arrays import Array
from clearance.core.compiled.episodes import log_wealth
from clearance.core.errors import InputError

# From bets that suit rare events to ones for means within 1e-4 of a standard deviation of the limit.
BETS = 0.99 * 2.0 ** (-np.arange(26) / 2)
# log(1 + x) ≥ x − x²/2 + x³/3 − QUARTIC x⁴ for |x| ≤ c: the rest of the series is largest at x = −c.
QUARTIC = (-BETS - BETS**2 / 2 - BETS**3 / 3 - np.log1p(-BETS)) / BETS**4


@dataclass(eq=False)
class Bets:
    """The bets that E X > m, on samples in [low, high]: the test of one limit m, and lower bounds of the mean.

    The capital at m is kept exactly. Capitals at other m are bounded from below by four moments of the samples, so that
    a bound needs no second look at them. `likely`, the (slack, standard deviation) that earlier samples suggest, puts
    more of the capital on the bets that suit them; the bounds hold whatever it says.
    """

    m: float
    low: float
    high: float
    likely: tuple[float, float] | None = None
    wealth: Array = field(init=False)
    sums: Array = field(init=False)  # Σ z^k, k = 0..4
    log_prior: Array = field(init=False)
    given: float = field(init=False)

    def __post_init__(self) -> None:
        self.given = float(self.m)
        self.m = float(np.clip(self.m, self.low, self.high))  # beyond the range nothing is left to bet on
        self.wealth, self.sums = np.zeros(len(BETS)), np.zeros(5)
        self.log_prior = np.full(len(BETS), -np.log(len(BETS)))
        if self.likely is not None:
            slack, sd = self.likely
            best = np.clip(max(slack, 0.0) * self.width / max(sd, 1e-9 * self.width) ** 2, BETS[-1], 3 * BETS[0])
            near = np.exp(-0.5 * (np.log(BETS / best) / 0.6) ** 2)
            self.log_prior = np.log(0.9 * near / near.sum() + 0.1 / len(BETS))

    @property
    def width(self) -> float:
        return max(self.high - self.low, 1e-300)

    def update(self, x: Array) -> None:
        check_within(x, self.low, self.high)
        z = np.ascontiguousarray((x - self.m) / self.width)
        log_wealth(z, BETS, self.wealth)
        self.sums += [float(np.sum(z**k)) for k in range(5)]

    def rejects(self, delta: float) -> bool:
        """E X > m at level δ, valid at any stopping time; for certain if m lies below the range."""
        return self.given < self.low or self._log_capital(self.wealth) >= -np.log(delta)

    @property
    def mean(self) -> float:
        return self.m + self.width * self.sums[1] / max(self.sums[0], 1.0)

    @property
    def sd(self) -> float:
        n = max(self.sums[0], 1.0)
        return self.width * float(np.sqrt(max(self.sums[2] / n - (self.sums[1] / n) ** 2, 0.0)))

    def lower_bound(self, delta: float) -> float:
        """A lower confidence bound of the mean at level δ, valid at any stopping time."""
        least, most = (self.low - self.m) / self.width, (self.mean - self.m) / self.width
        if not self._rejected_at(least, delta):
            least, most = least, least
        for _ in range(60):
            middle = 0.5 * (least + most)
            least, most = (middle, most) if self._rejected_at(middle, delta) else (least, middle)
        passed = self.rejects(delta)
        return max(self.m + self.width * least, self.m if passed else self.low, self.low)

    def _rejected_at(self, shift: float, delta: float) -> bool:
        """Whether the capital at m + shift·width has reached 1/δ, by a lower bound of it."""
        n, s1, s2, s3, s4 = self.sums
        m1 = s1 - n * shift
        m2 = s2 - 2 * shift * s1 + n * shift**2
        m3 = s3 - 3 * shift * s2 + 3 * shift**2 * s1 - n * shift**3
        m4 = s4 - 4 * shift * s3 + 6 * shift**2 * s2 - 4 * shift**3 * s1 + n * shift**4
        wealth = BETS * m1 - BETS**2 * m2 / 2 + BETS**3 * m3 / 3 - QUARTIC * BETS**4 * m4
        return self._log_capital(wealth) >= -np.log(delta)

    def _log_capital(self, wealth: Array) -> float:
        return float(np.logaddexp.reduce(wealth + self.log_prior))


def check_within(x: Array, low: float, high: float) -> None:
    """Samples beyond their bounds would make the bets unfair."""
    slip = 1e-9 * max(abs(low), abs(high), high - low)
    if len(x) and not (x.min() >= low - slip and x.max() <= high + slip):
        raise InputError(f"a sample lies outside its declared bounds [{low:g}, {high:g}]: {x.min():g} .. {x.max():g}")
