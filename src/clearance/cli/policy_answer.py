"""Add a description of the policy to a command's answer and, with --show-policy, all of its probabilities."""

from __future__ import annotations

import argparse
from typing import Any

from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.finite.policy_words import describe_policy, list_policy


def add_policy_flag(p: Any) -> None:
    p.add_argument("--show-policy", action="store_true", help="show every state, action and probability of the policy")


def policy_answer(args: argparse.Namespace, problem: Any, policy: Any) -> dict[str, Any]:
    """Return the fields of a command's answer about the policy of a finite model; {} for a simulator.

    The field `policy_words` describes the policy. With --show-policy, the field `policy` lists all of its
    probabilities.
    """
    if not (isinstance(problem, CMDP) and isinstance(policy, Mixture)):
        return {}
    names = {"states": problem.states, "actions": problem.actions}
    found: dict[str, Any] = {"policy_words": describe_policy(problem, policy, **names)}
    return found | ({"policy": list_policy(policy, **names)} if args.show_policy else {})
