"""The price λ of a limit in one sentence, the same wherever λ is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# The one meaning of λ. The best reward is a concave function of each limit, and λ is minus its slope.
PRICE = "at the margin, tightening this limit by one unit costs at least λ reward; loosening it gains at most λ"


def price_words(name: str, lam: float, *, cost: bool) -> str:
    """Return a sentence that explains λ for one limit.

    Tightening means lowering the limit of a cost, raising that of a utility.

    >>> price_words("waiting", 2.5, cost=True)
    'waiting: at the margin, lowering this limit by one unit costs at least 2.5 reward; raising it gains at most 2.5.'
    """
    tighten, loosen = ("lowering", "raising") if cost else ("raising", "lowering")
    if lam == 0:
        return f"{name}: this limit costs nothing; {loosen} it gains no reward."
    price = f"{lam:.4g}"
    return (
        f"{name}: at the margin, {tighten} this limit by one unit costs at least {price} reward; "
        f"{loosen} it gains at most {price}."
    )


def prices(said: Mapping[str, Any]) -> Sequence[float] | None:
    """Return the price of each limit; None where the multipliers are those of a learner, which are not prices.

    They are prices where an upper bound on the optimum is known with them.
    """
    learned = said.get("evidence") == "samples" or ("bound" in said and said["bound"] is None)
    return None if learned else said.get("lam")


def prices_in_words(said: Mapping[str, Any]) -> list[str]:
    """Return one sentence per limit of an answer; an empty list if the multipliers are not those of the optimum."""
    lam = prices(said)
    if lam is None or said.get("evidence") != "exact":
        return []
    rows = zip(said["names"], lam, said["costs"], strict=True)
    return [price_words(name, float(price), cost=bool(cost)) for name, price, cost in rows]
