"""Find which limits conflict and what to relax, for the answers of the commands."""

from __future__ import annotations

from typing import Any

from clearance.cli import tables
from clearance.core.errors import InputError, SolverError
from clearance.core.text import first_line
from clearance.exact.infeasibility import diagnose


def diagnosis_of(cmdp: Any, *, relaxed: bool = False) -> dict[str, Any]:
    """Return which limits of an infeasible model conflict and what to relax, as fields of a command's answer.

    Return {} if infeasibility is not proven, or if `cmdp` is None. With `relaxed`, the best reward after relaxing is
    included.
    """
    try:
        found = None if cmdp is None else diagnose(cmdp)
        return {} if found is None else tables.diagnosis(found, relaxed=relaxed)
    except (InputError, SolverError) as e:  # the verdict stands without it
        tables.warning(f"no diagnosis: {first_line(e)}")
        return {}
