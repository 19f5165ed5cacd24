"""Where a run stands, and what is recorded of it: in memory here, in a folder in `store`."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from clearance.core.arrays import Array
from clearance.learning.state import State
from clearance.learning.trace import Trace


class Position(NamedTuple):
    """All that the rest of a run depends on.

    state  θ, λ, k, and what sampler and method remember
    d_sum  the sum of the occupancies of the iterates [S, A], if they are recorded
    steps  environment steps so far;  each  of one iteration, on average over the last chunk of them
    """

    state: State
    d_sum: Array | None
    steps: int = 0
    each: float = 0.0


class Recorder(Protocol):
    """What the loop tells of its iterations."""

    @property
    def at(self) -> Position:
        """After the last iterations that were added."""
        ...

    @property
    def room(self) -> float:
        """Iterations until it wants to save."""
        ...

    def begin(self, first: Position) -> Position:
        """Return where to continue: at `first`, unless iterations were recorded before."""
        ...

    def add(self, part: Trace, at: Position) -> None:
        """Iterations, and where they led: all of this or, when interrupted, nothing."""
        ...

    def save(self) -> None:
        """Save all that was added, so that another process can continue."""
        ...

    def end(self) -> None:
        """There will be no more."""
        ...

    def trace(self) -> Trace:
        """Return all iterations."""
        ...


class MemoryRecorder:
    """The record of a run that is not written anywhere."""

    room = math.inf

    def __init__(self) -> None:
        self._added: list[tuple[Trace | None, Position]] = []

    @property
    def at(self) -> Position:
        return self._added[-1][1]

    def begin(self, first: Position) -> Position:
        self._added = [(None, first)]
        return first

    def add(self, part: Trace, at: Position) -> None:
        self._added.append((part.thinned(at.state.k - len(part)), at))

    def save(self) -> None:
        """There is nowhere to put it."""

    def end(self) -> None:
        """Nothing is left to do."""

    def trace(self) -> Trace:
        return Trace.joined([part for part, _ in self._added if part is not None])
