"""`clearance watch`: record episodes of a policy as a GIF or a video."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from clearance.cli import flag_types, run_flags, tables
from clearance.core.errors import InputError
from clearance.deploy.policy_file import load_policy
from clearance.reporting.recording import SUFFIXES, record_episodes
from clearance.runs.field_values import is_code
from clearance.runs.foreign_code import import_function, import_name

POLICY = "a run folder, policy.npz, or package.module:rule, a function of the observation"


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    run_flags.add_problem(p)
    p.add_argument("policy", metavar="POLICY", help=POLICY)
    p.add_argument(
        "--out", type=flag_types.place, required=True, metavar="FILE", help="the file: .gif, or .mp4 (needs moviepy)"
    )
    p.add_argument("--episodes", type=flag_types.count(1000), default=1, help="episodes to record (default: 1)")
    p.add_argument(
        "--steps", type=flag_types.count(10_000), default=1000, help="steps of an episode, at most (default: 1000)"
    )
    p.add_argument("--seed", type=flag_types.count(2**31 - 1, least=0), default=0, help="random seed (default: 0)")


def run(args: argparse.Namespace) -> int:
    flag_types.check_file(args.out, args.problem, SUFFIXES)
    policy = (
        import_function("POLICY", args.policy) if is_code(args.policy) else load_policy(args.policy, seed=args.seed)
    )
    env = make_rendering(args.problem)
    try:
        seen = record_episodes(env, policy, args.out, episodes=args.episodes, seed=args.seed, most=args.steps)
    finally:
        env.close()
    tables.answer(args, {"status": "done", **seen, "file": args.out}, f"{args.policy} on {args.problem}")
    return 0


def make_rendering(text: str) -> Any:
    """Return an environment that renders images; `text` is gym:ENV_ID or package.module:factory."""
    if text.startswith("gym:"):
        import gymnasium

        try:
            return gymnasium.make(text[4:], render_mode="rgb_array")
        except (gymnasium.error.Error, ImportError, ValueError, TypeError) as e:
            raise InputError(f"Gymnasium cannot make {text[4:]!r} with render_mode='rgb_array': {e}") from None
    if not is_code(text):
        raise InputError(f"PROBLEM {text}: only environments that render can be watched: gym:ENV_ID or module:factory")
    made = import_name("PROBLEM", text, call=True)
    lanes = getattr(made, "lanes", None)  # a problem by clearance.gymnasium
    env = made if lanes is None else getattr(lanes, "envs", [None])[0]
    if not (hasattr(env, "render") and hasattr(env, "step")):
        raise InputError(f"PROBLEM {text}: must return an environment that renders, got {type(made).__name__}")
    return env
