"""`clearance export`: write a model in another format, or the trace or policy of a run folder as a table."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clearance.cli import flag_types, run_flags, tables
from clearance.core.errors import InputError
from clearance.exchange.model_files import WRITERS, save_model
from clearance.exchange.policy_files import SUFFIXES as OF_POLICY
from clearance.exchange.policy_files import save_policy
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.runs import run_reader
from clearance.runs.problem_text import load_problem, names_model
from clearance.runs.trace_export import SUFFIXES as OF_TRACE
from clearance.runs.trace_export import export

OF_MODEL = tuple(WRITERS)


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.add_argument("source", metavar="RUN|MODEL", help="a run folder, as solve --out writes it, or a finite model")
    what = "trace.csv, trace.parquet; policy.csv, policy.json; or a model: .npz, .csv, .drn, .umb"
    p.add_argument("--to", type=flag_types.place, required=True, metavar="FILE", help=what)
    p.add_argument(
        "--what",
        choices=["trace", "policy", "model"],
        help="what to write of a run folder (default: what FILE begins with, else the trace)",
    )
    run_flags.add_model_flags(p)


def run(args: argparse.Namespace) -> int:
    result = _export_model(args) if names_model(args.source) else _export_run(args)
    tables.answer(args, {"status": "done", **result, "file": args.to}, f"export of {args.source}")
    return 0


def _export_model(args: argparse.Namespace) -> dict[str, Any]:
    if args.what not in (None, "model"):
        raise InputError(f"--what {args.what}: {args.source} is no run folder")
    flag_types.check_file(args.to, args.source, OF_MODEL, flag="--to")
    args.problem = args.source
    return _write_model(args, run_flags.read_model(args))


def _write_model(args: argparse.Namespace, model: CMDP) -> dict[str, Any]:
    save_model(model, args.to)
    found: dict[str, Any] = {"states": model.S, "actions": model.A}
    if args.to.lower().endswith(".npz"):
        return found
    left_out = (
        "Limits and criterion are not stored in this format: give them again to every command that reads the file."
    )
    return found | {"message": [left_out]}


def _export_run(args: argparse.Namespace) -> dict[str, Any]:
    what = args.what or next((w for w in ("policy", "model") if Path(args.to).name.startswith(w)), "trace")
    suffixes = {"trace": OF_TRACE, "policy": OF_POLICY, "model": OF_MODEL}[what]
    flag_types.check_file(args.to, args.source, suffixes, flag="--to")
    found = run_reader.load(args.source)
    if what == "trace":
        rows = export(found, args.to)
        asked = args.what or Path(args.to).name.startswith("trace")
        return {"rows": rows} | ({} if asked else {"message": ["Written: the trace; for the policy: --what policy."]})
    file = Path(args.source) / "problem.npz"
    if not file.exists():
        raise InputError(f"{args.source}: is a run on a simulator, which has no table; use its policy.npz")
    model = load_problem(str(file), {})
    if what == "model":
        return _write_model(args, model)
    policy = found.policy
    if not isinstance(policy, Mixture):
        raise InputError(f"{args.source}: has no policy yet; resume it")
    save_policy(policy, args.to, model, certificate=found.certificate)
    return {"components": policy.M}
