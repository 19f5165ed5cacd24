"""Explain the price λ of a limit in one sentence. All commands and reports use the same sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from clearance.core.errors import round_up

# The definition of λ. The best reward is a concave function of each limit, and λ is minus its slope.
PRICE = "at the margin, tightening this limit by one unit costs at least λ reward; loosening it gains at most λ"


def price_words(
    name: str, lam: float, *, cost: bool, ends: tuple[float, float] | None = None, strictest: bool = False
) -> str:
    """Return a sentence that explains the price λ (`lam`) of one limit.

    To tighten the limit of a cost means to lower it; to tighten the limit of a utility means to raise it.

    ends       lower and upper bound of every optimal λ, if λ is known only up to some accuracy
    strictest  whether no stricter limit can be met at all (`cannot_tighten`): then only the other direction has a price

    >>> price_words("waiting", 2.5, cost=True)
    'waiting: at the margin, lowering this limit by one unit costs at least 2.5 reward; raising it gains at most 2.5.'
    """
    tighten, loosen = ("lowering", "raising") if cost else ("raising", "lowering")
    if lam == 0:
        return f"{name}: this limit costs nothing; {loosen} it gains no reward."
    least, most = (lam, lam) if ends is None else (-round_up(-ends[0], 4), ends[1])
    most = most if ends is None or math.isinf(most) else round_up(most, 4)
    gains = f"gains at most {most:.4g}" if math.isfinite(most) else "may gain any reward"
    if strictest:
        return f"{name}: at the margin, {loosen} this limit by one unit {gains}."
    costs = f"{tighten} this limit by one unit costs at least {least:.4g} reward"
    return f"{name}: at the margin, {costs}; {loosen} it {gains}."


def cannot_tighten(said: Mapping[str, Any], i: int) -> bool:
    """Return whether the limit of cost i is 0, as is the cost itself, without any error: no policy can cost less.

    Values without any rounding come from a proof by what is possible, and it is for costs that are never negative.
    `said` is a result as a dict, such as `Certificate.asdict()`.
    """
    values = said.get("J_g"), said.get("J_g_lower"), said.get("b")
    return all(v is not None and float(v[i]) == 0 for v in values)


def prices(said: Mapping[str, Any]) -> Sequence[float] | None:
    """Return the prices of the limits; None if they are not known.

    `said` is a result as a dict, such as `Certificate.asdict()`. Multipliers are prices only if there is also an upper
    bound on the optimum; the multipliers of a learner are not.
    """
    learned = said.get("evidence") == "samples" or ("bound" in said and said["bound"] is None)
    return None if learned else said.get("lam")


def prices_in_words(said: Mapping[str, Any]) -> list[str]:
    """Return one sentence on the price of each limit; an empty list if the prices are not exact.

    `said` is a result as a dict, such as `Certificate.asdict()`.
    """
    lam = prices(said)
    if lam is None or said.get("evidence") != "exact":
        return []
    ends = said.get("lam_range")
    ranges = [None] * len(lam) if ends is None else [(float(low), float(high)) for low, high in zip(*ends, strict=True)]
    rows = zip(said["names"], lam, said["costs"], ranges, strict=True)
    return [
        price_words(name, float(price), cost=bool(cost), ends=ends, strictest=bool(cost) and cannot_tighten(said, i))
        for i, (name, price, cost, ends) in enumerate(rows)
    ]
