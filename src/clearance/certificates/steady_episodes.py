"""Compare early with late episodes: no certificate is valid if the distribution of a source changes during sampling.

The first and the second half of the episodes so far are compared by the Kolmogorov–Smirnov distance D. For n samples in
each half, all from one distribution, P(D ≥ d) ≤ e·exp(−n d²) (Wei and Dudley 2012). The k-th comparison spends
FALSE_ALARM/(k(k+1)). So if a source does not change, the probability of a warning is at most FALSE_ALARM, for any
number of comparisons.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clearance.certificates.episode_source import Batch, Episodes
from clearance.core.arrays import Array

FALSE_ALARM = 1e-3
LEAST = 64  # the smallest number of episodes in each half for a comparison


@dataclass(eq=False)
class SteadyEpisodes:
    """A source of episodes that warns once if early and late episodes differ.

    source  the source from which the episodes are drawn
    name    the name of the source in the warning
    names   the names of the reward and the constraints [1+I]
    seen    the estimates of J of all episodes so far, one array for each call of `draw`
    looks   the number of comparisons so far
    """

    source: Episodes
    name: str
    names: tuple[str, ...]
    seen: list[Array] = field(default_factory=list)
    looks: int = 0
    warned: bool = False

    @property
    def bounds(self) -> tuple[Array, Array]:
        return self.source.bounds

    @property
    def bias(self) -> Array:
        return self.source.bias

    @property
    def one_sided(self) -> tuple[bool, ...]:
        return getattr(self.source, "one_sided", ())

    @property
    def nu(self) -> tuple[float | None, ...]:
        return getattr(self.source, "nu", ())

    @property
    def episode_steps(self) -> float:
        return self.source.episode_steps

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        found = self.source.draw(key, begin, n)
        self.seen.append(found[0])
        self._look()
        return found

    @property
    def constant(self) -> bool:
        """Whether all episodes so far gave the same sums."""
        return bool(self.seen) and all(bool((self.seen[0][0] == X).all()) for X in self.seen)

    def _look(self) -> None:
        X, self.looks = np.concatenate(self.seen), self.looks + 1
        n = len(X) // 2
        if self.warned or n < LEAST:
            return
        D = np.array([distance(x[:n], x[n : 2 * n]) for x in X.T])
        share = FALSE_ALARM / (self.looks * (self.looks + 1) * len(D))
        if D.max() >= np.sqrt((1 - np.log(share)) / n):
            self.warned = True
            which = self.names[int(D.argmax())]
            told = f"{self.name}: {which} of the first {n} episodes is distributed otherwise than of the {n} after them"
            warnings.warn(f"{told}: the simulator or the policy changes over time, so nothing is certain", stacklevel=2)


def distance(x: Array, y: Array) -> float:
    """Return the largest difference between the empirical distribution functions of samples x and y of equal length."""
    x, y = np.sort(x), np.sort(y)
    at: Any = np.concatenate([x, y])
    return float(np.abs(np.searchsorted(x, at, "right") - np.searchsorted(y, at, "right")).max() / len(x))
