"""Verdicts from samples alone: CERTIFIED, VIOLATED or UNDECIDED at level δ, valid at any stopping time.

Each limit has two bets on the same episodes (`betting`): one against J_gi ≤ b_i, and one against J_gi ≥ b_i.

    CERTIFIED   every bet against J_gi ≤ b_i has reached 1/δ. This verdict is wrong only if a limit that is truly broken
                passes its own test, so δ need not be divided among the limits.
    VIOLATED    the mean of the bets against J_gi ≥ b_i has reached 1/δ. If every limit is met, no bet gains in
                expectation, so their mean does not either. One bet that has reached I/δ is enough for this verdict; if
                several limits are broken, all their bets contribute.

Sampling stops when a verdict is reached or the budget is spent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.betting import Bets
from clearance.certificates.certificate import Verdict
from clearance.certificates.episode_source import Episodes
from clearance.core.arrays import Array

Likely = tuple[Array, Array]
# An impatient test gives up only after FIRST episodes and after the share EARLY of what it can afford, and only if it
# would not pass even with HOPELESS standard errors more slack: checks are frequent, and rare costs may be seen late.
FIRST, EARLY, HOPELESS = 256, 0.1, 4.0
SMALLEST_LOOK = 32  # the number of episodes before the first check, if the state of the test is stored
PRIOR = 0.6  # the log capital that the bets lose because the best bet is not known in advance


class Component(NamedTuple):
    """The statistics of one component of a mixture: its number of episodes, and Σ X and Σ X² [1+I] of the samples X."""

    episodes: int
    total: Array
    squares: Array

    @property
    def mean(self) -> Array:
        return self.total / max(self.episodes, 1)


@dataclass(eq=False)
class Tally:
    """All bets on one policy, and the sums of its samples by component.

    up         for each signal, the bets that J is larger than the limit
    down       for each signal, the bets that J is smaller than the limit
    parts      the sums of the samples of each component of the mixture, by its index
    one_sided  which limits [I] can be confirmed but not refuted; () if there are none
    nu         the thresholds ν of CVaR limits [I], None for other limits; () if there are none

    The reward has no limit; the bets on it compare its J with the middle of its range.
    """

    up: list[Bets]
    down: list[Bets]
    parts: dict[int, Component]
    one_sided: tuple[bool, ...] = ()  # limits [I] that can be confirmed and not refuted; none if empty
    nu: tuple[float | None, ...] = ()  # thresholds ν [I] of CVaR limits (`core.tail_limits`), None for other limits

    @classmethod
    def of(cls, source: Episodes, b: Array, likely: Likely | None) -> Tally:
        (low, high), bias = source.bounds, source.bias
        at = np.concatenate([[0.5 * (low[0] + high[0])], b])
        hint = [None, *(zip(*likely, strict=True) if likely is not None else [None] * len(b))]
        up = [Bets(m, lo, hi, near, e) for m, lo, hi, near, e in zip(at, low, high, hint, bias, strict=True)]
        down = [Bets(-m, -hi, -lo, None, e) for m, lo, hi, e in zip(at, low, high, bias, strict=True)]
        return cls(up, down, {}, getattr(source, "one_sided", ()), getattr(source, "nu", ()))

    def update(self, X: Array, component: NDArray[np.int64]) -> None:
        for j, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            up.update(X[:, j])
            down.update(-X[:, j])
        for m in np.unique(component):
            own = X[component == m]
            old = self.parts.get(int(m), Component(0, np.zeros(X.shape[1]), np.zeros(X.shape[1])))
            sums = old.total + own.sum(0), old.squares + (own**2).sum(0)
            self.parts[int(m)] = Component(old.episodes + len(own), *sums)

    def bounds(self, delta: float) -> tuple[Array, Array]:
        lower = np.array([bets.lower_bound(delta) for bets in self.up])
        return lower, -np.array([bets.lower_bound(delta) for bets in self.down])

    def verdict(self, delta: float) -> Verdict:
        if all(bets.given <= bets.low or bets.rejects(delta) for bets in self.up[1:]):  # E X ≥ low is enough
            return "CERTIFIED"
        one_sided = self.one_sided or (False,) * (len(self.down) - 1)
        against = [bets.log_capital for bets, one in zip(self.down[1:], one_sided, strict=True) if not one]
        if not against:
            return "UNDECIDED"
        broken = np.logaddexp.reduce(against) - np.log(len(against))
        return "VIOLATED" if broken >= -np.log(delta) else "UNDECIDED"


class Standing(NamedTuple):
    """The state in which a test stopped: its random stream, the episodes and environment steps so far, and its bets."""

    key: np.uint64
    episodes: int
    steps: int
    tally: Tally


@dataclass(frozen=True, eq=False)
class Evidence:
    """The result of a test at level δ on episodes of the random stream `key`: the verdict, and the bets in `tally`."""

    verdict: Verdict
    episodes: int
    steps: int
    delta: float
    tally: Tally
    key: np.uint64

    @cached_property
    def mean(self) -> Array:
        """The estimate of J [1+I]."""
        if not self.components:
            return np.array([bets.mean for bets in self.tally.up])
        return np.sum([part.total for part in self.components.values()], axis=0) / self.episodes

    @cached_property
    def sd(self) -> Array:
        """The standard deviation [1+I] of one episode's estimate of J."""
        return np.array([bets.sd for bets in self.tally.up])

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Lower and upper confidence bounds of J [1+I], each at level δ on its own."""
        return self.tally.bounds(self.delta)

    @cached_property
    def interval(self) -> tuple[Array, Array]:
        """Lower and upper bounds of J [1+I] that all hold at the same time, at level δ."""
        return self.tally.bounds(self.delta / (2 * len(self.tally.up)))

    @property
    def lower(self) -> Array:
        return self.bounds[0]

    @property
    def upper(self) -> Array:
        return self.bounds[1]

    @property
    def shortfall(self) -> float:
        """The smallest difference between a lower bound of J_gi and its limit b_i, in units of the signal's range.

        It is ≥ 0 if the test passed.
        """
        return float(
            min(
                ((x - bets.given) / bets.width for x, bets in zip(self.lower[1:], self.tally.up[1:], strict=True)),
                default=0.0,
            )
        )

    @property
    def components(self) -> dict[int, Component]:
        return self.tally.parts

    @property
    def standing(self) -> Standing:
        """The state in which the test stopped, from which it can be continued."""
        return Standing(self.key, self.episodes, self.steps, self.tally)


def gather(
    source: Episodes,
    b: Array,
    delta: float,
    key: np.uint64,
    budget: float,
    *,
    likely: Likely | None = None,
    impatient: bool = False,
    start: Standing | None = None,
    keep: Callable[[Evidence], None] | None = None,
) -> Evidence:
    """Sample episodes until a verdict is reached or `budget` environment steps are spent; return the evidence.

    source     the source of episodes of the tested policy; b are the limits [I]
    delta      the level δ of the test; `key` is the random stream of its episodes
    likely     slack and standard deviation [I] of J_g that earlier samples suggest, for better bets; the test is valid
               whatever they are
    impatient  also stop when the budget will probably not suffice for a pass, to save samples for another candidate
    start      the state in which an earlier test stopped; the test continues from it with its own random stream
    keep       a function that is called with the evidence at every check, to store it. If it is given, the budget never
               ends the test between two checks, so that a test that is stopped and continued is bit-identical to one
               without interruption
    """
    key, n, steps, tally = (key, 0, 0, Tally.of(source, b, likely)) if start is None else start
    verdict = tally.verdict(delta) if n else "UNDECIDED"
    while verdict == "UNDECIDED":
        affordable = affordable_episodes(budget - steps, source.episode_steps)
        size = max(SMALLEST_LOOK, n // 8) if keep else min(look_size(n), affordable)
        if not 1 <= size <= affordable:
            break
        X, component, taken = source.draw(key, n, size)
        tally.update(X, component)
        n, steps = n + size, steps + taken
        verdict = tally.verdict(delta)
        if keep:
            keep(Evidence(verdict, n, steps, delta, tally, key))
        likely_most = n + affordable_episodes(budget - steps, min(source.episode_steps, steps / n))
        if (
            impatient
            and n >= max(FIRST, EARLY * likely_most)
            and not _can_pass(tally, b, delta, n, likely_most, HOPELESS)
        ):
            break
    return Evidence(verdict, n, steps, delta, tally, key)


def look_size(n: int) -> int:
    """Return how many episodes to draw after n until the next check: 1, 1, 2, 4, 8, 8, …; n/16 from n = 128 on."""
    return max(1, min(n, 8), n // 16)


def affordable_episodes(steps: float, each: float) -> int:
    """Return how many episodes of geometric length with mean `each` fit into `steps` steps.

    Four standard deviations of their total length are held in reserve.
    """
    return int((np.sqrt(4 + max(steps, 0.0) / each) - 2) ** 2)


def should_pass(seen: Evidence, b: Array, most: int, errors: float = 0.0) -> bool:
    """Return whether the test `seen` is undecided and should become CERTIFIED within `most` episodes in total.

    The prediction assumes that every slack is larger than observed so far by `errors` standard errors.
    """
    n = seen.episodes
    return seen.verdict == "UNDECIDED" and 0 < n < most and _can_pass(seen.tally, b, seen.delta, n, most, errors)


def _can_pass(tally: Tally, b: Array, delta: float, n: int, most: int, errors: float) -> bool:
    """Return whether every limit should pass within `most` episodes in total.

    `tally` holds the n episodes so far. Each limit is assumed to have the slack observed in them plus `errors` standard
    errors.
    """
    bets = tally.up[1:]
    mean, sd, reach = (np.array([getattr(x, name) for x in bets]) for name in ("mean", "sd", "reach"))
    return bool(np.all(mean - b + errors * sd / np.sqrt(n) >= slack_needed(sd, reach, most, delta)))


def slack_needed(
    sd: Array, reach: Array, n: float, delta: float, errors: float = 0.0, doubt: Array | float = 0.0
) -> Array:
    """Return the slack [I] that a test needs so that its bets should reach 1/δ within about n episodes.

    sd [I] is the standard deviation of the samples. The log capital of a bet c grows by c·slack − c²sd²/2 per episode.
    The best bet is c = slack/sd², but at most 1/reach, where `reach` [I] is the distance of the limit from the lower
    end of the range. The mean of n samples has the standard error sd/√n, and the slack itself the standard error
    `doubt`. The growth must suffice even if the slack is smaller by `errors` standard errors of both together.
    """
    n = max(n, 1.0)
    L, sd_ = (np.log(1 / delta) + PRIOR) / n, np.maximum(sd, 1e-300)
    noise = errors * np.sqrt(sd_**2 / n + np.square(doubt))
    free = noise + np.sqrt(noise**2 + 2 * L * sd_**2)
    return np.where(free * reach <= sd_**2, free, reach * L + sd_**2 / (2 * np.maximum(reach, 1e-300)) + noise)


def slack_per_sd(n: float, delta: float) -> float:
    """Return the slack, in standard deviations, that a test of n episodes at level δ needs.

    This is `slack_needed` for bets that are limited by the standard deviation of the samples and not by their range.
    """
    return float(np.sqrt(2 * (np.log(1 / delta) + PRIOR) / max(n, 1.0)))
