"""Tables with one row per constraint. A cost is shown as a cost: its value, an upper bound of it, its upper limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clearance.certificates.verdict_words import as_written
from clearance.core.errors import round_up
from clearance.core.text import visible


def table_of_signals(result: dict[str, Any], names: Sequence[str]) -> Any:
    """One row per constraint: its limit, and the range of its signal in one step."""
    from rich.table import Table
    from rich.text import Text

    table = Table("constraint", "limit", "smallest step", "largest step", box=None, padding=(0, 2, 0, 0))
    for name, b, cost, ends in zip(names, result["b"], result["costs"], result["g_range"], strict=True):
        low, high = sorted(as_written(float(x), cost=cost) for x in ends)
        table.add_row(Text(visible(name)), _cell("b", b, cost=cost), f"{low:.6g}", f"{high:.6g}")
    return table


def table_of_relaxations(result: dict[str, Any], names: Sequence[str]) -> Any:
    """One row per constraint: its limit, whether it stands in the conflict, and how far it alone would have to give."""
    from rich.table import Table
    from rich.text import Text

    heads = ("constraint", "limit", "in conflict", "relax alone by", "to")
    table = Table(*heads, box=None, padding=(0, 2, 0, 0))
    rows = zip(names, result["b"], result["costs"], result["relax_each"], strict=True)
    for name, b, cost, amount in rows:
        enough = None if amount is None else round_up(amount)
        help = ("cannot help", "—") if enough is None else (f"{enough:.6g}", _cell("b", b - enough, cost=cost))
        within = "yes" if name in result["conflict"] else "no"
        table.add_row(Text(visible(name)), _cell("b", b, cost=cost), within, *help)
    return table


def table_of_limits(result: dict[str, Any], names: Sequence[str]) -> Any:
    """One row per constraint: the value, its bound, the limit, the slack, and what the limit costs.

    A cost is shown as a cost: its value, an upper bound of it, and its upper limit.
    """
    from rich.table import Table
    from rich.text import Text

    heads = {"J_g": "value", "J_g_lower": "at worst", "b": "limit", "slack": "slack"}
    heads |= {"lam": "λ: price", "complementarity": "λ·slack"}
    known = [key for key in heads if result.get(key) is not None]
    table = Table("constraint", *(heads[key] for key in known), box=None, padding=(0, 2, 0, 0))
    costs = result.get("costs") or [False] * len(names)
    for name, cost, *row in zip(names, costs, *(result[key] for key in known), strict=True):
        table.add_row(Text(visible(name)), *(_cell(key, v, cost=cost) for key, v in zip(known, row, strict=True)))
    return table


def _cell(key: str, value: float | None, *, cost: bool) -> str:
    if value is None:
        return "—"
    if key in ("J_g", "J_g_lower", "b"):
        sign = "" if key != "b" else "≤ " if cost else "≥ "
        return f"{sign}{as_written(value, cost=cost):.6g}"
    return f"{value:.6g}"
