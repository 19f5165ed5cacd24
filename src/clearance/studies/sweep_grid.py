"""A grid of runs: the product of axes. Every point is one run, described by the flags of `clearance solve`.

    seed=0:10            0, 1, …, 9
    kappa=0,.01,auto     three values
    kappa=.1,.2;.3,.4    two values that contain commas
    method=cnpgpd,crpo   any flag of solve, or problem

All values are texts, as on the command line; `RunSpec` interprets them.
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

from clearance.core.errors import InputError
from clearance.runs.field_values import is_code, to_text
from clearance.runs.problem_text import is_model_file, names_code
from clearance.runs.run_spec import CODE, RunSpec

MOST = 100_000  # largest number of points of a grid
LARGEST = 2**22  # largest size of a TOML file in bytes
RANGE = re.compile(r"(-?\d+):(-?\d+)(?::(\d+))?")


class Point(NamedTuple):
    """One run of a grid: its index (`number`), the name of its folder, its values on the axes, and all its settings.

    The settings include the problem.
    """

    number: int
    name: str
    values: dict[str, str]
    settings: dict[str, str]

    @property
    def spec(self) -> RunSpec:
        """The flags of the run as a `RunSpec`; raises InputError that names a wrong setting."""
        flags = {name: text for name, text in self.settings.items() if name != "problem"}
        return RunSpec.from_flags(self.settings["problem"], flags)


@dataclass(frozen=True)
class Grid:
    """The axes {name: values} of a grid, and the settings `fixed` that are the same at every point.

    The values of the last axis vary fastest.
    """

    axes: dict[str, tuple[str, ...]]
    fixed: dict[str, str]

    def __post_init__(self) -> None:
        for name, values in self.axes.items():
            if name in self.fixed:
                raise InputError(f"grid {name}: is given as a setting too: leave one of them out")
            if not values or len(set(values)) < len(values):
                raise InputError(f"grid {name}: needs at least one value, each once, got {', '.join(values) or 'none'}")
        if len(self) > MOST:
            raise InputError(f"grid: has {len(self)} points, at most {MOST} are allowed")

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    def values(self, name: str) -> tuple[str, ...]:
        """Return all values that the setting `name` takes in the grid; an empty tuple if it is not set."""
        return self.axes.get(name, (self.fixed[name],) if name in self.fixed else ())

    def code(self) -> list[tuple[str, str]]:
        """Return pairs (setting, value) for all values in the grid that name user code.

        A setting is the problem, the method, or any other flag of `clearance solve`; its value is a text.
        """
        found = [(name, text) for name in CODE for text in self.values(name)]
        return [(n, text) for n, text in found if (names_code(text) if n == "problem" else is_code(text))]

    def differs_from(self, stored: Grid) -> str | None:
        """Return the name of the first setting of this grid that differs from the grid `stored`; None if all agree."""
        ours, theirs = ({**grid.axes, **grid.fixed} for grid in (self, stored))
        return next((name for name, value in ours.items() if theirs.get(name) != value), None)

    @property
    def problems(self) -> tuple[str, ...]:
        """The texts of the grid's problems; raises InputError if there are none."""
        found = self.values("problem")
        if not found:
            raise InputError("PROBLEM is missing: give one, or --grid problem=…")
        return found

    def points(self) -> list[Point]:
        digits = max(3, len(str(len(self) - 1)))
        found = []
        for i, values in enumerate(itertools.product(*self.axes.values())):
            own = dict(zip(self.axes, values, strict=True))
            found.append(Point(i, f"{i:0{digits}d}", own, self.fixed | own))
        return found

    def asdict(self) -> dict[str, Any]:
        return {"axes": {name: list(values) for name, values in self.axes.items()}, "fixed": self.fixed}

    @classmethod
    def of(cls, axes: Mapping[str, Iterable[Any]], fixed: Mapping[str, Any]) -> Grid:
        """Return a grid from values of any type, which become texts; paths of model files become absolute."""
        made = {name: tuple(_text(name, v) for v in _listed(name, values)) for name, values in axes.items()}
        same = {name: _text(name, value) for name, value in fixed.items()}
        # A grid may be resumed from another folder, so the paths of files are made absolute.
        made |= {"problem": tuple(_placed(text) for text in made["problem"])} if "problem" in made else {}
        return cls(made, same | ({"problem": _placed(same["problem"])} if "problem" in same else {}))


def axis(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the name and the values of an axis from the text `name=values` of --grid."""
    name, equals, values = text.partition("=")
    if not (equals and name and values):
        raise InputError(f"--grid must be NAME=VALUES as seed=0:10 or kappa=0,.01, got {text!r}")
    return name.strip(), texts(values)


def texts(values: str) -> tuple[str, ...]:
    """Return the values of an axis from one text: a range, or values separated by semicolons or commas.

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


def _text(name: str, value: Any) -> str:
    try:
        return to_text(name, value)
    except InputError as e:
        raise InputError(f"grid {e}") from None


def _placed(problem: str) -> str:
    return os.path.abspath(problem) if is_model_file(problem) else problem


def _listed(name: str, values: Any) -> list[Any]:
    if isinstance(values, str):
        return list(texts(values))
    if not isinstance(values, Iterable):
        raise InputError(f"grid {name}: must be a list of values, got {values!r}")
    return list(values)


def from_toml(path: str) -> Grid:
    """Read a grid from a TOML file.

    Settings are at the top. The table [grid] holds the axes, each as a list or as a text in the form of --grid.
    """
    try:
        with open(path, "rb") as f:
            text = f.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise InputError(f"{path}: is too large for a grid")
        data = tomllib.loads(text.decode())
    except (OSError, UnicodeDecodeError) as e:
        raise InputError(f"{path}: cannot read: {getattr(e, 'strerror', None) or e}") from None
    except tomllib.TOMLDecodeError as e:
        raise InputError(f"{path}: is no TOML: {e}") from None
    except RecursionError:
        raise InputError(f"{path}: is no grid: its lists or tables nest too deep") from None
    axes = data.pop("grid", None)
    if not isinstance(axes, dict) or not axes:
        raise InputError(f"{path}: a table [grid] with the axes is missing")
    return Grid.of(axes, data)
