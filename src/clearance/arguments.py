"""What the arguments of the command line stand for: problems, policies, samplers, methods."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

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


def is_simulator(text: str) -> bool:
    """Whether PROBLEM names a simulator; what a factory gives is known when it is called."""
    from clearance.problem import CMDP
    from clearance.zoo import MODELS, SIMULATORS

    if text in SIMULATORS or text.startswith("gym:"):
        return True
    module, _, name = text.partition(":")
    foreign = module and name and text not in MODELS and not text.endswith(".npz") and not os.path.isfile(text)
    return bool(foreign) and not isinstance(factory(text), CMDP)


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


@contextlib.contextmanager
def executor(args: argparse.Namespace) -> Iterator[Any]:
    """Who does the work, as --cluster and --threads ask for."""
    if args.cluster in (None, "local"):
        from clearance.executor import Local

        yield Local(getattr(args, "threads", None))
        return
    from clearance.cluster import Ray

    with Ray(None if args.cluster == "ray" else args.cluster, workers=getattr(args, "workers", None)) as ray:
        yield ray


def sampler(text: str | None, cmdp: Any, policy: Any) -> Any:
    from clearance.sample import Critic, Exact, Table

    if text is None or text == "critic":
        return None if text is None else Critic(cmdp, policy)
    return Exact(cmdp, policy) if text == "exact" else Table(cmdp, policy, resets=text == "table")


def methods() -> dict[str, Any]:
    """What --method calls the methods."""
    from clearance import methods as m

    others = (m.CNPGPD, m.NPGPD, m.PDANPG, m.CRPO, m.PMDPD, m.PDNAC, m.RPGPD, m.OPGPD, m.ModelBased)
    return {"regularised": m.RegularisedCNPGPD, **{kind.__name__.lower(): kind for kind in others}}


# The methods whose regression can be chosen, and those that walk as Algorithm 2 does.
WITH_DIRECTION = {"cnpgpd", "npgpd"}
WITH_WALKS = {"cnpgpd", "npgpd", "pdanpg"}


def method(args: argparse.Namespace) -> Any:
    kind = methods()[args.method]
    given = {name: value for name, value in vars(args).items() if name in settings() and value is not None}
    own = {f.name for f in dataclasses.fields(kind)}
    if args.method in WITH_DIRECTION:
        own, given = own | {"alpha"}, {n: v for n, v in given.items() if n != "alpha"}
    for name in given:
        if name not in own:
            _refuse(f"--{name}", args)
    if args.method not in WITH_DIRECTION:
        for name in ("direction", "ridge"):
            if getattr(args, name) is not None:
                _refuse(f"--{name}", args)
        if args.printed:
            _refuse("--printed", args)
    if args.sampler in ("table", "coin") and args.method not in WITH_WALKS:
        raise InputError(f"--sampler {args.sampler} is for --method {', '.join(sorted(WITH_WALKS))}: leave it out")
    if args.sampler is not None and args.method in ("pdnac", "modelbased"):
        raise InputError(f"--sampler is not for --method {args.method}, which has its own: leave it out")
    if args.sampler in ("critic", "exact") and args.method == "pdanpg":
        raise InputError("--method pdanpg wants draws of equal weight: leave --sampler out, or use table or coin")
    return kind(**given, direction=_direction(args)) if args.method in WITH_DIRECTION else kind(**given)


def _refuse(flag: str, args: argparse.Namespace) -> NoReturn:
    raise InputError(f"{flag} is not for --method {args.method}: leave it out, or choose another method")


def _direction(args: argparse.Namespace) -> Any:
    """How Algorithm 1 finds ω."""
    from clearance.direction import SGD, LeastSquares, Tabular, WeightedSGD

    weighted, tabular = args.sampler in ("exact", "critic"), args.policy == "tabular"
    if args.direction in ("sgd", "weighted-sgd") and weighted:
        what = f"--direction {args.direction} wants draws of equal weight, --sampler {args.sampler} weighs them"
        raise InputError(f"{what}: use least-squares")
    if args.direction == "tabular" and not tabular:
        raise InputError("--direction tabular is for --policy tabular only: use sgd or least-squares")
    if args.direction == "tabular" or (weighted and tabular and args.direction is None):
        return Tabular()
    if args.direction == "least-squares" or weighted:
        return LeastSquares(ridge=0.0 if args.ridge is None else args.ridge)
    if args.direction == "weighted-sgd":
        return WeightedSGD()
    return SGD(alpha=0.05 if args.alpha is None else args.alpha, printed=args.printed)


def settings() -> dict[str, dict[str, Any]]:
    """The settings of all methods by name: those that have it, and its help."""
    found: dict[str, dict[str, Any]] = {}
    for kind in methods().values():
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
        return {"type": flags.one_or_pair, "metavar": "TAU"}
    if field.type.startswith("Literal"):
        return {"choices": [part.strip(" \"'") for part in field.type[8:-1].split(",")]}
    return {"type": flags.whole if field.type.startswith("int") else flags.real}


def help_of(entry: dict[str, Any]) -> str:
    """The help of a setting, with its default, or with that of each method where they differ."""
    text, values = entry["field"].metadata["help"], entry["methods"]
    if entry["field"].name == "alpha":
        text = "the step of θ, or the weight of PMD-PD's divergence; the step of the SGD where there is one"
    shown: dict[str, list[str]] = {}
    for kind, default in values:
        shown.setdefault(str(default), []).append(kind.__name__)
    if len(shown) == 1 and len(values) > 1:
        return f"{text} ({values[0][1]})"
    which = "; ".join(f"{default}: {', '.join(names)}" for default, names in shown.items())
    return f"{text} ({which})"
