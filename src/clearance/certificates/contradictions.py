"""Find numbers of a certificate that contradict each other, as when a file was altered together with its hashes.

Every result of `build_certificate` passes these checks, so a certificate that fails was not computed by this library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from clearance.certificates.certificate import Certificate

# The largest difference, relative to size, that rounding may cause between two ways to compute the same number.
ROUNDING = 1e-9


def find_contradiction(said: Certificate) -> str | None:
    """Return a text about the first field of a certificate that contradicts other fields; None if there is none."""
    return next((f"{field} {what}" for rule in RULES for field, what in rule(said)), None)


def nearly(x: float, y: float, size: float = 0.0) -> bool:
    """Return whether x and y are equal up to rounding, relative to their size or, if larger, to `size`.

    Two numbers that are not finite count as equal.
    """
    if not (math.isfinite(x) and math.isfinite(y)):
        return math.isfinite(x) == math.isfinite(y)
    return abs(x - y) <= ROUNDING * max(abs(x), abs(y), size, 1e-300)


def at_most(x: float, y: float) -> bool:
    """Return whether x ≤ y up to rounding; true if x or y is NaN, which stands for an unknown number."""
    return not x > y or nearly(x, y)


def _values(said: Certificate) -> Iterator[tuple[str, str]]:
    for i, (J, b, slack) in enumerate(zip(said.J_g, said.b, said.slack, strict=True)):
        if not nearly(slack, J - b, max(abs(J), abs(b))):
            yield "slack", f"of limit {i} is {slack:.6g}, but J_g − b is {J - b:.6g}"
    for i, (J, low, high) in enumerate(zip(_J(said), said.J_lower, said.J_upper, strict=True)):
        if not at_most(low, J):
            yield "J_lower", f"of {_signal(i)} is {low:.6g}, above its value {J:.6g}"
        if not at_most(J, high):
            yield "J_upper", f"of {_signal(i)} is {high:.6g}, below its value {J:.6g}"
    for i, (low, J, high) in enumerate(zip(*_interval(said), strict=True)):
        if not (at_most(low, J) and at_most(J, high)):
            yield "interval", f"of {_signal(i)} is {low:.6g} .. {high:.6g}, without its value {J:.6g}"


def _verdict(said: Certificate) -> Iterator[tuple[str, str]]:
    """Yield (field, contradiction) if the verdict contradicts the bounds of the certificate `said`.

    The bounds are compared exactly. The verdict UNDECIDED claims nothing, so it always agrees.
    """
    low, high = said.J_lower[1:], said.J_upper[1:]
    if said.verdict == "CERTIFIED":
        for i, (x, b) in enumerate(zip(low, said.b, strict=True)):
            if not x >= b:
                yield "verdict", f"is CERTIFIED, but the lower bound {x:.6g} of limit {i} is below b = {b:.6g}"
    elif said.verdict == "VIOLATED" and not any(x <= b for x, b in zip(high, said.b, strict=True)):
        yield "verdict", "is VIOLATED, but every upper bound is above its limit b"


def _optimum(said: Certificate) -> Iterator[tuple[str, str]]:
    if said.evidence == "samples" and said.bound is not None:
        yield "bound", f"is {said.bound:.6g}, but samples prove none"
    if said.bound is None:
        if said.gap is not None:
            yield "gap", f"is {said.gap:.6g} without a bound"
        return
    if said.gap is not None and not nearly(said.gap, said.bound - said.J_r, max(abs(said.bound), abs(said.J_r))):
        yield "gap", f"is {said.gap:.6g}, but bound − J_r is {said.bound - said.J_r:.6g}"
    if said.verdict == "CERTIFIED" and not at_most(said.J_r, said.bound):
        yield "bound", f"on every policy that meets the limits is {said.bound:.6g}, this one has J_r = {said.J_r:.6g}"


def _prices(said: Certificate) -> Iterator[tuple[str, str]]:
    if min(said.lam or (), default=0.0) < 0:
        yield "lam", "has a negative number"
    for i, (x, lam, slack) in enumerate(zip(*_products(said), strict=True)):
        if not nearly(x, lam * slack, abs(lam) * max(abs(said.b[i]), abs(slack))):
            yield "complementarity", f"of limit {i} is {x:.6g}, but λ · slack is {lam * slack:.6g}"


def _components(said: Certificate) -> Iterator[tuple[str, str]]:
    worst, least = said.worst_component_slack, min(said.slack, default=math.inf)
    if worst is not None and not at_most(worst, least + ROUNDING * max(map(abs, said.b), default=0.0)):
        yield "worst_component_slack", f"is {worst:.6g}, more than the slack {least:.6g} of the whole"


def _levels(said: Certificate) -> Iterator[tuple[str, str]]:
    if said.evidence == "samples" and not (said.delta is not None and 0 < said.delta < 1):
        yield "delta", f"is {said.delta}; evidence from samples has one between 0 and 1"
    if said.evidence == "exact" and said.delta is not None:
        yield "delta", f"is {said.delta:.6g}, but exact evidence is a proof and has none"
    if said.level is not None and not (said.delta is not None and said.level > 0 and at_most(said.level, said.delta)):
        yield "level", f"is {said.level:.6g}, not between 0 and delta = {said.delta}"
    if said.spent is not None and not (said.level is not None and at_most(said.level, said.spent) and said.spent < 1):
        yield "spent", f"is {said.spent:.6g}, not between level = {said.level} and 1"


RULES: Sequence[Callable[[Certificate], Iterator[tuple[str, str]]]]
RULES = (_values, _verdict, _optimum, _prices, _components, _levels)


def _J(said: Certificate) -> list[float]:
    return [said.J_r, *said.J_g]


def _interval(said: Certificate) -> tuple[list[float], list[float], list[float]]:
    return ([], [], []) if said.interval is None else (said.interval[0], _J(said), said.interval[1])


def _products(said: Certificate) -> tuple[list[float], list[float], list[float]]:
    known = said.complementarity is not None and said.lam is not None
    return (said.complementarity or [], said.lam or [], said.slack) if known else ([], [], [])


def _signal(i: int) -> str:
    return "the reward" if i == 0 else f"limit {i - 1}"
