"""`clearance certify`: test whether a policy meets every limit of a problem, or check a stored certificate."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Sequence
from typing import Any

from clearance.cli import executor_argument, flag_types, run_flags, tables
from clearance.cli.policy_answer import add_state_flag, check_state, policy_answer
from clearance.core.errors import InputError
from clearance.core.policy_tables import SUFFIXES
from clearance.runs.certificate_check import check_certificate
from clearance.runs.certify import certify
from clearance.runs.field_values import is_code
from clearance.runs.foreign_code import import_name
from clearance.runs.policy_argument import load_problem_policy
from clearance.runs.run_reader import load
from clearance.runs.worlds.dispatch import world_of

NOT_CERTIFIED = 4
POLICY = (
    "a policy file, as solve --out (.npz) and optimum --out (.npz, or .csv and .json by name) write it, a run folder, "
    "or package.module:rule, a function of the observation"
)

CHECK = (
    "check the certificate of this run folder: compute it again from the model and the policy in it, and compare its "
    "numbers with each other; then PROBLEM and POLICY are not given"
)
OUT = (
    "keep a ledger of the tests in this folder, a run folder or one of its own: the same policy and limits continue "
    "their test, another policy gets another share of --delta (evidence from samples)"
)


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.usage = "clearance certify PROBLEM POLICY [options], or certify --check RUN"
    run_flags.add_problem(p)
    p.add_argument("policy", metavar="POLICY", help=POLICY)
    add_state_flag(p)
    p.add_argument("--check", type=flag_types.place, metavar="RUN", action=_Check, help=CHECK)
    run_flags.add_evidence_flags(p, budget=1e6, delta=0.01, seed=0)
    run_flags.add_environment_flags(p)
    p.add_argument("--out", type=flag_types.place, metavar="FOLDER", help=OUT)
    flag_types.add_cluster(run_flags.group(p, run_flags.CLUSTER), workers=True)


class _Check(argparse.Action):
    """The argparse action of --check, which makes PROBLEM and POLICY optional.

    With nargs="?" they would be optional too, but flags between PROBLEM and POLICY would not be allowed.
    """

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        setattr(namespace, self.dest, values)
        for action in parser._actions:
            action.required = action.required and bool(action.option_strings)


def check(args: argparse.Namespace) -> str | None:
    """Return an error message if the given flags do not go together; else None."""
    alone = args.check is None or (args.problem is None and args.out is None and args.cluster is None)
    return None if alone else "--check has all it needs in RUN: leave out PROBLEM, POLICY, --out and --cluster"


def run(args: argparse.Namespace) -> int:
    if args.check is not None:
        return _check_stored(args)
    problem = run_flags.read_spec(args).load_problem()
    check_state(args, problem)
    policy = load_policy(args.policy, problem)
    if args.cluster is not None:
        _check_cluster(args, problem, policy)
    settings = {"evidence": args.evidence, "delta": args.delta, "budget": args.budget, "seed": args.seed}
    with contextlib.nullcontext() if args.cluster is None else executor_argument.executor_of(args) as executor:
        certificate = certify(problem, policy, **settings, executor=executor, out=args.out)
    result = {"status": "done", **tables.certificate(certificate), "env_steps": certificate.env_steps, "run": args.out}
    result |= policy_answer(args, problem, policy) if args.state is not None else {}
    tables.answer(args, result, f"{args.policy} on {args.problem}", names=world_of(problem).statement.names)
    return 0 if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def _check_stored(args: argparse.Namespace) -> int:
    """Check and show the certificate of a run folder; return the exit status.

    The status is 0 if the certificate was computed again and is CERTIFIED, and 4 if not.
    """
    stored = load(args.check)
    found = check_certificate(stored)
    result = {"status": "done", **tables.certificate(found.certificate), "checked": found.checked, "run": args.check}
    result["message"] = [*result["message"], f"{found.message[0].upper()}{found.message[1:]}."]
    tables.answer(args, result, f"certificate of {args.check}", names=stored.problem.names)
    return 0 if found.checked and found.certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def load_policy(text: str, problem: Any) -> Any:
    """Return the policy that POLICY names: loaded from a file or run folder, or an imported rule.

    A rule is a function `state -> action` on a finite model, and `observation -> action` on a simulator.
    """
    if text.endswith((".npz", *SUFFIXES)) or os.path.exists(text) or not is_code(text):
        return load_problem_policy(problem, text)
    found = import_name("POLICY", text)
    if not callable(found):
        raise InputError(f"POLICY {text} must be a rule `state -> action`, got {type(found).__name__}")
    return found


def _check_cluster(args: argparse.Namespace, problem: object, policy: object) -> None:
    if callable(policy):
        raise InputError("--cluster: a rule is called in this process: leave it out")
    if world_of(problem).evidence(args.evidence, None) != "samples":
        raise InputError("--cluster is for episodes: give --evidence samples, or leave it out")
