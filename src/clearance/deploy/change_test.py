"""Test by betting whether mean costs stay below a limit, episode by episode (sequential and anytime-valid).

The mean may rise above the limit at any time; the test notices this after a delay (see the end).

The costs of episodes are X_1, X_2, … ≥ best, and the hypothesis is E[X_t | past] ≤ limit for every t. Let z = (X −
limit)/(limit − best) ≥ −1, and let c be a bet from a grid in (0, 1). A gambler who begins at episode k and bets c has
the capital Π_{i=k..t} (1 + c z_i) after episode t. A gambler who began long before a change has lost nearly everything
in the good episodes before it. Therefore many gamblers share the stake: start k has 1/(k(k+1)) of it, which sums to 1,
split evenly over the B bets. All starts with the same bet gain by the same factor, so one number for each bet is
enough:

    S_t(c) = (S_{t−1}(c) + 1/(t(t+1))) · (1 + c z_t),     M_t = mean_c S_t(c) + 1/(t+1)

where 1/(t+1) is the stake of the starts to come.

Theorem. If E[X_t | past] ≤ limit for every t, then P(M_t ≥ 1/δ for some t) ≤ δ.

Proof. M_0 = 1 and M_t ≥ 0. No bet gains on average, E[1 + c z_t | past] ≤ 1, hence E[M_t | past] ≤ mean_c S_{t−1}(c) +
1/(t(t+1)) + 1/(t+1) = mean_c S_{t−1}(c) + 1/t = M_{t−1}. So M is a nonnegative supermartingale, and Ville's inequality
gives the rest. Neither independence nor an upper bound of the costs is needed.

Delay. If the costs rise after k good episodes, M_t is at least the share 1/(B (k+1)(k+2)) of the start k + 1 times the
gain of its best bet since then. The logarithm of this gain must reach log(B/δ) + 2 log(k + 2), so the delay grows with
log k.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from clearance.core.arrays import Array

BETS = 0.99 * 2.0 ** (-np.arange(20) / 2)  # for rare large costs as well as for means that exceed the limit little
LARGEST = 1e300  # capital is capped here: a capital this large has long raised the alarm


class Scale(NamedTuple):
    """The limit of a cost, and `best`, the smallest cost that an episode can have."""

    limit: float
    best: float

    def gain(self, x: Any) -> Any:
        """Return z = (x − limit)/(limit − best) ≥ −1, the gain of one unit of stake on an episode with cost x.

        If limit = best, a cost above the limit refutes the limit at once and gets the largest z; other costs get 0.
        """
        width = self.limit - self.best
        if width > 0:
            return np.minimum((np.asarray(x, float) - self.limit) / width, LARGEST)
        return np.where(np.asarray(x, float) > self.limit, LARGEST, 0.0)

    @property
    def rounding(self) -> float:
        """A bound on the relative rounding error that one episode adds to the capitals S of the bets.

        It comes from the rounding of z (see `gain`), which is magnified if 1 + c z is near 0.01 for a bet c.
        """
        width = self.limit - self.best
        return 1e-13 * (1 + (abs(self.limit) + abs(self.best)) / width) if width > 0 else 1e-13


def advance(S: Array, z: Any, t: int) -> Array:
    """Return the capitals S_t [..., B] of the B bets after episode t = 1, 2, …; before the first, S_0 = 0.

    `S` holds the capitals S_{t−1} before the episode, and `z` [...] the gain z_t of one unit of stake.
    """
    return np.minimum((S + 1 / (t * (t + 1))) * (1 + BETS * np.asarray(z)[..., None]), LARGEST)


def evidence(S: Array, t: int, rounding: float) -> Any:
    """Return the total capital M_t [...] after t episodes, lowered by its rounding error.

    `S` [..., B] holds the capitals of the bets. If M_t reaches 1/δ, the limit is refuted at level δ.
    """
    return (np.mean(S, axis=-1) + 1 / (t + 1)) * math.exp(-rounding * (t + 10))
