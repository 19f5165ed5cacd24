"""The training loop of all methods: it runs a method with a sampler and a random key, and returns the trace."""

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

# Seconds between two progress reports (and between two chances to react to Ctrl-C).
PATIENCE = 0.2
# The largest number of iterations between two reports if there is a budget of steps.
CHUNK = 32
# The largest number of floats that the iterations between two reports may hold.
LARGEST = 2**24

Progress = Callable[[Trace, State, int], None]  # called with the new part of the trace, the state after it, and K


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
    """Run iterations 1 .. K of a method, or as many as fit in a budget of environment steps; return the run.

    lam_max   the upper bound Λ of the multipliers
    d_sum     if zeros [S, A]: record the exact J of every iterate and the sum of their occupancies; None to record
              neither
    budget    the largest number of environment steps
    progress  a function that is called with the new part of the trace, the state and K
    record    the recorder of the iterations; if it already holds iterations, the run resumes after them and gives
              bit-identical results
    first     the position at which the run starts; by default the first state that the method gives for the initial θ

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
            if np.isfinite(budget) and at.state.k:  # where the run ends must not depend on the clock or on checkpoints
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
        with contextlib.suppress(InputError):  # a full disk must not hide the original error
            record.save()
        if isinstance(e, EnvironmentFault):  # the caller reports the error, and may use what was learned so far
            e.learned = record.at.state if record.at.state.k else None
        raise
    at = record.at
    return Run(record.trace(), at.state, at.d_sum, status, at.steps)


def _next_chunk(n: int, elapsed: float, numbers: int) -> int:
    """Return how many iterations to run until the next progress report, after n iterations took `elapsed` seconds.

    `numbers` is how many floats one iteration holds in memory. This limits the result, so that memory does not overflow
    even if `elapsed` is always 0.
    """
    return int(np.clip(n * PATIENCE / max(elapsed, 1e-6), 1, min(2 * n, max(1, LARGEST // numbers))))


def _numbers_of(at: Position) -> int:
    """Return roughly how many floats one iteration holds in memory. `at` is the position of the run.

    This is the size of θ. If occupancies are recorded, it is at least S², the size of a linear system.
    """
    return max(np.size(at.state.theta), 0 if at.d_sum is None else len(at.d_sum) ** 2, 1)


def _measure(sampler: Sampler, part: Trace, d_sum: Array | None) -> tuple[Trace, Array | None]:
    """Return (`part` with the exact J of its iterates, `d_sum` plus their weighted occupancies).

    Both are returned unchanged if `d_sum` is None or the sampler cannot compute exact values. The iterates are added
    one by one, so the sum does not depend on how the run is split into parts.
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
    """Run n iterations, or fewer if θ or λ stops being finite; return (state, trace, error message).

    The message is "" if θ and λ are finite after all n iterations.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is detected below and reported in the message
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
    """Run n iterations in one compiled call if the sampler has one for this method, else one by one.

    Return (the new state, the trace of these iterations).
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
