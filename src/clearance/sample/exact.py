"""Every (s, a) with its occupancy: Algorithm 2 without noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clearance.network import Policy
from clearance.problem import CMDP, Array, evaluate
from clearance.sample.draws import Draws


@dataclass(frozen=True, eq=False)
class Exact:
    """The sampler that knows: weight d(s, a), the exact advantage, the exact J."""

    cmdp: CMDP
    policy: Policy

    def begin(self) -> None:
        """Nothing is carried from one batch to the next."""

    def batch(
        self, key: np.uint64, world: Any, theta: Array, N: int, extra: Array | None = None
    ) -> tuple[Draws, Array, Any, int]:
        """Draws over all S·A pairs and J [1+I]; no environment steps. `key` and `N` are for samplers with noise."""
        S, A, H = self.cmdp.S, self.cmdp.A, 1 + self.cmdp.I
        at = evaluate(with_signal(self.cmdp, extra), self.policy.pi(theta))
        s, a = np.divmod(np.arange(S * A), A)
        score = self.policy.score(theta, s, a)
        return Draws(at.d.ravel(), score, at.A.reshape(len(at.J), -1).T, np.arange(S * A)), at.J[:H], world, 0


def with_signal(cmdp: CMDP, extra: Array | None) -> CMDP:
    """The model with one more signal [S, A] behind the others, as a constraint that nobody keeps."""
    if extra is None:
        return cmdp
    h, b = np.concatenate([cmdp.h, extra[None]]), np.append(cmdp.b, 0.0)
    return cmdp.replace(h=h, b=b, names=(*cmdp.names, f"signal {1 + cmdp.I}"))
