"""Describe the settings of the methods as data: which method has which setting, its parser and its help text.

A setting is a field of a method's dataclass whose type can be parsed from text. Such types are numbers, pairs, the
margin κ, words and switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, NamedTuple

from clearance.core.errors import InputError
from clearance.core.text import suggest
from clearance.runs.field_values import (
    OneOf,
    Parser,
    is_code,
    parse_margin,
    parse_one_or_pair,
    parse_real,
    parse_switch,
    parse_text,
    parse_whole,
)
from clearance.runs.foreign_code import import_method_class
from clearance.runs.method_table import METHODS

PARSERS: dict[str, Parser] = {
    "int": parse_whole,
    "float": parse_real,
    "tuple[float,float]": parse_one_or_pair,
    "float|tuple[float,...]|Literal['auto']": parse_margin,
    "bool": parse_switch,
    "str": parse_text,
}
# Help texts that replace those of the methods, because methods describe the same setting in different words.
HELP = {
    "K": "number of iterations",
    "N": "samples per iteration",
    "eta1": "η₁, step size of θ",
    "eta2": "η₂, step size of λ",
    "eta": "η, step size of λ",
    "alpha": "α, step size of θ (crpo, pdnac), weight of the divergence (pmdpd), step size of the SGD (cnpgpd, npgpd)",
    "tau": "τ, weight of the regularisation: FIRST,LAST (regularised) or one number (rpgpd)",
    "kappa": "κ ≥ 0, margin kept from the limits: auto, one number, or one per constraint",
    "kappa_first": "κ in the first iteration, from which it shrinks to kappa",
    "lam_max": "Λ, upper bound of λ; chosen from the Slater margin if not given",
    "kl": "bound on the mean KL divergence of one step: FIRST,LAST",
}
METAVARS = {"tau": "TAU|FIRST,LAST", "kl": "FIRST,LAST"}
AUTOMATIC = "chosen automatically"


class Setting(NamedTuple):
    """A setting of one or several methods: its name, parser and help text, and its default for each method."""

    name: str
    parse: Parser
    help: str
    defaults: dict[str, Any]


def method_class(text: str) -> Any:
    """Return the class that --method names: a built-in method, or `package.module:Class`."""
    if text in METHODS:
        return METHODS[text]
    if is_code(text):
        return import_method_class("--method", text)
    names = ", ".join(METHODS)
    near = suggest(text, METHODS)
    raise InputError(f"--method must be one of {names}, or package.module:Class, got {text!r}{near}")


def settings_of(kind: Any) -> dict[str, Field[Any]]:
    """Return the settings of a method: the fields of its class `kind` that can be parsed from text, by name."""
    return {f.name: f for f in fields(kind) if f.init and parser_of(f) is not None}


def parser_of(field: Field[Any]) -> Parser | None:
    """Return the parser for the type of a field; None if the type cannot be parsed from text."""
    kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
    kind = kind.replace("typing.", "").replace(" ", "").replace('"', "'").removesuffix("|None")
    if kind.startswith("Literal["):
        return OneOf(*(word.strip("'") for word in kind[8:-1].split(",")))
    return PARSERS.get(kind)


def all_settings(own: dict[str, Any] | None = None) -> dict[str, Setting]:
    """Return all settings by name: those of the built-in methods, and those of the user's own methods.

    `own` holds the user's method classes by name.
    """
    found: dict[str, Setting] = {}
    for method, kind in {**METHODS, **(own or {})}.items():
        for name, field in settings_of(kind).items():
            parse = parser_of(field)
            assert parse is not None
            help = HELP.get(name) or str(field.metadata.get("help", ""))
            entry = found.setdefault(name, Setting(name, parse, help, {}))
            entry.defaults[method] = None if field.default is MISSING else field.default
            if method not in METHODS:  # a user's class decides how its own settings are parsed
                found[name] = entry._replace(parse=parse)
    return found


@cache
def built_in_settings() -> dict[str, Setting]:
    """Return the settings of the built-in methods, by name."""
    return all_settings()


def help_of(setting: Setting, methods: Sequence[str] = ()) -> str:
    """Return the help text of a setting with its default for each of `methods`.

    If `methods` is empty, the help says that the default depends on the method.

    >>> help_of(all_settings()["inner"], ["pmdpd"])
    'T, natural steps in each iteration (default: 1)'
    """
    defaults = list(dict.fromkeys(_shown(setting.defaults[name]) for name in methods))
    return f"{setting.help} (default: {' or '.join(defaults) or 'depends on the method'})"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{x:g}" for x in value)
    return AUTOMATIC if value is None else f"{value:g}" if isinstance(value, float) else str(value)
