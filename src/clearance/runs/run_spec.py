"""RunSpec: the flags of one run as plain data.

The command line builds one RunSpec, and `sweep` builds many. The run folder stores the flags, and `solve --resume`
reads them. The help of `clearance solve` is generated from the fields of RunSpec and of the methods.

    spec = RunSpec.from_flags("two-state", {"method": "cnpgpd", "K": "500", "kappa": ".1,.2"})
    problem = spec.load_problem()
    solve(problem, **spec.solve_arguments(problem))
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from clearance.certificates.best_mixture import SINGLE
from clearance.core.criterion import CRITERIA
from clearance.core.errors import InputError
from clearance.core.tail_limits import has_tails
from clearance.finite.cmdp import CMDP
from clearance.runs.field_values import (
    OneOf,
    Parser,
    is_code,
    parse_budget,
    parse_costs,
    parse_limits,
    parse_non_negative,
    parse_pair,
    parse_probability,
    parse_real,
    parse_switch,
    parse_text,
    parse_whole,
    to_text,
    whole_between,
)
from clearance.runs.foreign_code import import_function
from clearance.runs.method_settings import built_in_settings, method_class, parser_of, settings_of
from clearance.runs.method_table import METHODS
from clearance.runs.named_parts import make_direction, make_policy_class, make_sampler
from clearance.runs.problem_text import OF_MODEL_FILE, load_problem
from clearance.runs.worlds.dispatch import world_of
from clearance.simulator.simulator import Simulator

ON_SIMULATORS = ("practical-cnpgpd", "practical-crpo", "cnpgpd")
ON_MODELS = tuple(name for name in METHODS if not name.startswith("practical"))
# The defaults of the flags; that of the method depends on the kind of problem.
DEFAULTS: dict[str, Any] = {
    "evidence": "exact",
    "delta": 0.01,
    "single": "prefer",
    "seed": 0,
    "policy": "tabular",
    "printed": False,
}
OF_ENVIRONMENT = ("limits", "b", "gamma", "horizon", "num_envs", "bounds", "constraints", "cost")
CODE = ("problem", "method", "constraints", "init")  # the settings that may name user code


def _flag(parse: Parser, group: str, help: str, metavar: str | None = None) -> Any:
    return field(default=None, metadata={"parse": parse, "group": group, "help": help, "metavar": metavar})


@dataclass(frozen=True)
class RunSpec:
    """The flags of one run; None means that a flag was not given.

    `settings` holds the settings of the method by name.
    """

    problem: str | None = None
    evidence: str | None = _flag(
        OneOf("exact", "samples"),
        "evidence",
        "prove with the model (exact), or use it only as a simulator (samples) (default: exact)",
    )
    budget: float | str | None = _flag(
        parse_budget, "evidence", "environment steps for learning, choice and certificate together (default on "
        "simulators: 2e6); or a time for solve (90s, 10min, 2h)", "STEPS|TIME"
    )  # fmt: skip
    delta: float | None = _flag(
        parse_probability, "evidence", "error probability: a policy that breaks a limit is CERTIFIED with at most "
        "this probability (default: 0.01)"
    )  # fmt: skip
    single: str | None = _flag(
        OneOf(*SINGLE), "evidence", "return one policy in place of a mixture: if it loses at most 1 % (prefer), "
        "always (require), or never (default: prefer)"
    )  # fmt: skip
    seed: int | None = _flag(parse_whole, "evidence", "random seed (default: 0)")
    init: str | None = _flag(
        parse_text, "evidence", "begin from this run folder or policy file, or on a simulator from a rule of your own "
        "(package.module:rule), which is imitated first", "RUN|POLICY|RULE"
    )  # fmt: skip
    method: str | None = _flag(
        OneOf(*METHODS, code="package.module:Class"), "method",
        "learning algorithm: {methods}; or package.module:Class, a method of your own (default: regularised on finite "
        "models, practical-cnpgpd on simulators)", "METHOD",
    )  # fmt: skip
    settings: Mapping[str, Any] = field(default_factory=dict)
    direction: str | None = _flag(
        OneOf("sgd", "weighted-sgd", "least-squares", "tabular"), "method",
        "how cnpgpd and npgpd estimate the update direction ω (default: sgd)",
    )  # fmt: skip
    printed: bool | None = _flag(parse_switch, "method", "use the SGD with the step sizes printed in the paper")
    ridge: float | None = _flag(parse_non_negative, "method", "ridge of least-squares (default: 0, the pseudo-inverse)")
    policy: str | None = _flag(
        parse_text, "method", "policy class on a finite model: tabular, bai2023, or an .npz file with features "
        "[S, A, d] (default: tabular)"
    )  # fmt: skip
    sampler: str | None = _flag(
        OneOf("critic", "table", "coin", "exact"), "method", "how advantages are estimated on a finite model: by a "
        "critic, by Algorithm 2 with resets (table) or without (coin), or exactly (default: what the method needs)"
    )  # fmt: skip
    limits: tuple[float, ...] | Mapping[str, Any] | None = _flag(
        parse_limits,
        "limits",
        "upper limits of the costs by name (also --limit), or in order if the problem is no imported model; of single "
        'episodes "P(NAME>C)<=P" and "CVaR0.9(NAME)<=C"',
        "L1,L2|NAME=L,…",
    )
    b: tuple[float, ...] | Mapping[str, float] | None = _flag(
        parse_limits,
        "limits",
        "lower limits of the utilities, as --limits; write negative ones as --b=-5,-3",
        "B1,B2|NAME=B,…",
    )
    gamma: float | None = _flag(parse_real, "limits", "discount factor (default: 1 with --horizon)")
    criterion: str | None = _flag(
        OneOf(*CRITERIA), "limits", "what J is on a finite model: discounted sums (--gamma), long-run means "
        "per step, or sums until absorption (default: discounted, or as the model says)"
    )  # fmt: skip
    reward: str | None = _flag(
        parse_text, "limits", "the reward of an imported model, by name; --reward=-NAME minimises", "NAME"
    )
    initial: str | None = _flag(
        parse_text, "limits", "initial state of a model, by name or number (default: as in the file)", "STATE"
    )  # fmt: skip
    reach: str | None = _flag(
        parse_text, "limits", "limit the probability to ever enter some states of a model, with --criterion total or "
        "--horizon: STATE;STATE<=P, or >=P for a goal", "STATES<=P"
    )  # fmt: skip
    never: str | None = _flag(
        parse_text, "limits", "states of a model, between semicolons, that no run may ever enter", "STATES"
    )
    horizon: int | None = _flag(whole_between(1, 2**31), "limits", "steps per episode (default: no horizon)", "STEPS")
    num_envs: int | None = _flag(
        whole_between(1, 10_000), "limits", "environments that run side by side (default: 8)", "N"
    )
    bounds: tuple[float, float] | None = _flag(
        parse_pair, "limits", "smallest and largest cost in one step; needed for certificates", "LOW,HIGH"
    )
    constraints: str | None = _flag(
        parse_text,
        "limits",
        'function f(obs, action, next_obs, info) that returns the costs (default: info["cost"])',
        "PACKAGE.MODULE:F",
    )

    cost: tuple[str, ...] | None = _flag(
        parse_costs, "limits", "where a step's info has the costs: info.NAME, or NAME=info.PLACE for each; --limit "
        "then goes by these names", "info.NAME,…"
    )  # fmt: skip

    # ------------------------------------------------------------------------------------------------- from plain data

    @classmethod
    def from_flags(cls, problem: str | None, flags: Mapping[str, Any], kind: Any = None) -> RunSpec:
        """Build a RunSpec from flags, given as texts or values; `kind` is the class of the method if it is known."""
        if kind is None and isinstance(flags.get("method"), str):
            kind = method_class(flags["method"])
        given = {name: parse_flag(name, to_text(name, value), kind) for name, value in flags.items()}
        own = {name: given.pop(name) for name in list(given) if name not in FLAGS}
        return cls(problem, settings=own, **given)

    def flags(self) -> dict[str, Any]:
        """Return the flags that were given, without the problem, as JSON data; the run folder stores them."""
        found: dict[str, Any] = {}
        for f in fields(self)[1:]:
            found |= dict(self.settings) if f.name == "settings" else {f.name: getattr(self, f.name)}
        found["printed"] = found["printed"] or None
        return {n: _as_data(n, v) for n, v in found.items() if v is not None}

    def words(self) -> list[str]:
        """Return the command line that starts the same run, as a list of words."""
        words = ["clearance", "solve", str(self.problem)]
        for name, value in self.flags().items():
            text = to_text(name, value)
            if name == "printed":
                words.append("--printed")
            else:  # as one word, because argparse would take a value with a minus for a flag
                words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
        return words

    def notes(self) -> dict[str, Any]:
        """Return the flags and the command line, which the run folder stores together with the settings."""
        return {"flags": self.flags(), "command": self.words()}

    def code(self) -> Iterator[tuple[str, str]]:
        """Yield (flag, value) for each of the flags --method, --constraints and --init whose value names user code."""
        for name in ("method", "constraints", "init"):
            text = getattr(self, name)
            if text is not None and is_code(text) and not (name == "init" and os.path.exists(text)):
                yield name, text

    # ------------------------------------------------------------------------------------------------- what it means

    @property
    def environment(self) -> dict[str, Any]:
        """The flags that change an environment or a finite model: limits, discount factor, horizon and so on."""
        asked = dict.fromkeys((*OF_ENVIRONMENT, *OF_MODEL_FILE))
        return {n: getattr(self, n) for n in asked if getattr(self, n) is not None}

    def load_problem(self) -> Any:
        if self.problem is None:
            raise InputError("PROBLEM is missing: give one")
        return load_problem(self.problem, self.environment)

    def solve_arguments(self, problem: Any) -> dict[str, Any]:
        """Return the keyword arguments of `solve` for `problem`, which must be the result of `load_problem`."""
        simulated = isinstance(problem, Simulator)
        if simulated:
            self._check_evidence(problem)
        how = {"evidence": self.evidence, "budget": self.budget, "delta": self.delta or 0.01, "seed": self.seed or 0}
        how |= {"single": self.single or "prefer", "notes": self.notes(), "init": self.read_init()}
        if self.method is not None or isinstance(problem, CMDP | Simulator):  # others have their own default
            how["method"] = self.make_method(simulated=simulated)
        if not isinstance(problem, CMDP):
            return how
        world = world_of(problem)
        world = world.with_evidence(world.evidence(self.evidence, None))  # type: ignore[arg-type]
        model = getattr(world, "model", problem)  # the model that learning uses
        policy = make_policy_class(self.policy, model)
        return how | {"policy": policy, "sampler": make_sampler(self.sampler, model, policy)}

    def read_init(self) -> Any:
        """Return the value of --init: a path, the imported rule, or None."""
        return import_function("--init", self.init) if "init" in dict(self.code()) else self.init  # type: ignore[arg-type]

    def _check_evidence(self, problem: Simulator) -> None:
        """Raise InputError if --evidence differs from the only kind of evidence that this simulator supports."""
        kind = world_of(problem).evidence(None, None)
        if self.evidence not in (None, kind):
            why = {"samples": "only samples can tell of this simulator", "exact": "its values are known exactly"}
            raise InputError(f"--evidence {self.evidence}: {why[kind]}: leave it out")

    def method_name(self, *, simulated: bool) -> str:
        return self.method or (ON_SIMULATORS[0] if simulated else ON_MODELS[0])

    def make_method(self, *, simulated: bool) -> Any:
        """Return the method with its settings; `simulated` says whether the problem is a simulator.

        Raise InputError for flags that the method or the kind of problem does not support.
        """
        name = self.method_name(simulated=simulated)
        allowed = ON_SIMULATORS if simulated else ON_MODELS
        if name in METHODS and name not in allowed:
            here, there = ("a simulator", "finite models") if simulated else ("a finite model", "simulators")
            raise InputError(f"--method {name} is for {there}: on {here} use {', '.join(allowed)}")
        kind, given = method_class(name), dict(self.settings)
        own, directed = settings_of(kind), has_direction(kind)
        alpha = given.pop("alpha", None) if directed and "alpha" not in own else None
        for setting in given:
            if setting not in own:
                _refuse(setting, name)
        if not directed:
            for flag in ("direction", "ridge", "printed"):
                if getattr(self, flag):
                    _refuse(flag, name)
        self._check_sampler(name, kind, simulated=simulated)
        if not directed:
            return kind(**given)
        direction = make_direction(
            self.direction,
            sampler=self.sampler,
            tabular=not simulated and self.policy in (None, "tabular"),
            alpha=alpha,
            printed=bool(self.printed),
            ridge=self.ridge,
        )
        return kind(**given) if direction is None else kind(**given, direction=direction)

    def _check_sampler(self, name: str, kind: Any, *, simulated: bool) -> None:
        if simulated:
            for flag in ("policy", "sampler"):
                if getattr(self, flag) not in (None, DEFAULTS.get(flag)):
                    raise InputError(f"--{flag} is for finite models: leave it out")
            return
        draws = getattr(kind, "draw_kind", "walks")
        if self.sampler is not None and draws not in ("walks", "critic"):
            raise InputError(f"--sampler is not for --method {name}, which has its own: leave it out")
        if self.sampler in ("table", "coin") and draws != "walks":
            walking = ", ".join(n for n in ON_MODELS if METHODS[n].draw_kind == "walks")
            raise InputError(f"--sampler {self.sampler} is for --method {walking}: leave it out")
        if self.sampler in ("critic", "exact") and name == "pdanpg":
            raise InputError("--method pdanpg wants draws of equal weight: leave --sampler out, or use table or coin")

    # ------------------------------------------------------------------------------------------------- a resumed run

    def check_agreement(self, stored: Mapping[str, Any] | None, where: str, *, simulated: bool) -> None:
        """Raise InputError if a flag of this run differs from the flags `stored` in the run folder `where`.

        stored     None if Python started the run; then only flags for user code or for a simulator may be given
        simulated  whether the problem is a simulator
        """
        usual = DEFAULTS | {"method": (ON_SIMULATORS if simulated else ON_MODELS)[0]}
        code = dict(self.code())  # named again, since it is not in the folder
        for name, value in self.flags().items():
            if stored is None and (name in code or (simulated and name in OF_ENVIRONMENT)):
                continue
            if stored is None:
                raise InputError(f"--{name}: the run in {where} was begun in Python: give --resume alone")
            before = stored.get(name, usual.get(name))
            if value != before:
                had = "was not given" if before is None else f"was {before}"
                raise InputError(f"--{name} {value} is not as in the run in {where}, where it {had}: leave it out, or "
                                 "begin another run with --out")  # fmt: skip


def _as_data(name: str, value: Any) -> Any:
    """Return the value of a flag as JSON data; limits on single episodes become their text."""
    if has_tails(value) and isinstance(value, Mapping):
        return to_text(name, value)
    return list(value) if isinstance(value, tuple) else value


FLAGS = {f.name: f for f in fields(RunSpec) if "parse" in f.metadata}


def parse_flag(name: str, text: str, kind: Any = None) -> Any:
    """Parse the value of a flag from its text; `kind` is the class of the method if it is known."""
    try:
        return _parser(name, kind)(text)
    except InputError as e:
        raise InputError(f"{name}: {e}") from None


def _parser(name: str, kind: Any) -> Parser:
    if name in FLAGS:
        return FLAGS[name].metadata["parse"]
    own = {} if kind is None else settings_of(kind)
    if name in own:
        parse = parser_of(own[name])
        assert parse is not None
        return parse
    known = built_in_settings()
    if name not in known:
        raise InputError("is no setting of solve; see clearance solve --help")
    return known[name].parse


def has_direction(kind: Any) -> bool:
    """Return whether the method class `kind` has a field `direction` that --direction can set."""
    return any(f.name == "direction" and str(f.type).endswith("Direction") for f in fields(kind))


def _refuse(flag: str, method: str) -> NoReturn:
    raise InputError(f"--{flag} is not for --method {method}: leave it out, or choose another method")
