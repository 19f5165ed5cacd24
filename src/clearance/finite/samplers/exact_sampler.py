"""The sampler without noise: it returns every pair (s, a), weighted by its occupancy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import evaluate
from clearance.finite.samplers.finite_sampler import FiniteSampler
from clearance.finite.two_layer_policy import Policy
from clearance.learning.draws import Draws


@dataclass(frozen=True, eq=False)
class Exact(FiniteSampler):
    """The sampler without noise: it returns exact occupancies, advantages and values."""

    cmdp: CMDP
    policy: Policy

    def batch(
        self, key: np.uint64, memory: Any, theta: Array, N: int, extra: Array | None = None
    ) -> tuple[Draws, Array, Any, int]:
        """Return (all S·A pairs as weighted draws, exact J [1+I], the unchanged `memory`, 0 environment steps).

        The policy has the parameters θ; `key` and `N` are not used. With `extra` [S, A], a signal that is not in the
        model, the draws also have advantages of this signal.
        """
        S, A, H = self.cmdp.S, self.cmdp.A, 1 + self.cmdp.I
        at = evaluate(append_signal(self.cmdp, extra), self.policy.pi(theta))
        s, a = np.divmod(np.arange(S * A), A)
        score = self.policy.score(theta, s, a)
        return Draws(at.d.ravel(), score, at.A.reshape(len(at.J), -1).T, np.arange(S * A)), at.J[:H], memory, 0


def append_signal(cmdp: CMDP, extra: Array | None) -> CMDP:
    """Return the model with one more signal `extra` [S, A]; unchanged if `extra` is None.

    The signal is added as a constraint, but no function enforces this constraint.
    """
    if extra is None:
        return cmdp
    h, b = np.concatenate([cmdp.h, extra[None]]), np.append(cmdp.b, 0.0)
    return cmdp.replace(h=h, b=b, names=(*cmdp.names, f"signal {1 + cmdp.I}"))
