"""Unbiased estimates of J from whole episodes for the criterion "total": the sum of an episode until absorption.

    X = Σ_{t<T} (rest(s_t, a_t) + paid(s_{t+1})),     T: the first time from which all signals are 0 on every path

The module `payments` defines `rest` and `paid`. X has a known range if all signals are 0 on every cycle of the possible
transitions. Then T is finite with probability 1. Otherwise samples cannot bound J: no number of episodes shows how
large the next sum may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from clearance.certificates.episode_source import Batch
from clearance.core.arrays import Array
from clearance.core.compiled import total_sums
from clearance.core.compiled.alias_tables import alias_cells, draw_error, pack
from clearance.core.errors import InputError
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.algorithm2 import alias_tables, transition_error
from clearance.finite.samplers.finite_episodes import NOT_COUNTED, RuleEpisodes
from clearance.finite.samplers.payments import Payments, payments_of, silent, sum_range
from clearance.finite.samplers.transition_counts import TransitionCounts
from clearance.finite.support_graph import Mask

LONGEST = 2**17  # the largest number of steps of an episode; a longer episode is an error, and there is no certificate
PROOF = "use evidence='exact'"  # the way out where samples cannot certify
PILOT = 64  # the number of episodes from which the mean length is estimated if it is not given
PILOT_KEY = np.uint64(2**63 + 21)


@dataclass(frozen=True, eq=False)
class SumEpisodes:
    """Episodes of a mixture on a finite model with criterion "total" that is used only as a simulator.

    counts  the counters of transitions; None if they are not counted
    steps   the mean number of steps of an episode, if it is known; otherwise it is estimated from a few episodes
    """

    cmdp: CMDP
    mixture: Mixture
    counts: TransitionCounts | None = None
    steps: float | None = None

    @cached_property
    def _payments(self) -> Payments:
        return payments_of(self.cmdp)

    @cached_property
    def _range(self) -> tuple[Array, Array, Array]:
        each = [sum_range(self.cmdp, self._payments, pi > 0) for pi in self.mixture.pi]
        low, high, size = (np.array(part) for part in zip(*each, strict=True))
        return low.min(0), high.max(0), size.max(0)

    @property
    def rounding(self) -> Array:
        """A bound [1+I] on the rounding error of a sum. At most S steps of an episode add a number that is not 0."""
        size = self._range[2]
        return np.where(np.isfinite(size), 2.0**-52 * (self.cmdp.S + 8) * size, 0.0)

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The bounds (low, high) of the sum X, each [1+I]. A bound of exactly 0 stays 0."""
        low, high, _ = self._range
        return np.where(low == 0, 0.0, low - self.rounding), np.where(high == 0, 0.0, high + self.rounding)

    @property
    def bias(self) -> Array:
        """A bound [1+I] on |E X − J|: finite precision makes the sum X slightly biased.

        Each draw of a state or an action is wrong with a small probability, and a wrong draw changes X by at most its
        range. An episode has at most LONGEST draws of each kind.
        """
        cmdp, mixture, (low, high) = self.cmdp, self.mixture, self.bounds
        first = draw_error(cmdp.rho.sum(), cmdp.S) + draw_error(mixture.weights.sum(), mixture.M)
        each = transition_error(cmdp) + draw_error(mixture.pi.sum(-1), cmdp.A)
        return (high - low) * (first + LONGEST * each) + self._payments.error + self.rounding

    @property
    def episode_steps(self) -> float:
        """The mean number of steps of an episode: `steps` or, if it is None, the mean of a few episodes."""
        return self._measured if self.steps is None else self.steps

    @cached_property
    def _measured(self) -> float:
        return max(1.0, self.draw(PILOT_KEY, 0, PILOT)[2] / PILOT)

    @cached_property
    def _compiled(self) -> tuple[Any, ...]:
        M, pay = self.mixture.M, self._payments
        going = np.stack([~silent(self.cmdp, pay, pi > 0) for pi in self.mixture.pi])
        choice = alias_cells(np.array([0, M]), np.arange(M, dtype=np.int32), self.mixture.weights, 0)
        return alias_tables(self.cmdp), *pay[:3], going, np.stack([pack(pi) for pi in self.mixture.pi]), choice

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        """Draw episodes begin .. begin + n − 1 of the stream `key`.

        Return X [n, 1+I], the component of each episode [n], and the number of environment steps. Raise InputError if
        the range of X is infinite, or if an episode takes more than LONGEST steps.
        """
        check_range(self.cmdp, self.bounds)
        X, component, steps, episode = self._sample(key, begin, n, LONGEST)
        if episode >= 0:
            raise too_long_error(episode)
        return X, component, max(steps, n)  # an episode that ends at once counts as one step

    def _sample(self, key: np.uint64, begin: int, n: int, longest: int) -> tuple[Array, Any, int, int]:
        X, component = np.empty((n, 1 + self.cmdp.I)), np.empty(n, np.int64)
        counts = self.counts or NOT_COUNTED
        steps, episode = total_sums.sums(key, begin, *self._compiled, longest, X, component, counts.hits, counts.starts)
        return X, component, int(steps), int(episode)

    def walk(self, key: np.uint64, steps: float) -> tuple[int, int]:
        """Draw episodes until about `steps` steps were taken, only to count transitions.

        Return (the number of steps taken, the number of episodes). An episode is cut off after LONGEST steps, or after
        a tenth of `steps` if that is less.
        """
        taken, begin, longest = 0, 0, max(1, min(LONGEST, int(0.1 * steps)))
        while taken < steps:
            n = max(1, int((steps - taken) * begin / (2 * taken + begin))) if begin else 1
            _, _, more, cut = self._sample(key, begin, n, longest)
            taken, begin = taken + more, begin + n if cut < 0 else cut + 1
            if more == 0:  # all signals are 0 from the start states on
                break
        return taken, begin


class RuleSums(RuleEpisodes):
    """Episodes of a rule `act` on a model with criterion "total". The rule may take every available action."""

    @cached_property
    def _like(self) -> Any:
        return SumEpisodes(self.cmdp, Mixture.single(self.cmdp.available / self.cmdp.available.sum(1, keepdims=True)))

    @cached_property
    def _over(self) -> Mask:
        return silent(self.cmdp, payments_of(self.cmdp), self.cmdp.available)

    def _episode(self, rng: np.random.Generator, episode: int, x: Array) -> int:
        pay, s, t = payments_of(self.cmdp), int(rng.choice(self.cmdp.S, p=self.cmdp.rho)), 0
        check_range(self.cmdp, self._like.bounds)
        self._watched.begin()
        while not self._over[s]:
            if t == LONGEST:
                raise too_long_error(episode)
            a = self._action(s)
            after = self._next(rng, s, a)
            x += pay.rest[s * self.cmdp.A + a] + np.where(pay.over[s], 0.0, pay.paid[after])
            s, t = after, t + 1
        return t


def check_range(cmdp: CMDP, bounds: tuple[Array, Array], way_out: str = PROOF) -> None:
    """Raise InputError if the range (low, high) of an episode's sum is infinite.

    The message names the signals whose range is infinite, and how the problem can be stated instead. `way_out` says how
    to do without samples.
    """
    low, high = bounds
    names = ("the reward", *cmdp.names)
    endless = [names[j] for j in np.flatnonzero(~np.isfinite(low) | ~np.isfinite(high))]
    if endless:
        raise InputError(unbounded_words(endless, way_out))


def unbounded_words(names: Sequence[str], way_out: str = PROOF) -> str:
    add = "add" if len(names) > 1 else "adds"
    return (
        f"a run can go round a cycle in which {' and '.join(names)} {add} up, so sums until absorption have no range, "
        f"and samples cannot certify them: state horizon=H for the first H steps, or {way_out}"
    )


def too_long_error(episode: int) -> InputError:
    return InputError(
        f"episode {episode} has not ended after {LONGEST:,} steps: state horizon=H for the first H steps, or use "
        "evidence='exact'"
    )
