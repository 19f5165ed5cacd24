"""Write one HTML file that shows a run, or several side by side: verdict, certificate, curves, price of safety, policy.

The file is self-contained: no network, no script, no library. Its figures are inline SVG that follow the reader's light
or dark scheme and the width of the screen; each has a text alternative and its numbers as a table.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from clearance.core.atomic_files import write_whole
from clearance.core.errors import InputError
from clearance.core.inside_folder import Inside
from clearance.reporting.report_page import page
from clearance.reporting.run_view import read_view

MOST_RUNS = 12


def report(
    runs: str | Path | Sequence[str | Path], out: str | Path | None = None, *, price: bool | None = None
) -> Path:
    """Write one HTML file about run folders and return its path.

    out    the file; `report.html` in the run folder unless given (needed for several runs)
    price  compute the price of safety (True) or not (False); by default it is computed for up to 600 pairs (s, a)
    """
    folders = [runs] if isinstance(runs, str | Path) else list(runs)
    if not 1 <= len(folders) <= MOST_RUNS:
        raise InputError(f"runs must be 1 to {MOST_RUNS} run folders, got {len(folders)}")
    if out is None and len(folders) > 1:
        raise InputError("out is missing: several runs need the name of the file to write")
    path = own_file(Path(folders[0])) if out is None else Path(out)
    text = page([read_view(f, price) for f in folders])
    with write_whole(path) as f:
        f.write(text)
    return Path(path)


def own_file(folder: Path) -> Inside:
    """Return the path of `report.html` in a run folder; raise InputError if the folder belongs to another user."""
    if folder.is_dir() and hasattr(os, "geteuid") and folder.stat().st_uid != os.geteuid():
        raise InputError(f"{folder}: belongs to another user: give the name of the file to write (--out)")
    return Inside(folder, "report.html")


__all__ = ["report"]
