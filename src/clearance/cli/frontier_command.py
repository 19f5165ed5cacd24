"""`clearance frontier`: show the best reward for each value of a limit, as table, JSON or figure."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clearance.certificates.price_words import price_words
from clearance.certificates.verdict_words import as_written, bound_words
from clearance.cli import executor_argument, flag_types, run_flags, study_tables, tables
from clearance.core.errors import InputError
from clearance.core.figures import pyplot_for_files, save_figure
from clearance.reporting import plots
from clearance.runs import progress as watch
from clearance.runs.field_values import parse_numbers, parse_steps
from clearance.simulator.simulator import Simulator
from clearance.studies.frontier import check_arguments, frontier
from clearance.studies.simulator_frontier import constraint_index

if TYPE_CHECKING:
    from clearance.studies.frontier import Frontier, Learned

FIGURES = (".png", ".svg")
MOST = 10_000
NOT_CERTIFIED = 4


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    run_flags.add_problem(p)
    run_flags.add_environment_flags(p)
    help = "limits at which to learn and certify a policy on a simulator, each run from the one before"
    p.add_argument("--at", type=flag_types.flag(parse_numbers), metavar="L1,L2,…", help=help)
    help = "environment steps of each of these runs; the first has twice as many (default: 1e6)"
    p.add_argument("--budget", type=flag_types.flag(parse_steps), default=1e6, metavar="STEPS", help=help)
    p.add_argument("--constraint", metavar="NAME", help="the limit that varies, by name or index (default: the first)")
    p.add_argument(
        "--over", choices=["b", "kappa"], default="b", help="vary one limit, or tighten all alike (default: b)"
    )
    p.add_argument(
        "--points", type=flag_types.count(MOST, least=2), default=21, help="points on the curve (default: 21)"
    )
    p.add_argument(
        "--learned", type=flag_types.count(MOST, least=0), default=0, help="run solve at this many limits (default: 0)"
    )
    p.add_argument(
        "--seed", type=flag_types.count(2**63 - 1, least=0), default=0, help="random seed of solve (default: 0)"
    )
    flag_types.add_cluster(run_flags.group(p, run_flags.CLUSTER))
    p.add_argument("--out", type=flag_types.place, metavar="FILE", help="a figure (.png, .svg) or a table (.csv)")


def run(args: argparse.Namespace) -> int:
    """Check all arguments before the long computation, then compute and show the frontier."""
    if args.at is not None:
        return _learn_at_limits(args)
    cmdp = run_flags.read_model(args)
    if args.out:
        flag_types.check_file(args.out, args.problem, (*FIGURES, ".csv"))
        if args.out.endswith(FIGURES):
            pyplot_for_files()  # report a missing extra before the work, not after it
    check_arguments(cmdp, args.constraint, over=args.over)
    total = args.points + args.learned
    with executor_argument.executor_of(args) as executor, watch.Progress(args, total, what="points") as bar:
        curve = frontier(
            cmdp,
            args.constraint,
            over=args.over,
            points=args.points,
            learned=args.learned,
            seed=args.seed,
            progress=bar.advance_to,
            executor=executor,
        )
    if args.out and args.out.endswith(FIGURES):
        plots.frontier(curve, args.out, title=os.path.basename(args.problem))
    elif args.out:
        curve.save(args.out)
    message = _message(curve, args.out)
    if args.json:
        tables.answer(args, _data(curve, message, args.out))
    else:
        study_tables.frontier(curve, _title(curve, args.problem), message)
    return 0


def _learn_at_limits(args: argparse.Namespace) -> int:
    """Compute the frontier of a simulator: learn and certify a policy at each limit in --at."""
    if args.out:
        flag_types.check_file(args.out, args.problem, (*FIGURES, ".csv"))
    problem = run_flags.read_spec(args).load_problem()
    if not isinstance(problem, Simulator):
        raise InputError(_instead_of_at(args, problem))
    how = {"at": args.at, "budget": args.budget, "seed": args.seed}
    with watch.Progress(args, len(args.at), what="limits") as bar:
        curve = frontier(problem, args.constraint, **how, progress=bar.advance_to)
    if args.out and args.out.endswith(FIGURES):
        pyplot_for_files()
        save_figure(curve.plot(), args.out)
    elif args.out:
        curve.save(args.out)
    rows = [
        {"limit": f"{x:.6g}", "J_r": f"{r:.6g}", "value": f"{v:.6g}", "verdict": c.verdict}
        for x, r, v, c in zip(curve.limit, curve.J_r, curve.value, curve.certificates, strict=True)
    ]
    message = "Each run began from the one before. Better policies may exist between and at these limits."
    if args.json:
        verdicts = [c.verdict for c in curve.certificates]
        result = {"constraint": curve.name, "limit": curve.limit, "J_r": curve.J_r, "value": curve.value}
        more = {"verdicts": verdicts, "env_steps": sum(curve.env_steps), "out": args.out, "message": message}
        tables.answer(args, {"status": "done", **result, **more})
    else:
        shown = {"limit": "{limit}", "J_r": "{J_r}", curve.name: "{value}", "verdict": "{verdict}"}
        lines = [message, *([f"Written: {args.out}"] if args.out else [])]
        study_tables.grid([(f"{args.problem}: J_r over the limit of {curve.name}", rows)], shown, lines)
    return 0 if curve.certified.all() else NOT_CERTIFIED


def _instead_of_at(args: argparse.Namespace, cmdp: Any) -> str:
    """Return a message for --at on a finite model, with the command that computes the optimum at the first limit."""
    instead = "leave it out"
    if cmdp.I:
        i = constraint_index(cmdp.names, args.constraint)
        limit = shlex.quote(f"{cmdp.names[i]}={args.at[0]:g}")
        flag = "--limit" if cmdp.costs[i] else "--b"
        instead += f", or for the optimum at one limit run clearance optimum {args.problem} {flag} {limit}"
    return f"--at is for simulators: the curve of a finite model is exact; {instead}"


def _title(curve: Frontier, problem: str) -> str:
    return f"{problem}: best reward against " + curve.axis_name


def _message(curve: Frontier, out: str | None) -> str:
    own = curve.own
    where = bound_words(curve.name, own.b, cost=curve.cost) if curve.over == "b" else "kappa = 0"
    price = price_words(where, own.lam, cost=curve.cost).partition(": ")[2]
    said = f"The problem as it is: {where}, reward {own.J_r:.6g}. {price[0].upper()}{price[1:]}"
    return said + (f" Written: {out}" if out else "")


def _data(curve: Frontier, message: str, out: str | None) -> dict[str, Any]:
    return {
        "status": "done",
        "over": curve.over,
        "constraint": curve.name if curve.over == "b" else None,
        "kind": None if curve.over == "kappa" else "cost" if curve.cost else "utility",
        "limit": curve.limit,
        "b": curve.b,
        "J_r": curve.J_r,
        "paid": curve.paid,
        "lam": curve.lam,
        "bound": curve.bound,
        "certified": curve.certified,
        "own": {"limit": as_written(curve.own.b, cost=curve.cost)} | curve.own._asdict(),
        "learned": [_learned(curve, p) for p in curve.learned],
        "out": out,
        "message": message,
    }


def _learned(curve: Frontier, point: Learned) -> dict[str, Any]:
    """Return a learned point as a dict for JSON; limit and values are also given with the sign that the user wrote."""
    values = [as_written(x, cost=cost) for x, cost in zip(point.J_g, curve.costs, strict=True)]
    return {"limit": as_written(point.b, cost=curve.cost)} | point._asdict() | {"values": values}
