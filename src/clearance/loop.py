"""The only loop: a sampler, a frozen method and a key → the trace of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from clearance import episodes, kernels
from clearance.compiling import announce
from clearance.direction import SGD
from clearance.errors import EnvironmentFault, InputError, SolverError
from clearance.methods import CNPGPD, NPGPD, Feasibility, Method, State
from clearance.problem import Array, occupancy, values
from clearance.record import Memory, Position, Record
from clearance.sample import Exact, Sampler, Table
from clearance.trace import Trace

# Seconds between two looks at the person who watches (and at Ctrl-C).
PATIENCE = 0.2
# Iterations between two looks where a budget of steps is set.
CHUNK = 32
# Numbers that a chunk of iterations may hold.
LARGEST = 2**24

Progress = Callable[[Trace, State, int], None]  # what was just done, where that led, and K


class Run(NamedTuple):
    """The trace of a run, the state after it, the weighted sum of the iterates' occupancies if recorded, and the
    environment steps that it took.
    """

    trace: Trace
    state: State
    d_sum: Array | None
    status: Literal["done", "interrupted"]
    steps: int


def iterate(
    sampler: Sampler,
    method: Method | Feasibility,
    key: np.uint64,
    lam_max: float,
    *,
    world: object = None,
    exact: bool = False,
    budget: float = np.inf,
    progress: Progress | None = None,
    record: Record | None = None,
) -> Run:
    """Iterations 1 .. K of a method, or as many as `budget` environment steps allow.

    exact   record the exact J of every iterate, and the sum of their occupancies
    world   what the sampler carries, to begin with; its own beginning unless given
    record  where the iterations go; if it has some of them, the run goes on from there, with the same bits
    Ctrl-C ends the run with what is done so far.
    """
    if not isinstance(sampler, Exact) and not hasattr(sampler, "simulator"):
        announce(kernels.run if isinstance(sampler, Table) else episodes.td)
    record = Memory() if record is None else record
    at = record.begin(_first(sampler, method, world, exact=exact))
    K, n, status = method.K or 0, 1, "done"
    try:
        while at.state.k < K and at.steps + at.each <= budget:
            started = time.perf_counter()
            if np.isfinite(budget) and at.state.k:  # where the run ends must depend neither on the clock nor on saving
                n = int(np.clip((budget - at.steps) / max(at.each, 1), 1, CHUNK))
            n = n if np.isfinite(budget) else int(max(min(n, record.room), 1))
            n = 1 if hasattr(sampler, "simulator") else n  # iterations are long, and environments may fail: keep each
            state, part, wrong = _finite(sampler, method, key, at.state, min(n, K - at.state.k), lam_max)
            part, d_sum = _measured(sampler, part, at.d_sum)
            if len(part):
                record.add(part, Position(state, d_sum, at.steps + int(part.steps.sum()), float(part.steps.mean())))
                at = record.at
                n = _next(n, time.perf_counter() - started, _numbers(at))
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
        if isinstance(e, EnvironmentFault):  # told by whoever called; what was learned goes along
            e.learned = record.at.state if record.at.state.k else None
        raise
    at = record.at
    return Run(record.trace(), at.state, at.d_sum, status, at.steps)


def _first(sampler: Sampler, method: Method | Feasibility, world: object, *, exact: bool) -> Position:
    cmdp = sampler.cmdp
    world = sampler.begin() if world is None else world
    return Position(method.init(sampler.policy.init(), cmdp.I, world), np.zeros((cmdp.S, cmdp.A)) if exact else None)


def _next(n: int, elapsed: float, numbers: int) -> int:
    """How many iterations until the next look; a clock that stands still or goes back must not fill the memory."""
    return int(np.clip(n * PATIENCE / max(elapsed, 1e-6), 1, min(2 * n, max(1, LARGEST // numbers))))


def _numbers(at: Position) -> int:
    """What one iteration of a chunk holds, roughly: θ, and a linear system where occupancies are recorded."""
    return max(np.size(at.state.theta), 0 if at.d_sum is None else len(at.d_sum) ** 2, 1)


def _measured(sampler: Sampler, part: Trace, d_sum: Array | None) -> tuple[Trace, Array | None]:
    """The exact J of the iterates, and their occupancies added to the sum one after the other, whatever the chunk."""
    if d_sum is None or not len(part):
        return part, d_sum
    d = occupancy(sampler.cmdp, sampler.policy.pi(part.theta))
    counted = np.concatenate([d_sum[None], part.counts[:, None, None] * d])
    return replace(part, J=values(sampler.cmdp, d)), np.cumsum(counted, axis=0)[-1]


def _finite(
    sampler: Sampler, method: Method | Feasibility, key: np.uint64, state: State, n: int, lam_max: float
) -> tuple[State, Trace, str]:
    """n iterations, or as many as lead to finite numbers; then what to say of the one after them."""
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is found below, and said in words
        after, part = _advance(sampler, method, key, state, n, lam_max)
        if np.all(np.isfinite(after.theta)) and np.all(np.isfinite(after.lam)):
            return after, part, ""
        good = np.isfinite(part.theta).all(axis=1) & np.isfinite(part.lam).all(axis=1)
        n = int(np.argmin(good)) - 1 if not good.all() else n - 1
        after, part = _advance(sampler, method, key, state, n, lam_max) if n else (state, part[:0])
    return after, part, f"theta or lam is no longer finite at iteration {after.k + 1}: lower eta1, eta2 or alpha"


def _advance(
    sampler: Sampler, method: Method | Feasibility, key: np.uint64, state: State, n: int, lam_max: float
) -> tuple[State, Trace]:
    """n iterations: compiled where a kernel exists, else one readable step after the other."""
    if isinstance(sampler, Table) and isinstance(method, CNPGPD | NPGPD) and isinstance(method.direction, SGD):
        from clearance.methods import compiled

        return compiled.advance(sampler, method, key, state, n, lam_max)
    rows = []
    for _ in range(n):
        before = state
        state, info = method.step(np.uint64(kernels.fold(key, state.k)), sampler, state, lam_max)
        rows.append((before.theta, before.lam, *info))
    columns = [np.array(c) for c in zip(*rows, strict=True)]
    return state, Trace(*columns, J=np.empty((0, 1 + sampler.cmdp.I)))
