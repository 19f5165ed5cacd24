"""Find which limits conflict and what to relax, for the answers of the commands."""

from __future__ import annotations

from typing import Any

from clearance.cli import tables
from clearance.core.errors import ASK_DIAGNOSE, InputError, SolverError
from clearance.core.text import first_line
from clearance.exact.infeasibility import diagnose


def explain_infeasible(result: dict[str, Any], cmdp: Any, *, relaxed: bool = False) -> dict[str, Any]:
    """Return `result`, a command's answer about infeasible limits, with a diagnosis of the model `cmdp` added.

    The diagnosis says which limits conflict. Its advice is put at the end of the message. With `relaxed`, the best
    reward after relaxing is included.
    """
    found = _diagnosis_of(cmdp, relaxed=relaxed)
    advice, message = found.pop("advice", None), result["message"]
    if advice is not None and message.endswith(f"; {ASK_DIAGNOSE}"):
        found["message"] = f"{message.removesuffix(ASK_DIAGNOSE)}{advice}"
    return result | found


def _diagnosis_of(cmdp: Any, *, relaxed: bool) -> dict[str, Any]:
    """Return which limits of an infeasible model conflict and what to relax, as fields of a command's answer.

    Return {} if infeasibility is not proven, or if `cmdp` is None.
    """
    try:
        found = None if cmdp is None else diagnose(cmdp)
        return {} if found is None else tables.diagnosis(found, relaxed=relaxed)
    except (InputError, SolverError) as e:  # the verdict does not need a diagnosis
        tables.warning(f"no diagnosis: {first_line(e)}")
        return {}
