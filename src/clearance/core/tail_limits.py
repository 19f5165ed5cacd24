"""Limits on the distribution of an episode's cost C = Σ_t cost_t: on the chance of a large cost, or on the tail (CVaR).

    Chance(above=40, at_most=0.05)      P(C > 40) ≤ 0.05
    CVaR(level=0.9, at_most=12)         the mean of the worst 10 % of episodes is at most 12

Each of them is an ordinary limit on an expected value, E φ(C) ≤ at_most:

    chance    φ(C) = 1{C > c},                    c is `above`
    tail      φ(C) = ν + (C − ν)₊/(1 − α),        α is `level`, and CVaR_α = min over ν of E φ(C)

(Rockafellar and Uryasev 2000). So if some ν is fixed before a test, the test can prove CVaR ≤ at_most; but a single ν
can never prove that CVaR > at_most. Along an episode, φ is a sum of increments, one for each step. Samplers and tests
use these increments as the signal of the constraint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import read_number

USUAL = 0.9  # the default ν of a CVaR limit, as a share of the limit
KINDS = {"chance": ("above", "at_most"), "cvar": ("level", "at_most", "at")}
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
CHANCE = re.compile(rf"P\((.+?)>\s*({NUMBER})\s*\)\s*(?:<=|≤)\s*({NUMBER})")
TAIL = re.compile(rf"CVaR\s*({NUMBER})\s*\((.+?)\)\s*(?:<=|≤)\s*({NUMBER})(?:\s+at\s+({NUMBER}))?", re.IGNORECASE)

OF_CHANCE = re.compile(rf"P\((.+ > {NUMBER})\)")  # the names of these limits in a finite model
OF_TAIL = re.compile(rf"(CVaR{NUMBER}\((.+)\))(?: − ({NUMBER}))?")


@dataclass(frozen=True)
class Chance:
    """A limit on single episodes: the probability that an episode costs more than `above` is at most `at_most`.

    >>> Chance(above=40, at_most=0.05).words("energy")
    'P(energy > 40) ≤ 0.05'
    """

    above: float
    at_most: float

    def __post_init__(self) -> None:
        _keep_numbers(self, "above", "at_most")
        if not 0 <= self.at_most < 1:
            raise InputError(f"Chance: at_most is a probability of at least 0 and below 1, got {self.at_most:g}")

    offset, one_sided = 0.0, False

    @property
    def share(self) -> float:
        """The share of episodes that may exceed `above`, but at least 1e-9."""
        return max(self.at_most, 1e-9)

    def label(self, name: str) -> str:
        """Return the limited quantity of the cost `name` as a formula."""
        return f"P({name} > {self.above:g})"

    def words(self, name: str) -> str:
        return f"{self.label(name)} ≤ {self.at_most:g}"

    def explain(self, name: str) -> str:
        """Return a sentence that explains the limited quantity of the cost `name`."""
        return f"{self.label(name)} is the probability that the sum of {name} over one episode exceeds {self.above:g}"

    def value(self, C: Any, xp: Any, slip: float = 0.0) -> Any:
        """Return 1 where the episode cost C (any shape) exceeds `above`, else 0.

        xp    the array module of C: numpy or jax.numpy
        slip  relative rounding error: the result is 1 only if C exceeds `above` by more than slip · |above|
        """
        return xp.where(self.above + slip * abs(self.above) < C, 1.0, 0.0)

    def sum_range(self, low: float, high: float) -> tuple[float, float]:
        """Return the smallest and the largest φ(C): always (0, 1), since φ indicates whether C > `above`."""
        return 0.0, 1.0

    def step_range(self, low: float, high: float) -> tuple[float, float]:
        """Return the range of the change of φ = 1{C > above} in one step, where C is the cost so far.

        The cost of the step is between low and high.
        """
        return (0.0 if low >= 0 else -1.0), 1.0

    @property
    def scale(self) -> float:
        """The unit in which a policy sees the cost so far: |above|, or 1 if `above` is 0."""
        return abs(self.above) or 1.0


@dataclass(frozen=True)
class CVaR:
    """A limit on the worst episodes: the mean cost of the worst share 1 − `level` of episodes is at most `at_most`.

    at  ν, the threshold above which cost counts; by default it is chosen from earlier episodes. The test is valid for
        every ν, and most sensitive if ν is the quantile of the cost at `level`

    >>> CVaR(level=0.9, at_most=12).words("wear")
    'CVaR0.9(wear) ≤ 12'
    """

    level: float
    at_most: float
    at: float | None = None

    def __post_init__(self) -> None:
        _keep_numbers(self, "level", "at_most", *(() if self.at is None else ("at",)))
        if not 0 <= self.level < 1:
            raise InputError(f"CVaR: level is a probability of at least 0 and below 1, got {self.level:g}")

    one_sided = True  # with a single ν, samples cannot show that the limit is broken

    @property
    def nu(self) -> float:
        """The threshold ν above which cost counts: the user's value, or else `USUAL` times the limit."""
        return USUAL * self.at_most if self.at is None else self.at

    offset = nu

    @property
    def share(self) -> float:
        """The share 1 − `level` of episodes, the worst ones, over which CVaR averages."""
        return 1 - self.level

    def label(self, name: str) -> str:
        """Return the limited quantity of the cost `name` as a formula."""
        return f"CVaR{self.level:g}({name})"

    def words(self, name: str) -> str:
        return f"{self.label(name)} ≤ {self.at_most:g}"

    def explain(self, name: str) -> str:
        """Return a sentence that explains the limited quantity of the cost `name`."""
        worst = f"the worst {100 * (1 - self.level):.4g} % of episodes"
        return f"{self.label(name)} is the mean of the sum of {name} over {worst}"

    def value(self, C: Any, xp: Any, slip: float = 0.0) -> Any:
        """Return (C − ν)₊/(1 − level) for episode costs C: the limited quantity φ(C) without its constant term ν.

        The attribute `offset` holds ν. xp is the array module of C, numpy or jax.numpy; `slip` is not used.
        """
        return xp.maximum(C - self.nu, 0.0) / (1 - self.level)

    def sum_range(self, low: float, high: float) -> tuple[float, float]:
        """Return the range of φ(C) = ν + (C − ν)₊/(1 − level) over episodes whose cost C lies between low and high.

        ν is the attribute `nu`.
        """
        least, most = (self.nu + float(self.value(np.float64(x), np)) for x in (low, high))
        return least, most

    def step_range(self, low: float, high: float) -> tuple[float, float]:
        """Return the range of the change of φ in one step whose cost is between low and high."""
        return min(low, 0.0) / (1 - self.level), max(high, 0.0) / (1 - self.level)

    @property
    def scale(self) -> float:
        """The unit in which a policy sees the cost so far: |at_most|, or 1 if `at_most` is 0."""
        return abs(self.at_most) or 1.0


Rule = Chance | CVaR


class TailLimit(NamedTuple):
    """A `Chance` or `CVaR` limit (`rule`) on the cost named `cost`.

    low, high  bounds on an episode's φ, the quantity whose mean is limited
    """

    cost: str
    rule: Rule
    low: float = -np.inf
    high: float = np.inf

    @property
    def label(self) -> str:
        return self.rule.label(self.cost)

    @property
    def start(self) -> float:
        """The value of φ, the quantity whose mean is limited, before the first step, when the cost is 0."""
        return self.rule.offset + float(self.rule.value(np.float64(0.0), np))


# ---------------------------------------------------------------------------------------------------- as users write it


def split_limits(limits: Mapping[str, Any]) -> list[tuple[str, float | Rule]]:
    """Return one pair (cost, limit) for each limit; a cost may have several limits: {"energy": [25.0, Chance(…)]}.

    >>> split_limits({"energy": [25, Chance(40, 0.05)], "heat": 3.0})
    [('energy', 25.0), ('energy', Chance(above=40.0, at_most=0.05)), ('heat', 3.0)]
    """
    found: list[tuple[str, float | Rule]] = []
    for name, given in limits.items():
        for one in given if isinstance(given, list | tuple) else [given]:
            found.append((str(name), one if isinstance(one, Rule) else read_number(f"limits[{name!r}]", one)))
    return found


def name_of_tail(name: str) -> tuple[str, float, str] | None:
    """Return (limited quantity, ν or 0, event) if `name` is that of a limit on single episodes in a finite model.

    Such a model limits CVaR − ν; the event is that an episode costs more than the threshold.

    >>> name_of_tail("CVaR0.9(wear) − 4"), name_of_tail("P(wear > 2)")
    (('CVaR0.9(wear)', 4.0, 'wear > 4'), ('P(wear > 2)', 0.0, 'wear > 2'))
    """
    if chance := OF_CHANCE.fullmatch(name):
        return name, 0.0, chance[1]
    tail = OF_TAIL.fullmatch(name)
    return None if tail is None else (tail[1], float(tail[3] or 0), f"{tail[2]} > {tail[3] or 0}")


def has_tails(limits: Any) -> bool:
    """Return whether the user's limits contain a `Chance` or a `CVaR`, or several limits on the same cost."""
    if isinstance(limits, Rule):
        return True
    values = limits.values() if isinstance(limits, Mapping) else limits if isinstance(limits, list | tuple) else ()
    return any(isinstance(x, Rule | list | tuple) for x in values)


def plain_limits(limits: Any) -> Any:
    """Return limits of 0 for the same costs, in the same form (dict, list or number) as `limits`.

    They are placeholders: the problem is first stated with these, and `Chance` and `CVaR` limits are added later.
    """
    if isinstance(limits, Mapping):
        return dict.fromkeys(limits, 0.0)
    return 0.0 if isinstance(limits, Rule) else [0.0] * len(limits)


def parse_tail(text: str) -> tuple[str, Rule] | None:
    """Return (cost, limit) from the text of a `Chance` or `CVaR` limit; None if the text is neither.

    >>> parse_tail("P(energy>40)<=0.05")
    ('energy', Chance(above=40.0, at_most=0.05))
    >>> parse_tail("CVaR0.9(wear) <= 12 at 8")
    ('wear', CVaR(level=0.9, at_most=12.0, at=8.0))
    """
    chance, tail = CHANCE.fullmatch(text.strip()), TAIL.fullmatch(text.strip())
    if chance:
        return chance[1].strip(), Chance(float(chance[2]), float(chance[3]))
    if tail:
        return tail[2].strip(), CVaR(float(tail[1]), float(tail[3]), None if tail[4] is None else float(tail[4]))
    return None


def tail_text(name: str, rule: Rule) -> str:
    """Return the limit `rule` on the cost `name` as text in the form that `parse_tail` reads."""
    if isinstance(rule, Chance):
        return f"P({name}>{rule.above!r})<={rule.at_most!r}"
    return f"CVaR{rule.level!r}({name})<={rule.at_most!r}" + ("" if rule.at is None else f" at {rule.at!r}")


# ---------------------------------------------------------------------------------------------------- plain data


def describe_tail(tail: TailLimit | None) -> dict[str, Any] | None:
    """Return the limit as JSON data; None if `tail` is None."""
    if tail is None:
        return None
    kind = "chance" if isinstance(tail.rule, Chance) else "cvar"
    rule = {field: getattr(tail.rule, field) for field in KINDS[kind]}
    return {"cost": tail.cost, "kind": kind, **rule, "low": tail.low, "high": tail.high}


def restore_tail(data: Any) -> TailLimit | None:
    """Return the limit from JSON data that `describe_tail` returned; a bound of null becomes infinite."""
    if data is None:
        return None
    if not isinstance(data, Mapping) or data.get("kind") not in KINDS or not isinstance(data.get("cost"), str):
        raise InputError(f"tails: an entry must be null, or have cost and kind (chance, cvar), got {data!r:.60}")
    fields: dict[str, Any] = {name: data.get(name) for name in KINDS[data["kind"]]}
    rule: Rule = Chance(**fields) if data["kind"] == "chance" else CVaR(**fields)
    low, high = data.get("low"), data.get("high")
    ends = -np.inf if low is None else read_number("low", low), np.inf if high is None else read_number("high", high)
    return TailLimit(data["cost"], rule, *ends)


def tail_offsets(tails: tuple[TailLimit | None, ...]) -> Array:
    """Return the constants [1+I] to add to the summed signals of an episode.

    For a `Chance` or `CVaR` limit, the constant is −φ(0), where φ(C) is the quantity whose mean is limited and C is the
    episode's cost. For the reward and for limits on means (None in `tails`), the constant is 0.
    """
    return np.array([0.0, *(0.0 if tail is None else -tail.start for tail in tails)])


def at_nu(tail: TailLimit, nu: float, low: float, high: float) -> TailLimit:
    """Return the same CVaR limit with `nu` as its threshold ν, above which cost counts.

    An episode's cost is between low and high; this determines the bounds of the new limit.
    """
    assert isinstance(tail.rule, CVaR)
    rule = replace(tail.rule, at=float(nu))
    return TailLimit(tail.cost, rule, *rule.sum_range(low, high))


def _keep_numbers(of: Any, *names: str) -> None:
    for name in names:
        object.__setattr__(of, name, read_number(f"{type(of).__name__}: {name}", getattr(of, name)))
        if not np.isfinite(getattr(of, name)):
            raise InputError(f"{type(of).__name__}: {name} must be finite, got {getattr(of, name)!r}")
