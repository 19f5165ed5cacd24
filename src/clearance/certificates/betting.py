"""Anytime-valid confidence bounds for means of bounded samples, by betting (Waudby-Smith and Ramdas 2024).

To test E X ≤ m for X ∈ [low, high], bet a share c of the capital on every sample:

    W_n(m) = Σ_c p_c Π_{i≤n} (1 + c z_i),    z_i = (X_i − m)/(high − low),    c on a grid in (0, (high − low)/(m − low))

Each bet keeps a small share of its capital even if X has its smallest possible value. So bets far above 1 are possible
if m is near the lower end of the range, such as a cost limit of 25 in a range of 1000.

If E[X_i | past] ≤ m, no bet gains on average, so P(W_n ≥ 1/δ for some n) ≤ δ by Ville's inequality. The hypothesis is
rejected as soon as the capital reaches 1/δ, and the test may be checked after every sample.

The capital against another value of m comes from the same bets; bets that could lose more than their capital against
that value are left out. So the capital falls as m grows, and the smallest m that is not rejected is a lower confidence
bound of the mean. A test or a bound is wrong only if the capital at the true mean reaches 1/δ, which has probability at
most δ for all tests and bounds together.

Gains that may come from rounding do not count: every sum is lowered by a bound of its rounding error. The bets are
about J. The mean of X may differ from J by at most a known `bias` (random bits, discounts and sums have finite
precision), so the bets are placed against E X ≤ m + bias.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clearance.core.arrays import Array
from clearance.core.compiled.episodes import log_wealth
from clearance.core.errors import InputError

# The largest bets suit rare events; the smallest suit means that are only 1e-4 standard deviations from the limit.
BETS = 0.99 * 2.0 ** (-np.arange(26) / 2)
# log(1 + x) ≥ x − x²/2 + x³/3 − QUARTIC x⁴ for |x| ≤ c: the rest of the series, Σ_k (−x)^k/(k+4), is largest at x = −c.
# For small c, the closed form loses most of its digits by cancellation.
_SERIES = sum(BETS**k / (k + 4) for k in range(60))
_CLOSED = (-BETS - BETS**2 / 2 - BETS**3 / 3 - np.log1p(-BETS)) / BETS**4
QUARTIC = np.where(BETS < 0.5, _SERIES, _CLOSED) * (1 + 1e-13)
# Bets above 1 continue the grid, valid for x ≥ −LARGEST_LOSS. The grid has as many of them as m allows, and also the
# largest bet that m allows. QUARTIC[0] is valid for all of them, since x − x²/2 + x³/3 − x⁴/4 < log(1 + x) for x > 0.
LARGER = 0.99 * 2.0 ** (np.arange(1, 41) / 2)
LARGEST_LOSS = 0.98
CLOSE = 1.1  # a bet of the grid is left out if the largest bet is less than CLOSE times as large
# Bets smaller than RARE gain only after 10⁵ episodes or more, so they get less of the capital. The largest bet gets
# twice the capital, since no larger neighbour covers part of its range.
RARE = 0.02
ULP = 2.0**-53
SHORTEST = 1e-60  # the shortest range of samples whose fourth power does not underflow
MOMENTS = 100  # the number of roundings, in addition to those of the sums, in moments that were scaled and shifted


@dataclass(eq=False)
class Bets:
    """Bets against the hypothesis J ≤ m, for one limit m; they test whether J > m and give lower bounds of J.

    The bets are placed on samples X with |E X − J| ≤ `bias`; X and J lie in [low, high]. The capital of the bets
    against m is computed exactly. The capital against any other value is bounded from below by four moments of the
    samples, so the samples need not be kept to compute a confidence bound.

    likely     (slack, standard deviation) that earlier samples suggest: more capital is put on bets that suit these two
               numbers; the bounds are valid whatever these numbers are
    bets       the sizes c of the bets [n]; each starts with a share of the capital (`log_prior` is its log)
    wealth     the log of the growth of each bet's capital so far [n]
    sums       the sums of z^k, k = 0..4, over all scaled samples z
    given      the limit m as given, before the bias is added
    """

    m: float
    low: float
    high: float
    likely: tuple[float, float] | None = None
    bias: float = 0.0
    bets: Array = field(init=False)
    wealth: Array = field(init=False)
    sums: Array = field(init=False)  # Σ z^k, k = 0..4
    log_prior: Array = field(init=False)
    given: float = field(init=False)
    updates: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.given = float(self.m)
        check_bets(self.given, self.low, self.high, self.bias)
        self.m = float(np.clip(self.m + self.bias, self.low, self.high))  # outside the range, no bet is possible
        self.bets = self._grid()
        self.wealth, self.sums = np.zeros(len(self.bets)), np.zeros(5)
        prior = np.minimum(self.bets / RARE, 1.0) * np.where(self.bets == self.bets.max(), 2.0, 1.0)
        self.log_prior = np.log(prior / prior.sum())
        if self.likely is not None:
            slack, sd = self.likely
            best = max(slack, 0.0) * self.width / max(sd, 1e-9 * self.width) ** 2
            near = np.exp(-0.5 * (np.log(self.bets / np.clip(best, BETS[-1], 3 * self.bets.max())) / 0.6) ** 2)
            self.log_prior = np.log(0.9 * near / near.sum() + 0.1 * prior / prior.sum())

    def _grid(self) -> Array:
        """Return the bets c [n]: fixed ones up to 1, then larger ones up to the largest that the limit m allows."""
        most = (1 - 1e-12) * LARGEST_LOSS / max(self._loss(np.ones(1))[0], 1e-300)
        larger = LARGER[most > LARGER * CLOSE]
        return np.concatenate([BETS, larger, [most] if CLOSE < most <= LARGER[-1] else []])

    def _loss(self, bets: Array, shift: float = 0.0) -> Array:
        """Return the largest share of its capital that each bet [n] can lose on one sample.

        The bets are against the value m + shift·(high − low), where m is the tested limit.
        """
        return bets * (self.reach / self.width + shift)

    @property
    def width(self) -> float:
        return max(self.high - self.low, 1e-300)

    @property
    def reach(self) -> float:
        """The largest distance by which a sample can lie below the tested limit m: m − low.

        The bias is already added to m.
        """
        return self.m - self.low

    def update(self, x: Array) -> None:
        check_within(x, self.low, self.high)
        z = np.ascontiguousarray((x - self.m) / self.width)
        log_wealth(z, self.bets, self.wealth)
        self.sums += [float(np.sum(z**k)) for k in range(5)]
        self.updates += 1

    @property
    def log_capital(self) -> float:
        """A lower bound of the log capital of the bets against the limit m, without gains that may be rounding.

        It is inf if m < low.
        """
        return np.inf if self.given < self.low else self._total(self.wealth - self._wealth_error)

    def rejects(self, delta: float) -> bool:
        """Return whether J > m is shown at level δ; valid at any stopping time, and true if m < low."""
        return self.log_capital >= -np.log(delta)

    @property
    def mean(self) -> float:
        return self.m + self.width * self.sums[1] / max(self.sums[0], 1.0)

    @property
    def sd(self) -> float:
        n = max(self.sums[0], 1.0)
        return self.width * float(np.sqrt(max(self.sums[2] / n - (self.sums[1] / n) ** 2, 0.0)))

    def lower_bound(self, delta: float) -> float:
        """Return a lower confidence bound of J at level δ, valid at any stopping time."""
        least, most = (self.low - self.m) / self.width, (self.mean - self.m) / self.width
        if not self._rejected_at(least, delta):
            least, most = least, least
        for _ in range(60):
            middle = 0.5 * (least + most)
            least, most = (middle, most) if self._rejected_at(middle, delta) else (least, middle)
        rounding = 8 * ULP * (abs(self.m) + self.width + self.bias)
        found = self.m + self.width * least - self.bias - rounding
        return max(found, self.given if self.rejects(delta) else self.low, self.low)

    def _rejected_at(self, shift: float, delta: float) -> bool:
        """Return whether the bets reject J ≤ x at level δ, for the value x = m + shift·(high − low).

        m is the tested limit. The capital of the bets against x is bounded from below by four moments of the samples;
        x is rejected if this bound has reached 1/δ.
        """
        c, wealth = self.bets, self._wealth_from(shift)
        if shift <= 0:  # no bet has less capital there than at m
            wealth = np.maximum(wealth, self.wealth - self._wealth_error)
        fair = (c < 1) | (self._loss(c, shift) <= LARGEST_LOSS)
        return self._total(np.where(fair, wealth, -np.inf)) >= -np.log(delta)

    def _wealth_from(self, shift: float) -> Array:
        """Return a lower bound of each bet's log capital [n] against m + shift·(high − low), from the four moments."""
        _, m1, m2, m3, m4 = shifted(self.sums, shift)
        c, quartic = self.bets, self._quartic
        return c * m1 - c**2 * m2 / 2 + c**3 * m3 / 3 - quartic * c**4 * m4 - self._moment_error(abs(shift))

    def take_moments(self, sums: Array, about: float, updates: int) -> None:
        """Replace all samples so far by samples x that are given by their moments Σ (x − about)^k, k = 0..4.

        The capital is then the lower bound that follows from the moments. `updates` is the number of batches in which
        the moments were added up. If the range is so short that its fourth power is 0 in floating point, no bet is
        placed.
        """
        if self.width < SHORTEST:
            self.sums, self.wealth = np.append(sums[0], np.zeros(4)), np.zeros(len(self.bets))
            return
        scaled = sums / self.width ** np.arange(5)
        self.sums, self.updates = shifted(scaled, (self.m - about) / self.width), updates + MOMENTS
        self.wealth = self._wealth_from(0.0)

    def _total(self, wealth: Array) -> float:
        """Return the log of the total capital, given `wealth`, the log capital of each bet.

        A bound on the rounding error is subtracted.
        """
        return float(np.logaddexp.reduce(wealth + self.log_prior)) - 1e-11

    @property
    def _quartic(self) -> Array:
        return np.append(QUARTIC, np.full(len(self.bets) - len(BETS), QUARTIC[0]))

    @property
    def _absolute(self) -> Array:
        """Upper bounds of Σ |z|^k over all scaled samples z, for k = 0..4, by the Cauchy–Schwarz inequality."""
        n, _, s2, _, s4 = self.sums
        return np.array([n, np.sqrt(n * s2), s2, np.sqrt(s2 * s4), s4]) * (1 + 1e-9)

    @property
    def _wealth_error(self) -> Array:
        """A bound [n] on the rounding error of Σ log(1 + c z), the log capital of a bet c, over the scaled samples z.

        Since 1 + c z ≥ 0.01, the logarithm magnifies the four roundings of c z by at most 100. The sizes of the sums
        are bounded by |log(1 + x)| ≤ 4.7 |x| for x ≥ −0.99. At most 1024 logarithms are added in a row.
        """
        n, size = self.sums[0], self._absolute[1]
        additions = 1024 + n / 2**15 + self.updates
        return ULP * (3 * n + self.bets * size * (400 + 4.7 * (additions + 8)))

    def _moment_error(self, shift: float) -> Array:
        """Return a bound [n] on the rounding error of each bet's log capital as computed from the four moments.

        The bets are against values up to shift·(high − low) away from the tested limit m. The errors come from NumPy's
        pairwise sums and from cancellation.
        """
        a0, a1, a2, a3, a4 = self._absolute
        m1, m2 = a1 + shift * a0, a2 + 2 * shift * a1 + shift**2 * a0
        m3 = a3 + 3 * shift * a2 + 3 * shift**2 * a1 + shift**3 * a0
        m4 = a4 + 4 * shift * a3 + 6 * shift**2 * a2 + 4 * shift**3 * a1 + shift**4 * a0
        c = self.bets
        size = c * m1 + c**2 * m2 / 2 + c**3 * m3 / 3 + self._quartic * c**4 * m4
        return ULP * (100 + self.updates) * size


def shifted(sums: Array, shift: float) -> Array:
    """Return the sums Σ (z − shift)^k, k = 0..4, given the sums Σ z^k."""
    n, s1, s2, s3, s4 = sums
    return np.array(
        [
            n,
            s1 - n * shift,
            s2 - 2 * shift * s1 + n * shift**2,
            s3 - 3 * shift * s2 + 3 * shift**2 * s1 - n * shift**3,
            s4 - 4 * shift * s3 + 6 * shift**2 * s2 - 4 * shift**3 * s1 + n * shift**4,
        ]
    )


def check_bets(m: float, low: float, high: float, bias: float) -> None:
    """Raise InputError unless the limit m is a number, low ≤ high are finite, and bias ≥ 0."""
    if not (np.isfinite([low, high, high - low]).all() and low <= high and not np.isnan(m) and bias >= 0):
        raise InputError(f"the limit {m:g} cannot be tested on samples in [{low:g}, {high:g}]: give finite bounds")


def check_within(x: Array, low: float, high: float) -> None:
    """Raise InputError if a sample in x lies outside [low, high]; the test would be invalid."""
    if len(x) and not (x.min() >= low and x.max() <= high):
        raise InputError(
            f"a sample lies outside its declared bounds [{low:.17g}, {high:.17g}]: {x.min():.17g} .. {x.max():.17g}"
        )
