"""What the samplers of finite models share: the model knows the exact values of every policy."""

from __future__ import annotations

from typing import Any

from clearance.core.arrays import Array
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy, values_from_occupancy
from clearance.learning.sampler import Sampler


class FiniteSampler(Sampler):
    """A sampler of a finite model; its dataclass begins with `cmdp` and `policy`."""

    cmdp: CMDP
    policy: Any

    @property
    def statement(self) -> CMDP:
        return self.cmdp

    def measure(self, theta: Array) -> tuple[Array, Array]:
        """Return the exact J [n, 1+I] and the occupancies [n, S, A] of θ [n, d]."""
        d = occupancy(self.cmdp, self.policy.pi(theta))
        return values_from_occupancy(self.cmdp, d), d
