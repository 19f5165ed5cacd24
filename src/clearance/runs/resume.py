"""resume: continue a run that was interrupted, failed or was killed."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from clearance.core.errors import InputError
from clearance.finite.cmdp import CMDP
from clearance.learning.loop import Progress
from clearance.runs import run_reader, schema
from clearance.runs.method_table import restore_method
from clearance.runs.progress import watchers
from clearance.runs.run_folder import open_again
from clearance.runs.run_writer import Every
from clearance.runs.solution import Solution
from clearance.runs.solve import perform, recall
from clearance.runs.start_file import START, read_start
from clearance.runs.worlds.dispatch import world_of
from clearance.runs.worlds.world import Task, World


def resume(
    folder: str | Path,
    problem: Any = None,
    *,
    method: Any = None,
    init: Any = None,
    checkpoint_every: str | int = "30s",
    progress: Progress | None = None,
    tensorboard: str | Path | None = None,
) -> Solution:
    """Resume a run from its folder, or return the stored result of a finished run without testing again.

    Trace, policy and certificate are bit-identical to those of an uninterrupted run on the same machine with the same
    versions.

    problem  the problem of the run. A finite model is stored in the folder and may be left out; a simulator is code and
             must be given. If the simulator is not deterministic given its seed, the result is not bit-identical
    method   the class or instance of your own method, if the run used one; it is code and must be given again
    init     the rule that learning began from, if there was one; it is code and must be given again
    progress, tensorboard, checkpoint_every  as in `solve`
    """
    about = None if problem is None else world_of(problem).describe()
    with open_again(Path(folder), Every.of(checkpoint_every), about) as writer:
        asked = run_reader.read_settings(writer.folder)
        if asked["sampler"] is None:
            raise InputError(f"{writer.folder}: was saved after its run, without checkpoints; solve again with out=")
        world = world_of(CMDP.load(writer.path("problem.npz")) if problem is None else problem)
        finished = writer.status == "done" and writer.is_good("policy.npz") and writer.is_good("certificate.json")
        if asked.get("deterministic") is False and not finished:
            warnings.warn("the problem is not deterministic given its seed: the result will differ from that of an "
                          "uninterrupted run", UserWarning, stacklevel=2)  # fmt: skip
        with schema.blame_file(writer.folder / "settings.json"):
            task = restore_task(world, writer.folder, asked, method)
            if asked.get("init") is not None:
                task = task._replace(start=read_start(writer.path(START), task.sampler, asked["init"], init))
        with watchers(world.statement, progress, tensorboard) as watch:
            return recall(task, writer) if finished else perform(task, watch, writer)


def restore_task(world: World, folder: Path, asked: dict[str, Any], method: Any = None) -> Task:
    """Rebuild the task of a run from `asked`, the settings that are stored in its folder.

    world   the adapter for the kind of problem
    method  the user's own method, as a class or instance, if the run used one
    """
    world = world.with_evidence(asked["evidence"])
    policy = world.restore_policy(folder, asked["policy"])
    sampler = world.restore_sampler(asked["sampler"], policy)
    own = world.default_method() if asked["method"] is None else restore_method(asked["method"], method)
    how = {name: asked[name] for name in ("evidence", "budget", "delta", "seed", "exact_J")}
    return Task(world, sampler, own, **how, single=asked.get("single") or "prefer")
