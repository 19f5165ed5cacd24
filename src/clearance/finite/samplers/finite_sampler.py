"""The base class of samplers of finite models. Such samplers can compute the exact values of every policy."""

from __future__ import annotations

from typing import Any

from clearance.core.arrays import Array
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy, values_from_occupancy
from clearance.learning.sampler import Sampler


class FiniteSampler(Sampler):
    """A sampler of a finite model; subclasses are dataclasses whose first fields are `cmdp` and `policy`."""

    cmdp: CMDP
    policy: Any

    @property
    def statement(self) -> CMDP:
        return self.cmdp

    def measure(self, theta: Array) -> tuple[Array, Array]:
        """Return the exact J [n, 1+I] and the occupancies [n, S, A] of the n policies with parameters θ [n, d]."""
        d = occupancy(self.cmdp, self.policy.pi(theta))
        return values_from_occupancy(self.cmdp, d), d
