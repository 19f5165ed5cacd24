"""Parse the value of a setting from text, and write it back: used by the command line, by grids and by run folders.

Every parser takes a text and returns a value, or raises `InputError` with a message that begins with "must be"; the
caller puts the name of the setting in front.
"""

from __future__ import annotations

import contextlib
import math
import re
import string
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from clearance.core.errors import InputError
from clearance.core.tail_limits import Rule, parse_tail, tail_text
from clearance.core.text import suggest

Parser = Callable[[str], Any]
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}


def parse_whole(text: str) -> int:
    """Parse a whole number; an exponent is allowed, such as 1e3 or 2.5e6.

    >>> parse_whole("1e3"), parse_whole("-7")
    (1000, -7)
    """
    try:
        value = _with_exponent(text) if "e" in text.lower() else int(text)
    except ValueError:
        raise InputError(f"must be a whole number, got {text!r}") from None
    if not -(2**63) <= value < 2**63:  # the compiled kernels count in int64
        raise InputError(f"must be below 2**63 in size, got {text}")
    return value


def _with_exponent(text: str) -> int:
    """Parse a whole number with an exponent, such as 2.5e6, without rounding.

    If the absolute value is 2**64 or more, return 2**63 instead: the caller refuses both numbers as too large, and a
    text such as 1e999999999 is not expanded to its digits.
    """
    if not abs(float(text)) < 2.0**64:
        return 2**63  # which `parse_whole` refuses
    value = Decimal(text)
    if value != value.to_integral_value():
        raise ValueError
    return int(value)


def whole_between(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of whole numbers that raises InputError for numbers below `least` or above `most`."""

    def parse(text: str) -> int:
        value = parse_whole(text)
        if not least <= value <= most:
            raise InputError(f"must be in {least}..{most}, got {text}")
        return value

    return parse


def parse_real(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"must be a number, got {text!r}") from None
    if not math.isfinite(value):
        raise InputError(f"must be finite, got {text!r}")
    return value


def parse_non_negative(text: str) -> float:
    value = parse_real(text)
    if value < 0:
        raise InputError(f"must be ≥ 0, got {text}")
    return value


def parse_probability(text: str) -> float:
    value = parse_real(text)
    if not 0 < value < 1:
        raise InputError(f"must be in (0, 1), got {text}")
    return value


def parse_steps(text: str) -> float:
    """Parse a number of environment steps, such as 1e7."""
    value = parse_real(text)
    if value < 1:
        raise InputError(f"must be at least 1, got {text}")
    return value


def parse_budget(text: str) -> float | str:
    """Return a number of environment steps as a float, or a time as the text itself.

    >>> parse_budget("2e6"), parse_budget("10min")
    (2000000.0, '10min')
    """
    if seconds_of(text) is not None:
        return text
    try:
        return parse_steps(text)
    except InputError as e:
        raise InputError(f"{e}; or a time as 90s, 10min or 2h") from None


def seconds_of(text: str) -> float | None:
    """Return the seconds of a time such as 90s, 10m, 10min or 2h; None if the text is not a time.

    >>> seconds_of("10min"), seconds_of("1.5h"), seconds_of("1000")
    (600.0, 5400.0, None)
    """
    number = text.rstrip(string.ascii_letters)
    unit = UNITS.get(text[len(number) :])
    with contextlib.suppress(ValueError):
        if unit and 0 < float(number) < math.inf:
            return float(number) * unit
    return None


def parse_margin(text: str) -> float | tuple[float, ...] | str:
    """Parse the margin κ: "auto", one number, or one number for each constraint, separated by commas."""
    if text == "auto":
        return text
    first, *others = (parse_non_negative(part) for part in text.split(","))
    return (first, *others) if others else first


def parse_numbers(text: str) -> tuple[float, ...]:
    """Parse numbers separated by commas."""
    return tuple(parse_real(part) for part in text.split(","))


def parse_one_or_pair(text: str) -> float | tuple[float, float]:
    numbers = [parse_real(part) for part in text.split(",")]
    if len(numbers) > 2:
        raise InputError(f"must be one number, or two with a comma between them, got {text!r}")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def parse_pair(text: str) -> tuple[float, float]:
    numbers = parse_one_or_pair(text)
    if not isinstance(numbers, tuple):
        raise InputError(f"must be two numbers with a comma between them, got {text!r}")
    return numbers


def parse_limits(text: str) -> tuple[float, ...] | dict[str, Any]:
    """Parse the limits of constraints, in order or by name; P(…) and CVaR(…) limit single episodes.

    >>> parse_limits("8,3"), parse_limits("stockout=8,energy=3")
    ((8.0, 3.0), {'stockout': 8.0, 'energy': 3.0})
    >>> parse_limits("P(energy>40)<=0.05,heat=3")
    {'energy': Chance(above=40.0, at_most=0.05), 'heat': 3.0}
    """
    parts = text.split(",")
    _refuse_comparisons(parts)
    if "=" not in text and "(" not in text:
        with contextlib.suppress(InputError) if len(parts) == 1 else contextlib.nullcontext():  # one word: a name alone
            return tuple(parse_real(part) for part in parts)
    found: dict[str, Any] = {}
    for part in parts:
        tail = parse_tail(part)
        if tail is not None:
            found = join_limits(found, {tail[0]: tail[1]})
            continue
        name, equals, value = (x.strip() for x in part.rpartition("="))
        if not (equals and name) or name in found:
            raise InputError(f"must be NUMBER,… or NAME=NUMBER,… with each name once, got {text!r}")
        found[name] = parse_real(value)
    return found


# Finds limits such as energy<=70, which must be written as NAME=NUMBER or as a limit on single episodes.
COMPARISON = re.compile(r"(.+?)\s*(<=|>=|==|<|>|≤|≥|:)\s*([-+.\deE]+)\s*")


def _refuse_comparisons(parts: list[str]) -> None:
    """Raise InputError for limits that are written with a sign other than "=", and show the right form."""
    for part in parts:
        found = None if parse_tail(part) else COMPARISON.fullmatch(part.strip())
        if found is None:
            continue
        if found[1].startswith(("P(", "CVaR")):
            raise InputError(f"must be P(NAME>C)<=P or CVaR0.9(NAME)<=C for single episodes, got {part!r}")
        lower = found[2] in (">=", ">", "≥")
        given = f"{found[1]}={found[3]}"
        given = f'"{given}"' if " " in given else given
        right = f"--b {given} for a lower" if lower else f"--limit {given} for an upper"
        raise InputError(f"must be NAME=NUMBER: write {right} limit, got {part!r}")


def parse_costs(text: str) -> tuple[str, ...]:
    """Parse a list of costs NAME=info.PLACE, where PLACE is the place of the cost in a step's `info`.

    The default of NAME is the last part of PLACE.

    >>> parse_costs("info.stockout,waste=info.bin.thrown")
    ('stockout=info.stockout', 'waste=info.bin.thrown')
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, place = (x.strip() for x in part.rpartition("="))
        root, *keys = place.split(".")
        name = name if equals else keys[-1] if keys else ""
        if root != "info" or not name or not all(keys) or not keys or name in found:
            raise InputError(f"must be info.NAME,… or NAME=info.PLACE,… with each name once, got {text!r}")
        found[name] = place
    return tuple(f"{name}={place}" for name, place in found.items())


def join_limits(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Join two dicts of limits; a cost may have one limit on its mean and several on single episodes.

    >>> join_limits({"energy": 25.0}, parse_limits("P(energy>40)<=0.05"))
    {'energy': [25.0, Chance(above=40.0, at_most=0.05)]}
    """
    found = dict(first)
    for name, new in second.items():
        both = [*_each(found.get(name, [])), *_each(new)]
        if sum(isinstance(x, float) for x in both) > 1 or len(set(both)) < len(both):
            raise InputError(f"must be given once for each name, see {name!r}")
        found[name] = both[0] if len(both) == 1 else both
    return found


def _each(limits: Any) -> list[Any]:
    return limits if isinstance(limits, list) else [limits]


def parse_switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise InputError(f"must be true or false, got {text!r}")
    return text == "true"


def parse_text(text: str) -> str:
    if not text:
        raise InputError("must not be an empty text")
    return text


class OneOf:
    """A parser that accepts one of several words.

    If `code` is not empty, it also accepts a name `package.module:Name`; `code` describes this in the error message.
    """

    def __init__(self, *words: str, code: str = "") -> None:
        self.words, self.code = words, code

    def __call__(self, text: str) -> str:
        if text in self.words or (self.code and is_code(text)):
            return text
        also = f", or {self.code}" if self.code else ""
        near = suggest(text, self.words)
        raise InputError(f"must be one of {', '.join(self.words)}{also}, got {text!r}{near}")


def is_code(text: str) -> bool:
    """Return whether a text has the form `package.module:name`, which refers to Python code."""
    module, colon, name = text.partition(":")
    return bool(colon and module and name)


def to_text(name: str, value: Any) -> str:
    """Write the value of the setting `name` as text, in the form that the parsers accept.

    >>> to_text("kappa", (0.1, 0.2)), to_text("limits", {"heat": 3.0}), to_text("printed", True)
    ('0.1,0.2', 'heat=3.0', 'true')
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str | bool):
        return value if isinstance(value, str) else str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list) and value and all(isinstance(x, str) for x in value):
        return ",".join(value)
    if isinstance(value, Mapping) and value and all(isinstance(x, int | float | Rule | list) for x in value.values()):
        each = ((key, x) for key, given in value.items() for x in _each(given))
        return ",".join(tail_text(key, x) if isinstance(x, Rule) else f"{key}={x!r}" for key, x in each)
    if isinstance(value, tuple | list) and value and all(isinstance(x, int | float) for x in value):
        return ",".join(repr(x) for x in value)
    raise InputError(f"{name}: must be numbers or texts, got {value!r}")
