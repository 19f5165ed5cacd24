"""`clearance compare`: compare learning algorithms on finite models; show a table or JSON, write files and figures."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearance.cli import executor_argument, flag_types, run_flags, study_tables, tables
from clearance.core.csv_files import write_csv
from clearance.core.errors import InputError
from clearance.core.figures import pyplot_for_files, save_figure
from clearance.exact.optimum import optimum
from clearance.runs import progress as watch
from clearance.runs.field_values import parse_steps
from clearance.runs.problem_text import load_model
from clearance.studies import compare
from clearance.studies.compare import Comparison, Result
from clearance.studies.comparison_figure import gaps_of, violations_of

# The columns of the printed table; the files and --json have all columns.
SHOWN = {
    "method": "{method}",
    "gap": "{gap average:+.3f}",
    "violation": "{violation average:+.3f}",
    "last gap": "{gap last:+.3f}",
    "last violation": "{violation last:+.3f}",
    "best gap": "{gap best:+.3f}",
    "certified": "{certified:.0%}",
}


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.add_argument("problems", nargs="+", metavar="PROBLEM", help="model files, zoo names, or package.module:factory")
    run_flags.add_model_flags(p)
    p.add_argument(
        "--methods",
        default="all",
        help="names with commas between them, package.module:Class for a method of your own, or all (default: all)",
    )
    count = flag_types.count
    p.add_argument("--seeds", type=count(10_000), default=5, help="runs of every method on every problem (default: 5)")
    p.add_argument(
        "--budget", type=flag_types.flag(parse_steps), default=1e6, help="environment steps of one run (default: 1e6)"
    )
    p.add_argument("--K", type=count(10**7), default=500, help="iterations of one run (default: 500)")
    p.add_argument("--threads", type=count(1_000), default=2, help="runs at the same time (default: 2)")
    flag_types.add_cluster(run_flags.group(p, run_flags.CLUSTER))
    p.add_argument("--out", type=flag_types.place, metavar="FOLDER", help="folder for tables, curves and figures")


def run(args: argparse.Namespace) -> int:
    """Check all arguments before the long computation, compare the methods, and show the results."""
    names = tuple(compare.CONTESTANTS) if args.methods == "all" else tuple(args.methods.split(","))
    try:
        compare.find_contestants(names)
    except InputError as e:
        raise InputError(str(e) if str(e).startswith("--") else f"--{e}") from None
    if len(set(args.problems)) < len(args.problems):
        raise InputError("PROBLEM: the same one is given twice")
    asked = run_flags.read_spec(args).environment
    problems = {text: load_model(text, asked) for text in args.problems}
    for text, cmdp in problems.items():
        if cmdp.S > compare.MOST_STATES:
            raise InputError(
                f"PROBLEM {text} has {cmdp.S} states; compare measures exactly, up to {compare.MOST_STATES}"
            )
        if optimum(cmdp).status != "optimal":
            raise InputError(
                f"PROBLEM {text}: its limits cannot be met, or leave no room; "
                f"see {shlex.join(['clearance', 'check', text])}"
            )
    if args.out:
        pyplot_for_files()  # report a missing extra before the work, not after it
        flag_types.check_folder(args.out)
    total = compare.how_many(problems, names, args.seeds)
    with executor_argument.executor_of(args) as executor, watch.Progress(args, total, what="runs") as bar:
        options = {"seeds": args.seeds, "budget": args.budget, "K": args.K, "executor": executor}
        results = compare.compare(problems, names, **options, progress=bar.advance_to)
    rows = compare.summary(results)
    files = _write(results, rows, args.out) if args.out else []
    if args.json:
        tables.answer(args, {"status": "done", "table": rows, "files": files, "message": MESSAGE})
        return 0
    study_tables.grid(
        [(_title(p, results), [r for r in rows if r["problem"] == p]) for p in problems], SHOWN, [MESSAGE, *files]
    )
    return 0


MESSAGE = (
    "gap: optimum − reward; violation: by how much the worst limit is broken, negative if all are met. Both are exact "
    "values of the average iterate, averaged over seeds; last: of the last iterate; best: of the best mixture of "
    "iterates. certified: share of runs whose best mixture is proven to meet every limit. The built-in methods were "
    "tuned on a seed that is not shown; a method of your own runs with its defaults."
)


def _title(problem: str, results: list[Result]) -> str:
    best = next(r for r in results if r.problem == problem).optimum
    return f"{problem}: optimum J_r = {best.J_r:.6g} by linear programming, λ* = {best.lam.round(4).tolist()}"


def _write(results: Comparison, rows: list[dict[str, Any]], out: str) -> list[str]:
    """Write the table, all curves, and one figure for each problem to the folder `out`; return the paths."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "table.csv", rows[0], (list(row.values()) for row in rows))
    heads = ["problem", "method", "seed", "env steps"]
    heads += [f"{what} {which}" for which in ("average", "last", "best") for what in ("gap", "violation")]
    write_csv(folder / "curves.csv", heads, [line for r in results for line in _lines(r)])
    paths = [folder / "table.csv", folder / "curves.csv"]
    for n, problem in enumerate(dict.fromkeys(r.problem for r in results), 1):
        paths.append(folder / f"figure{n}.png")
        save_figure(results.plot(problem), paths[-1], dpi=100)
    return [str(p) for p in paths]


def _lines(r: Result) -> list[list[Any]]:
    values = [f(r, which) for which in ("average", "last", "best") for f in (gaps_of, violations_of)]
    return [[r.problem, r.method, r.seed, *point] for point in zip(r.curve.steps, *values, strict=True)]
