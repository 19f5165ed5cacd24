"""`clearance optimum`: compute the exact optimum of a finite model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from clearance.certificates.certificate import Certificate
from clearance.cli import flag_types, run_flags, tables
from clearance.cli.diagnosis import explain_infeasible
from clearance.cli.import_notes import import_notes
from clearance.cli.policy_answer import add_policy_flag, check_state, policy_answer
from clearance.core.errors import infeasible_message, no_room_message
from clearance.exact.never import never_words
from clearance.exact.optimum import optimum
from clearance.exchange.policy_files import SUFFIXES, save_policy
from clearance.finite.mixture import Mixture
from clearance.runs.certify import certify

INFEASIBLE, NOT_CERTIFIED = 3, 4


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    run_flags.add_problem(p)
    run_flags.add_model_flags(p)
    add_policy_flag(p)
    p.add_argument(
        "--out",
        type=flag_types.place,
        metavar="POLICY",
        help="write the optimal policy here: .npz, or by name .csv, .json",
    )


def run(args: argparse.Namespace) -> int:
    if args.out:
        flag_types.check_file(args.out, args.problem, SUFFIXES)
    cmdp = run_flags.read_model(args)
    check_state(args, cmdp)
    best = optimum(cmdp)
    certificate = certify(cmdp, best.policy, best=best)
    feasible = best.status != "infeasible"
    result = {**tables.certificate(certificate), "status": best.status, "lam": best.lam}
    result |= {"lam_range": best.lam_range, "out": args.out if feasible else None}
    result["attained_margin"] = best.attained_margin
    if not feasible:
        slater = best.attained_margin  # if it is negative, it is the Slater margin itself
        message = never_words(cmdp) or infeasible_message(slater, cmdp.I)
        result |= {"verdict": "INFEASIBLE", "slater": slater, "message": message}
        # The multipliers prove that no policy meets the limits; they are no prices.
        result |= {"lam": None, "complementarity": None, "conflict_weights": best.lam}
        result = explain_infeasible(result, cmdp, relaxed=True)
    if best.status == "borderline":
        result |= {"message": _borderline_words(certificate, best.attained_margin)}
    if args.out and feasible:
        save_policy(best.policy, args.out, cmdp, certificate=certificate)
    elif args.out:  # a script that looks for the file must not find a policy that breaks the limits
        result["message"] += f"; {args.out} was not written"
    if cmdp.I == 0:
        result["message"] += import_notes(args.problem, cmdp)
    result |= policy_answer(args, cmdp, Mixture.of(best.policy))
    tables.answer(args, result, f"optimum of {args.problem}", names=cmdp.names)
    return INFEASIBLE if not feasible else 0 if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def _borderline_words(certificate: Certificate, margin: float) -> str:
    """Return a sentence about a Slater margin near 0.

    If the policy is certified, the sentence says how much more another policy may earn; otherwise it says what to do.
    """
    if certificate.verdict != "CERTIFIED" or certificate.gap is None:
        return no_room_message(margin)
    return (
        f"every limit is met; no policy can meet all of them with room beyond rounding (Slater margin {margin:.3g}), "
        f"and another policy may earn up to {certificate.gap:.3g} more"
    )
