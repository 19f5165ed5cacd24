"""Print tables about many runs: frontiers, sweeps, comparisons and reproductions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearance.certificates.verdict_words import as_written
from clearance.cli import layout, tables
from clearance.core.text import visible

if TYPE_CHECKING:
    from clearance.studies.frontier import Frontier
    from clearance.studies.reproduce import Study


def frontier(curve: Frontier, title: str, message: str) -> None:
    """Print a frontier as a table, and its learned points as a second table; costs have the user's sign."""
    limit = "kappa" if curve.over == "kappa" else "limit ≤" if curve.cost else "limit ≥"
    points = zip(curve.limit, curve.J_r, curve.paid, curve.lam, strict=True)
    rows = [[f"{float(x):.6g}" for x in point] for point in points]
    curved = layout.lay_out([limit, "reward J_r", "given up so far", "price λ"], rows, tables.page_width())
    found = []
    for p in curve.learned:
        values = (f"{as_written(x, cost=cost):.6g}" for x, cost in zip(p.J_g, curve.costs, strict=True))
        found.append([f"{as_written(p.b, cost=curve.cost):.6g}", f"{p.J_r:.6g}", *values, p.verdict])
    heads = ["learned at", "reward J_r", *map(visible, curve.names), "verdict"]
    learned = layout.lay_out(heads, found, tables.page_width()) if found else []
    tables.show_page([title], tables.Lines(curved), tables.Lines(learned), [message])


def grid(titled: list[tuple[str, list[dict[str, Any]]]], shown: dict[str, str], lines: list[str]) -> None:
    """Print several tables with the same columns, and lines of text below them.

    titled  (title, rows) of each table;  shown: {head of a column: format string of its cells}
    """
    blocks: list[Sequence[str]] = []
    for title, rows in titled:
        cells = [[form.format_map(row) for form in shown.values()] for row in rows]
        blocks += [[title], tables.Lines(layout.lay_out(list(shown), cells, tables.page_width()))]
    tables.show_page(*blocks, lines)


def study(study: Study, paths: list[Path]) -> None:
    """Print the table of a reproduction, the finding about the margin κ, and the paths of the written files."""
    columns = study.table() + study.published_columns()
    rows = []
    for c in columns:
        rows.append(
            [str(c["setting"]), *(form.format(c[key]) if key in c else "–" for key, form in STUDY_ROWS.items())]
        )
    optimum = f"{study.class_optimum:.4f} in the class, {study.optimum:.4f} of all policies"
    tables.show_page(
        ["Bai, Bedi, Aggarwal 2023 on its own instance"],
        tables.Lines(layout.lay_out(["setting", *STUDY_ROWS], rows, tables.page_width())),
        [
            "± is one standard error over seeds; averages are over iterates, as in the paper.",
            f"Optimum with J_g ≥ 0: {optimum}.",
            study.finding(),
            f"{study.seconds:.0f} s. Written:",
        ],
        tables.Lines(f"  {p}" for p in paths),
    )


STUDY_ROWS = {
    "average J_r": "{:.3f}",
    "± J_r": "{:.3f}",
    "average J_g": "{:+.4f}",
    "± J_g": "{:.4f}",
    "last J_r": "{:.3f}",
    "last J_g": "{:+.4f}",
    "feasible iterates": "{:.0%}",
    "runs, avg J_g ≥ 0": "{:.0%}",
    "last λ": "{:.2f}",
    "of class optimum": "{:.1%}",
    "env steps": "{:.3g}",
    "seconds": "{:.2f}",
}
