"""Tables with one row per constraint.

A cost is shown with the sign that the user wrote: its value, an upper bound and the upper limit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from clearance.certificates.verdict_words import as_written
from clearance.core.errors import relaxed_limit, round_up
from clearance.core.labels import label
from clearance.core.text import visible

Table = tuple[list[str], list[list[str]]]  # heads and rows, for `layout.lay_out`


def table_of_signals(result: dict[str, Any], names: Sequence[str]) -> Table:
    """Return a table with one row per constraint: its limit, and the range of its signal in one step.

    `result` holds the fields of a command's answer.
    """
    rows = []
    for name, b, cost, ends in zip(names, result["b"], result["costs"], result["g_range"], strict=True):
        low, high = sorted(as_written(float(x), cost=cost) for x in ends)
        rows.append([visible(name), _cell("b", b, cost=cost), f"{low:.6g}", f"{high:.6g}"])
    return ["constraint", "limit", "smallest step", "largest step"], rows


def table_of_relaxations(result: dict[str, Any], names: Sequence[str]) -> Table:
    """Return a table with one row per constraint: its limit, whether it is in conflict, and how far to relax it alone.

    `result` holds the fields of a command's answer. If relaxing one limit alone never helps, the last column has limits
    that can be met together.
    """
    together = result.get("relax_together")
    rows = []
    for i, (name, b, cost) in enumerate(zip(names, result["b"], result["costs"], strict=True)):
        amount = result["relax_each"][i] if together is None else together[i]
        alone = "cannot help" if result["relax_each"][i] is None else f"{round_up(amount):.6g}"
        relaxed = "—" if amount is None else _cell("b", relaxed_limit(b, amount), cost=cost)
        conflict = "yes" if name in result["conflict"] else "no"
        rows.append([visible(name), _cell("b", b, cost=cost), conflict, alone, relaxed])
    last = "relaxed limit" if together is None else "met together"
    return ["constraint", "limit", "in conflict", "relax alone by", last], rows


def table_of_limits(result: dict[str, Any], names: Sequence[str]) -> Table:
    """Return a table with one row per constraint: value, bound, limit, slack and, with exact evidence, the price λ.

    A cost is shown as a cost: its value, an upper bound, and the upper limit. With samples λ is not shown, since it is
    the learner's multiplier and not a price. `result` holds the fields of a command's answer.
    """
    keys = ("J_g", "J_g_lower", "b", "slack", *(("lam",) if result.get("evidence") == "exact" else ()))
    known = [key for key in keys if result.get(key) is not None]
    costs = result.get("costs") or [False] * len(names)
    rows = []
    for name, cost, *row in zip(names, costs, *(result[key] for key in known), strict=True):
        rows.append([visible(name), *(_cell(key, v, cost=cost) for key, v in zip(known, row, strict=True))])
    if "lam" in known and result.get("lam_range") is not None:
        for cells, *price in zip(rows, result["lam"], *result["lam_range"], strict=True):
            cells[-1] = _price(*price)
    return ["constraint", *(label(key) for key in known)], rows


def _price(lam: float, low: float, high: float) -> str:
    """Return a multiplier λ as text with six digits, such as "1.25 ± 0.003".

    The error, from the bounds `low` and `high` of λ, is left out if it does not change the six digits or is infinite.
    """
    off = max(high - lam, lam - low)
    return f"{lam:.6g}" if off <= 5e-7 * lam or not math.isfinite(off) else f"{lam:.6g} ± {round_up(off, 1):.1g}"


def _cell(key: str, value: float | None, *, cost: bool) -> str:
    if value is None:
        return "—"
    if key in ("J_g", "J_g_lower", "b"):
        sign = "" if key != "b" else "≤ " if cost else "≥ "
        seen = 0.0 if abs(value) < sys.float_info.min else value  # bounds of 0 are off by a subnormal number
        return f"{sign}{as_written(seen, cost=cost):.6g}"
    return f"{value:.6g}"
