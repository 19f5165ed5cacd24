"""The command line. Commands are named after the library's functions, and flags after fields of its dataclasses.

Exit status: 0 done and, if the result is a policy, certified; 2 bad input; 3 infeasible; 4 not certified; 130, 143 or
129 interrupted by Ctrl-C, SIGTERM or SIGHUP.
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
from clearance.cli import guide, interrupts, tables
from clearance.core import import_path
from clearance.core.errors import InfeasibleError, InputError, MissingExtraError, SolverError
from clearance.core.text import first_line, suggest

BAD_INPUT, INFEASIBLE, NOT_CERTIFIED = 2, 3, 4

# Every command has a module `<command>_command` with `add_flags(parser, words)` and `run(args)`. If some of its flags
# exclude each other, it also has `check(args)`. The module is imported when the command is used.


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, run the command, and return the exit status.

    Every expected failure becomes one line on standard error and an exit status.
    """
    tables.accept_any_encoding()
    interrupts.forget_interrupts()
    words = sys.argv[1:] if argv is None else argv
    if not words:
        tables.say(guide.GUIDE)
        return 0
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
            from clearance.cli.diagnosis import explain_infeasible

            result = {"status": "infeasible", "verdict": "INFEASIBLE", "slater": e.slater, "message": str(e)}
            given = vars(args)
            on = given.get("problem") or given.get("resume") or ""
            if not e.proven:
                tables.answer(args, result | {"status": "done", "verdict": "UNDECIDED"}, on)
                return NOT_CERTIFIED
            names = () if e.cmdp is None else e.cmdp.names
            tables.answer(args, explain_infeasible(result, e.cmdp), on, names=names)
            return INFEASIBLE
        except Exception:
            if interrupts.was_interrupted():  # a library has turned the interrupt into another error
                raise KeyboardInterrupt from None
            raise


# ----------------------------------------------------------------------------------------------------- the parser


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser with error messages of one line. It adds the flags of a command only when they are needed."""

    module: str | None = None  # of the command, until it is loaded
    check: Callable[[argparse.Namespace], str | None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        self.load(sys.argv[1:] if args is None else args)
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            near = suggest(rest[0].partition("=")[0], self._option_string_actions) if rest[0][:1] == "-" else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{near}")
        wrong = None if self.check is None else self.check(found)
        return (found, rest) if wrong is None else self.error(wrong)

    def load(self, words: Sequence[str] = ()) -> None:
        """Import the command and add its flags.

        words  the words of the command line. If they name a user's own method, flags for its settings are added
        """
        if self.module is None:
            return
        command: Any = importlib.import_module(f"clearance.cli.{self.module}")
        self.module = None
        self._positionals.title, self._optionals = "basic", self._positionals  # one group of both
        command.add_flags(self, words)
        names = [str(a.metavar or a.dest) for a in self._positionals._group_actions if not a.option_strings]
        self.usage = self.usage or " ".join([self.prog, *names, "[options]"])
        self.add_argument("--json", action="store_true", help="print one JSON object, with all digits")
        self.add_argument("-h", "--help", action="help", help="show this help")
        self._add_memory()
        self.check = getattr(command, "check", None)
        self.set_defaults(run=command.run)

    def _add_memory(self) -> None:
        """Add --max-memory to the group "run", or to the parser itself if there is no such group."""
        group = next((g for g in self._action_groups if g.title == "run"), self)
        help = "largest memory for the arrays of one file, as 500MB or 8GB (default: half of the free memory)"
        group.add_argument("--max-memory", type=tables.size, metavar="SIZE", help=help)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            near = suggest(str(value), map(str, action.choices))
            choices = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{near or f' (choose from {choices})'}")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help or the version to standard output; raise write errors, which argparse would hide."""
        if message:
            tables.say(message)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of every command, with all of its flags."""
    commands = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction))
    return dict(commands.choices)


def _parser(*, lazy: bool = False) -> argparse.ArgumentParser:
    """Return the parser of the whole command line.

    With `lazy`, the flags of a command are added only when the command is used.
    """
    raw = argparse.RawDescriptionHelpFormatter
    about = "Policies that meet your limits, with a certificate. Without arguments: a short guide."
    top = _Parser(prog="clearance", description=about, epilog=guide.EXIT_STATUS, formatter_class=raw)
    top.add_argument("--version", action="version", version=f"clearance {__version__}", help="show the version")
    commands = top.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND", parser_class=_Parser
    )
    for name, help in guide.COMMANDS.items():
        told = f"{help[0].upper()}{help[1:]}."
        p: Any = commands.add_parser(name, help=help, description=told, epilog=guide.epilog(name), allow_abbrev=False,
                                     add_help=False, formatter_class=raw)  # fmt: skip
        p.module = f"{name}_command"
        if not lazy:
            p.load()
    return top
