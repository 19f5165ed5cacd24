"""A grid of runs: the product of axes, where every point is a command line of `clearance solve`.

    seed=0:10            0, 1, …, 9
    kappa=0,.01,auto     three values
    kappa=.1,.2;.3,.4    two values that have commas themselves
    method=cnpgpd,crpo   whatever is a flag of solve; and problem

All values are texts, as the command line takes them: what a point means is said in one place.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from clearance.errors import InputError

MOST = 100_000  # points
RANGE = re.compile(r"(-?\d+):(-?\d+)(?::(\d+))?")
SWITCHES = ("printed",)  # flags without a value
# Flags of solve that are not about a single run, or that the grid sets itself.
NOT_AXES = ("out", "resume", "json", "tensorboard", "checkpoint_every", "command", "run", "check", "problem")
NOT_AXES += ("cluster", "workers")


class Point(NamedTuple):
    """One run: its number, the name of its folder, its values on the axes, and its command line after `solve`."""

    number: int
    name: str
    values: dict[str, str]
    words: list[str]


@dataclass(frozen=True)
class Grid:
    """Axes {name: values}, the last varies fastest; and what is the same at every point."""

    axes: dict[str, tuple[str, ...]]
    fixed: dict[str, str]

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            if name in self.fixed:
                raise InputError(f"grid {name}: is given as a setting too: leave one of them out")
            if not values or len(set(values)) < len(values):
                raise InputError(f"grid {name}: needs at least one value, each once, got {', '.join(values) or 'none'}")
        if "problem" not in self.axes and "problem" not in self.fixed:
            raise InputError("PROBLEM is missing: give one, or --grid problem=…")
        if len(self) > MOST:
            raise InputError(f"grid: has {len(self)} points, at most {MOST} are allowed")

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    @property
    def problems(self) -> tuple[str, ...]:
        return self.axes.get("problem") or (self.fixed["problem"],)

    def points(self) -> list[Point]:
        digits = max(3, len(str(len(self) - 1)))
        found = []
        for i, values in enumerate(itertools.product(*self.axes.values())):
            own = dict(zip(self.axes, values, strict=True))
            found.append(Point(i, f"{i:0{digits}d}", own, words_of(self.fixed | own)))
        return found

    def asdict(self) -> dict[str, Any]:
        return {"axes": {name: list(values) for name, values in self.axes.items()}, "fixed": self.fixed}

    @classmethod
    def of(cls, axes: Mapping[str, Iterable[Any]], fixed: Mapping[str, Any]) -> Grid:
        """From values of any kind."""
        made = {name: tuple(text_of(name, v) for v in _listed(name, values)) for name, values in axes.items()}
        same = {name: text_of(name, value) for name, value in fixed.items()}
        # A grid may go on from elsewhere: files are named from the root.
        made |= {"problem": tuple(_placed(text) for text in made["problem"])} if "problem" in made else {}
        return cls(made, same | ({"problem": _placed(same["problem"])} if "problem" in same else {}))


def words_of(settings: Mapping[str, str]) -> list[str]:
    """The command line after `solve`."""
    words = [settings["problem"]]
    for name, text in settings.items():
        if name in SWITCHES:
            words += [f"--{name}"] if text == "true" else []
        elif name != "problem":
            words.append(f"--{name}={text}")  # one word: a value may begin with a minus
    return words


def axis(text: str) -> tuple[str, tuple[str, ...]]:
    """`name=values` of --grid."""
    name, equals, values = text.partition("=")
    if not (equals and name and values):
        raise InputError(f"--grid must be NAME=VALUES as seed=0:10 or kappa=0,.01, got {text!r}")
    return name.strip(), texts(values)


def texts(values: str) -> tuple[str, ...]:
    """The values of an axis.

    >>> texts("0:10:4"), texts("0,.01"), texts(".1,.2;.3,.4")
    (('0', '4', '8'), ('0', '.01'), ('.1,.2', '.3,.4'))
    """
    ends = RANGE.fullmatch(values.strip())
    if ends:
        begin, end, step = int(ends[1]), int(ends[2]), int(ends[3] or 1)
        if step == 0 or not 0 < (end - begin + step - 1) // step <= MOST:
            raise InputError(f"grid {values}: is an empty or too long range; give FIRST:END or FIRST:END:STEP")
        return tuple(str(i) for i in range(begin, end, step))
    return tuple(part.strip() for part in values.split(";" if ";" in values else ","))


def text_of(name: str, value: Any) -> str:
    """A value as the command line takes it."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str | bool):
        return value if isinstance(value, str) else str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list) and value and all(isinstance(x, int | float) for x in value):
        return ",".join(repr(x) for x in value)
    raise InputError(f"grid {name}: must be numbers or texts, got {value!r}")


def _placed(problem: str) -> str:
    return os.path.abspath(problem) if problem.endswith(".npz") or os.path.isfile(problem) else problem


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, str):
        return list(texts(values))
    if not isinstance(values, Iterable):
        raise InputError(f"grid {name}: must be a list of values, got {values!r}")
    return list(values)


def from_toml(path: str) -> Grid:
    """A grid in a file: settings at the top, a table [grid] of the axes, each a list or a text as for --grid."""
    try:
        with open(path, "rb") as f:
            data = tomllib.load(f)
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: cannot read: {getattr(e, 'strerror', None) or e}") from None
    except tomllib.TOMLDecodeError as e:
        raise InputError(f"{path}: is no TOML: {e}") from None
    axes = data.pop("grid", None)
    if not isinstance(axes, dict) or not axes:
        raise InputError(f"{path}: a table [grid] with the axes is missing")
    return Grid.of(axes, data)
