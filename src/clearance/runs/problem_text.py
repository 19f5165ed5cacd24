"""Load the problem that the command-line argument PROBLEM names.

PROBLEM is a model file, a zoo name, gym:ENV_ID or package.module:factory. The suffix of a model file determines its
format (`clearance.exchange.model_files`).
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from clearance.core.errors import InputError
from clearance.core.import_path import import_rule
from clearance.core.tail_limits import has_tails, plain_limits
from clearance.core.text import suggest
from clearance.core.validation import read_number
from clearance.exact.episode_optimum import limit_episodes
from clearance.exchange import model_files
from clearance.finite.cmdp import CMDP
from clearance.finite.reachability import limit_reach
from clearance.runs.field_values import is_code
from clearance.runs.foreign_code import import_function, import_name
from clearance.runs.worlds.dispatch import world_of
from clearance.simulator.simulator import Simulator
from clearance.zoo import MODELS, SIMULATORS

WHAT = "PROBLEM"
# Flags that describe a finite model. Files in foreign formats have neither criterion nor limits; in all other models
# these flags replace the stored values.
OF_MODEL_FILE = ("limits", "b", "gamma", "criterion", "horizon", "reward", "initial", "reach", "never")
ONLY_OF_MODEL_FILE = ("reward", "initial", "reach", "never")
REACH = re.compile(r"(.+?)\s*(<=|>=)\s*([-+.\deE]+)")


def load_problem(text: str, asked: Mapping[str, Any]) -> Any:
    """Load the problem that `text`, the argument PROBLEM, names; `asked` holds the user's flags: limits, b, gamma, ….

    >>> load_problem("two-state", {}).S
    2
    """
    if is_imported(text):
        _refuse_other_flags(text, asked)
        return _limit_episodes(asked, lambda plain: model_files.load_model(text, **plain))
    if text in MODELS or is_model_file(text):
        return restate(MODELS[text]() if text in MODELS else _load_file(text), text, asked)
    if is_code(text) and not text.startswith("gym:"):
        return _from_factory(text, asked)
    refuse_environment_flags({n: asked[n] for n in ONLY_OF_MODEL_FILE if n in asked}, f"{text} is none")
    if text in SIMULATORS and has_tails(asked.get("limits")):
        rest = {name: value for name, value in asked.items() if name != "limits"}
        return load_problem(text, rest).with_limits(asked["limits"])
    if text in SIMULATORS:
        refuse_environment_flags(asked, f"{text} comes with its own limits")
        return SIMULATORS[text]()
    if text.startswith("gym:"):
        return _environment_problem(text[4:], asked)
    near = _files_of_stem(text) or suggest(text, [*MODELS, *SIMULATORS]) or "; clearance zoo lists the names of the zoo"
    kinds = "a model file, a name of the zoo, gym:ENV_ID or package.module:factory"
    raise InputError(f"{WHAT} {text!r} is not {kinds}{near}")


def _load_file(text: str) -> CMDP:
    """Load an .npz file; raise InputError with the known suffixes for a file of another kind."""
    stem, suffix = os.path.splitext(text)
    if suffix.lower() in model_files.BESIDE_TRA:
        return model_files.load_model(text)
    if suffix.lower() not in ("", ".npz") and not zipfile.is_zipfile(text):
        code = f"; a function in it that makes the model is named {os.path.basename(stem)}:FUNCTION"
        known = f"a model file ends in .npz, {', '.join(model_files.IMPORTED)}"
        raise InputError(f"{text}: unknown kind of file; {known}{code if suffix == '.py' else ''}")
    return CMDP.load(text)


def _files_of_stem(text: str) -> str:
    """Return a question that suggests the model files named `text` with a suffix; "" if there are none."""
    near = [text + suffix for suffix in sorted((".npz", *model_files.IMPORTED)) if os.path.isfile(text + suffix)]
    *others, last = near or [""]
    return f"; did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if near else ""


def load_model(text: str, asked: Mapping[str, Any] | None = None) -> CMDP:
    """Load the finite model that `text`, the argument PROBLEM, names.

    `asked` holds the user's flags for limits, criterion and start, which replace those of the model. With `asked` None,
    a file in a foreign format is refused, because it has neither criterion nor limits.
    """
    if asked is not None and is_imported(text):
        return load_problem(text, asked)
    found = load_model_or_none(text)
    if found is None:
        needs = "solve, certify and check take it, this needs a finite model"
        raise InputError(f"{WHAT} {text} is a simulator: {needs}")
    return restate(found, text, asked or {})


def restate(model: CMDP, text: str, asked: Mapping[str, Any]) -> CMDP:
    """Return the model with the limits, criterion and start that are in `asked`, the user's flags.

    `text` is the name of the model, for error messages.
    """
    _refuse_other_flags(text, asked)
    return _limit_episodes(asked, lambda plain: model_files.restate_model(model, text, **plain))


def _limit_episodes(asked: Mapping[str, Any], state: Callable[[Mapping[str, Any]], CMDP]) -> CMDP:
    """Return the model that `state`, a function from flags to a model, makes from the flags `asked`.

    If there are limits on single episodes (P(…), CVaR), the costs of the episode so far become part of the
    states of the model.
    """
    limits: Any = asked.get("limits")
    plain = {name: value for name, value in asked.items() if name not in ("reach", "never")}
    if not has_tails(limits):
        return _limit_reach(state(plain), asked)
    if len(plain) < len(asked):
        raise InputError("--reach and --never do not go together with limits on single episodes")
    return limit_episodes(state({**asked, "limits": plain_limits(limits)}), limits).cmdp


def _limit_reach(model: CMDP, asked: Mapping[str, Any]) -> CMDP:
    """Return the model with limits on the probability of ever entering certain states.

    The limits come from `asked["reach"]`, as "STATE;STATE<=P" or ">=P", and from `asked["never"]`, a list of forbidden
    states.
    """
    if asked.get("reach") is not None:
        found = REACH.fullmatch(str(asked["reach"]).strip())
        if found is None:
            raise InputError(f"--reach must be STATES<=P or STATES>=P, got {str(asked['reach'])[:60]!r}")
        states, sense, p = _states(model, found[1]), found[2], read_number("--reach", _real(found[3]))
        most, least = (p, None) if sense == "<=" else (None, p)
        model = limit_reach(model, states, at_most=most, at_least=least)
    if asked.get("never") is not None:
        model = limit_reach(model, _states(model, str(asked["never"])), at_most=0.0, name="never")
    return model


def _states(model: CMDP, text: str) -> list[str | int]:
    """Return the states in `text`, as names or indices. Semicolons separate them, since names may contain commas."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    return [int(part) if part.isdecimal() and part not in (model.states or ()) else part for part in parts]


def _real(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _refuse_other_flags(text: str, asked: Mapping[str, Any]) -> None:
    refuse_environment_flags({n: x for n, x in asked.items() if n not in OF_MODEL_FILE}, f"{text} is a model")


def load_model_or_none(text: str) -> CMDP | None:
    """Load the finite model that `text`, the argument PROBLEM, names; return None if it names a simulator.

    A factory `package.module:name` is called to find out whether it makes a model or a simulator.
    """
    if text in SIMULATORS or text.startswith("gym:"):
        return None
    if is_imported(text):
        first = f"write a model that has them first: clearance export {text} --gamma … --limit … --to model.npz"
        raise InputError(f"{WHAT} {text} has neither criterion nor limits: {first}")
    if not names_code(text):
        return load_problem(text, {})
    found = import_name(WHAT, text, call=True)
    if isinstance(found, CMDP):
        return found
    if world_of.dispatch(type(found)) is world_of.dispatch(object) and not _is_environment(found):
        raise _wrong_problem(text, found)
    return None


def is_model_file(text: str) -> bool:
    return text.endswith(".npz") or is_imported(text) or os.path.isfile(text)


def names_model(text: str) -> bool:
    """Return whether `text`, the argument PROBLEM, may name a finite model; a folder never does."""
    return not os.path.isdir(text) and (text in MODELS or is_model_file(text) or is_code(text))


def is_imported(text: str) -> bool:
    """Return whether `text`, the argument PROBLEM, is a model file in a foreign format."""
    return text.lower().endswith(model_files.IMPORTED)


def names_code(text: str) -> bool:
    """Return whether loading `text`, the argument PROBLEM, may run user code.

    gym:ENV_ID counts too, since gym:MODULE:ENV_ID imports MODULE.
    """
    return text.startswith("gym:") or (is_code(text) and text not in MODELS and not is_model_file(text))


def _from_factory(text: str, asked: Mapping[str, Any]) -> Any:
    found = import_name(WHAT, text, call=True)
    if world_of.dispatch(type(found)) is not world_of.dispatch(object):
        if isinstance(found, CMDP):
            return restate(found, text, asked)
        refuse_environment_flags(asked, f"{text} comes with its own limits")
        return found
    if not _is_environment(found):
        raise _wrong_problem(text, found)
    refuse_environment_flags({n: asked[n] for n in ONLY_OF_MODEL_FILE if n in asked}, f"{text} is none")
    with suppress(Exception):  # this environment was made only to find its type; every lane makes its own
        found.close()
    return _environment_problem(partial(import_name, WHAT, text, call=True, rule=import_rule()), asked)


def _environment_problem(env: Any, asked: Mapping[str, Any]) -> Simulator:
    from clearance.simulator.gymnasium_envs.gymnasium_problem import gymnasium

    given = dict(asked)
    if "criterion" in given:
        raise InputError("--criterion is for finite models: on an environment give --horizon, or --gamma below 1")
    if "cost" in given:
        given["constraints"], given["limits"] = costs_of_info(given.pop("cost"), given)
    elif "constraints" in given:
        given["constraints"] = import_function("--constraints", given["constraints"])
    return gymnasium(env, **given)


def costs_of_info(places: Sequence[str], given: Mapping[str, Any]) -> tuple[InfoCosts, Any]:
    """Return a function that reads costs from a step's `info`, and the limits of these costs by name.

    places  the costs as texts NAME=info.PLACE;  given: the other flags, among them the limits
    """
    if "constraints" in given:
        raise InputError("--cost and --constraints both say where costs come from: give one of them")
    if "limits" not in given:
        raise InputError("--cost names costs, which have upper limits: give --limit NAME=NUMBER for each")
    costs, limits = InfoCosts(tuple(places)), given["limits"]
    names = list(costs.places)
    if not isinstance(limits, Mapping):
        if len(limits) != len(names):
            raise InputError(f"--limits has {len(limits)} entries for {len(names)} costs; give one each")
        limits = dict(zip(names, limits, strict=True))
    other = [n for n in names if n not in limits] + [n for n in limits if n not in names]
    if other:
        raise InputError(f"--limit and --cost must have the same names; see {other[0]!r}")
    return costs, {name: limits[name] for name in names}


@dataclass(frozen=True)
class InfoCosts:
    """A constraint function that reads costs from a step's `info`. It can be pickled for workers.

    texts  the costs as texts NAME=info.PLACE
    """

    texts: tuple[str, ...]

    @property
    def places(self) -> dict[str, list[str]]:
        pairs = (text.split("=info.", 1) for text in self.texts)
        return {name: place.split(".") for name, place in pairs}

    def __call__(self, obs: Any, action: Any, after: Any, info: Any) -> dict[str, Any]:
        return {name: self._at(name, info, keys) for name, keys in self.places.items()}

    def _at(self, name: str, info: Any, keys: list[str]) -> Any:
        for i, key in enumerate(keys):
            if not isinstance(info, Mapping) or key not in info:
                has = ", ".join(sorted(map(str, info))) if isinstance(info, Mapping) else ""
                raise InputError(
                    f"--cost {name}: {'.'.join(['info', *keys[:i]])} has no {key!r} (it has {has or 'nothing'})"
                )
            info = info[key]
        return info


def _is_environment(found: Any) -> bool:
    return hasattr(found, "step") and hasattr(found, "reset")


def _wrong_problem(text: str, found: Any) -> InputError:
    kinds = "a clearance.CMDP, a simulator or an environment"
    return InputError(f"{WHAT} {text} must return {kinds}, got {type(found).__name__}")


def refuse_environment_flags(asked: Mapping[str, Any], why: str) -> None:
    for name in asked:
        what = "imported models" if name in ONLY_OF_MODEL_FILE else "environments"
        raise InputError(f"--{name} is for {what}; {why}: leave it out")
