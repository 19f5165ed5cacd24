"""certify: measure a policy again, from nothing but the problem and the policy; never from the trace of a run.

For a finite model the values are enclosed in real arithmetic for the stored numbers: CERTIFIED means proven. From
samples CERTIFIED means: a policy that breaks a limit gets this verdict with probability at most δ, whenever the
sampling stops.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clearance.certificates.certificate import Certificate, EvidenceKind
from clearance.cluster.executor import Executor
from clearance.core.errors import InputError
from clearance.exact.optimum import Optimum
from clearance.runs.ledger_file import LedgerFolder
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
    policy    an `Optimum` or a `Solution`: its policy. Finite model: a table [S, A], an action for each state [S]
              (whole numbers), a `Mixture`, or any rule `state -> action` (then only samples can tell; a
              method `reset` of the rule is called at the start of every episode). Simulator: a `NetworkMixture`; on a
              Gymnasium problem also any rule `observation -> action`. Rules are never copied, and run in this process
    evidence  "exact": proven, with the distance from the optimum. "samples": the model is only simulated, for at most
              `budget` steps, and the verdict holds at level `delta`. A simulator has one kind, which it knows
    executor  who draws the episodes (samples): the evidence is bit-identical for every executor
    out       a folder that keeps a ledger of the tests made in it (samples): a run folder, or one of its own. The same
              policy and statement at the same δ continue their test, where `budget` counts from its first episode and
              `seed` is the one it was begun with; everything else, and every rule, gets a new share of δ. Without a
              folder nothing counts the tests: to repeat one with another seed spends δ again
    options   for finite models:
              best     the optimum, if it is at hand;  compare=False: do not compute it (exact)
              bounds   declared (low, high) of the signals (r, g_1, …), [1+I] each; checked at every step (samples)
              base     V̂ [S, 1+I], a guess of the values as control variate: the verdict is valid for any (samples)
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta!r}")
    if isinstance(budget, str) or not budget >= 1:
        raise InputError(f"budget must be at least 1 step, got {budget!r}")
    policy = policy.policy if isinstance(policy, Optimum | Solution) else policy
    how = {"evidence": evidence, "delta": delta, "budget": budget, "seed": seed, "executor": executor}
    if out is None:
        return world_of(problem).certify_policy(policy, **how, **options)
    with LedgerFolder(out) as ledger:
        found = world_of(problem).certify_policy(policy, **how, ledger=ledger, **options)
        ledger.write_certificate(found)
        return found
