"""`clearance solve`: its flags, beginning and going on with runs; and `clearance export`."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from clearance import arguments, flags, show, watch
from clearance.errors import EnvironmentFault, InputError, SolverError

CERTIFIED, NOT_CERTIFIED, INTERRUPTED = 0, 4, 130
# What holds unless it is given; with --resume, the run folder knows.
DEFAULTS: dict[str, Any] = {
    "method": "regularised",
    "evidence": "exact",
    "delta": 0.01,
    "seed": 0,
    "policy": "tabular",
    "printed": False,
}
# Flags that say where things go and how they are shown: they may differ from one process to the next.
OWN = ("command", "run", "check", "json", "problem", "out", "resume", "checkpoint_every", "tensorboard")
OWN += ("grid", "cluster", "threads", "workers")


def add_flags(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--method",
        choices=list(arguments.methods()),
        help="with a critic and fading regularisation, Algorithm 1 of the paper, or one of its peers (regularised)",
    )
    for name, entry in arguments.settings().items():
        p.add_argument(f"--{name}", default=None, help=arguments.help_of(entry), **arguments.type_of(entry["field"]))
    p.add_argument(
        "--direction",
        choices=["sgd", "weighted-sgd", "least-squares", "tabular"],
        help="how Algorithm 1 and NPG-PD find ω (sgd; with weighted draws: tabular, or least-squares for features)",
    )
    p.add_argument("--printed", action="store_true", default=None, help="the SGD as printed in the paper")
    p.add_argument("--ridge", type=flags.non_negative, default=None, help="ridge of least squares (0: pseudo-inverse)")
    p.add_argument("--policy", help="tabular, a zoo class (bai2023), or an .npz with features [S, A, d] (tabular)")
    p.add_argument(
        "--sampler",
        choices=["critic", "table", "coin", "exact"],
        default=None,
        help="a critic (regularised), Algorithm 2 with resets (cnpgpd), reset-free, or no noise",
    )
    p.add_argument("--out", type=flags.place, metavar="RUN", help="write the run folder here, while the run goes on")
    p.add_argument(
        "--resume",
        type=flags.place,
        metavar="RUN",
        help="go on with this run folder; PROBLEM and flags may be left out. With PROBLEM, begin it if it is not there",
    )
    p.add_argument(
        "--checkpoint-every",
        type=flags.every,
        default="30s",
        metavar="TIME|ITERATIONS",
        help="how often the run folder gets a checkpoint: a time (30s, 5m, 2h) or a number of iterations (30s)",
    )
    p.add_argument("--tensorboard", type=flags.place, metavar="DIR", help="write event files for TensorBoard here")


def check(args: argparse.Namespace) -> str | None:
    """What is wrong with flags that are right one by one."""
    if args.problem is None and args.resume is None:
        return "PROBLEM is missing: give one, or --resume RUN"
    if args.out and args.resume and os.path.abspath(args.out) != os.path.abspath(args.resume):
        return f"--out {args.out} and --resume {args.resume} are two folders: a run goes on in its own; leave out --out"
    return None


def run(args: argparse.Namespace) -> int:
    """Begin a run, or go on with one, and say what was found."""
    work = partial(_resumed if goes_on(args) else _begun, args)
    return carried_out(args, work, ["clearance", "solve"])


def goes_on(args: argparse.Namespace) -> bool:
    """Whether there is a run to go on with."""
    return args.resume is not None and (args.problem is None or os.path.exists(f"{args.resume}/settings.json"))


def carried_out(args: argparse.Namespace, work: Callable[[Any], Any], again: list[str]) -> int:
    """Do the work on the run folder and show what it found; whatever ends it, say how to go on, with `again`."""
    folder = args.resume or args.out
    go_on = f"go on with: {shlex.join([*again, '--resume', str(folder)])}"
    try:
        solution = work(folder)
    except KeyboardInterrupt:
        if not _can_go_on(folder):
            raise
        return show.error(f"interrupted; saved in {folder}: {go_on}", INTERRUPTED)
    except (SolverError, InputError) as e:
        kind = SolverError if isinstance(e, SolverError) else InputError
        raise kind(f"{e}{_saved(e, folder, go_on) if _can_go_on(folder) else ''}") from None
    status = _answer(args, solution, folder)
    if solution.status == "interrupted":
        where = f"; saved in {folder}: {go_on}" if folder else ""
        done = f"interrupted after {solution.state.k} of {solution.method.K} iterations"
        return show.error(f"{done}{where}", INTERRUPTED)
    return status


def _saved(e: Exception, folder: str, go_on: str) -> str:
    """What an error left behind, and what to do."""
    if isinstance(e, SolverError):
        return f"; the iterations before are saved in {folder}"
    if isinstance(e, EnvironmentFault) and e.learned is not None:
        return f"; what was learned until then is in {folder}/policy.npz, not certified; when it is mended, {go_on}"
    return f"; when it can, {go_on}" if "cannot write" in str(e) else ""


def _begun(args: argparse.Namespace, folder: str | None) -> Any:
    from clearance.solving import solve

    cmdp = arguments.problem(args.problem)
    if getattr(args, "cluster", None) is not None:
        raise InputError("--cluster is for simulators; one run on a model has one process: see clearance sweep")
    how = meant(args, cmdp)
    if folder:
        flags.check_new_folder(folder)
    with watchers(args, cmdp, how["method"].K or 0) as progress:
        return solve(cmdp, **how, progress=progress, out=folder, checkpoint_every=args.checkpoint_every)


def completed(args: argparse.Namespace) -> argparse.Namespace:
    """With what holds for the flags that were not given."""
    for name, value in DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return args


def meant(args: argparse.Namespace, cmdp: Any) -> dict[str, Any]:
    """What the flags ask of `solve` on a model."""
    given = given_flags(args)
    args = completed(args)
    policy = arguments.policy_class(args.policy, cmdp)
    settings = {name: getattr(args, name) for name in ("evidence", "budget", "delta", "seed")}
    sampler = arguments.sampler(args.sampler, cmdp, policy)
    asked = {"flags": given, "command": command(args, given)}
    return {"method": arguments.method(args), "policy": policy, "sampler": sampler, "asked": asked, **settings}


def _resumed(args: argparse.Namespace, folder: str) -> Any:
    from clearance import run as runs
    from clearance.resuming import resume

    must_agree(args, folder)
    given = None if args.problem is None else arguments.problem(args.problem)
    cmdp = runs.load(folder).problem if given is None else given
    with watchers(args, cmdp, 0) as progress:
        return resume(folder, given, checkpoint_every=args.checkpoint_every, progress=progress)


def must_agree(args: argparse.Namespace, folder: str, free: tuple[str, ...] = ()) -> None:
    """Flags that are given again say the same as at the beginning; of a run begun in Python, only those in `free`."""
    from clearance.run import read_settings

    if not os.path.isdir(folder):
        raise InputError(f"--resume {folder}: there is no such run folder; begin one with PROBLEM and --out {folder}")
    asked = read_settings(Path(folder))["flags"]
    for name, value in given_flags(args).items():
        if asked is None and name in free:
            continue
        if asked is None:
            raise InputError(f"--{name}: the run in {folder} was begun in Python: give --resume alone")
        before = asked.get(name, DEFAULTS.get(name))
        if value != before:
            had = "was not given" if before is None else f"was {before}"
            raise InputError(f"--{name} {value} is not as in the run in {folder}, where it {had}: leave it out, or "
                             "begin another run with --out")  # fmt: skip


def given_flags(args: argparse.Namespace) -> dict[str, Any]:
    """The flags that are about the run and were given, as JSON has them."""
    found = {name: value for name, value in vars(args).items() if name not in OWN and value is not None}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


def command(args: argparse.Namespace, given: dict[str, Any]) -> list[str]:
    """The command that begins the same run, as a list of words."""
    words = ["clearance", "solve", args.problem]
    for name, value in given.items():
        text = ",".join(map(repr, value)) if isinstance(value, list) else str(value)
        words += [f"--{name}"] if value is True else [f"--{name}", text]
    return words


@contextlib.contextmanager
def watchers(args: argparse.Namespace, cmdp: Any, K: int):
    """All that watch the run, as one function; the problem has names and limits b."""
    with contextlib.ExitStack() as stack:
        board = None
        if args.tensorboard:
            board = stack.enter_context(watch.Board(args.tensorboard, cmdp.names, cmdp.b))
        bar = stack.enter_context(watch.Progress(args, K, b=cmdp.b))
        yield bar.update if board is None else watch.all_of(bar.update, board.update)


def _can_go_on(folder: str | None) -> bool:
    return folder is not None and os.path.exists(os.path.join(folder, "manifest.json"))


def _answer(args: argparse.Namespace, solution: Any, folder: str | None) -> int:
    """One answer for all kinds of problems; what does not apply is null."""
    certificate, k, tests = solution.certificate, solution.state.k, len(solution.attempts)
    result = {
        **show.certificate(certificate),
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
    show.answer(args, result, f"best certified mixture of {k} iterations on {on}", names=solution.cmdp.names)
    return CERTIFIED if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def run_export(args: argparse.Namespace) -> int:
    from clearance import run as runs
    from clearance.export import SUFFIXES, export

    flags.check_file(args.to, args.folder, SUFFIXES, flag="--to")
    rows = export(runs.load(args.folder), args.to)
    show.answer(args, {"status": "done", "rows": rows, "file": args.to}, f"trace of {args.folder}")
    return 0
