"""The command `report`: its flags, and what it says when it is done."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from clearance import flags, show
from clearance.errors import InputError


def add_flags(p: argparse.ArgumentParser) -> None:
    p.add_argument("runs", metavar="RUN", nargs="+", help="run folders, as solve --out writes them")
    p.add_argument("--out", type=flags.place, metavar="FILE", help="the file, .html (RUN/report.html for one run)")
    p.add_argument(
        "--price",
        action=argparse.BooleanOptionalAction,
        help="the price of safety: always, or never (for models of up to 600 pairs of state and action)",
    )


def run(args: argparse.Namespace) -> int:
    """Everything that can be refused is refused before the work."""
    if args.out is None and len(args.runs) > 1:
        raise InputError("--out is missing: several runs need the name of the file to write")
    for folder in args.runs:
        if not os.path.isdir(folder):
            raise InputError(f"RUN {folder}: is no folder; clearance solve PROBLEM --out RUN writes one")
    out = args.out or os.path.join(args.runs[0], "report.html")
    flags.check_file(out, "", (".html", ".htm"))
    from clearance.reporting import report

    path = report(args.runs, out, price=args.price)
    result = {"status": "done", "runs": [str(Path(r)) for r in args.runs], "out": str(path)}
    show.answer(args, result | {"message": f"written: {path}; open it in a browser"})
    return 0
