"""Add a description of the policy to a command's answer and, with --show-policy, all of its probabilities."""

from __future__ import annotations

import argparse
from typing import Any

from clearance.core.errors import InputError
from clearance.exchange.policy_files import find_state
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.finite.policy_words import describe_policy, list_policy


def add_policy_flag(p: Any) -> None:
    p.add_argument("--show-policy", action="store_true", help="show every state, action and probability of the policy")
    add_state_flag(p)


def add_state_flag(p: Any) -> None:
    p.add_argument("--state", metavar="NAME", help="show the actions of the policy in this state, by name or number")


def check_state(args: argparse.Namespace, problem: Any) -> None:
    """Raise InputError if --state names no state of the problem, before a long computation begins."""
    if args.state is None:
        return
    if not isinstance(problem, CMDP):
        raise InputError("--state is for finite models: a simulator has no list of states")
    _state_index(problem, args.state)


def _state_index(cmdp: CMDP, state: str) -> int:
    known = cmdp.states or ()
    try:
        return find_state(cmdp, int(state) if state.isdecimal() and state not in known else state)
    except InputError as e:
        raise InputError(f"--state: {e}") from None


def policy_answer(args: argparse.Namespace, problem: Any, policy: Any) -> dict[str, Any]:
    """Return the fields of a command's answer about the policy of a finite model; {} for a simulator.

    The field `policy_words` describes the policy. With --show-policy, the field `policy` also lists all of its
    probabilities. With --state, `policy` lists the probabilities in one state, and `policy_words` is left out.
    """
    if not (isinstance(problem, CMDP) and isinstance(policy, Mixture)):
        return {}
    names = {"states": problem.states, "actions": problem.actions}
    if args.state is not None:
        s = _state_index(problem, args.state)
        name = problem.states[s] if problem.states else s
        return {"policy": [row for row in list_policy(policy, **names) if row["state"] == name]}
    found: dict[str, Any] = {"policy_words": describe_policy(problem, policy, **names)}
    return found | ({"policy": list_policy(policy, **names)} if args.show_policy else {})
