"""The only loop: a sampler, a frozen method and a key → the trace of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from clearance import episodes, kernels
from clearance.compiling import announce
from clearance.direction import SGD
from clearance.errors import EnvironmentFault, SolverError
from clearance.methods import CNPGPD, NPGPD, Feasibility, Method, State
from clearance.problem import Array, occupancy, values
from clearance.sample import Exact, Sampler, Table
from clearance.trace import Trace

# Seconds between two looks at the person who watches (and at Ctrl-C).
PATIENCE = 0.2
# Iterations between two looks where a budget of steps is set.
CHUNK = 32

Progress = Callable[[Trace, State, int], None]  # what was just done, where that led, and K


class Run(NamedTuple):
    """The trace of a run, the state after it, the weighted sum of the iterates' occupancies if recorded."""

    trace: Trace
    state: State
    d_sum: Array | None
    status: Literal["done", "interrupted"]


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
) -> Run:
    """Iterations 1 .. K of a method, or as many as `budget` environment steps allow.

    exact  record the exact J of every iterate, and the sum of their occupancies
    world  what the sampler carries, to begin with; its own beginning unless given
    Ctrl-C ends the run with what is done so far.
    """
    cmdp, policy = sampler.cmdp, sampler.policy
    if not isinstance(sampler, Exact) and not hasattr(sampler, "simulator"):
        announce(kernels.run if isinstance(sampler, Table) else episodes.td)
    world = sampler.begin() if world is None else world
    chunks = [_Chunk(method.init(policy.init(), cmdp.I, world), None, None)]
    K, n, steps, each, status = method.K or 0, 1, 0, 0.0, "done"
    try:
        while chunks[-1].state.k < K and steps + each <= budget:
            started, state = time.perf_counter(), chunks[-1].state
            state, part = _advance(sampler, method, key, state, min(n, K - state.k), lam_max)
            _must_be_finite(state)
            d = occupancy(cmdp, policy.pi(part.theta)) if exact else None
            part = part if d is None else replace(part, J=values(cmdp, d))
            d_sum = None if d is None else np.einsum("k,ksa->sa", part.counts, d)
            chunks.append(_Chunk(state, part, d_sum))  # at once: Ctrl-C leaves all or nothing
            steps, each = steps + int(part.steps.sum()), float(part.steps.mean())
            if hasattr(sampler, "simulator"):  # iterations are long, and environments may fail: keep each
                n = 1
            elif np.isfinite(budget):  # where the run ends must not depend on the clock
                n = int(np.clip((budget - steps) / max(each, 1), 1, CHUNK))
            else:
                n = int(np.clip(n * PATIENCE / max(time.perf_counter() - started, 1e-6), 1, 2 * n))
            if progress is not None:
                progress(part, state, K)
    except KeyboardInterrupt:
        if len(chunks) == 1:
            raise
        status = "interrupted"
    except EnvironmentFault as e:  # told by whoever called; what was learned goes along
        e.learned = None if len(chunks) == 1 else chunks[-1].state
        raise
    trace = Trace.joined([c.trace for c in chunks if c.trace is not None])
    d_sum = np.sum([c.d_sum for c in chunks if c.d_sum is not None], axis=0) if exact else None
    return Run(trace, chunks[-1].state, d_sum, status)


class _Chunk(NamedTuple):
    """Some iterations: the state after them, their trace, and the sum of their occupancies if that is recorded."""

    state: State
    trace: Trace | None
    d_sum: Array | None


def _must_be_finite(state: State) -> None:
    if not (np.all(np.isfinite(state.theta)) and np.all(np.isfinite(state.lam))):
        raise SolverError(f"theta or lam is no longer finite at iteration {state.k}: lower eta1, eta2 or alpha")


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
