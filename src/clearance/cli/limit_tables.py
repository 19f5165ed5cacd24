"""Tables with one row per constraint. A cost is shown with its own sign: the value, an upper bound, the upper limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clearance.certificates.verdict_words import as_written
from clearance.core.errors import round_up
from clearance.core.labels import label
from clearance.core.text import visible

Table = tuple[list[str], list[list[str]]]  # heads and rows, for `layout.lay_out`


def table_of_signals(result: dict[str, Any], names: Sequence[str]) -> Table:
    """Return one row per constraint: its limit, and the range of its signal in one step."""
    rows = []
    for name, b, cost, ends in zip(names, result["b"], result["costs"], result["g_range"], strict=True):
        low, high = sorted(as_written(float(x), cost=cost) for x in ends)
        rows.append([visible(name), _cell("b", b, cost=cost), f"{low:.6g}", f"{high:.6g}"])
    return ["constraint", "limit", "smallest step", "largest step"], rows


def table_of_relaxations(result: dict[str, Any], names: Sequence[str]) -> Table:
    """Return one row per constraint: its limit, whether it is in conflict, and by how much to relax it alone."""
    rows = []
    for name, b, cost, amount in zip(names, result["b"], result["costs"], result["relax_each"], strict=True):
        enough = None if amount is None else round_up(amount)
        help = ("cannot help", "—") if enough is None else (f"{enough:.6g}", _cell("b", b - enough, cost=cost))
        rows.append([visible(name), _cell("b", b, cost=cost), "yes" if name in result["conflict"] else "no", *help])
    return ["constraint", "limit", "in conflict", "relax alone by", "relaxed limit"], rows


def table_of_limits(result: dict[str, Any], names: Sequence[str]) -> Table:
    """Return one row per constraint: value, bound, limit, slack, and price λ with exact evidence.

    Costs are shown as costs: the value, an upper bound, and the upper limit. With samples, λ is not shown: it is the
    learner's multiplier and not a price.
    """
    keys = ("J_g", "J_g_lower", "b", "slack", *(("lam",) if result.get("evidence") == "exact" else ()))
    known = [key for key in keys if result.get(key) is not None]
    costs = result.get("costs") or [False] * len(names)
    rows = []
    for name, cost, *row in zip(names, costs, *(result[key] for key in known), strict=True):
        rows.append([visible(name), *(_cell(key, v, cost=cost) for key, v in zip(known, row, strict=True))])
    return ["constraint", *(label(key) for key in known)], rows


def _cell(key: str, value: float | None, *, cost: bool) -> str:
    if value is None:
        return "—"
    if key in ("J_g", "J_g_lower", "b"):
        sign = "" if key != "b" else "≤ " if cost else "≥ "
        return f"{sign}{as_written(value, cost=cost):.6g}"
    return f"{value:.6g}"
