"""`clearance evaluate`: show returns and costs of a policy's episodes on a simulator."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from clearance.cli import flag_types, run_flags, study_tables, tables
from clearance.cli.certify_command import POLICY, load_policy
from clearance.core.errors import InputError
from clearance.core.figures import pyplot_for_files, save_figure
from clearance.finite.cmdp import CMDP
from clearance.runs.evaluate import EPISODES, HEADS, evaluate

FILES = (".png", ".svg", ".csv")


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    run_flags.add_problem(p)
    p.add_argument("policy", metavar="POLICY", help=f"a run folder, {POLICY}")
    p.add_argument(
        "--episodes", type=flag_types.count(10**7, least=2), default=EPISODES, help=f"(default: {EPISODES:,})"
    )
    p.add_argument("--seed", type=flag_types.count(2**63 - 1, least=0), default=0, help="random seed (default: 0)")
    run_flags.add_environment_flags(p)
    help = "histograms of returns and costs with the limits (.png, .svg), or a row per episode (.csv)"
    p.add_argument("--out", type=flag_types.place, metavar="FILE", help=help)


def run(args: argparse.Namespace) -> int:
    if args.out:
        flag_types.check_file(args.out, args.problem, FILES)
    problem = run_flags.read_spec(args).load_problem()
    if isinstance(problem, CMDP):
        raise InputError(f"{args.problem} is a finite model, whose values are exact: use clearance certify")
    policy = args.policy if os.path.isdir(args.policy) else load_policy(args.policy, problem)
    seen = evaluate(problem, policy, episodes=args.episodes, seed=args.seed)
    if args.out and args.out.endswith(".csv"):
        seen.save(args.out)
    elif args.out:
        pyplot_for_files()
        save_figure(seen.plot(), args.out)
    message = (
        "Intervals cover 95 %; those of means are approximate. What is certified is the mean, not single episodes."
    )
    if args.json:
        result = {"status": "done", "episodes": seen.episodes, "table": seen.table(), "file": args.out}
        tables.answer(args, result | {"message": message})
        return 0
    rows = [{f"c{i}": cell for i, cell in enumerate(row)} for row in seen.cells()]
    shown = {head: f"{{c{i}}}" for i, head in enumerate(HEADS)}
    lines = [message, *([f"Written: {args.out}"] if args.out else [])]
    study_tables.grid([(f"{seen.episodes:,} episodes of {args.policy} on {args.problem}", rows)], shown, lines)
    return 0
