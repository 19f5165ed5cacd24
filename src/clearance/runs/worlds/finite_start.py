"""The start of a run on a finite model if the user gave `init`: from another run, or from a policy."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clearance.certificates.certificate import Certificate
from clearance.core.atomic_files import digest
from clearance.core.errors import InputError
from clearance.deploy.table_policy import TablePolicy
from clearance.exact.optimum import Optimum
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.finite_sampler import FiniteSampler
from clearance.learning.state import State
from clearance.runs import run_reader
from clearance.runs.run_reader import RunFolder
from clearance.runs.solution import Solution
from clearance.runs.start_file import describe_run, describe_verdict, last_state, same_shapes
from clearance.runs.worlds.world import Start

LEAST = 1e-6  # smallest probability of an action at the start: no probability of a softmax is 0
KINDS = "a run folder, a policy file, a Solution, an Optimum, a Mixture or a table [S, A]"


@dataclass(frozen=True, eq=False)
class FiniteSource:
    """The start that the user gave to `solve` as `init`: a policy or an earlier run.

    mixture  the policy;  origin: a description for the certificate
    lam      the multipliers of the earlier run, by the names of the constraints
    run      the earlier run; None if only a policy was given
    """

    mixture: Mixture
    origin: str
    lam: dict[str, float] = field(default_factory=dict)
    run: RunFolder | Solution | None = None
    policy_class: Any = None


def read_finite_source(init: Any, cmdp: CMDP) -> FiniteSource:
    """Read `init`, an argument of `solve`: a run, a policy or the path of a file."""
    if isinstance(init, str | Path) and os.path.isdir(init):
        init = run_reader.load(init)
    if isinstance(init, RunFolder):
        return _from_run(init, cmdp)
    if isinstance(init, Solution):
        lam, origin = _by_name(init.certificate), f"a run of seed {init.seed}{describe_verdict(init.certificate)}"
        return FiniteSource(_table(init.policy, cmdp), origin, lam or _multipliers(init), init)
    if isinstance(init, str | Path):
        return _from_policy(Mixture.load(init, cmdp), {})
    if isinstance(init, Optimum):
        lam = dict(zip(cmdp.names, init.lam.tolist(), strict=True)) if len(init.lam) == cmdp.I else {}
        return _from_policy(_table(init.policy, cmdp), lam)
    if isinstance(init, TablePolicy):
        return _from_policy(_table(Mixture(init.weights, init.pi), cmdp), _by_name(init.certificate))
    return _from_policy(_table(init, cmdp), {})


def _from_run(run: RunFolder, cmdp: CMDP) -> FiniteSource:
    if run.on_simulator:
        raise InputError(f"init: {run.folder} is a run on a simulator, this problem is a finite model")
    if run.policy is None:
        raise InputError(f"init: {run.folder} has no policy yet: finish it with clearance solve --resume")
    lam = dict(zip(run.problem.names, run.trace.lam[-1].tolist(), strict=True))
    return FiniteSource(_table(run.policy, cmdp), describe_run(run), lam, run)


def _from_policy(mixture: Mixture, lam: dict[str, float]) -> FiniteSource:
    return FiniteSource(mixture, f"policy {digest('policy', mixture.arrays())[:12]}", lam)


def _multipliers(solution: Solution) -> dict[str, float]:
    return dict(zip(solution.statement.names, solution.lam.tolist(), strict=True))


def _by_name(seen: Certificate | None) -> dict[str, float]:
    known = seen is not None and seen.lam is not None and seen.names is not None
    return dict(zip(seen.names or (), seen.lam or (), strict=True)) if seen is not None and known else {}


def _table(policy: Any, cmdp: CMDP) -> Mixture:
    if isinstance(policy, np.ndarray | list) and np.ndim(policy) == 2:
        policy = Mixture.single(np.asarray(policy, float))
    if not isinstance(policy, Mixture):
        raise InputError(f"init must be {KINDS}, got {type(policy).__name__}")
    if policy.pi.shape[1:] != (cmdp.S, cmdp.A):
        S, A = policy.pi.shape[1:]
        raise InputError(f"init is for {S} states and {A} actions, the model has {cmdp.S} and {cmdp.A}")
    return policy


def begin_finite(source: FiniteSource, cmdp: CMDP, sampler: FiniteSampler) -> Start:
    """Return the start of a run, from an earlier run or from a policy.

    If `source` holds a run with the same policy class, the start has the θ, λ and critic of its last iterate. If not,
    the policy class must be tabular softmax. The start is then θ = log π, where π is the stationary policy with the
    same values as the policy in `source`.
    """
    begun, state = sampler.policy.init(), _state(source, sampler)
    theta, memory = None, sampler.begin()
    if state is not None and np.shape(state.theta) == np.shape(begun):
        theta = np.asarray(state.theta, float)
        memory = state.sampler_memory if same_shapes(state.sampler_memory, memory) else memory
    elif sampler.policy.tabular:
        one = source.mixture if source.mixture.M == 1 else source.mixture.stationary(cmdp)
        theta = np.log(np.maximum(one.pi[0], LEAST)).reshape(begun.shape)
    if theta is None:
        raise InputError("init must be a run with the same policy class: a table of probabilities has no theta there")
    lam = np.array([max(source.lam.get(name, 0.0), 0.0) for name in cmdp.names])
    return Start(theta, lam, memory, theta[None][:0], 0, source.origin)


def _state(source: FiniteSource, sampler: FiniteSampler) -> State | None:
    if isinstance(source.run, RunFolder):
        return last_state(source.run, sampler)
    return None if source.run is None else source.run.state
