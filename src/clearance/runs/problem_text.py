"""From PROBLEM, a text, to the problem: a model file, a zoo name, gym:ENV_ID or package.module:factory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from clearance.core.errors import InputError
from clearance.core.import_path import import_rule
from clearance.finite.cmdp import CMDP
from clearance.runs.field_values import is_code
from clearance.runs.foreign_code import import_function, import_name
from clearance.runs.worlds.dispatch import world_of
from clearance.simulator.simulator import Simulator
from clearance.zoo import MODELS, SIMULATORS

WHAT = "PROBLEM"


def load_problem(text: str, asked: Mapping[str, Any]) -> Any:
    """Return the problem; `asked` is what is asked of an environment: limits, b, gamma, horizon, …

    >>> load_problem("two-state", {}).S
    2
    """
    if text in SIMULATORS:
        refuse_environment_flags(asked, f"{text} comes with its own limits")
        return SIMULATORS[text]()
    if text.startswith("gym:"):
        return _environment_problem(text[4:], asked)
    if text in MODELS or is_model_file(text):
        refuse_environment_flags(asked, f"{text} is a model")
        return MODELS[text]() if text in MODELS else CMDP.load(text)
    if is_code(text):
        return _from_factory(text, asked)
    known = ", ".join([*MODELS, *SIMULATORS])
    raise InputError(f"{WHAT} {text!r} is no .npz file, no gym:ENV_ID, no module:factory and no zoo name ({known})")


def load_model(text: str) -> CMDP:
    """Return the finite model that PROBLEM names."""
    found = load_model_or_none(text)
    if found is None:
        needs = "solve, certify and check take it, this needs a finite model"
        raise InputError(f"{WHAT} {text} is a simulator: {needs}")
    return found


def load_model_or_none(text: str) -> CMDP | None:
    """Return the finite model that PROBLEM names; None if it is a simulator. To know it, a factory is called."""
    if text in SIMULATORS or text.startswith("gym:"):
        return None
    if not names_code(text):
        return load_problem(text, {})
    found = import_name(WHAT, text, call=True)
    if isinstance(found, CMDP):
        return found
    if world_of.dispatch(type(found)) is world_of.dispatch(object) and not _is_environment(found):
        raise _wrong_problem(text, found)
    return None


def is_model_file(text: str) -> bool:
    return text.endswith(".npz") or os.path.isfile(text)


def names_code(text: str) -> bool:
    """Whether PROBLEM would run code that is not clearance's own; Gymnasium imports the module of MODULE:ENV_ID."""
    return text.startswith("gym:") or (is_code(text) and text not in MODELS and not is_model_file(text))


def _from_factory(text: str, asked: Mapping[str, Any]) -> Any:
    found = import_name(WHAT, text, call=True)
    if world_of.dispatch(type(found)) is not world_of.dispatch(object):
        is_model = isinstance(found, CMDP)
        refuse_environment_flags(asked, f"{text} is a model" if is_model else f"{text} comes with its own limits")
        return found
    if not _is_environment(found):
        raise _wrong_problem(text, found)
    with suppress(Exception):  # it was only looked at: every lane makes its own
        found.close()
    return _environment_problem(partial(import_name, WHAT, text, call=True, rule=import_rule()), asked)


def _environment_problem(env: Any, asked: Mapping[str, Any]) -> Simulator:
    from clearance.simulator.gymnasium_envs.gymnasium_problem import gymnasium

    given = dict(asked)
    if "constraints" in given:
        given["constraints"] = import_function("--constraints", given["constraints"])
    return gymnasium(env, **given)


def _is_environment(found: Any) -> bool:
    return hasattr(found, "step") and hasattr(found, "reset")


def _wrong_problem(text: str, found: Any) -> InputError:
    kinds = "a clearance.CMDP, a simulator or an environment"
    return InputError(f"{WHAT} {text} must return {kinds}, got {type(found).__name__}")


def refuse_environment_flags(asked: Mapping[str, Any], why: str) -> None:
    for name in asked:
        raise InputError(f"--{name} is for environments; {why}: leave it out")
