"""Every (s, a) with its occupancy: Algorithm 2 without noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clearance.policy import SoftmaxPolicy
from clearance.problem import CMDP, Array, evaluate
from clearance.sample.draws import Draws


@dataclass(frozen=True, eq=False)
class Exact:
    """The sampler that knows: weight d(s, a), the exact advantage, the exact J."""

    cmdp: CMDP
    policy: SoftmaxPolicy

    def begin(self) -> None:
        """Nothing is carried from one batch to the next."""

    def batch(self, key: np.uint64, world: Any, theta: Array, N: int) -> tuple[Draws, Array, Any, int]:
        """Draws over all S·A pairs and J [1+I]; no environment steps. `key` and `N` are for samplers with noise."""
        S, A = self.cmdp.S, self.cmdp.A
        at = evaluate(self.cmdp, self.policy.pi(theta))
        s, a = np.divmod(np.arange(S * A), A)
        score = self.policy.score(theta, s, a)
        return Draws(at.d.ravel(), score, at.A.reshape(len(at.J), -1).T, np.arange(S * A)), at.J, world, 0
