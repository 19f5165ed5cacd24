"""`clearance reproduce`: repeat a published experiment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from clearance.cli import executor_argument, flag_types, run_flags, study_tables, tables
from clearance.core.figures import pyplot_for_files
from clearance.reporting import plots
from clearance.runs import progress as watch
from clearance.runs.field_values import parse_whole
from clearance.studies.reproduce import SETTINGS, published, run_bai2023, write_bai2023


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.add_argument("experiment", choices=["bai2023"])
    p.add_argument("--seeds", type=flag_types.count(10_000), default=40, help="number of runs (default: 40)")
    p.add_argument("--K", type=flag_types.flag(parse_whole), default=7000, help="number of iterations (default: 7000)")
    p.add_argument("--threads", type=flag_types.count(1_000), default=2, help="runs at the same time (default: 2)")
    flag_types.add_cluster(run_flags.group(p, run_flags.CLUSTER))
    p.add_argument("--out", type=flag_types.place, default="results/bai2023", help="folder for table and figures")


def run(args: argparse.Namespace) -> int:
    pyplot_for_files()  # report a missing extra, or a folder that cannot be made, before the work
    flag_types.check_folder(args.out)
    with (
        executor_argument.executor_of(args) as executor,
        watch.Progress(args, args.seeds * len(SETTINGS), what="runs") as bar,
    ):
        study = run_bai2023(args.seeds, args.K, progress=bar.advance_to, executor=executor)
    paths = [*write_bai2023(study, args.out), *plots.reproduction(study, published(), Path(args.out))]
    if not args.json:
        study_tables.study(study, paths)
        return 0
    keys = ("class_optimum", "class_slater", "slater", "optimum", "lam_max", "seconds")
    facts = {k: getattr(study, k) for k in keys}
    found = {"table": study.table(), "files": [str(p) for p in paths], "message": study.finding()}
    tables.answer(args, {"status": "done", **facts, **found})
    return 0
