"""The command line: the same verbs as the library, flags that are the dataclass fields, one line per error.

Exit status: 0 done and, where a policy results, certified; 2 bad input; 3 infeasible; 4 not certified; 130 interrupted.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from clearance import (
    __version__,
    arguments,
    cli_compare,
    cli_frontier,
    cli_report,
    cli_simulator,
    cli_solve,
    cli_sweep,
    flags,
    show,
    watch,
)
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
            status = cli_simulator.run(args)  # None if the problem is no simulator
            return args.run(args) if status is None else status
        except InfeasibleError as e:
            result = {"status": "infeasible", "verdict": "INFEASIBLE", "slater": e.slater, "message": str(e)}
            on = args.problem or args.resume  # a run that goes on need not be told its problem
            if not e.proven:
                show.answer(args, result | {"status": "done", "verdict": "UNDECIDED"}, on)
                return NOT_CERTIFIED
            names = () if e.cmdp is None else e.cmdp.names
            show.answer(args, result | _diagnosis(e.cmdp), on, names=names)
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

    cmdp = arguments.problem(args.problem)
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


def _certify(args: argparse.Namespace) -> int:
    from clearance.certificate import certify

    cmdp = arguments.problem(args.problem)
    settings = {"evidence": args.evidence, "delta": args.delta, "budget": args.budget, "seed": args.seed}
    policy = arguments.policy(args.policy)
    if args.cluster is None:
        certificate = certify(cmdp, policy, **settings)
    elif args.evidence != "samples":
        raise InputError("--cluster is for episodes: give --evidence samples, or leave it out")
    else:
        with arguments.executor(args) as executor:
            certificate = certify(cmdp, policy, **settings, executor=executor)
    result = {"status": "done", **show.certificate(certificate), "env_steps": certificate.env_steps}
    show.answer(args, result, f"{args.policy} on {args.problem}", names=cmdp.names)
    return 0 if certificate.verdict == "CERTIFIED" else NOT_CERTIFIED


def _check(args: argparse.Namespace) -> int:
    import numpy as np

    from clearance.oracle import can_be_met, slater_margin

    cmdp = arguments.problem(args.problem)
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
    return cli_frontier.run(args, arguments.problem(args.problem))


def _plan(args: argparse.Namespace) -> int:
    from clearance.plan import plan_for

    cmdp = arguments.problem(args.problem)
    policy = arguments.policy_class(args.policy, cmdp)
    plan, notes = plan_for(cmdp, policy, args.epsilon, mu_F=args.mu_F, eps_bias=args.eps_bias, eps_bias2=args.eps_bias2)
    show.answer(args, {"status": "done", **plan, "message": "; ".join(notes)}, f"Theorem 1 on {args.problem}")
    return 0


def _reproduce(args: argparse.Namespace) -> int:
    from clearance import plot
    from clearance.reproduce import SETTINGS, run_bai2023, write_bai2023

    plot._pyplot()  # a missing extra is said before the work, not after it, and so is a folder that cannot be made
    flags.check_folder(args.out)
    with arguments.executor(args) as executor, watch.Progress(args, args.seeds * len(SETTINGS), what="runs") as bar:
        study = run_bai2023(args.seeds, args.K, progress=bar.advance_to, executor=executor)
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


# ----------------------------------------------------------------------------------------------------- the parser


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line; `check` may find something wrong with flags that are right one by one."""

    check: Callable[[argparse.Namespace], str | None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        found, rest = super().parse_known_args(args, namespace)
        wrong = None if self.check is None else self.check(found)
        return (found, rest) if wrong is None else self.error(wrong)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def reader_of_solve() -> Callable[[Sequence[str]], argparse.Namespace]:
    """What reads the command line after `clearance solve`."""
    parser = _parser()
    return lambda words: parser.parse_args(["solve", *words])


def _parser() -> argparse.ArgumentParser:
    top = _Parser(prog="clearance", description="Constrained reinforcement learning with zero constraint violation.")
    top.add_argument("--version", action="version", version=f"clearance {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def command(name: str, run: Any, help: str, *, takes_problem: bool = True, many: Any = None) -> _Parser:
        p: Any = commands.add_parser(name, help=help, description=help, allow_abbrev=False)
        p.set_defaults(run=run)
        p.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        if takes_problem:
            p.add_argument(
                "problem", metavar="PROBLEM", nargs=many, help="a model .npz, a zoo name, gym:ENV_ID, or module:factory"
            )
        return p

    def evidence_flags(
        p: argparse.ArgumentParser, evidence: str | None, budget: float | None, delta: Any = 0.01, seed: Any = 0
    ) -> None:
        p.add_argument(
            "--evidence",
            choices=["exact", "samples"],
            default=evidence,
            help="know the model, or only simulate it (exact; a rule is always sampled)",
        )
        p.add_argument("--budget", type=flags.steps, default=budget, help="environment steps, for all phases together")
        p.add_argument("--delta", type=flags.probability, default=delta, help="level of the certificate (0.01)")
        p.add_argument("--seed", type=flags.whole, default=seed, help="everything random follows from it (0)")

    p = command(
        "solve", cli_solve.run, "learn a policy, choose the best that keeps every limit, and certify it", many="?"
    )
    evidence_flags(p, None, None, delta=None, seed=None)
    cli_solve.add_flags(p)
    cli_simulator.add_flags(p)
    flags.add_cluster(p, workers=True)
    p.check = cli_solve.check
    p = command("sweep", cli_sweep.run, "solve every point of a grid into its own run folder", many="?")
    evidence_flags(p, None, None, delta=None, seed=None)
    cli_solve.add_flags(p)
    cli_simulator.add_flags(p)
    cli_sweep.add_flags(p)
    p.check = cli_solve.check
    p = command("export", cli_solve.run_export, "the trace of a run folder as a table", takes_problem=False)
    p.add_argument("folder", metavar="RUN", help="a folder that solve --out wrote")
    p.add_argument("--to", type=flags.place, required=True, metavar="FILE", help="trace.csv or trace.parquet")

    p = command("optimum", _optimum, "the exact optimum by linear programming")
    p.add_argument("--out", type=flags.place, metavar="POLICY", help="write the optimal policy (.npz) here")
    p = command("certify", _certify, "prove, or show with confidence, whether a policy meets every limit")
    p.add_argument("policy", metavar="POLICY", help="policy.npz with weights [M] and pi [M, S, A], or module:rule")
    evidence_flags(p, None, 1e6)
    cli_simulator.add_flags(p)
    flags.add_cluster(p, workers=True)
    cli_simulator.add_flags(command("check", _check, "is the problem well formed, and can its limits be met?"))

    p = command("frontier", _frontier, "what the limits cost: reward against one limit, or against kappa")
    cli_frontier.add_flags(p)

    p = command(
        "compare",
        cli_compare.run,
        "all methods on the same problems, with the optimum beside them",
        takes_problem=False,
    )
    cli_compare.add_flags(p)

    p = command("plan", _plan, "what Theorem 1 would ask for this problem")
    p.add_argument("--epsilon", type=flags.real, required=True, help="the accuracy wanted of J_r")
    p.add_argument("--policy", default="tabular", help="as for solve")
    p.add_argument("--mu_F", type=flags.real, default=None, help="μ_F; estimated at the uniform policy if not given")
    p.add_argument("--eps_bias", type=flags.real, default=0.0, help="ε_bias of the policy class (0)")
    p.add_argument("--eps_bias2", type=flags.real, default=0.0, help="ε_bias2 of the policy class (0)")

    p = command(
        "report", cli_report.run, "one HTML file about a run, or about several side by side", takes_problem=False
    )
    cli_report.add_flags(p)

    p = command("reproduce", _reproduce, "run a published experiment again", takes_problem=False)
    p.add_argument("experiment", choices=["bai2023"])
    p.add_argument("--seeds", type=flags.count(10_000), default=40)
    p.add_argument("--K", type=flags.whole, default=7000)
    p.add_argument("--threads", type=flags.count(1_000), default=2)
    flags.add_cluster(p)
    p.add_argument("--out", type=flags.place, default="results/bai2023", help="folder for table and figures")
    return top
