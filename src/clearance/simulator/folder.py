"""The run folder of a run on a simulator: what it was asked for as plain data, and back.

A simulator is code, and code is never read from a folder: the one that goes on gives the simulator again, and what is
asked of it must be the same. To the same bits it goes on where two walks from the same seeds agree in every bit.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from clearance import resuming, settings, stored
from clearance.direction import Direction
from clearance.loop import Progress
from clearance.methods import CNPGPD
from clearance.simulator.check import repeats
from clearance.simulator.crpo import PracticalCRPO
from clearance.simulator.method import PracticalCNPGPD
from clearance.simulator.natural import Natural
from clearance.simulator.policy import NetworkPolicy
from clearance.simulator.practical import Practical
from clearance.simulator.problem import Simulator
from clearance.simulator.reset_free import ResetFree
from clearance.simulator.unbiased import Unbiased
from clearance.store import Every, Store

if TYPE_CHECKING:
    from clearance.simulator.solution import SimulatorSolution
    from clearance.simulator.solving import Task

# What settings.json may name: looked up here, never imported.
METHODS, SAMPLERS = (PracticalCNPGPD, PracticalCRPO, CNPGPD), (Practical, Unbiased, ResetFree)
PARTS = (Natural, *get_args(Direction))
HOW = ("budget", "delta", "seed")


def created(out: str | Path, task: Task, every: Every, asked: dict[str, Any] | None = None) -> Store:
    """A new run folder; says so if a resumed run will differ from an uninterrupted one."""
    simulator, policy = task.sampler.simulator, task.sampler.policy
    same, where = repeats(simulator)
    if same is False:
        name = simulator.statement.name
        warnings.warn(f"{name} is not deterministic given its seed ({where}): the run can be resumed, but not to the "
                      "bits of an uninterrupted one", UserWarning, stacklevel=4)  # fmt: skip
    method = None if task.method is None else settings.described(task.method)
    sampler = settings.described(task.sampler, leave_out=("simulator", "policy"))
    how = {name: getattr(task, name) for name in HOW} | {"deterministic": same}
    data = {"method": method, "sampler": sampler, **how, **_common(simulator, policy), **(asked or {})}
    return resuming.new(Path(out), settings.about(simulator), data, every)


def write_solution(solution: SimulatorSolution, out: str | Path) -> None:
    """The run folder of a run that was not written while it went on: there is no checkpoint in it."""
    simulator, method = solution.simulator, settings.described(solution.method)
    how = {"budget": None, "delta": solution.delta, "seed": solution.seed, "deterministic": None}
    data = {"method": method, "sampler": None, **how, **_common(simulator, solution.policy_class)}
    with resuming.new(Path(out), settings.about(simulator), data, Every()) as store:
        resuming.write_done(store, solution, None, ran(solution.method, simulator, solution.seed))


def ran(method: Any, simulator: Simulator, seed: int) -> dict[str, Any]:
    """method.json: what was run; there is no Slater margin."""
    about = {"lam_max": getattr(method, "lam_max", None), "slater": None, "seed": seed}
    return {"method": settings.described(method), **about, "evidence": evidence(simulator)}


def evidence(simulator: Simulator) -> str:
    return "samples" if getattr(simulator, "exact", None) is None else "exact"


def _common(simulator: Simulator, policy: NetworkPolicy) -> dict[str, Any]:
    design = {"kind": "design", "seed": policy.seed, **json.loads(policy.description())}
    return {"evidence": evidence(simulator), "exact_J": None, "flags": None, "command": None, "policy": design}


def resumed(store: Store, simulator: Simulator, asked: dict[str, Any], progress: Progress | None) -> SimulatorSolution:
    """What is left of a run."""
    from clearance.simulator.solving import perform

    if asked.get("deterministic") is False:
        name = simulator.statement.name
        warnings.warn(f"{name} is not deterministic given its seed: the result will differ from that of an "
                      "uninterrupted run", UserWarning, stacklevel=3)  # fmt: skip
    with stored.reading(store.folder / "settings.json"):
        task = _task(simulator, asked)
    return perform(task, progress, store)


def _task(simulator: Simulator, asked: dict[str, Any]) -> Task:
    from clearance.simulator.solving import Task

    policy = replace(NetworkPolicy.from_description(json.dumps(asked["policy"])), seed=asked["policy"]["seed"])
    sampler = settings.made(asked["sampler"], SAMPLERS, simulator, policy)
    return Task(sampler, settings.made_method(asked["method"], METHODS, PARTS), *(asked[name] for name in HOW))
