"""`clearance report`: write an HTML report about one or several runs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from clearance.cli import flag_types, tables
from clearance.core.errors import InputError


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.add_argument("runs", metavar="RUN", nargs="+", help="run folders, as solve --out writes them")
    p.add_argument(
        "--out",
        type=flag_types.place,
        metavar="FILE",
        help="the file to write, .html (default for one run: RUN/report.html)",
    )
    p.add_argument(
        "--price",
        action=argparse.BooleanOptionalAction,
        help="show the price of safety: always, or never (default: for models of up to 600 state-action pairs)",
    )


def run(args: argparse.Namespace) -> int:
    """Check all arguments, then write the report, and return the exit status."""
    if args.out is None and len(args.runs) > 1:
        raise InputError("--out is missing: several runs need the name of the file to write")
    for folder in args.runs:
        if not os.path.isdir(folder):
            raise InputError(f"RUN {folder}: is no folder; clearance solve PROBLEM --out RUN writes one")
    if args.out is not None:
        flag_types.check_file(args.out, "", (".html", ".htm"))
    elif not os.access(args.runs[0], os.W_OK):
        raise InputError(f"RUN {args.runs[0]}: cannot write: no permission; name a file with --out")
    from clearance.reporting.report import report

    path = report(args.runs, args.out, price=args.price)
    result = {"status": "done", "runs": [str(Path(r)) for r in args.runs], "out": str(path)}
    tables.answer(args, result | {"message": f"Written: {path}. Open it in a browser."})
    return 0
