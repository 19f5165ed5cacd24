"""What the algorithms ask of a problem: the `Sampler` protocol. Finite models and simulators implement it.

    batch(key, memory, θ, N) → Draws(weight, score, A), Ĵ [1+I], memory, environment steps

A class that inherits from `Sampler` gets the defaults of the optional parts (`measure`, `advance`).
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from clearance.core.arrays import Array
from clearance.learning.draws import Draws
from clearance.learning.state import State
from clearance.learning.trace import Trace


class Limits(Protocol):
    """The part of a problem that an algorithm may read: discount, limits, and the sizes of the signals."""

    @property
    def gamma(self) -> float: ...

    @property
    def b(self) -> Array:
        """Lower limits of J_g [I]."""
        ...

    @property
    def I(self) -> int:  # noqa: E743
        """Number of constraints."""
        ...

    @property
    def signal_ranges(self) -> tuple[float, Array]:
        """The ranges of r and of each g_i [I], the units of the problem; 1 where a signal is constant."""
        ...


class PolicyClass(Protocol):
    """A parametrised class of policies π_θ."""

    @property
    def tabular(self) -> bool:
        """Whether θ is one logit for each pair (s, a)."""
        ...

    def init(self) -> Array:
        """Return θ [d] of the first policy."""
        ...


class Sampler(Protocol):
    """Draws for one problem and one policy class. What it carries from batch to batch is its `memory`."""

    # Whether the loop should record each iteration on its own: iterations are long, and environments may fail.
    stepwise: ClassVar[bool] = False

    policy: Any

    @property
    def statement(self) -> Any:
        """What the algorithm may read of the problem: its `Limits`."""
        ...

    def begin(self) -> Any:
        """Return the memory before the first batch."""
        return None

    def batch(self, key: np.uint64, memory: Any, theta: Array, N: int, /) -> tuple[Draws, Array, Any, int]:
        """Return draws for the direction, Ĵ [1+I] for the dual step, the memory after them, and their steps."""
        ...

    def carry(self, theta: Array, before: Any, after: Any) -> Array:
        """Return θ of the same policy once the memory has moved from `before` to `after`."""
        return theta

    def measure(self, theta: Array) -> tuple[Array, Array] | None:
        """Return the exact J [n, 1+I] and the occupancies [n, S, A] of θ [n, d]; None where they are not known."""
        return None

    def advance(self, method: Any, key: np.uint64, state: State, n: int, lam_max: float) -> tuple[State, Trace] | None:
        """Run n iterations in one compiled call, where the sampler has one for this method; None elsewhere."""
        return None


class TabularSampler(Sampler, Protocol):
    """A sampler whose draws can carry one more signal [S, A], behind the others in A and not in Ĵ: an entropy, say."""

    def batch(
        self, key: np.uint64, memory: Any, theta: Array, N: int, extra: Array | None = None, /
    ) -> tuple[Draws, Array, Any, int]: ...
