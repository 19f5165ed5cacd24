"""`clearance check`: check that a problem is well formed and that its limits can be met."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from clearance.certificates.verdict_words import bound_words, join_some
from clearance.cli import run_flags, tables
from clearance.cli.diagnosis import explain_infeasible
from clearance.cli.import_notes import import_notes
from clearance.core.arrays import Array
from clearance.core.errors import InputError, infeasible_message, no_room_message
from clearance.exact.feasibility import Feasibility, decide_feasibility
from clearance.exact.never import never_words
from clearance.finite.cmdp import CMDP
from clearance.finite.start_words import start_words
from clearance.simulator.simulator import Simulator
from clearance.simulator.table_problem import TableProblem

BAD_INPUT, INFEASIBLE = 2, 3


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    run_flags.add_problem(p)
    run_flags.add_environment_flags(p)


def run(args: argparse.Namespace) -> int:
    problem: Any = run_flags.read_spec(args).load_problem()
    problem = problem.gym if isinstance(problem, TableProblem) else problem  # type: ignore[attr-defined]
    if isinstance(problem, Simulator):
        return _check_simulator(args, problem)
    if isinstance(problem, CMDP):
        return _check_model(args, problem)
    raise InputError(f"PROBLEM {args.problem}: check is for finite models and simulators")


def _check_model(args: argparse.Namespace, cmdp: CMDP) -> int:
    found = decide_feasibility(cmdp)
    slater, feasible = found.slater, found.verdict != "infeasible"
    P: Any = cmdp.P
    result = {
        "status": "done" if feasible else "infeasible",
        "verdict": None if feasible else "INFEASIBLE",
        "states": cmdp.S,
        "actions": cmdp.A,
        "constraints": cmdp.I,
        "start": start_words(cmdp),
        "criterion": cmdp.kind,
        "gamma": cmdp.gamma,
        "horizon": cmdp.horizon,
        "sparse": cmdp.is_sparse,
        "transitions": int(P.nnz if cmdp.is_sparse else np.count_nonzero(P)),
        "r_range": _range(cmdp, cmdp.r),
        "g_range": [_range(cmdp, g) for g in cmdp.g],
        "b": cmdp.b,
        "names": list(cmdp.names),
        "costs": list(cmdp.costs),
        "slater": slater,
        "message": never_words(cmdp) or _message(cmdp, found),
    }
    result = result if feasible else explain_infeasible(result, cmdp)
    notes = [*_meaning(cmdp), *import_notes(args.problem, cmdp)] if feasible else []
    if args.json:
        result["notes"] = notes
    elif notes:
        result["message"] = [f"{result['message']}.", *notes]
    tables.answer(args, result, args.problem, names=cmdp.names)
    return 0 if feasible else INFEASIBLE


def _range(cmdp: CMDP, signal: Array) -> list[float]:
    """Return the smallest and the largest value of a signal [S, A] in one step, over the actions that exist."""
    steps = signal[cmdp.available]
    return [float(steps.min()), float(steps.max())]


def _meaning(cmdp: CMDP) -> list[str]:
    """Return a list with one note: limits on discounted sums do not limit long-run means.

    The list is empty for other criteria, or without constraints.
    """
    if cmdp.kind != "discounted" or not cmdp.I:
        return []
    limits = zip(cmdp.names, cmdp.b.tolist(), cmdp.costs, strict=True)
    per_step = join_some([bound_words(name, b / cmdp.length, cost=cost) for name, b, cost in limits])
    return [
        f"Limits are on discounted sums, in which the first {cmdp.length:.3g} steps or so count. They bound no "
        f"long-run mean: for that give --criterion average with limits per step ({per_step})."
    ]


def _message(cmdp: CMDP, found: Feasibility) -> str:
    if cmdp.I == 0:
        return "the model is well formed; it has no limits"
    if found.verdict == "feasible":
        return "the model is well formed and feasible"
    infeasible = found.verdict == "infeasible"
    return infeasible_message(found.slater, cmdp.I) if infeasible else no_room_message(found.slater)


def _check_simulator(args: argparse.Namespace, simulator: Simulator) -> int:
    """Check an environment and show what is wrong with it, one line each.

    Return exit status 2 if something is wrong, else 0.
    """
    from clearance.simulator.gymnasium_envs.env_check import check_env

    seen = check_env(simulator)
    s = simulator.statement
    result = {
        "status": "done" if seen.ok else "wrong",
        "wrong": list(seen.wrong),
        "notes": list(seen.notes),
        "deterministic": seen.deterministic,
        "observation": list(simulator.obs_shape),
        "action": list(simulator.action.shape),
        "constraints": s.I,
        "gamma": s.gamma,
        "horizon": s.horizon,
        "b": s.b,
        "message": seen.wrong[0] if seen.wrong else "nothing wrong was found",
    }
    if args.json:
        tables.answer(args, result)
    else:
        sys.stdout.write(f"{seen}\n")
    return 0 if seen.ok else BAD_INPUT
