"""The command line: the same verbs as the library, flags that are the dataclass fields, one line per error.

Exit status: 0 done and, where a policy results, certified; 2 bad input; 3 infeasible; 4 not certified; 130, 143 or 129
interrupted by Ctrl-C, SIGTERM or SIGHUP.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from clearance import __version__
from clearance.cli import interrupts, tables
from clearance.core import import_path
from clearance.core.errors import InfeasibleError, InputError, MissingExtraError, SolverError
from clearance.core.text import first_line

BAD_INPUT, INFEASIBLE, NOT_CERTIFIED = 2, 3, 4

EXIT_STATUS = (
    "Exit status: 0 done and, where a policy results, certified; 2 bad input; 3 infeasible; 4 not certified;"
    " 130, 143 or 129 interrupted by Ctrl-C, SIGTERM or SIGHUP (128 + the signal)."
)

# Every command has a module `<command>_command` with `add_flags(parser, words)`, `run(args)` and, where flags that are
# right one by one may be wrong together, `check(args)`. It is imported when the command is used.
COMMANDS = {
    "solve": "learn a policy, select the best one that meets every limit, and certify it",
    "sweep": "solve every point of a grid, each into its own run folder",
    "export": "write a model in another format, or the trace or policy of a run folder as a table",
    "optimum": "compute the exact optimum of a finite model by linear programming",
    "certify": "prove, or show with confidence, whether a policy meets every limit",
    "check": "check that a problem is well formed and that its limits can be met",
    "frontier": "show what the limits cost: reward against one limit, or against kappa",
    "compare": "compare all methods on the same finite models with the exact optimum",
    "plan": "show what Theorem 1 asks for this problem",
    "report": "write one HTML file about a run, or about several side by side",
    "reproduce": "run a published experiment again",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, run, and turn every foreseeable failure into one line and an exit status."""
    tables.accept_any_encoding()
    interrupts.forget_interrupts()
    words = sys.argv[1:] if argv is None else argv
    fail = partial(tables.error, as_json="--json" in words)
    try:
        with import_path.search(import_path.rule_of(words)):
            return _run(_parser(lazy=True).parse_args(words))
    except (InputError, MissingExtraError) as e:
        return fail(str(e), BAD_INPUT)
    except OSError as e:
        return fail(f"{e.filename or 'a file'}: {e.strerror or e}", BAD_INPUT)
    except MemoryError as e:
        return fail(f"not enough memory for this model, K and N: {first_line(e)}", BAD_INPUT)
    except SolverError as e:
        return fail(str(e), BAD_INPUT)
    except KeyboardInterrupt:
        return fail("interrupted", interrupts.exit_status())
    finally:
        tables.flush()


def _run(args: argparse.Namespace) -> int:
    with warnings.catch_warnings(), tables.memory_limit(getattr(args, "max_memory", None)):
        warnings.showwarning = tables.warning
        try:
            return args.run(args)
        except InfeasibleError as e:
            from clearance.cli.diagnosis import diagnosis_of

            result = {"status": "infeasible", "verdict": "INFEASIBLE", "slater": e.slater, "message": str(e)}
            given = vars(args)
            on = given.get("problem") or given.get("resume") or ""
            if not e.proven:
                tables.answer(args, result | {"status": "done", "verdict": "UNDECIDED"}, on)
                return NOT_CERTIFIED
            names = () if e.cmdp is None else e.cmdp.names
            tables.answer(args, result | diagnosis_of(e.cmdp), on, names=names)
            return INFEASIBLE
        except Exception:
            if interrupts.was_interrupted():  # a library has made another error of it
                raise KeyboardInterrupt from None
            raise


# ----------------------------------------------------------------------------------------------------- the parser


class _Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, and whose flags are added when they are needed."""

    module: str | None = None  # of the command, until it is loaded
    check: Callable[[argparse.Namespace], str | None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self.load(sys.argv[1:] if args is None else args)
        found, rest = super().parse_known_args(args, namespace)
        wrong = None if self.check is None else self.check(found)
        return (found, rest) if wrong is None else self.error(wrong)

    def load(self, words: Sequence[str] = ()) -> None:
        """Import the command and add its flags; what `words` name of the user's own may add some."""
        if self.module is None:
            return
        command: Any = importlib.import_module(f"clearance.cli.{self.module}")
        self.module = None
        command.add_flags(self, words)
        self.check = getattr(command, "check", None)
        self.set_defaults(run=command.run)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help or the version; argparse itself would hide that nothing could be written."""
        if message:
            tables.say(message)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def _parser(*, lazy: bool = False) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; with `lazy`, a command's flags are added when it is used."""
    top = _Parser(
        prog="clearance", description="Constrained reinforcement learning with certified policies.", epilog=EXIT_STATUS
    )
    top.add_argument("--version", action="version", version=f"clearance {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for name, help in COMMANDS.items():
        p: Any = commands.add_parser(name, help=help, description=help, epilog=EXIT_STATUS, allow_abbrev=False)
        p.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        help = (
            "what the arrays of one file may take (default: half of the free memory; see docs/reference/run_folder.md)"
        )
        p.add_argument("--max-memory", type=tables.size, metavar="SIZE", help=help)
        p.module = f"{name}_command"
        if not lazy:
            p.load()
    return top
