"""`clearance sweep`: a grid on the command line or in a file, begun or gone on with; its table and its JSON."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearance import arguments, cli_solve, flags, show, watch
from clearance.errors import InputError

if TYPE_CHECKING:
    from clearance.grid import Grid
    from clearance.sweeping import Sweep

CERTIFIED, BAD_INPUT, NOT_CERTIFIED, INTERRUPTED = 0, 2, 4, 130
MOST_SHOWN = 200  # rows on the screen; the files have all


def add_flags(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="an axis: a flag of solve, or problem, and its values: seed=0:10, kappa=0,.01, method=cnpgpd,crpo",
    )
    p.add_argument("--threads", type=flags.count(1_000), default=None, help="points at the same time (the cores)")
    flags.add_cluster(p)


def run(args: argparse.Namespace) -> int:
    """Begin a grid, or go on with one, and say what was found."""
    from clearance import sweeping

    asked, folder = _asked(args), args.resume or args.out
    if folder is None:
        raise InputError("--out is missing: give a folder for the grid")
    if args.resume is None:
        flags.check_new_folder(folder)
    try:
        with arguments.executor(args) as executor, watch.Progress(args, 0, what="points") as bar:
            found = sweeping.perform(Path(folder), asked, executor, args.checkpoint_every, bar.reach)
    except KeyboardInterrupt:
        if not (Path(folder) / "grid.json").exists():
            raise
        how = f"clearance sweep --resume {shlex.quote(folder)}"
        return show.error(f"interrupted; saved in {folder}: go on with: {how}", INTERRUPTED)
    return _answer(args, found)


def _asked(args: argparse.Namespace) -> Grid | None:
    """The grid that the flags or a file describe; None where there is only --resume."""
    from clearance import grid

    if args.tensorboard:
        raise InputError("--tensorboard is for a single run: leave it out")
    given = cli_solve.given_flags(args)
    if args.problem is not None and args.problem.endswith(".toml"):
        if args.grid or given:
            raise InputError(f"--{next(iter(given), 'grid')}: the grid is in {args.problem}: write it there")
        return grid.from_toml(args.problem)
    if args.problem is None and not args.grid:
        if given:
            raise InputError(f"--{next(iter(given))}: a grid that goes on knows its settings: leave it out")
        return None
    axes = [grid.axis(text) for text in args.grid]
    if len({name for name, _ in axes}) < len(axes):
        raise InputError("--grid: the same axis is given twice")
    problem = {} if args.problem is None else {"problem": args.problem}
    return grid.Grid.of(dict(axes), problem | given)


SHOWN = {
    "point": "{folder}",
    "status": "{status}",
    "verdict": "{verdict}",
    "J_r": "{J_r}",
    "worst\nslack": "{worst_slack}",
    "seconds": "{seconds}",
}


def _answer(args: argparse.Namespace, found: Sweep) -> int:
    done = [row for row in found.rows if row["status"] == "done"]
    certified = sum(row["verdict"] == "CERTIFIED" for row in done)
    message = f"{certified} of {len(found.rows)} points CERTIFIED; table: {found.folder / 'table.csv'}"
    failed = [row for row in found.rows if row["status"] == "failed"]
    if failed:
        message += f"; {len(failed)} failed, {failed[0]['folder']} first: {failed[0]['message']}"
    if args.json:
        data = {"points": len(found.rows), "certified": certified, "failed": len(failed), "run": str(found.folder)}
        show.answer(args, {"status": "failed" if failed else "done", **data, "table": found.rows, "message": message})
    else:
        shown = dict(list(SHOWN.items())[:1]) | {name: f"{{{name}}}" for name in found.grid.axes} | SHOWN
        show.grid([(str(found.folder), [_shown(row) for row in found.rows[:MOST_SHOWN]])], shown, [message])
    return BAD_INPUT if failed else CERTIFIED if certified == len(found.rows) else NOT_CERTIFIED


def _shown(row: dict[str, Any]) -> dict[str, str]:
    """Numbers with six digits; a dash for what a point does not have."""
    blank = dict.fromkeys(("verdict", "J_r", "worst_slack", "seconds"), "–")
    numbers = {k: f"{v:.6g}" if isinstance(v, float) else "–" if v is None else str(v) for k, v in row.items()}
    return blank | numbers
