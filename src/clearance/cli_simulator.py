"""The commands on simulators: `gym:ENV_ID`, a zoo simulator, or `module:factory` that gives one or an environment."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from clearance import cli_solve, flags, show
from clearance.errors import InputError

NOT_CERTIFIED, BAD_INPUT = 4, 2
ASKED = ("limits", "b", "gamma", "horizon", "num_envs", "bounds", "constraints")


def add_flags(p: argparse.ArgumentParser) -> None:
    """What is asked of an environment; see `clearance.gymnasium`."""
    group = p.add_argument_group("simulators (gym:ENV_ID, or module:factory of an environment)")
    group.add_argument("--limits", type=flags.reals, metavar="L1,L2", help="upper limits of the costs")
    group.add_argument("--b", type=flags.reals, metavar="B1,B2", help="lower limits of the utilities")
    group.add_argument("--gamma", type=flags.real, help="discount; with --horizon 1 unless given")
    group.add_argument("--horizon", type=flags.count(2**31), help="steps per episode; without it J has no end")
    group.add_argument("--num_envs", type=flags.count(10_000), help="environments side by side (8)")
    group.add_argument("--bounds", type=flags.pair, metavar="LOW,HIGH", help="of every cost in one step")
    group.add_argument("--constraints", metavar="MODULE:F", help="f(obs, action, next_obs, info) that gives the costs")


def run(args: argparse.Namespace) -> int | None:
    """The exit status of a command on a simulator; None if it is not one of these, or on a model."""
    commands = {"solve": solve, "certify": certify, "check": check}
    if args.command == "solve" and args.resume:
        recall(args)
    simulator = found(args) if args.command in commands else None
    if simulator is None:
        return None
    with _manned(args, simulator) as simulator:
        return commands[args.command](args, simulator)


@contextmanager
def _manned(args: argparse.Namespace, simulator: Any) -> Iterator[Any]:
    """The simulator as it is; with --cluster, as a fleet that the cluster runs."""
    from clearance import arguments

    if getattr(args, "cluster", None) is None:
        yield simulator
        return
    from clearance.simulator.fleet import Fleet

    with arguments.executor(args) as executor, Fleet(simulator, executor) as fleet:
        yield fleet


def found(args: argparse.Namespace) -> Any:
    """The simulator that PROBLEM names, made with the flags; None if it names a model."""
    simulator = _named(args)
    if simulator is not None:
        _check_evidence(args, simulator)
    return simulator


def _named(args: argparse.Namespace) -> Any:
    from clearance import arguments
    from clearance.zoo import SIMULATORS

    text = args.problem
    if text is None:  # a run that goes on
        return None
    if text in SIMULATORS:
        _refuse(args, f"{text} comes with its own limits")
        return SIMULATORS[text]()
    if text.startswith("gym:"):
        return made(text[4:], args)
    module, _, factory = text.partition(":")
    if text.endswith(".npz") or not (module and factory):
        _refuse(args, f"{text} is a model")
        return None
    given = arguments.factory(text)
    if hasattr(given, "statement"):
        _refuse(args, f"{text} comes with its own limits")
        return given
    if not (hasattr(given, "step") and hasattr(given, "reset")):
        return None
    with suppress(Exception):  # it was a look: every lane has its own, and `check` tells if they cannot be closed
        given.close()
    return made(partial(arguments.factory, text), args)


def made(env: Any, args: argparse.Namespace) -> Any:
    """A problem from an environment and the flags."""
    from clearance import arguments
    from clearance.simulator.gym import gymnasium

    asked = {name: getattr(args, name) for name in ASKED if getattr(args, name, None) is not None}
    if "constraints" in asked:
        asked["constraints"] = arguments.function("--constraints", asked["constraints"])
    return gymnasium(env, **asked)


def _refuse(args: argparse.Namespace, why: str) -> None:
    for name in ASKED:
        if getattr(args, name, None) is not None:
            raise InputError(f"--{name} is for environments; {why}: leave it out")


def _check_evidence(args: argparse.Namespace, simulator: Any) -> None:
    """A simulator knows its values, or it is sampled: there is nothing to choose."""
    kind = "samples" if getattr(simulator, "exact", None) is None else "exact"
    if getattr(args, "evidence", None) not in (None, kind):
        why = {"samples": "only samples can tell of this simulator", "exact": "the values of this simulator are known"}
        raise InputError(f"--evidence {args.evidence}: {why[kind]}: leave it out")


def check(args: argparse.Namespace, simulator: Any) -> int:
    """What is wrong with an environment, one line each; exit status 2 if anything is."""
    from clearance.simulator.check import check_env

    seen = check_env(simulator)
    s = simulator.statement
    result = {
        "status": "done" if seen.ok else "wrong",
        "wrong": list(seen.wrong),
        "notes": list(seen.notes),
        "deterministic": seen.deterministic,
        "observation": list(simulator.obs_shape),
        "action": list(simulator.action.shape),
        "constraints": s.I,
        "gamma": s.gamma,
        "horizon": s.horizon,
        "b": s.b,
        "message": seen.wrong[0] if seen.wrong else "nothing wrong was found",
    }
    if args.json:
        show.answer(args, result)
    else:
        sys.stdout.write(f"{seen}\n")
    return 0 if seen.ok else BAD_INPUT


def solve(args: argparse.Namespace, simulator: Any) -> int:
    """Learn on a simulator, and certify; or go on with that."""
    work = partial(_resumed if cli_solve.goes_on(args) else _begun, args, simulator)
    return cli_solve.carried_out(args, work, cli_solve.command(args, cli_solve.given_flags(args)))


def _begun(args: argparse.Namespace, simulator: Any, folder: str | None) -> Any:
    from clearance.simulator.solving import solve_simulator

    how = meant(args)
    if folder:
        flags.check_new_folder(folder)
    with cli_solve.watchers(args, simulator.statement, 0) as progress:
        every = args.checkpoint_every
        return solve_simulator(simulator, **how, progress=progress, out=folder, checkpoint_every=every)


def _resumed(args: argparse.Namespace, simulator: Any, folder: str) -> Any:
    from clearance.resuming import resume

    cli_solve.must_agree(args, folder, free=ASKED)
    with cli_solve.watchers(args, simulator.statement, 0) as progress:
        return resume(folder, simulator, checkpoint_every=args.checkpoint_every, progress=progress)


def recall(args: argparse.Namespace) -> None:
    """PROBLEM and the numbers that are asked of it, as a run folder has them, where they were not given again.

    Names of foreign code are never taken from a folder: only a simulator of the zoo needs no PROBLEM.
    """
    from clearance.run import read_settings
    from clearance.settings import on_simulator
    from clearance.zoo import SIMULATORS

    folder = Path(args.resume)
    asked = read_settings(folder) if (folder / "settings.json").exists() else None
    if asked is None or not on_simulator(asked):
        return
    before, words = asked["flags"] or {}, asked["command"] or []
    if args.problem is None and words[2:3] and words[2] in SIMULATORS:
        args.problem = words[2]
    code = {"PROBLEM": args.problem is None, "--constraints": "constraints" in before and args.constraints is None}
    for missing in (name for name, is_missing in code.items() if is_missing):
        again = shlex.join([*(words or ["clearance", "solve", "PROBLEM"]), "--resume", str(folder)])
        raise InputError(f"{missing} is missing: {folder} is a run on a simulator, whose code is not in it: {again}")
    for name in set(ASKED) - {"constraints"}:
        if getattr(args, name) is None:
            setattr(args, name, before.get(name))


def method(args: argparse.Namespace) -> Any:
    """The method for networks with the settings that were given; others are refused."""
    from clearance import arguments
    from clearance.simulator.crpo import PracticalCRPO
    from clearance.simulator.method import PracticalCNPGPD

    kinds = {None: PracticalCNPGPD, "regularised": PracticalCNPGPD, "cnpgpd": PracticalCNPGPD, "crpo": PracticalCRPO}
    if args.method not in kinds:
        raise InputError(f"--method {args.method} is for finite models: leave it out, or give cnpgpd or crpo")
    kind = kinds[args.method]
    own = {f.name for f in dataclasses.fields(kind)} - {"direction"}
    given = {name: getattr(args, name) for name in arguments.settings() if getattr(args, name) is not None}
    given |= {
        name: getattr(args, name) for name in ("direction", "sampler", "ridge") if getattr(args, name) is not None
    }
    for name in given:
        if name not in own:
            raise InputError(f"--{name} is not for {kind.__name__}, the method on simulators: leave it out")
    if args.policy not in (None, "tabular"):
        raise InputError("--policy is for finite models: leave it out")
    return kind(**given)


def certify(args: argparse.Namespace, simulator: Any) -> int:
    """Does a saved policy keep the limits of a simulator?"""
    from clearance.simulator.mixture import NetworkMixture
    from clearance.simulator.solving import certify_simulator

    policy = NetworkMixture.load(args.policy)
    certificate = certify_simulator(simulator, policy, delta=args.delta, budget=args.budget, seed=args.seed)
    result = {"status": "done", **show.certificate(certificate), "env_steps": certificate.env_steps}
    show.answer(args, result, f"{args.policy} on {args.problem}", names=simulator.statement.names)
    return 0 if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def meant(args: argparse.Namespace) -> dict[str, Any]:
    """What the flags ask of `solve` on a simulator."""
    given = cli_solve.given_flags(args)
    asked = {"flags": given, "command": cli_solve.command(args, given)}
    delta, seed = 0.01 if args.delta is None else args.delta, args.seed or 0
    return {"method": method(args), "budget": args.budget, "delta": delta, "seed": seed, "asked": asked}
