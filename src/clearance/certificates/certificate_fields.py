"""Write certificates as JSON, and read them back with a check of every field.

The checks are needed because people rely on certificates, and a file may have been altered together with its hash.
Proofs are checked by other code; policy files do not contain them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Certificate
from clearance.certificates.contradictions import find_contradiction
from clearance.core.atomic_files import parse_json, without_non_finite
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath

REMEDY = "the file was altered; solve again in another folder"
VERDICTS = ("CERTIFIED", "VIOLATED", "UNDECIDED")
LISTS = {"J_g": 0, "slack": 0, "J_lower": 1, "J_upper": 1}
MAYBE_NUMBERS = ("bound", "gap", "worst_component_slack", "delta", "level", "spent")
MAYBE_LISTS = ("lam", "complementarity")
COUNTS = {"components": 1, "episodes": 0, "env_steps": 0}
TEXTS = ("message", "scope")
EACH = {"names": (str, "texts"), "costs": (bool, "of true and false")}  # one per constraint
# Fields of certificates that version 0.1 wrote under other names.
RENAMED = {"worst_slack": "worst_component_slack", "mode": "greedy_verdict"}
# The values that replace null when a certificate is read: null means that a bound is missing or a value is not finite.
GAPS = {"J_lower": -math.inf, "J_upper": math.inf, "J_g": math.nan, "slack": math.nan, "complementarity": math.nan}


def certificate_text(certificate: Certificate) -> str:
    """Return the certificate as JSON text, without its proof."""
    return json.dumps(without_non_finite(certificate.asdict() | {"proof": None}), allow_nan=False)


def certificate_array(certificate: Certificate | None) -> dict[str, NDArray[Any]]:
    """Return {"certificate": array with the JSON text} for a policy file; an empty dict if there is no certificate."""
    return {} if certificate is None else {"certificate": np.array(certificate_text(certificate))}


def read_certificate_text(where: AnyPath, text: str) -> Certificate:
    """Return the certificate from JSON text written by `certificate_text`; `where` names the source in messages."""
    try:
        data = parse_json(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise InputError(f"{where}: certificate is no JSON object; {REMEDY}")
    return parse_certificate(where, data)


def parse_certificate(
    where: AnyPath, data: dict[str, Any], is_proof: Callable[[Any, int], bool] | None = None
) -> Certificate:
    """Return the certificate from the JSON data of the file `where`.

    Raise InputError that names the field if a field is invalid or contradicts another one. `is_proof` is a function
    that checks the form of a proof; if it is None, no proof is read.
    """
    data = {RENAMED.get(name, name): value for name, value in data.items()}
    said = {f.name: data[f.name] for f in fields(Certificate) if f.name in data}
    said |= {} if is_proof is not None else {"proof": None}
    I = len(said["b"]) if isinstance(said.get("b"), list) else 0
    gaps = said.get("verdict") in VERDICTS[1:]  # only a certificate that is not CERTIFIED may lack numbers
    rules = [
        ("verdict", said.get("verdict") in VERDICTS, f"one of {', '.join(VERDICTS)}"),
        ("greedy_verdict", said.get("greedy_verdict") in (None, *VERDICTS), f"null, or one of {', '.join(VERDICTS)}"),
        ("evidence", said.get("evidence") in ("exact", "samples"), "exact or samples"),
        ("J_r", is_number(said.get("J_r")) or (gaps and "J_r" in said and said["J_r"] is None), "a finite number"),
        ("b", is_list(said.get("b"), I), "a list of finite numbers"),
        ("interval", is_interval(said.get("interval"), 1 + I), f"null, or two lists of {1 + I} finite numbers"),
    ]
    rules += [(k, is_list(said.get(k), I + n, gaps, n), f"a list of {I + n} finite numbers") for k, n in LISTS.items()]
    rules += [(k, said.get(k) is None or is_number(said[k]), "a finite number, or null") for k in MAYBE_NUMBERS]
    rules += [
        (k, said.get(k) is None or is_list(said[k], I, gaps), f"{I} finite numbers, or null") for k in MAYBE_LISTS
    ]
    rules += [(k, is_count(said.get(k), n), f"a whole number from {n} on") for k, n in COUNTS.items()]
    rules += [(k, isinstance(said.get(k), str), "a text") for k in TEXTS]
    rules += [("origin", isinstance(said.get("origin", ""), str | None), "null, or a text")]
    rules += [("neighbours", is_table(said.get("neighbours"), 1 + I), f"null, or lists of {1 + I} finite numbers")]
    rules += [("nu", said.get("nu") is None or is_list(said["nu"], I, True), f"null, or {I} numbers or nulls")]
    rules += [(k, is_each(said.get(k), I, kind), f"null, or a list of {I} {what}") for k, (kind, what) in EACH.items()]
    proven = said.get("proof") is None or is_proof is None or is_proof(said["proof"], I)
    hold(where, [*rules, ("proof", proven, "null, or arrays that fit b")])
    first, *rest = said["J_lower"]
    again = {"J_r_lower": first, "J_g_lower": rest}  # stored a second time, for people who read the file
    hold(where, [(k, data.get(k, x) == x, "as in J_lower") for k, x in again.items()])
    absent: dict[str, Any] = dict.fromkeys((*MAYBE_NUMBERS, *MAYBE_LISTS))
    said |= {k: [x if v is None else v for v in said[k]] for k, x in GAPS.items() if said.get(k) is not None}
    said |= {"J_r": math.nan} if said["J_r"] is None else {}
    said |= {"interval": tuple(said["interval"])} if said.get("interval") else {}
    found = Certificate(**(absent | said))
    wrong = find_contradiction(found)
    if wrong is not None:
        raise InputError(f"{where}: {wrong}; {REMEDY}")
    return found


def hold(where: AnyPath, rules: list[tuple[str, bool, str]]) -> None:
    for key, right, what in rules:
        if not right:
            raise InputError(f"{where}: {key} must be {what}; {REMEDY}")


def is_table(x: Any, n: int) -> bool:
    """Return whether x is null, or a dict of at most 8 lists of n finite numbers."""
    return x is None or (isinstance(x, dict) and len(x) <= 8 and all(is_list(row, n) for row in x.values()))


def is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < 1e300 and math.isfinite(x)


def is_count(x: Any, least: int) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and least <= x < 2**63


def is_list(x: Any, n: int, gaps: bool = False, free: int = 0) -> bool:
    """Return whether x is a list of n numbers.

    Some entries may also be null: all if `gaps` is true, else the first `free` entries.
    """
    if not (isinstance(x, list) and len(x) == n):
        return False
    return all(is_number(v) or (v is None and (gaps or i < free)) for i, v in enumerate(x))


def is_interval(x: Any, n: int) -> bool:
    return x is None or (isinstance(x, list) and len(x) == 2 and all(is_list(v, n) for v in x))


def is_each(x: Any, n: int, kind: type) -> bool:
    return x is None or (isinstance(x, list) and len(x) == n and all(isinstance(v, kind) for v in x))
