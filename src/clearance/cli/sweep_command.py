"""`clearance sweep`: start a grid given by flags or a file, or resume an earlier one, and show its table or JSON."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearance.cli import executor_argument, flag_types, interrupts, run_flags, solve_command, study_tables, tables
from clearance.core.errors import InputError
from clearance.core.import_path import import_rule
from clearance.runs import progress
from clearance.studies import sweep, sweep_grid

CERTIFIED, BAD_INPUT, NOT_CERTIFIED = 0, 2, 4
MOST_SHOWN = 200  # rows on the screen; the files have all


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.usage = "clearance sweep PROBLEM|FILE.toml --grid NAME=VALUES --out FOLDER"
    run_flags.add_run_flags(p, words)
    p.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="a flag of solve, or problem, with its values: seed=0:10, kappa=0,.01, method=cnpgpd,crpo; repeat "
        "--grid for several axes",
    )
    solve_command.add_output_flags(p)
    cluster = run_flags.group(p, run_flags.CLUSTER)
    cluster.add_argument(
        "--threads", type=flag_types.count(1_000), default=None, help="points at the same time (default: all cores)"
    )
    flag_types.add_cluster(cluster)


def check(args: argparse.Namespace) -> str | None:
    """Return an error message if the given flags do not go together; else None."""
    if args.resume is None and any(axis.startswith("problem=") for axis in args.grid):
        return None
    return solve_command.check(args)


def run(args: argparse.Namespace) -> int:
    """Start a grid, or resume an earlier one, and show its results."""
    asked, folder = _asked(args), args.resume or args.out
    if folder is None:
        raise InputError("--out is missing: give a folder for the grid")
    if args.resume is None:
        flag_types.check_new_folder(folder)
    try:
        with executor_argument.executor_of(args) as executor, progress.Progress(args, 0, what="points") as bar:
            found = sweep.perform(Path(folder), asked, executor, args.checkpoint_every, bar.reach)
    except KeyboardInterrupt:
        if not (Path(folder) / "grid.json").exists():
            raise
        words = _code(asked)
        again = ["clearance", "sweep", *words, "--resume", folder, *solve_command.allowed_again(words)]
        how = shlex.join(again)
        return tables.error(f"interrupted; saved in {folder}: resume with: {how}", interrupts.exit_status())
    return _answer(args, found)


def _code(asked: sweep_grid.Grid | None) -> list[str]:
    """Return the words of a command line that name the user code of a grid, for the command that resumes it."""
    words: list[str] = []
    if asked is None:
        return []
    for name in dict.fromkeys(name for name, _ in asked.code()):
        text = ";".join(asked.values(name))
        if name in asked.axes:
            words += ["--grid", f"{name}={text}"]
        else:
            words += [text] if name == "problem" else [f"--{name}", text]
    return words


def _asked(args: argparse.Namespace) -> sweep_grid.Grid | None:
    """Return the grid that the flags or a file describe; None if neither PROBLEM nor a grid or setting is given."""
    if args.tensorboard:
        raise InputError("--tensorboard is for a single run: leave it out")
    given = run_flags.read_spec(args).flags()
    if args.problem is not None and args.problem.endswith(".toml"):
        if args.grid or given:
            raise InputError(f"--{next(iter(given), 'grid')}: the grid is in {args.problem}: write it there")
        return _from_file(args.problem)
    if args.problem is None and not args.grid and not given:
        return None
    axes = [sweep_grid.axis(text) for text in args.grid]
    if len({name for name, _ in axes}) < len(axes):
        raise InputError("--grid: the same axis is given twice")
    problem = {} if args.problem is None else {"problem": args.problem}
    return sweep_grid.Grid.of(dict(axes), problem | given)


def _from_file(path: str) -> sweep_grid.Grid:
    """Read the grid in a TOML file.

    Raise InputError if it names user code that is not in a folder allowed by --allow-import.
    """
    grid, rule = sweep_grid.from_toml(path), import_rule()
    for name, text in grid.code():
        module = text.removeprefix("gym:").rpartition(":")[0]
        if module and not rule.has(module):
            allow = "allow the folder to import it from with --allow-import PATH"
            raise InputError(f"{path}: {name} {text} is code that a file names: {allow}, if you trust it")
    return grid


SHOWN = {
    "point": "{folder}",
    "status": "{status}",
    "verdict": "{verdict}",
    "J_r": "{J_r}",
    "smallest slack": "{smallest_slack}",
    "seconds": "{seconds}",
}


def _answer(args: argparse.Namespace, found: sweep.Sweep) -> int:
    done = [row for row in found.rows if row["status"] == "done"]
    certified = sum(row["verdict"] == "CERTIFIED" for row in done)
    message = f"{certified} of {len(found.rows)} points CERTIFIED; table: {found.folder / 'table.csv'}"
    failed = [row for row in found.rows if row["status"] == "failed"]
    if failed:
        message += f"; {len(failed)} failed, {failed[0]['folder']} first: {failed[0]['message']}"
    if args.json:
        data = {"points": len(found.rows), "certified": certified, "failed": len(failed), "run": str(found.folder)}
        tables.answer(args, {"status": "failed" if failed else "done", **data, "table": found.rows, "message": message})
    else:
        shown = dict(list(SHOWN.items())[:1]) | {name: f"{{{name}}}" for name in found.grid.axes} | SHOWN
        study_tables.grid([(str(found.folder), [_shown(row) for row in found.rows[:MOST_SHOWN]])], shown, [message])
    return BAD_INPUT if failed else CERTIFIED if certified == len(found.rows) else NOT_CERTIFIED


def _shown(row: dict[str, Any]) -> dict[str, str]:
    """Return the cells of a table row as texts: numbers with six digits, and a dash for missing values."""
    blank = dict.fromkeys(("verdict", "J_r", "smallest_slack", "seconds"), "–")
    numbers = {k: f"{v:.6g}" if isinstance(v, float) else "–" if v is None else str(v) for k, v in row.items()}
    return blank | numbers
