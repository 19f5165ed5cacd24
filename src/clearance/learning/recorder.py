"""The position of a run, and recorders of its iterations: in memory (here) or in a folder (`runs.run_writer`)."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from clearance.core.arrays import Array
from clearance.learning.state import State
from clearance.learning.trace import Trace


class Position(NamedTuple):
    """Everything on which the rest of a run depends.

    state  θ, λ, k, and the memories of sampler and method
    d_sum  the sum of the occupancies of the iterates [S, A], if they are recorded
    steps  environment steps so far
    each   mean number of environment steps of one of the last iterations
    """

    state: State
    d_sum: Array | None
    steps: int = 0
    each: float = 0.0


class Recorder(Protocol):
    """A protocol for objects to which the loop reports its iterations."""

    @property
    def at(self) -> Position:
        """The position after the last iterations that were recorded."""
        ...

    @property
    def room(self) -> float:
        """The number of iterations that may still be added before the recorder should save."""
        ...

    def begin(self, first: Position) -> Position:
        """Return the position at which to continue: `first`, or the last one that was recorded before, if any."""
        ...

    def add(self, part: Trace, at: Position) -> None:
        """Record the iterations `part` and the position after them. If the call is interrupted, nothing is recorded."""
        ...

    def save(self) -> None:
        """Save all recorded iterations, so that another process can continue the run."""
        ...

    def end(self) -> None:
        """Finish the recording. No more iterations follow."""
        ...

    def trace(self) -> Trace:
        """Return the trace of all recorded iterations."""
        ...


class MemoryRecorder:
    """A recorder that keeps the run in memory and writes nothing."""

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
        """Do nothing, since the recording stays in memory."""

    def end(self) -> None:
        """Do nothing, since no file is open."""

    def trace(self) -> Trace:
        return Trace.joined([part for part, _ in self._added if part is not None])
