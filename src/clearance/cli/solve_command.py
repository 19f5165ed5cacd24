"""`clearance solve`: start a run, or resume an earlier one."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from clearance.cli import executor_argument, flag_types, interrupts, run_flags, tables
from clearance.cli.policy_answer import add_policy_flag, check_state, policy_answer
from clearance.core.errors import EnvironmentFault, InputError, SolverError
from clearance.core.import_path import import_rule
from clearance.core.inside_folder import Inside
from clearance.finite.cmdp import CMDP
from clearance.runs import progress as watch
from clearance.runs import run_reader
from clearance.runs.field_values import is_code
from clearance.runs.method_settings import method_class
from clearance.runs.method_table import METHODS
from clearance.runs.problem_text import OF_MODEL_FILE, names_code
from clearance.runs.resume import resume
from clearance.runs.run_folder import refuse_other_version
from clearance.runs.run_spec import OF_ENVIRONMENT, RunSpec, parse_flag, to_text
from clearance.runs.solve import solve
from clearance.runs.start_file import BY_RULE
from clearance.runs.worlds.dispatch import world_of
from clearance.zoo import SIMULATORS

CERTIFIED, NOT_CERTIFIED = 0, 4


def add_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    p.usage = "clearance solve PROBLEM [options], or solve --resume RUN"
    run_flags.add_run_flags(p, words)
    add_output_flags(p)
    add_policy_flag(p)
    flag_types.add_cluster(run_flags.group(p, run_flags.CLUSTER), workers=True)


def add_output_flags(p: argparse.ArgumentParser) -> None:
    group = run_flags.group(p, run_flags.RUN)
    p.add_argument(
        "--out",
        type=flag_types.place,
        metavar="RUN",
        help="write the run to this folder, so that it can be resumed and reported",
    )
    group.add_argument(
        "--resume",
        type=flag_types.place,
        metavar="RUN",
        help="resume the run in this folder; give code of your own (PROBLEM, --method, --constraints) again. With "
        "PROBLEM, start the run if the folder does not exist",
    )
    group.add_argument(
        "--checkpoint-every",
        type=flag_types.every,
        default="30s",
        metavar="TIME|ITERATIONS",
        help="how often to write a checkpoint: a time (30s, 5m, 2h) or a number of iterations (default: 30s)",
    )
    group.add_argument(
        "--allow-import",
        action="append",
        type=flag_types.place,
        metavar="PATH",
        help="folder to import your own code from, when resuming or reading a grid from a file",
    )
    group.add_argument("--tensorboard", type=flag_types.place, metavar="DIR", help="write TensorBoard event files here")


def check(args: argparse.Namespace) -> str | None:
    """Return an error message if the given flags do not go together; else None."""
    if args.problem is None and args.resume is None:
        return "PROBLEM is missing: give one, or --resume RUN"
    if args.out and args.resume and os.path.abspath(args.out) != os.path.abspath(args.resume):
        return (
            f"--out {args.out} and --resume {args.resume} are two folders: a run is resumed in its own; leave out --out"
        )
    return None


def run(args: argparse.Namespace) -> int:
    """Start a run, or resume an earlier one, and show the result."""
    spec = run_flags.read_spec(args)
    folder: str = args.resume or ""
    resumed = bool(folder) and (args.problem is None or os.path.exists(f"{folder}/settings.json"))
    spec = recall(spec, folder) if resumed else spec
    args.problem = spec.problem
    problem = None if spec.problem is None else spec.load_problem()
    if args.state is not None:
        check_state(args, _stored_model(folder) if problem is None else problem)
    with executor_argument.distributed(args, problem) as problem:
        work = partial(_resume if resumed else _start, args, spec, problem)
        return _carry_out(args, work, _again(spec, problem))


def _start(args: argparse.Namespace, spec: RunSpec, problem: Any, folder: str | None) -> Any:
    how = spec.solve_arguments(problem)
    if folder:
        flag_types.check_new_folder(folder)
    total = getattr(how.get("method"), "K", None) or 0
    with watch.Progress(args, total, b=world_of(problem).statement.b) as bar:
        how |= {"tensorboard": args.tensorboard, "checkpoint_every": args.checkpoint_every}
        return solve(problem, **how, progress=bar.update, out=folder)


def _resume(args: argparse.Namespace, spec: RunSpec, problem: Any, folder: str) -> Any:
    statement = _stored_model(folder) if problem is None else world_of(problem).statement
    method = method_class(spec.method) if spec.method is not None and "method" in dict(spec.code()) else None
    init = spec.read_init() if "init" in dict(spec.code()) else None
    how = {"tensorboard": args.tensorboard, "checkpoint_every": args.checkpoint_every}
    with watch.Progress(args, 0, b=statement.b.tolist()) as bar:
        return resume(folder, problem, method=method, init=init, progress=bar.update, **how)


def _stored_model(folder: str) -> CMDP:
    """Load the model in a run folder, to show its names and limits; its hash is checked later by `resume`."""
    try:
        return CMDP.load(Inside(Path(folder), "problem.npz"))
    except InputError as e:
        raise InputError(f"{e}: give PROBLEM again, or start again in another folder") from None


# ------------------------------------------------------------------------------------------------- what is resumed


def recall(spec: RunSpec, folder: str) -> RunSpec:
    """Return the flags `spec`, with missing flags about the problem filled in from those that a run folder stores.

    Raise InputError if a given flag differs from the stored one.

    Names of user code are never taken from a folder: the user must give them again. For a simulator, PROBLEM must be
    given again too, unless it is one of the zoo.
    """
    if not os.path.isdir(folder):
        raise InputError(f"--resume {folder}: there is no such run folder; begin one with PROBLEM and --out {folder}")
    refuse_other_version(Path(folder))
    stored = run_reader.read_settings(Path(folder))
    flags, words = stored["flags"], stored["command"] or []
    simulated = stored["policy"]["kind"] == "design"
    if simulated and spec.problem is None and words[2:3] and words[2] in SIMULATORS:
        spec = replace(spec, problem=words[2])
    missing = {
        "PROBLEM": simulated and spec.problem is None,
        "--constraints": simulated and "constraints" in (flags or {}) and spec.constraints is None,
        "--init": (stored.get("init") or "").startswith(BY_RULE) and "init" not in dict(spec.code()),
        "--method": _has_own_method(stored) and "method" not in dict(spec.code()),
    }
    for name in (name for name, is_missing in missing.items() if is_missing):
        again = shlex.join([*(words or ["clearance", "solve", "PROBLEM"]), "--resume", folder])
        raise InputError(f"{name} is missing: {folder} is a run {_whose(name)}, whose code is not in it: {again}")
    begun = words[2] if len(words) > 2 and names_code(words[2]) else None
    if begun is not None and spec.problem not in (None, begun):
        raise InputError(
            f"PROBLEM {spec.problem} is not as in the run in {folder}, where it was {begun}: give that one"
        )
    spec.check_agreement(flags, folder, simulated=simulated)
    known = OF_ENVIRONMENT if simulated else OF_MODEL_FILE
    asked = [name for name in known if name != "constraints" and getattr(spec, name) is None]
    return replace(spec, **{n: parse_flag(n, to_text(n, flags[n])) for n in asked if flags and n in flags})


def _has_own_method(stored: dict[str, Any]) -> bool:
    return stored["method"] is not None and stored["method"]["name"] not in {k.__name__ for k in METHODS.values()}


def _whose(missing: str) -> str:
    return {"--method": "with a method of your own", "--init": "that imitates a rule"}.get(missing, "on a simulator")


def allowed_again(words: Sequence[str]) -> list[str]:
    """Return the --allow-import flags for the command that resumes a run; [] if its `words` name no user code.

    The flags name the folders in which this process searches for user code.
    """
    if not any(is_code(word) for word in words):
        return []
    rule = import_rule()
    folders = [*rule.folders, *([os.getcwd()] if rule.here else [])]
    return [word for folder in folders for word in ("--allow-import", folder)]


def _again(spec: RunSpec, problem: Any) -> list[str]:
    """Return the first words of the command that resumes the run; they name its user code again."""
    if problem is not None and not isinstance(problem, CMDP):
        return spec.words()
    method = dict(spec.code()).get("method")
    return ["clearance", "solve", *(["--method", method] if method else [])]


# ------------------------------------------------------------------------------------------------- what is shown


def _carry_out(args: argparse.Namespace, work: Callable[[Any], Any], again: list[str]) -> int:
    """Call `work` with the run folder, show the result, and return the exit status.

    After an interrupt or an error, the message says how to resume.

    again  the first words of the command that resumes the run
    """
    folder = args.resume or args.out
    go_on = f"resume with: {shlex.join([*again, '--resume', str(folder), *allowed_again(again)])}"
    try:
        solution = work(folder)
    except KeyboardInterrupt:
        if not _can_be_resumed(folder):
            kept = "nothing had been learned" if folder else "without --out nothing is kept"
            return tables.error(f"interrupted; {kept}", interrupts.exit_status(), as_json=args.json)
        message = f"interrupted; saved in {folder}: {go_on}"
        return tables.error(message, interrupts.exit_status(), as_json=args.json)
    except (SolverError, InputError) as e:
        kind = SolverError if isinstance(e, SolverError) else InputError
        raise kind(f"{e}{_saved(e, folder, go_on) if _can_be_resumed(folder) else ''}") from None
    status = _answer(args, solution, folder)
    if solution.recalled:
        return tables.error(f"{folder} is finished: this is its stored result, nothing was tested again", status)
    if solution.status == "interrupted":
        where = f"; saved in {folder}: {go_on}" if folder else ""
        done = f"interrupted after {solution.state.k} of {solution.method.K} iterations"
        return tables.error(f"{done}{where}", interrupts.exit_status())
    return status


def _saved(e: Exception, folder: str, go_on: str) -> str:
    """Return a text that says what is saved after the error e, and how to resume; "" if there is nothing to say.

    go_on  the sentence that says how to resume
    """
    if isinstance(e, SolverError):
        return f"; the iterations before are saved in {folder}"
    if isinstance(e, EnvironmentFault) and e.learned is not None:
        return f"; what was learned until then is in {folder}/policy.npz, not certified; once it is fixed, {go_on}"
    return f"; when it can, {go_on}" if "cannot write" in str(e) else ""


def _can_be_resumed(folder: str | None) -> bool:
    return folder is not None and os.path.exists(os.path.join(folder, "manifest.json"))


def _answer(args: argparse.Namespace, solution: Any, folder: str | None) -> int:
    """Show the result of a run and return the exit status; in JSON, fields that do not apply are null."""
    certificate, k, tests = solution.certificate, solution.state.k, solution.selection.tests
    result = {
        **tables.certificate(certificate),
        "status": solution.status,
        "lam": certificate.lam if certificate.lam is not None else solution.lam,
        "slater": getattr(solution, "slater", None),
        "kappa": solution.kappa,
        "components": certificate.components,
        "attempts": tests or None,
        "env_steps": solution.env_steps,
        "learning_steps": getattr(solution, "learning_steps", None),
        "seconds": solution.seconds,
        "path_bound": getattr(solution, "path_bound", None),
        "run": folder,
    }
    on = args.problem or folder
    result["message"] += _about_path_bound(result["path_bound"])
    result |= policy_answer(args, solution.problem, solution.policy)
    tables.answer(args, result, f"{on}: the policy from {k} iterations", names=solution.statement.names)
    return CERTIFIED if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def _about_path_bound(bound: Any) -> list[str]:
    """Return a list with one sentence that explains a negative `Solution.path_bound`; [] if no entry is negative."""
    if bound is None or all(x >= 0 for x in bound):
        return []
    return ["path_bound is about the mean of the iterates while learning, not about this policy."]
