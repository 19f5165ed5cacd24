"""The table of a sweep's results, as CSV and JSON, with one row for each run of the grid that has ended."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from clearance.core.atomic_files import load_json, save_json
from clearance.core.csv_files import write_csv
from clearance.core.errors import InputError
from clearance.core.inside_folder import Inside
from clearance.runs import run_reader
from clearance.runs.certificate_check import check_certificate
from clearance.studies.sweep_grid import Grid, Point

SCHEMA = "clearance/table/1"
LARGEST = 2**26  # bytes: some 100 000 rows
# Columns after those of the axes; CSV has the numbers, JSON also the lists.
COLUMNS = ("status", "verdict", "J_r", "smallest_slack", "gap", "env_steps", "seconds", "message")


def row(out: Path, point: Point, status: str, message: str = "") -> dict[str, Any]:
    """Return the table row of a point that has ended with this status.

    If the status is "done", its numbers are read from its run folder, and its certificate is checked.
    """
    begin = {"point": point.number, "folder": point.name, **point.values, "status": status}
    if status != "done":
        return begin | {"message": message}
    found = run_reader.load(out / point.name)
    c = found.certificate
    if c is None:
        raise InputError(f"{found.folder}: has no certificate, though it is done; remove it and resume the grid")
    check_certificate(found)
    least = min(c.slack, default=None)
    numbers = {"J_r": c.J_r, "J_g": c.J_g, "slack": c.slack, "smallest_slack": least, "gap": c.gap}
    spent = {"env_steps": found.manifest["env_steps"], "seconds": found.manifest["seconds"]}
    return begin | {"verdict": c.verdict} | numbers | spent | {"message": c.message}


def kept(out: Path, points: list[Point], final: tuple[str, ...]) -> dict[int, dict[str, Any]]:
    """Return {index of the point: table row} for the points that were finished earlier and are not run again.

    If the run of a point is done, its row is read from the run folder. If not, its row in the old table is used,
    provided that the status in this row is in `final`.
    """
    rows = {i: r for i, r in _old(out).items() if r["status"] in final and r["status"] != "done" and i < len(points)}
    for point in points:
        with contextlib.suppress(InputError):  # none, damaged or half-written: it is run, or resumed
            if run_reader.load(out / point.name).status == "done":
                rows[point.number] = row(out, point, "done")
    return rows


def _old(out: Path) -> dict[int, dict[str, Any]]:
    """Return {index of the point: row} for the table on disk; {} if the table cannot be read.

    For points without a run folder, this table is the only record.
    """
    try:
        rows = load_json(Inside(out, "table.json"), SCHEMA, LARGEST)["rows"]
        return {int(r["point"]): r for r in rows if isinstance(r["status"], str)}
    except (InputError, KeyError, TypeError, ValueError):
        return {}


def write(out: Path, grid: Grid, rows: dict[int, dict[str, Any]]) -> None:
    ordered = [rows[i] for i in sorted(rows)]
    save_json(Inside(out, "table.json"), {"schema": SCHEMA, "points": len(grid), "rows": ordered})
    heads = ["point", "folder", *grid.axes, *COLUMNS]
    write_csv(Inside(out, "table.csv"), heads, ([row.get(head) for head in heads] for row in ordered))
