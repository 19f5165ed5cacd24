"""The flags that describe a run, made from the fields of `RunSpec` and of the methods; several commands share them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any

from clearance.cli import flag_types
from clearance.core.errors import InputError
from clearance.finite.cmdp import CMDP
from clearance.runs.field_values import OneOf, is_code, join_limits
from clearance.runs.method_settings import METAVARS, Setting, all_settings, help_of, method_class
from clearance.runs.method_table import METHODS
from clearance.runs.problem_text import OF_MODEL_FILE, load_model
from clearance.runs.run_spec import FLAGS, OF_ENVIRONMENT, RunSpec

# The groups of flags in the help, and the group of each flag of `RunSpec`.
BASIC, METHOD, SIMULATOR, RUN, CLUSTER = "basic", "method", "simulator or imported model", "run", "cluster"
GROUP_OF_KIND = {"limits": BASIC, "evidence": BASIC, "method": METHOD}
OF_SIMULATOR = ("horizon", "num_envs", "bounds", "constraints", "reward", "initial", "reach", "never")
GROUP_OF_FLAG: dict[str, str] = {"single": METHOD, **dict.fromkeys(OF_SIMULATOR, SIMULATOR)}
# Settings that most methods have; the others are shown for the method that --method names.
COMMON = ("K", "N", "kappa")
OF_MODELS = "Imported models (.csv, .drn, .umb, .tra) need these; others have their own."
MORE = "Each method has further settings: add --method NAME to --help to see them."


PROBLEM = "a model file (.npz, .csv, .drn, .umb, .tra), a zoo name, gym:ENV_ID, or package.module:factory"


def add_problem(p: argparse.ArgumentParser, nargs: str | None = None) -> None:
    p.add_argument("problem", metavar="PROBLEM", nargs=nargs, help=PROBLEM)


def group(p: argparse.ArgumentParser, title: str, about: str | None = None) -> Any:
    """Return the group of flags with this title in the parser p; add it, with the description `about`, if needed."""
    found = next((g for g in p._action_groups if g.title == title), None)
    return found or p.add_argument_group(title, about)


def add_run_flags(p: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Add the flags of a run to the parser p.

    words  the words of the command line. If they name a user's own method, flags for its settings are added
    """
    add_problem(p, "?")
    named = named_methods(words)
    own = {text: method_class(text) for text in named if is_code(text)}
    for name in FLAGS:
        _add(_group_of(p, name), name)
        if name == "method":
            settings = all_settings(own)
            for setting in settings.values():
                _add_setting(_group_of(p, name), setting, named)
            p.set_defaults(settings=tuple(settings))


def add_environment_flags(p: argparse.ArgumentParser) -> None:
    """Add the flags that change a problem: limits, discount factor, horizon and so on."""
    for name in dict.fromkeys((*OF_ENVIRONMENT, *OF_MODEL_FILE)):
        _add(_group_of(p, name), name)


def add_model_flags(p: argparse.ArgumentParser) -> None:
    """Add the flags that change a finite model: limits, criterion and start. Imported models need them."""
    for name in OF_MODEL_FILE:
        _add(group(p, "limits and discount of the model", OF_MODELS), name)


def _group_of(p: argparse.ArgumentParser, name: str) -> Any:
    title = GROUP_OF_FLAG.get(name) or GROUP_OF_KIND.get(FLAGS[name].metadata["group"], METHOD)
    return group(p, title, MORE if title == METHOD else None)


def read_model(args: argparse.Namespace) -> CMDP:
    """Load the finite model that PROBLEM names, with the limits, criterion and start from the flags."""
    return load_model(args.problem, read_spec(args).environment)


def add_evidence_flags(p: argparse.ArgumentParser, **defaults: Any) -> None:
    for name in ("evidence", "budget", "delta", "seed"):
        _add(p, name, default=defaults.get(name))


def named_methods(words: Sequence[str]) -> list[str]:
    """Return the names of methods in the words of a command line, after --method or in an axis of --grid."""
    found = []
    for before, word in zip(("", *words), words, strict=False):
        match = re.fullmatch(r"(?:--method=|--grid=method=)(.*)", word)
        if match:
            found.append(match[1])
        elif before == "--method" or (before == "--grid" and word.startswith("method=")):
            found.append(word.removeprefix("method="))
    return [text for texts in found for text in re.split("[,;]", texts) if text]


def read_spec(args: argparse.Namespace) -> RunSpec:
    """Return the run that the flags describe, as a `RunSpec`."""
    given = {name: value for name, value in vars(args).items() if value is not None}
    flags = {name: given[name] for name in FLAGS if name in given}
    settings = {name: value for name, value in given.items() if name in getattr(args, "settings", ())}
    return RunSpec(given.get("problem"), settings=settings, **flags)


def _add(group: Any, name: str, default: Any = None) -> None:
    about = FLAGS[name].metadata
    help = about["help"].replace("{methods}", ", ".join(METHODS)).replace("%", "%%")
    if name == "printed":
        group.add_argument("--printed", action="store_true", default=None, help=help)
        return
    metavar = about["metavar"] or _metavar(name, about["parse"])
    if name == "limits":
        kind = flag_types.flag(about["parse"])
        group.add_argument("--limits", type=kind, action=_Collect, metavar=metavar, help=help)
        one = "one limit by the name of its cost; give it several times for several"
        group.add_argument("--limit", dest="limits", type=kind, action=_Collect, metavar="NAME=L", help=one)
        return
    if name == "cost":
        group.add_argument("--cost", type=flag_types.flag(about["parse"]), action=_Join, metavar=metavar, help=help)
        return
    group.add_argument(f"--{name}", type=flag_types.flag(about["parse"]), default=default, metavar=metavar, help=help)


class _Join(argparse.Action):
    """An argparse action that collects the costs of several --cost flags in one tuple."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, (getattr(namespace, self.dest) or ()) + values)


class _Collect(argparse.Action):
    """An argparse action that joins the limits of several --limit and --limits flags in one dict."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        if before is not None and not (isinstance(before, dict) and isinstance(values, dict)):
            parser.error(f"argument {option_string}: give each limit once, by name")
        try:
            setattr(namespace, self.dest, values if before is None else join_limits(before, values))
        except InputError as e:
            parser.error(f"argument {option_string}: {e}")


def _add_setting(group: Any, setting: Setting, named: Sequence[str]) -> None:
    """Add a setting of the methods as a flag to a group of flags.

    If methods are `named` on the command line, the help shows the flag if one of them has this setting. If not, the
    help shows it only if it is in COMMON.
    """
    having = [name for name in named if name in setting.defaults]
    shown = bool(having) or (not named and setting.name in COMMON)
    metavar = METAVARS.get(setting.name) or _metavar(setting.name, setting.parse)
    help = help_of(setting, having).replace("%", "%%") if shown else argparse.SUPPRESS
    kind = flag_types.flag(setting.parse)
    group.add_argument(f"--{setting.name}", type=kind, default=None, metavar=metavar, help=help)


def _metavar(name: str, parse: Any) -> str:
    return "{" + ",".join(parse.words) + "}" if isinstance(parse, OneOf) else name.upper()
