"""`clearance zoo`: list the built-in benchmark problems, one line each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from clearance.cli import layout, tables
from clearance.zoo import MODELS, SIMULATORS, about


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.usage = "clearance zoo [options]"


def run(args: argparse.Namespace) -> int:
    if args.json:
        kinds = {"finite model": MODELS, "simulator": SIMULATORS}
        found = [{"name": n, "kind": kind, "about": about(n)} for kind, names in kinds.items() for n in names]
        tables.answer(args, {"status": "done", "problems": found, "message": f"{len(found)} problems"})
        return 0
    width = tables.page_width()
    tables.show_page(
        ["Finite models, with a known optimum:"],
        tables.Lines(layout.pairs([(name, about(name)) for name in MODELS], width)),
        ["Simulators, which need pip install '.[sim]':"],
        tables.Lines(layout.pairs([(name, about(name)) for name in SIMULATORS], width)),
        ["Use a name wherever a command asks for PROBLEM: clearance optimum inventory"],
    )
    return 0
