"""`clearance export`: the trace of a run folder as a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from clearance.cli import flag_types, tables
from clearance.runs import run_reader
from clearance.runs.trace_export import SUFFIXES, export


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.add_argument("folder", metavar="RUN", help="a run folder, as solve --out writes it")
    p.add_argument("--to", type=flag_types.place, required=True, metavar="FILE", help="trace.csv or trace.parquet")


def run(args: argparse.Namespace) -> int:
    flag_types.check_file(args.to, args.folder, SUFFIXES, flag="--to")
    rows = export(run_reader.load(args.folder), args.to)
    tables.answer(args, {"status": "done", "rows": rows, "file": args.to}, f"trace of {args.folder}")
    return 0
