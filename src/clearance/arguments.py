"""What the arguments of the command line stand for: problems, policies, samplers, methods."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import sys
from typing import Any

from clearance import flags, show
from clearance.errors import InputError


def problem(text: str) -> Any:
    """A CMDP from a model file, a zoo name or `package.module:factory`."""
    from clearance.problem import CMDP
    from clearance.zoo import MODELS, SIMULATORS

    if text in SIMULATORS or text.startswith("gym:"):
        raise InputError(f"PROBLEM {text} is a simulator: solve, certify and check take it, this needs a finite model")
    if text in MODELS:
        return MODELS[text]()
    if text.endswith(".npz") or os.path.isfile(text):
        return CMDP.load(text)
    module, colon, factory = text.partition(":")
    if colon and module and factory:
        return _from_factory(module, factory)
    known = ", ".join([*MODELS, *SIMULATORS])
    raise InputError(f"PROBLEM {text!r} is no .npz file, no gym:ENV_ID, no module:factory and no zoo name ({known})")


def _from_factory(module: str, factory: str) -> Any:
    from clearance.problem import CMDP

    made = _foreign("PROBLEM", module, factory, call=True)
    if not isinstance(made, CMDP):
        raise InputError(f"PROBLEM {module}:{factory} must return a clearance.CMDP, got {type(made).__name__}")
    return made


def factory(text: str) -> Any:
    """Whatever `package.module:factory` gives."""
    module, _, name = text.partition(":")
    return _foreign("PROBLEM", module, name, call=True)


def function(flag: str, text: str) -> Any:
    """A function of the user's, as `package.module:name`."""
    module, colon, name = text.partition(":")
    found = _foreign(flag, module, name, call=False) if colon and module and name else None
    if not callable(found):
        raise InputError(f"{flag} must be package.module:function, got {text!r}")
    return found


def policy(text: str) -> Any:
    """A policy file, or `package.module:rule`, a rule `state -> action`."""
    from clearance.mixture import Mixture

    module, colon, rule = text.partition(":")
    if text.endswith(".npz") or os.path.isfile(text) or not (colon and module and rule):
        return Mixture.load(text)
    found = _foreign("POLICY", module, rule, call=False)
    if not callable(found):
        raise InputError(f"POLICY {text} must be a rule `state -> action`, got {type(found).__name__}")
    return found


def _foreign(what: str, module: str, name: str, *, call: bool) -> Any:
    """Something from the user's own code, which may do anything: whatever goes wrong there is told in one line."""
    here = os.getcwd()
    sys.path.insert(0, here)  # as `python -m` would; a console script does not
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for the answer alone
            found = getattr(importlib.import_module(module), name)
            return found() if call else found
    except (Exception, SystemExit) as e:  # whatever foreign code does, it is the user's and not a defect here
        raise InputError(f"{what} {module}:{name} failed: {type(e).__name__}: {show.first_line(e)}") from None
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(here)


def policy_class(text: str, cmdp: Any) -> Any:
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


def sampler(text: str | None, cmdp: Any, policy: Any) -> Any:
    from clearance.sample import Critic, Exact, Table

    if text is None or text == "critic":
        return None if text is None else Critic(cmdp, policy)
    return Exact(cmdp, policy) if text == "exact" else Table(cmdp, policy, resets=text == "table")


def method(args: argparse.Namespace) -> Any:
    from clearance.methods import CNPGPD, RegularisedCNPGPD

    kind = CNPGPD if args.method == "cnpgpd" else RegularisedCNPGPD
    given = {name: value for name, value in vars(args).items() if name in settings() and value is not None}
    own = {f.name for f in dataclasses.fields(kind)}
    for name in given:
        if name not in own:
            raise InputError(f"--{name} is not for --method {args.method}: leave it out, or choose the other method")
    if kind is CNPGPD:
        return CNPGPD(**given, direction=_direction(args))
    for name in ("direction", "alpha", "ridge"):
        if getattr(args, name) is not None:
            raise InputError(f"--{name} is not for --method {args.method}: leave it out, or choose the other method")
    if args.printed or args.sampler in ("table", "coin"):
        flag = "--printed" if args.printed else f"--sampler {args.sampler}"
        raise InputError(f"{flag} is for --method cnpgpd: leave it out, or choose that method")
    return RegularisedCNPGPD(**given)


def _direction(args: argparse.Namespace) -> Any:
    """How Algorithm 1 finds ω."""
    from clearance.direction import SGD, LeastSquares, Tabular

    weighted, tabular = args.sampler in ("exact", "critic"), args.policy == "tabular"
    if args.direction == "sgd" and weighted:
        raise InputError(
            f"--direction sgd wants draws of equal weight, --sampler {args.sampler} weighs them: use least-squares"
        )
    if args.direction == "tabular" and not tabular:
        raise InputError("--direction tabular is for --policy tabular only: use sgd or least-squares")
    if args.direction == "tabular" or (weighted and tabular and args.direction is None):
        return Tabular()
    if args.direction == "least-squares" or weighted:
        return LeastSquares(ridge=0.0 if args.ridge is None else args.ridge)
    return SGD(alpha=0.05 if args.alpha is None else args.alpha, printed=args.printed)


def settings() -> dict[str, dict[str, Any]]:
    """The settings of all methods by name: those that have it, and its help."""
    from clearance.methods import CNPGPD, RegularisedCNPGPD

    found: dict[str, dict[str, Any]] = {}
    for kind in (RegularisedCNPGPD, CNPGPD):
        for f in dataclasses.fields(kind):
            if f.name != "direction":
                entry = found.setdefault(f.name, {"field": f, "methods": []})
                entry["methods"].append((kind, f.default))
    return found


def type_of(field: Any) -> dict[str, Any]:
    """How the flag of a setting is read."""
    if field.name == "kappa":
        return {"type": flags.margin, "metavar": "KAPPA"}
    if field.name == "tau":
        return {"type": flags.pair, "metavar": "FIRST,LAST"}
    return {"type": flags.whole if field.type.startswith("int") else flags.real}


def help_of(entry: dict[str, Any]) -> str:
    """The help of a setting, with its default, or with that of each method where they differ."""
    text, values = entry["field"].metadata["help"], entry["methods"]
    if len(values) == 1:
        return f"{text} ({values[0][1]}; {values[0][0].__name__})"
    same = len({str(default) for _, default in values}) == 1
    return f"{text} ({values[0][1] if same else ', '.join(f'{d} for {kind.__name__}' for kind, d in values)})"
