"""The loop that all methods share: it runs a method with a sampler and a random key, and returns the trace."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import EnvironmentFault, InputError, SolverError
from clearance.core.random_streams import fold
from clearance.learning.methods.method_base import Method
from clearance.learning.recorder import MemoryRecorder, Position, Recorder
from clearance.learning.sampler import Sampler
from clearance.learning.state import State
from clearance.learning.trace import Trace

# Seconds between two looks at the person who watches (and at Ctrl-C).
PATIENCE = 0.2
# Iterations between two looks where a budget of steps is set.
CHUNK = 32
# Numbers that a chunk of iterations may hold.
LARGEST = 2**24

Progress = Callable[[Trace, State, int], None]  # what was just done, where that led, and K


class Run(NamedTuple):
    """The result of a run: its trace, the last state, its status and the environment steps.

    d_sum  the sum of the iterates' occupancies, weighted by `Trace.counts`; None if it was not recorded
    """

    trace: Trace
    state: State
    d_sum: Array | None
    status: Literal["done", "interrupted"]
    steps: int


def iterate(
    sampler: Sampler,
    method: Method,
    key: np.uint64,
    lam_max: float,
    *,
    d_sum: Array | None = None,
    budget: float = np.inf,
    progress: Progress | None = None,
    record: Recorder | None = None,
    first: Position | None = None,
) -> Run:
    """Run iterations 1 .. K of a method, or as many as `budget` environment steps allow; return the run.

    lam_max   the upper bound Λ of the multipliers
    d_sum     zeros [S, A] to record the exact J of every iterate and the sum of their occupancies; None to record
              neither
    progress  a function that is called with the new part of the trace, the state and K
    record    the recorder of the iterations; if it holds iterations already, the run resumes after them, with
              bit-identical results
    first     the position at which the run starts; by default the first state of the method and the policy class

    Ctrl-C ends the run and keeps the iterations done so far.
    """
    record = MemoryRecorder() if record is None else record
    if first is None:
        first = Position(method.init(sampler.policy.init(), sampler.statement.I, sampler.begin()), d_sum)
    at = record.begin(first)
    K, n, status = method.K or 0, 1, "done"
    try:
        while at.state.k < K and at.steps + at.each <= budget:
            started = time.perf_counter()
            if np.isfinite(budget) and at.state.k:  # where the run ends must depend neither on the clock nor on saving
                n = int(np.clip((budget - at.steps) / max(at.each, 1), 1, CHUNK))
            n = n if np.isfinite(budget) else int(max(min(n, record.room), 1))
            n = 1 if sampler.stepwise else n
            state, part, wrong = _advance_while_finite(sampler, method, key, at.state, min(n, K - at.state.k), lam_max)
            part, d_sum = _measure(sampler, part, at.d_sum)
            if len(part):
                record.add(part, Position(state, d_sum, at.steps + int(part.steps.sum()), float(part.steps.mean())))
                at = record.at
                n = _next_chunk(n, time.perf_counter() - started, _numbers_of(at))
            if wrong:
                raise SolverError(wrong)
            if progress is not None:
                progress(part, at.state, K)
        record.end()
    except KeyboardInterrupt:
        record.save()
        if record.at.state.k == 0:
            raise
        status = "interrupted"
    except Exception as e:
        with contextlib.suppress(InputError):  # a full disk must not hide what went wrong before
            record.save()
        if isinstance(e, EnvironmentFault):  # the caller reports it; what was learned travels along
            e.learned = record.at.state if record.at.state.k else None
        raise
    at = record.at
    return Run(record.trace(), at.state, at.d_sum, status, at.steps)


def _next_chunk(n: int, elapsed: float, numbers: int) -> int:
    """Return the number of iterations until the next progress report, after n iterations that took `elapsed` seconds.

    Each iteration holds `numbers` numbers in memory. This number limits the result, so that the memory cannot overflow
    even if the clock stands still.
    """
    return int(np.clip(n * PATIENCE / max(elapsed, 1e-6), 1, min(2 * n, max(1, LARGEST // numbers))))


def _numbers_of(at: Position) -> int:
    """Return roughly how many numbers one iteration needs in memory.

    It is the size of θ or, if occupancies are recorded, of a linear system of S² numbers, whichever is larger. `at` is
    the position of the run, which holds θ.
    """
    return max(np.size(at.state.theta), 0 if at.d_sum is None else len(at.d_sum) ** 2, 1)


def _measure(sampler: Sampler, part: Trace, d_sum: Array | None) -> tuple[Trace, Array | None]:
    """Return `part` of the trace with the exact J of its iterates, and `d_sum` plus their weighted occupancies.

    Both are returned unchanged if exact values are not known or not wanted (d_sum is None). The iterates are added one
    by one, so the sum does not depend on how the run is cut into parts.
    """
    known = None if d_sum is None or not len(part) else sampler.measure(part.theta)
    if known is None or d_sum is None:
        return part, d_sum
    J, d = known
    counted = np.concatenate([d_sum[None], part.counts[:, None, None] * d])
    return replace(part, J=J), np.cumsum(counted, axis=0)[-1]


def _advance_while_finite(
    sampler: Sampler, method: Method, key: np.uint64, state: State, n: int, lam_max: float
) -> tuple[State, Trace, str]:
    """Run n iterations, or fewer if θ or λ is no longer finite; return the state, the trace, and an error message.

    The message is "" if all n iterations gave finite numbers.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found below, and said in words
        after, part = _advance(sampler, method, key, state, n, lam_max)
        if np.all(np.isfinite(after.theta)) and np.all(np.isfinite(after.lam)):
            return after, part, ""
        good = np.isfinite(part.theta).all(axis=1) & np.isfinite(part.lam).all(axis=1)
        n = int(np.argmin(good)) - 1 if not good.all() else n - 1
        after, part = _advance(sampler, method, key, state, n, lam_max) if n else (state, part[:0])
    return after, part, f"theta or lam is no longer finite at iteration {after.k + 1}: lower eta1, eta2 or alpha"


def _advance(
    sampler: Sampler, method: Method, key: np.uint64, state: State, n: int, lam_max: float
) -> tuple[State, Trace]:
    """Run n iterations in one compiled call if the sampler has one for this method, else step by step.

    Return the new state and the trace of these iterations.
    """
    compiled = sampler.advance(method, key, state, n, lam_max)
    if compiled is not None:
        return compiled
    rows = []
    for _ in range(n):
        before = state
        state, info = method.step(fold(key, state.k), sampler, state, lam_max)
        rows.append((before.theta, before.lam, *info))
    columns = [np.array(c) for c in zip(*rows, strict=True)]
    return state, Trace(*columns, J=np.empty((0, 1 + sampler.statement.I)))
