"""The command line: the same verbs as the library, flags that are the dataclass fields, one line per error.

Exit status: 0 done and, where a policy results, certified; 2 bad input; 3 infeasible; 4 not certified; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from clearance import __version__, cli_frontier, flags, show
from clearance.errors import InfeasibleError, InputError, MissingExtraError, SolverError, infeasible_message

BAD_INPUT, INFEASIBLE, NOT_CERTIFIED, INTERRUPTED = 2, 3, 4, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, and turn every foreseeable failure into one line and an exit status."""
    show.accept_any_encoding()
    try:
        return _run(_parser().parse_args(argv))
    except (InputError, MissingExtraError) as e:
        return show.error(str(e), BAD_INPUT)
    except OSError as e:
        return show.error(f"{e.filename or 'a file'}: {e.strerror or e}", BAD_INPUT)
    except MemoryError as e:
        return show.error(f"not enough memory for this model, K and N: {show.first_line(e)}", BAD_INPUT)
    except SolverError as e:
        return show.error(str(e), BAD_INPUT)
    except KeyboardInterrupt:
        return show.error("interrupted", INTERRUPTED)
    finally:
        show.flush()


def _run(args: argparse.Namespace) -> int:
    with warnings.catch_warnings():
        warnings.showwarning = show.warning
        try:
            return args.run(args)
        except InfeasibleError as e:
            result = {"status": "infeasible", "verdict": "INFEASIBLE", "slater": e.slater, "message": str(e)}
            names = () if e.cmdp is None else e.cmdp.names
            show.answer(args, result | _diagnosis(e.cmdp), args.problem, names=names)
            return INFEASIBLE


def _diagnosis(cmdp: Any, *, relaxed: bool = False) -> dict[str, Any]:
    """Which limits conflict and what to relax; nothing where it is not proven that they cannot be met."""
    from clearance.infeasible import diagnose

    try:
        found = None if cmdp is None else diagnose(cmdp)
        return {} if found is None else show.diagnosis(found, relaxed=relaxed)
    except (InputError, SolverError) as e:  # the verdict stands without it
        show.warning(f"no diagnosis: {show.first_line(e)}")
        return {}


# --------------------------------------------------------------------------------------------------- the commands


def _optimum(args: argparse.Namespace) -> int:
    from clearance.certificate import certify
    from clearance.mixture import Mixture
    from clearance.oracle import optimum

    cmdp = problem(args.problem)
    if args.out:
        flags.check_file(args.out, args.problem)
    best = optimum(cmdp)
    certificate = certify(cmdp, best.policy, best=best)
    feasible = best.status == "optimal"
    result = {**show.certificate(certificate), "status": best.status, "lam": best.lam, "slater": best.slater}
    if not feasible:
        result |= {"verdict": "INFEASIBLE", "message": infeasible_message(best.slater)}
        result |= _diagnosis(cmdp, relaxed=True)
    if args.out:
        Mixture.single(best.policy).save(args.out)
    show.answer(args, result, f"optimum of {args.problem}", names=cmdp.names)
    return INFEASIBLE if not feasible else 0 if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def _solve(args: argparse.Namespace) -> int:
    from clearance.certificate import certify
    from clearance.loop import solve

    cmdp = problem(args.problem)
    method, policy = _method(args), _policy_class(args.policy, cmdp)
    if args.out:
        flags.check_new_folder(args.out)
    with show.Progress(args, method.K) as bar:
        solution = solve(
            cmdp,
            method,
            policy=policy,
            sampler=_sampler(args.sampler, cmdp, policy),
            seed=args.seed,
            progress=bar.update,
        )
    certificate = certify(cmdp, solution.policy)
    if args.out:
        solution.save(args.out, certificate)
    result = {
        **show.certificate(certificate),
        "status": solution.status,
        "lam": solution.lam,
        "slater": solution.slater,
        "kappa": method.kappa,
        "env_steps": solution.env_steps,
        "seconds": solution.seconds,
        "path_bound": solution.path_bound,
        "run": args.out,
    }
    k = solution.state.k
    show.answer(args, result, f"averaged policy of {k} iterations on {args.problem}", names=cmdp.names)
    if solution.status == "interrupted":
        where = f"; saved in {args.out}" if args.out else ""
        return show.error(f"interrupted after {k} of {method.K} iterations{where}", INTERRUPTED)
    return 0 if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def _certify(args: argparse.Namespace) -> int:
    from clearance.certificate import certify
    from clearance.mixture import Mixture

    cmdp = problem(args.problem)
    certificate = certify(cmdp, Mixture.load(args.policy))
    show.answer(
        args, {"status": "done", **show.certificate(certificate)}, f"{args.policy} on {args.problem}", names=cmdp.names
    )
    return 0 if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def _check(args: argparse.Namespace) -> int:
    import numpy as np

    from clearance.oracle import can_be_met, slater_margin

    cmdp = problem(args.problem)
    slater, _ = slater_margin(cmdp)
    feasible = can_be_met(cmdp, slater)
    result = {
        "status": "done" if feasible else "infeasible",
        "verdict": None if feasible else "INFEASIBLE",
        "states": cmdp.S,
        "actions": cmdp.A,
        "constraints": cmdp.I,
        "gamma": cmdp.gamma,
        "sparse": cmdp.is_sparse,
        "transitions": int(cmdp.P.nnz if cmdp.is_sparse else np.count_nonzero(cmdp.P)),
        "r_range": [cmdp.r.min(), cmdp.r.max()],
        "g_range": [[g.min(), g.max()] for g in cmdp.g],
        "b": cmdp.b,
        "slater": slater,
        "message": "the model is well formed and feasible" if feasible else infeasible_message(slater),
    }
    result |= {} if feasible else _diagnosis(cmdp)
    show.answer(args, result, args.problem, names=cmdp.names)
    return 0 if feasible else INFEASIBLE


def _frontier(args: argparse.Namespace) -> int:
    return cli_frontier.run(args, problem(args.problem))


def _plan(args: argparse.Namespace) -> int:
    from clearance.plan import plan_for

    cmdp = problem(args.problem)
    policy = _policy_class(args.policy, cmdp)
    plan, notes = plan_for(cmdp, policy, args.epsilon, mu_F=args.mu_F, eps_bias=args.eps_bias, eps_bias2=args.eps_bias2)
    show.answer(args, {"status": "done", **plan, "message": "; ".join(notes)}, f"Theorem 1 on {args.problem}")
    return 0


def _reproduce(args: argparse.Namespace) -> int:
    from clearance import plot
    from clearance.reproduce import SETTINGS, run_bai2023, write_bai2023

    plot._pyplot()  # a missing extra is said before the work, not after it, and so is a folder that cannot be made
    flags.check_folder(args.out)
    with show.Progress(args, args.seeds * len(SETTINGS), what="runs") as bar:
        study = run_bai2023(args.seeds, args.K, threads=args.threads, progress=bar.advance_to)
    paths = write_bai2023(study, args.out)
    if args.json:
        keys = ("class_optimum", "class_slater", "slater", "optimum", "lam_max", "seconds")
        facts = {k: getattr(study, k) for k in keys}
        show.answer(
            args,
            {
                "status": "done",
                **facts,
                "table": study.table(),
                "files": [str(p) for p in paths],
                "message": study.finding(),
            },
        )
        return 0
    show.study(study, paths)
    return 0


# --------------------------------------------------------------------------------------------- reading the arguments


def problem(text: str) -> Any:
    """A CMDP from a model file, a zoo name or `package.module:factory`."""
    from clearance.problem import CMDP
    from clearance.zoo import MODELS

    if text in MODELS:
        return MODELS[text]()
    if text.endswith(".npz") or os.path.isfile(text):
        return CMDP.load(text)
    module, colon, factory = text.partition(":")
    if colon and module and factory:
        return _from_factory(module, factory)
    raise InputError(f"PROBLEM {text!r} is no .npz file, no module:factory and no zoo name ({', '.join(MODELS)})")


def _from_factory(module: str, factory: str) -> Any:
    from clearance.problem import CMDP

    here = os.getcwd()
    sys.path.insert(0, here)  # as `python -m` would; a console script does not
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer alone
            made = getattr(importlib.import_module(module), factory)()
    except (Exception, SystemExit) as e:  # whatever foreign code does, it is the user's and not a defect here
        raise InputError(f"PROBLEM {module}:{factory} failed: {type(e).__name__}: {show.first_line(e)}") from None
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(here)
    if not isinstance(made, CMDP):
        raise InputError(f"PROBLEM {module}:{factory} must return a clearance.CMDP, got {type(made).__name__}")
    return made


def _policy_class(text: str, cmdp: Any) -> Any:
    """`tabular`, the class that comes with a zoo model, or a file with features [S, A, d]."""
    from clearance.files import load_npz
    from clearance.policy import check_fits, linear_softmax, softmax
    from clearance.zoo import POLICIES

    if text == "tabular":
        return softmax(cmdp.S, cmdp.A, cmdp.available)
    if text in POLICIES:
        policy = POLICIES[text]()
    elif text.endswith(".npz"):
        arrays = load_npz(text)
        if "features" not in arrays:
            raise InputError(f"{text}: features is missing; the file must hold features [S, A, d]")
        features = arrays["features"]  # an error names them, and their shape before anything else
        fits = features.shape[:2] == (cmdp.S, cmdp.A)
        policy = linear_softmax(features, cmdp.available if fits else None)
    else:
        raise InputError(
            f"--policy {text!r} is neither tabular, nor a zoo class ({', '.join(POLICIES)}), nor an .npz file"
        )
    check_fits(cmdp, policy)
    return policy


def _sampler(text: str, cmdp: Any, policy: Any) -> Any:
    from clearance.sample import Exact, Table

    return Exact(cmdp, policy) if text == "exact" else Table(cmdp, policy, resets=text == "table")


def _method(args: argparse.Namespace) -> Any:
    from clearance.direction import SGD, LeastSquares, Tabular
    from clearance.methods import CNPGPD

    exact, tabular = args.sampler == "exact", args.policy == "tabular"
    if args.direction == "sgd" and exact:
        raise InputError("--direction sgd wants draws of equal weight, --sampler exact weighs them: use least-squares")
    if args.direction == "tabular" and not tabular:
        raise InputError("--direction tabular is for --policy tabular only: use sgd or least-squares")
    if args.direction == "tabular" or (exact and tabular and args.direction is None):
        direction = Tabular()
    elif args.direction == "least-squares" or exact:
        direction = LeastSquares(ridge=args.ridge)
    else:
        direction = SGD(alpha=args.alpha, printed=args.printed)
    settings = {f.name: getattr(args, f.name) for f in dataclasses.fields(CNPGPD) if f.name != "direction"}
    return CNPGPD(**settings, direction=direction)


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    from clearance.methods import CNPGPD

    top = _Parser(prog="clearance", description="Constrained reinforcement learning with zero constraint violation.")
    top.add_argument("--version", action="version", version=f"clearance {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def command(name: str, run: Any, help: str, *, takes_problem: bool = True) -> argparse.ArgumentParser:
        p = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        p.set_defaults(run=run)
        p.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        if takes_problem:
            p.add_argument("problem", metavar="PROBLEM", help="a model .npz, a zoo name, or package.module:factory")
        return p

    p = command("solve", _solve, "learn a policy with C-NPG-PD and certify it")
    for f in dataclasses.fields(CNPGPD):
        if f.name != "direction":
            p.add_argument(
                f"--{f.name}", type=_type_of(f), default=f.default, help=f"{f.metadata['help']} ({f.default})"
            )
    p.add_argument(
        "--direction",
        choices=["sgd", "least-squares", "tabular"],
        help="how ω is found (sgd; with --sampler exact: tabular, or least-squares for features)",
    )
    p.add_argument("--alpha", type=flags.real, default=0.05, help="step of the SGD (0.05)")
    p.add_argument("--printed", action="store_true", help="the SGD as printed in the paper")
    p.add_argument("--ridge", type=flags.non_negative, default=0.0, help="ridge of least squares (0: pseudo-inverse)")
    p.add_argument(
        "--policy", default="tabular", help="tabular, a zoo class (bai2023), or an .npz with features [S, A, d]"
    )
    p.add_argument(
        "--sampler",
        choices=["table", "coin", "exact"],
        default="table",
        help="Algorithm 2 with resets, reset-free, or no noise",
    )
    p.add_argument("--seed", type=flags.whole, default=0, help="everything random follows from it (0)")
    p.add_argument("--out", type=flags.place, metavar="RUN", help="write the run folder here")

    p = command("optimum", _optimum, "the exact optimum by linear programming")
    p.add_argument("--out", type=flags.place, metavar="POLICY", help="write the optimal policy (.npz) here")
    p = command("certify", _certify, "prove whether a policy meets every limit")
    p.add_argument("policy", metavar="POLICY", help="policy.npz with weights [M] and pi [M, S, A]")
    command("check", _check, "is the model well formed, and can its limits be met?")

    p = command("frontier", _frontier, "what the limits cost: reward against one limit, or against kappa")
    cli_frontier.add_flags(p)

    p = command("plan", _plan, "what Theorem 1 would ask for this problem")
    p.add_argument("--epsilon", type=flags.real, required=True, help="the accuracy wanted of J_r")
    p.add_argument("--policy", default="tabular", help="as for solve")
    p.add_argument("--mu_F", type=flags.real, default=None, help="μ_F; estimated at the uniform policy if not given")
    p.add_argument("--eps_bias", type=flags.real, default=0.0, help="ε_bias of the policy class (0)")
    p.add_argument("--eps_bias2", type=flags.real, default=0.0, help="ε_bias2 of the policy class (0)")

    p = command("reproduce", _reproduce, "run a published experiment again", takes_problem=False)
    p.add_argument("experiment", choices=["bai2023"])
    p.add_argument("--seeds", type=flags.count(10_000), default=40)
    p.add_argument("--K", type=flags.whole, default=7000)
    p.add_argument("--threads", type=flags.count(1_000), default=2)
    p.add_argument("--out", type=flags.place, default="results/bai2023", help="folder for table and figures")
    return top


def _type_of(field: Any) -> Any:
    return flags.whole if field.type == "int" else flags.real
