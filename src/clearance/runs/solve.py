"""solve: the pipeline of a run.

    validate → measure the Slater margin → decide settings → iterate → select a policy → certify → write

The differences between finite models and simulators are in `runs/worlds/`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clearance.certificates.best_mixture import SINGLE, Single
from clearance.certificates.certificate import EvidenceKind
from clearance.certificates.ledger import Ledger
from clearance.core.errors import EnvironmentFault, InfeasibleError, InputError, SmallBudgetError
from clearance.core.random_streams import key_of
from clearance.learning.loop import Progress, Run, iterate
from clearance.learning.methods.method_base import Method
from clearance.learning.recorder import Position
from clearance.learning.state import State
from clearance.runs.certificate_check import check_certificate
from clearance.runs.field_values import seconds_of
from clearance.runs.plain_data import describe
from clearance.runs.progress import watchers
from clearance.runs.run_folder import create_run
from clearance.runs.run_reader import load, read_settings
from clearance.runs.run_writer import Every, RunWriter
from clearance.runs.selection import Selection, select
from clearance.runs.solution import Solution
from clearance.runs.time_budget import steps_within
from clearance.runs.worlds.dispatch import world_of
from clearance.runs.worlds.world import Settled, Task


def solve(
    problem: Any,
    method: Method | None = None,
    *,
    policy: Any = None,
    sampler: Any = None,
    evidence: EvidenceKind | None = None,
    budget: float | str | None = None,
    delta: float = 0.01,
    single: Single = "prefer",
    seed: int = 0,
    exact_J: bool | None = None,
    init: Any = None,
    progress: Progress | None = None,
    tensorboard: str | Path | None = None,
    out: str | Path | None = None,
    checkpoint_every: str | int = "30s",
    notes: dict[str, Any] | None = None,
) -> Solution:
    """Learn a policy that meets every limit and earns as much as possible, and certify it.

    problem   a finite model (`CMDP`), or a simulator (`gymnasium`, `environment`)
    method    the learning algorithm; default on finite models: `RegularisedCNPGPD`, on simulators: `PracticalCNPGPD`.
              `CNPGPD` is Algorithm 1 as printed, for both. Your own method is a dataclass with `init` and `step`
    policy    the policy class π_θ; default: tabular softmax, or two hidden layers of 64 (`gaussian`, `categorical`)
    sampler   how samples are drawn; default: the sampler that the method needs
    evidence  finite models: "exact" (default) proves the limits, "samples" only uses the model as a simulator
    budget    environment steps. Exact evidence: for learning (default: 2·10⁶, unless K and N are given). Samples: for
              margin, learning, choice and certificate together (default: 10⁷ on finite models, 2·10⁶ on simulators).
              A time, "90s", "10min" or "2h", means as many steps as fit into it: short runs are timed first
    delta     level of the certificate from samples: P(a policy that breaks a limit is called CERTIFIED) ≤ δ
    single    whether to return a single policy instead of a mixture. (A mixture draws one policy per episode, and that
              policy may break a limit on its own.) "require": always. "never": never. "prefer" (default): in three
              cases. 1. The single policy has the same values as the mixture. 2. It loses at most 1 % of the reward
              that the mixture earns beyond the safest policy. 3. Policies are planned from samples, and a mixture of
              two plans is expected to save less than 0.01 % of the reward that a plan earns beyond the safest or the
              uniform policy, whichever is less
    seed      random seed
    init      where learning begins: a run folder or a `Solution` (its policy, λ and critics are used), a policy or its
              file; on a simulator also a rule `observation -> action`. A network first learns to imitate the rule; the
              rule and this network are candidates too. Limits, γ, horizon and environment may differ from those of
              `init`; the certificate names the origin
    progress  a callback progress(part, state, K): `part` is the trace of the iterations since the last call, `state`
              has k, θ and λ, and K is the total number of iterations; an exception in it ends the run
    tensorboard  a folder for event files of TensorBoard, as `clearance solve --tensorboard` writes them
    exact_J   whether to record the exact J of each iterate and not just its estimate; default: for up to 300 states
    out       the run folder: written during the run, so that `resume` can continue it (docs/reference/run_folder.md)
    checkpoint_every  how often to write a checkpoint: a time such as "30s", or a number of iterations
    notes     plain data to store with the settings in the run folder, such as the command line
    Raises `InfeasibleError` in two cases. 1. No policy of the class meets the limits: this is proven or, from samples,
    shown at level `delta`. The error has `proven` True. 2. Sampling found no policy that meets them. The error has
    `proven` False, and the command line answers UNDECIDED.
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta!r}")
    seconds = seconds_of(budget) if isinstance(budget, str) else None
    if budget is not None and seconds is None and (isinstance(budget, str) or not budget >= 1):
        raise InputError(f"budget must be at least 1 step, or a time as 90s, 10min or 2h, got {budget!r}")
    if single not in SINGLE:
        raise InputError(f"single must be one of {', '.join(SINGLE)}, got {single!r}")
    world = world_of(problem)
    kind = world.evidence(evidence, exact_J)
    world = world.with_evidence(kind)
    method = world.default_method() if method is None else method
    source = None if init is None else world.read_init(init)
    if source is not None and policy is None and sampler is None:
        policy = source.policy_class
    sampler = world.make_sampler(method, policy, sampler, seed)
    key_of(seed)
    steps = None if isinstance(budget, str) else budget
    task = Task(world, sampler, method, kind, steps, delta, int(seed), exact_J, single)
    if seconds is not None:
        task = task._replace(budget=steps_within(seconds, partial(_try_out, task)))
    if source is not None:
        task = task._replace(start=world.begin_from(source, sampler, int(seed), task.budget))
    with watchers(world.statement, progress, tensorboard) as watch:
        if out is None:
            return perform(task, watch)
        with create_run(out, task, Every.of(checkpoint_every), notes) as writer:
            return perform(task, watch, writer)


def _try_out(task: Task, budget: float) -> None:
    """Make a whole run with a small budget and discard the result. The caller measures the time it takes.

    Raise SmallBudgetError if the budget is too small for a run.
    """
    try:
        _ = perform(task._replace(budget=budget), None).certificate
    except InfeasibleError as e:
        if e.proven:
            raise
        raise SmallBudgetError(str(e)) from None


def perform(task: Task, progress: Progress | None, writer: RunWriter | None = None) -> Solution:
    """Run the task, or the rest of it after a resume, and return the solution.

    With a writer, everything is stored in its run folder.
    """
    began = time.perf_counter() - (0.0 if writer is None else writer.seconds)
    world = task.world
    margin = None if writer is None else writer.read_margin(world)
    margin = world.measure_margin(task) if margin is None else margin
    settled = world.settle(task, margin)
    if writer is not None:
        writer.decide(margin, describe_settled(task, settled, margin), settled.method.K or 0)
    with _keep_learned(task, settled, writer) as keep:
        run = iterate(
            settled.sampler,
            settled.method,
            settled.stream,
            settled.lam_max,
            d_sum=settled.d_sum,
            budget=settled.budget,
            progress=progress,
            record=writer,
            first=_first_position(task, settled),
        )
        keep(run.state)
        if writer is not None and run.status == "interrupted":
            if task.evidence == "samples":
                raise KeyboardInterrupt  # the rest is done when the run is resumed
            writer.write_manifest("interrupted")  # at once: the process may be killed before the rest is done
        solution = _solution(task, settled, run, margin, writer)
        if task.evidence == "samples":
            _ = solution.selection
    solution = _timed(solution, max(time.perf_counter() - began, 0.0))
    if writer is not None:
        writer.finish(solution.policy, solution.certificate, solution.status, solution.env_steps)
    return solution


def _first_position(task: Task, settled: Settled) -> Position | None:
    """Return the state in which learning begins if the user gave `init`; None without `init`."""
    start = task.start
    if start is None:
        return None
    state = settled.method.init(start.theta, task.world.statement.I, start.memory)
    return Position(state._replace(lam=np.minimum(start.lam, settled.lam_max)), settled.d_sum, start.steps)


def describe_settled(task: Task, settled: Settled, margin: Any) -> dict[str, Any]:
    """Return the content of method.json: the method with its final settings, Slater margin, seed and evidence.

    The settings include K iterations, N samples per iteration, the margin κ, and the upper bound Λ of λ.
    """
    slater = None if margin is None or margin.slater == float("inf") else margin.slater
    lam_max = None if settled.lam_max == float("inf") else settled.lam_max
    facts = {"lam_max": lam_max, "slater": slater, "seed": task.seed, "evidence": task.evidence}
    return {"method": describe(settled.method), **facts}


def recall(task: Task, writer: RunWriter) -> Solution:
    """Return the stored result of a finished run, without selecting or testing again.

    If iterations in the folder are damaged, they are computed again. Policy and certificate are those in the folder.
    """
    world, stored = task.world, load(writer.folder)
    checked = check_certificate(stored)
    margin = writer.read_margin(world)
    margin = world.measure_margin(task) if margin is None else margin
    settled = world.settle(task, margin)
    facts = {"d_sum": settled.d_sum, "budget": settled.budget, "record": writer}
    facts["first"] = _first_position(task, settled)
    run = iterate(settled.sampler, settled.method, settled.stream, settled.lam_max, **facts)
    if run.status == "interrupted":
        raise KeyboardInterrupt
    policy = world.give_code(stored.policy, task.start)
    steps = writer.env_steps - world.spent_before(margin) - run.steps
    tests = max((len(share.trials) for share in writer.ledger.shares if share.kind == "search"), default=0)
    solution = _solution(task, settled, run, margin, writer)
    solution.__dict__["selection"] = Selection(policy, checked.certificate, (), steps, tests)
    if writer.status != "done":  # iterations were made again
        assert stored.certificate is not None
        writer.finish(stored.policy, stored.certificate, "done", writer.env_steps)
    return _timed(solution, writer.seconds, recalled=True)


def _solution(task: Task, settled: Settled, run: Run, margin: Any, writer: RunWriter | None) -> Solution:
    if writer is None:
        ledger, repeats = Ledger(), True
    else:
        ledger, repeats = writer.ledger, read_settings(writer.folder).get("deterministic") is True
    counted = float(run.trace.counts.sum())
    return Solution(
        task.world,
        settled.method,
        settled.sampler.policy,
        run.trace,
        run.state,
        margin,
        settled.lam_max,
        run.status,
        task.seed,
        0.0,
        task.evidence,
        task.delta,
        run.steps,
        d_bar=None if run.d_sum is None or counted == 0 else run.d_sum / counted,
        select=partial(select, task, settled, run, margin, ledger, repeats=repeats),
        last_policy=partial(task.world.last_policy, settled, run.state),
    )


def _timed(solution: Solution, seconds: float, *, recalled: bool = False) -> Solution:
    """Return a copy of the solution with this run time and this flag `recalled`; a selection made already is kept."""
    timed = replace(solution, seconds=seconds, recalled=recalled)
    if "selection" in solution.__dict__:
        timed.__dict__["selection"] = solution.selection
    return timed


@contextlib.contextmanager
def _keep_learned(task: Task, settled: Settled, writer: RunWriter | None) -> Iterator[Any]:
    """Save the last iterate if the `with` block raises an error.

    Its policy is written to the run folder and, if the error is an `EnvironmentFault`, stored as the field `learned` of
    the error. Yield a function to which the block must pass the state after learning. Nothing is saved for samplers
    whose iterations are not recorded one by one.
    """
    states: list[State] = []
    try:
        yield states.append
    except BaseException as e:
        fault = e if isinstance(e, EnvironmentFault) else None
        state = states[-1] if states else writer.learned if writer is not None else fault and fault.learned
        if state is None or not settled.sampler.stepwise:
            raise
        last = task.world.last_policy(settled, state)
        if fault is not None:
            fault.learned = last
        if writer is not None and "certificate.json" not in writer.files:  # else it is about the stored policy
            with contextlib.suppress(InputError):  # a full disk must not hide what went wrong before
                writer.write("policy.npz", last.save)
        raise
