"""The `Sampler` protocol: the only interface through which the algorithms access a problem.

Finite models and simulators implement it.

    batch(key, memory, θ, N) → Draws(weight, score, A), Ĵ [1+I], memory, environment steps

A class that inherits from `Sampler` gets defaults for `measure`, `advance` and the other optional parts.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from clearance.core.arrays import Array
from clearance.learning.draws import Draws
from clearance.learning.state import State
from clearance.learning.trace import Trace


class Limits(Protocol):
    """A protocol for the part of a problem that an algorithm may read: discount, limits, and ranges of the signals."""

    @property
    def gamma(self) -> float: ...

    @property
    def b(self) -> Array:
        """The lower limits of J_g [I]."""
        ...

    @property
    def I(self) -> int:  # noqa: E743
        """The number of constraints."""
        ...

    @property
    def signal_ranges(self) -> tuple[float, Array]:
        """The ranges (max − min) of r and of each g_i [I]; 1 for a constant signal. Methods use them as units."""
        ...


class PolicyClass(Protocol):
    """A protocol for a parametrised class of policies π_θ."""

    @property
    def tabular(self) -> bool:
        """Whether θ is one logit for each pair (s, a)."""
        ...

    def init(self) -> Array:
        """Return θ [d] of the first policy."""
        ...


class Sampler(Protocol):
    """A protocol for objects that draw samples for one problem and one policy class.

    An object called `memory` carries data, such as a critic, from one batch to the next.
    """

    # Whether the loop records each iteration separately. This suits long iterations in environments that may fail.
    stepwise: ClassVar[bool] = False

    policy: Any

    @property
    def statement(self) -> Any:
        """The part of the problem that the algorithm may read, an object of the protocol `Limits`."""
        ...

    def begin(self) -> Any:
        """Return the memory before the first batch."""
        return None

    def batch(self, key: np.uint64, memory: Any, theta: Array, N: int, /) -> tuple[Draws, Array, Any, int]:
        """Return (draws for the direction, Ĵ [1+I] for the dual step, the new memory, environment steps).

        The samples are drawn with the random key `key` for the policy with parameters θ; N is the size of the batch.
        """
        ...

    def carry(self, theta: Array, before: Any, after: Any) -> Array:
        """Return parameters that give the same policy after `batch` as `theta` gave before it.

        The batch has changed the memory from `before` to `after`. For example, the memory may hold the mean and
        variance by which the policy normalises observations.
        """
        return theta

    def measure(self, theta: Array) -> tuple[Array, Array] | None:
        """Return the exact J [n, 1+I] and the occupancies [n, S, A] of the n policies with parameters θ [n, d].

        Return None if the exact values are not known.
        """
        return None

    def advance(self, method: Any, key: np.uint64, state: State, n: int, lam_max: float) -> tuple[State, Trace] | None:
        """Run n iterations of a method in one compiled call; return the new state and the trace.

        Return None if the sampler has no such call for this method.
        """
        return None


class TabularSampler(Sampler, Protocol):
    """A sampler whose draws can have one more signal [S, A], such as an entropy.

    The advantages of this signal are the last column of `Draws.A`; Ĵ does not contain it.
    """

    def batch(
        self, key: np.uint64, memory: Any, theta: Array, N: int, extra: Array | None = None, /
    ) -> tuple[Draws, Array, Any, int]: ...
