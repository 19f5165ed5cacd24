"""certify: measure a policy again, from the problem and the policy alone. The trace of the learning run is never used.

For a finite model the values are enclosed in intervals without rounding error, and CERTIFIED means proven. With
samples, a policy that breaks a limit is CERTIFIED with probability at most δ, no matter when the sampling stops.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from clearance.certificates.certificate import Certificate, EvidenceKind
from clearance.cluster.executor import Executor
from clearance.core.errors import InputError
from clearance.core.validation import is_number
from clearance.exact.optimum import Optimum
from clearance.runs.ledger_file import LedgerFolder
from clearance.runs.policy_argument import load_problem_policy
from clearance.runs.solution import Solution
from clearance.runs.worlds.dispatch import world_of


def certify(
    problem: Any,
    policy: Any,
    *,
    evidence: EvidenceKind | None = None,
    delta: float = 0.01,
    budget: float = 1e6,
    seed: int = 0,
    executor: Executor | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Certificate:
    """Certify that a policy meets every limit of a problem, or report that it does not.

    problem   a finite model, or a simulator
    policy    an `Optimum` or a `Solution`, whose policy is used; or the path of a run folder or policy file (.npz; for
              a finite model also .csv and .json, by the names of states and actions).
              Finite model: a table [S, A]; one action for each state, by index [S] or by name {state: action}; a
              `Mixture`; or any rule `state -> action`. A rule can be tested by samples only; its method `reset`, if it
              has one, is called at the start of every episode.
              Simulator: a `NetworkMixture`; on a Gymnasium or JAX environment also any rule `observation -> action`.
              Rules are never copied, and run in this process
    evidence  "exact": proven, with the distance from the optimum. "samples": the model is only simulated, for at most
              `budget` steps, and the verdict holds at level `delta`. Each simulator supports one kind only
    executor  runs the episodes on several workers (samples); the evidence is bit-identical for every executor
    out       a folder with a ledger of its tests (samples): a run folder, or a folder for certificates alone. Testing
              the same policy and limits at the same δ again continues the first test: `budget` counts from its first
              episode, and its `seed` stays. Any other test, and every test of a rule, gets a new share of δ. Without
              a folder the tests are not counted: repeating one with another seed spends δ again
    options   for finite models:
              best     the optimum, if it is known already;  compare=False: do not compute it (exact)
              bounds   declared (low, high) of the signals (r, g_1, …), [1+I] each; checked at every step (samples)
              base     V̂ [S, 1+I], estimated values used as control variate; the verdict is valid for any V̂ (samples)
    """
    if not (is_number(delta) and 0 < delta < 1):
        raise InputError(f"delta must be in (0, 1), got {delta!r}")
    if not (is_number(budget) and budget >= 1):
        raise InputError(f"budget must be at least 1 step, got {budget!r}")
    policy = policy.policy if isinstance(policy, Optimum | Solution) else policy
    policy = load_problem_policy(problem, policy) if isinstance(policy, str | PathLike) else policy
    how = {"evidence": evidence, "delta": delta, "budget": budget, "seed": seed, "executor": executor}
    if out is None:
        return world_of(problem).certify_policy(policy, **how, **options)
    with LedgerFolder(out) as ledger:
        found = world_of(problem).certify_policy(policy, **how, ledger=ledger, **options)
        ledger.write_certificate(found)
        return found
