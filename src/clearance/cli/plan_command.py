"""`clearance plan`: show which settings Theorem 1 requires for a problem."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from clearance.cli import flag_types, run_flags, tables
from clearance.exact.theory_plan import plan_for
from clearance.runs.field_values import parse_real
from clearance.runs.named_parts import make_policy_class


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    real = flag_types.flag(parse_real)
    run_flags.add_problem(p)
    run_flags.add_model_flags(p)
    p.add_argument("--epsilon", type=real, required=True, help="the accuracy wanted of J_r")
    p.add_argument("--policy", default="tabular", help="policy class, as for solve (default: tabular)")
    p.add_argument("--mu_F", type=real, default=None, help="μ_F (default: estimated at the uniform policy)")
    p.add_argument("--eps_bias", type=real, default=0.0, help="ε_bias of the policy class (default: 0)")
    p.add_argument("--eps_bias2", type=real, default=0.0, help="ε_bias2 of the policy class (default: 0)")


def run(args: argparse.Namespace) -> int:
    cmdp = run_flags.read_model(args)
    policy = make_policy_class(args.policy, cmdp)
    plan, notes = plan_for(cmdp, policy, args.epsilon, mu_F=args.mu_F, eps_bias=args.eps_bias, eps_bias2=args.eps_bias2)
    tables.answer(args, {"status": "done", **plan, "message": "; ".join(notes)}, f"Theorem 1 on {args.problem}")
    return 0
