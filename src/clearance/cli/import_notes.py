"""Notes on files in foreign formats, which store neither limits nor a criterion."""

from __future__ import annotations

import shlex
from pathlib import Path

from clearance.finite.cmdp import CMDP
from clearance.runs.problem_text import is_imported


def import_notes(problem: str, cmdp: CMDP) -> list[str]:
    """Return a note on how to give an imported model its limits, once or in every command; [] for other problems."""
    if not is_imported(problem):
        return []
    store = shlex.join(["clearance", "export", problem, "--to", str(Path(problem).with_suffix(".npz"))])
    if cmdp.I == 0:
        return [
            f"No limits were given, and {problem} stores none: add --limit NAME=NUMBER for each cost in every command, "
            f"or store the limits once: {store} with these flags."
        ]
    return [
        f"{problem} stores neither limits nor a criterion: repeat these flags in every command, or store them once: "
        f"{store} with the same flags."
    ]
