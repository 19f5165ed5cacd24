"""The criterion of a problem, which defines J. It is read here from the user's arguments and put into words.

    discounted   J = E Σ_t γ^t h_t
    average      J = lim 1/T E Σ_{t<T} h_t                 the long-run mean per step
    total        J = E Σ_t h_t                             undiscounted, until absorption
    horizon H    J = E Σ_{t<H} γ^t h_t                     the first H steps; γ = 1 unless given

All signals of a problem have the same criterion, since with different criteria there may be no best policy. An example
is a discounted reward under a limit on the long-run mean. Acting greedily for more steps before meeting the limit
always gives more reward, and the long-run mean stays the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple

from clearance.core.errors import InputError

DISCOUNTED, AVERAGE, TOTAL = "discounted", "average", "total"
CRITERIA = (DISCOUNTED, AVERAGE, TOTAL)
CHOICES = (
    "gamma below 1 for a discounted sum, criterion='average' for the long-run mean per step, criterion='total' for the "
    "sum until absorption, or horizon=H for the first H steps"
)


class Criterion(NamedTuple):
    """The criterion that all signals of a problem share; gamma is 1 if nothing is discounted."""

    name: str
    gamma: float
    horizon: int | None

    @property
    def kind(self) -> str:
        """The formula that defines J: "discounted", "average", "total" or "horizon"."""
        return self.name if self.horizon is None else "horizon"

    @property
    def length(self) -> float:
        """The sum of the weights of all steps; |J| is at most this sum times the largest |signal| of a step.

        For "total" the result is 1, since the number of steps is not known.
        """
        if self.horizon is None:
            return 1 / (1 - self.gamma) if self.name == DISCOUNTED else 1.0
        return float(self.horizon) if self.gamma == 1 else (1 - self.gamma**self.horizon) / (1 - self.gamma)


def read_criterion(criterion: Any, gamma: Any, horizon: Any, signals: Sequence[str] = ()) -> Criterion:
    """Return the criterion that the user's arguments describe.

    criterion  one name, a list with a name for each signal, a dict by signal, or None
    signals    the names of the reward and the constraints

    >>> read_criterion(None, 0.9, None)
    Criterion(name='discounted', gamma=0.9, horizon=None)
    """
    from clearance.core.validation import read_number  # imported here: the rest of the module needs no NumPy

    name, H = _one_name(criterion, signals), check_horizon(horizon)
    discount = None if gamma is None else read_number("gamma", gamma)
    if discount is not None and not 0 < discount <= 1:
        raise InputError(f"gamma must be in (0, 1), got {discount:.12g}")
    if H is not None:
        if name == AVERAGE:
            raise InputError(
                "criterion 'average' has no horizon: the mean of H steps is their sum over H; leave it out"
            )
        if name == DISCOUNTED and discount is None:
            raise InputError("gamma is missing: criterion 'discounted' needs it, also within a horizon")
        one = 1.0 if discount is None else discount
        return Criterion(TOTAL if one == 1 else DISCOUNTED, one, H)
    if name in (AVERAGE, TOTAL):
        if discount not in (None, 1.0):
            raise InputError(f"criterion {name!r} discounts nothing: leave out gamma = {discount:g}")
        return Criterion(name, 1.0, None)
    if discount is None:
        raise InputError(f"gamma is missing: give {CHOICES}")
    if discount == 1:
        raise InputError(f"gamma must be in (0, 1), got 1: an undiscounted sum without end is infinite. Give {CHOICES}")
    return Criterion(DISCOUNTED, discount, None)


def check_sampled(criterion: Any) -> None:
    """Raise InputError if the criterion is unknown, or is "average", which samples of a simulator cannot certify."""
    if criterion == AVERAGE:
        why = "no number of steps bounds what comes after them"
        raise InputError(f"criterion 'average' cannot be certified from samples, since {why}: give horizon=H steps")
    if criterion not in (None, DISCOUNTED, TOTAL):
        raise InputError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}")


def _one_name(criterion: Any, signals: Sequence[str]) -> str | None:
    """Return the name of the criterion that all signals share; None if the user gave no criterion.

    `criterion` is one name, a list with one name for each signal, or a dict by signal. Raise InputError if the names
    differ or are unknown.
    """
    if criterion is None or isinstance(criterion, str):
        given = [criterion]
    elif isinstance(criterion, Mapping):
        unknown = [name for name in criterion if name not in signals]
        if unknown:
            raise InputError(f"criterion names {unknown[0]!r}; the signals are {', '.join(signals)}")
        given = [criterion.get(name, DISCOUNTED) for name in signals]
    else:
        given = [str(name) for name in criterion]
        if signals and len(given) != len(signals):
            raise InputError(
                f"criterion has {len(given)} entries for {len(signals)} signals, reward first; give one each"
            )
    for name in given:
        if name is not None and name not in CRITERIA:
            raise InputError(f"criterion must be one of {', '.join(CRITERIA)}, got {name!r}")
    if len(set(given)) > 1:
        first, other = sorted(set(map(str, given)))[:2]
        raise InputError(
            f"criterion mixes {first!r} and {other!r}, for which no best policy exists: one would act greedily ever "
            "longer and then switch. Give one criterion to all signals, or a horizon"
        )
    return None if given[0] is None else str(given[0])


def check_horizon(H: Any) -> int | None:
    if H is None:
        return None
    if isinstance(H, bool) or not isinstance(H, Integral) or H < 1:
        raise InputError(f"horizon must be a whole number of at least 1, or None, got {H!r}")
    return int(H)


def sum_words(c: Criterion, of: str = "each cost or utility") -> str:
    """Return in words which quantity the criterion defines, such as "long-run mean of each cost or utility per step".

    of  the signal that is summed
    """
    discount = "" if c.gamma == 1 else f" (gamma = {c.gamma:.12g})"
    return {
        "discounted": f"expected discounted sum of {of} (gamma = {c.gamma:.12g}, infinite horizon)",
        "average": f"long-run mean of {of} per step",
        "total": f"expected undiscounted sum of {of} until absorption",
        "horizon": f"expected sum of {of} over one episode of at most {c.horizon} steps{discount}",
    }[c.kind]


def short_words(c: Criterion) -> str:
    """Return the criterion c in a few words, for the first line of a problem's description."""
    if c.horizon is not None:
        return f"horizon = {c.horizon:,}" + ("" if c.gamma == 1 else f", gamma = {c.gamma:.12g}")
    return f"gamma = {c.gamma:.12g}" if c.name == DISCOUNTED else f"criterion: {c.name}"
