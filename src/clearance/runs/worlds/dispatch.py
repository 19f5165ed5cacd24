"""Find the adapter (`World`) for a problem by the type of the problem.

To support a further kind of problem (logged data, a robust model), write a class that implements `World` and register
it:

    @world_of.register
    def _(problem: LoggedData) -> World:
        return LoggedWorld(problem)
"""

from __future__ import annotations

from functools import singledispatch
from os import PathLike
from typing import Any

from clearance.core.errors import InputError
from clearance.finite.cmdp import CMDP
from clearance.runs.worlds.world import World
from clearance.simulator.simulator import Simulator
from clearance.simulator.table_problem import TableProblem


@singledispatch
def world_of(problem: Any) -> World:
    """Return the adapter that gives the pipeline its interface to this problem; raise InputError for unknown types."""
    kind = type(problem).__name__
    ways = "gymnasium(…), environment(…)"
    ways = f"load it first: load_model(path, …), {ways}" if isinstance(problem, str | PathLike) else f"see {ways}"
    raise InputError(f"the problem must be a CMDP or a simulator, got {kind}: {ways}")


@world_of.register
def _(problem: CMDP) -> World:
    from clearance.exact.never import never_of
    from clearance.runs.worlds.criterion_world import CriterionWorld
    from clearance.runs.worlds.finite_world import FiniteWorld

    special = problem.kind != "discounted" or never_of(problem) is not None
    return CriterionWorld(problem) if special else FiniteWorld(problem)


@world_of.register
def _(problem: Simulator) -> World:
    from clearance.runs.worlds.simulator_world import SimulatorWorld

    return SimulatorWorld(problem)


@world_of.register
def _(problem: TableProblem) -> World:
    from clearance.runs.worlds.tabular_world import TabularWorld
    from clearance.simulator.gymnasium_envs.tabular_problem import TabularProblem

    assert isinstance(problem, TabularProblem)
    return TabularWorld(problem)
