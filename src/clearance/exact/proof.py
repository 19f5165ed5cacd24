"""The proof of an exact certificate as plain data, for a checker that shares no code with this library.

    V           values [M, 1+I, S] of the M components: their residuals r_π + γ P_π V − V bound J of the policy
    V_lam       [S], values of r + λ·g with the λ of the certificate: its Bellman residual proves `bound`
    infeasible  λ [I] and V [S] of λ·g: its Bellman residual proves max_π Σ_i λ_i (J_gi − b_i) < 0

A policy is a mixture of M ≥ 1 components. For criteria other than the discounted one, other vectors take the place of V
and V_lam, with one more axis before the states: V of every step (horizon); L, U and w (total); g and v from below and
from above (average). See the heads of `horizon_oracle`, `total_oracle` and `average_oracle`.

Arrays are stored bit for bit, as their shape and the base64 of little-endian float64. Values in exact arithmetic are
stored as texts numerator/denominator with hexadecimal digits. `tools/check_certificate.py` reads the proof.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.core.validation import is_number
from clearance.exact.optimum import Optimum
from clearance.exact.policy_bounds import PolicyBounds

# Numbers in V beyond which a certificate is stored without its proof: with it, the JSON would have over 11 MB.
LARGEST = 10**6
FRACTION = re.compile(r"-?[0-9a-f]+/[0-9a-f]*[1-9a-f][0-9a-f]*")


def proof_of(seen: PolicyBounds, best: Optimum | None) -> dict[str, Any] | None:
    """Return the proof of a certificate as plain data; None if it would be too large.

    `seen` are the bounds of the policy, and `best` is the optimum, if known.
    """
    if seen.V.size > LARGEST:
        return None
    proof: dict[str, Any] = {"V": pack(seen.V) if seen.fractions is None else _pack_fractions(seen)}
    if best is not None and best.status == "infeasible":
        proof["infeasible"] = {"lam": best.lam.tolist(), "V": pack(best.V)}
    elif best is not None:
        proof["V_lam"] = pack(best.V)
    return proof


def pack(x: Array) -> dict[str, Any]:
    """Return the array x as JSON data: its shape, and its numbers as base64 of float64."""
    return {"shape": list(x.shape), "float64": base64.b64encode(np.ascontiguousarray(x, "<f8").tobytes()).decode()}


def _pack_fractions(seen: PolicyBounds) -> dict[str, Any]:
    assert seen.fractions is not None
    texts = [f"{x.numerator:x}/{x.denominator:x}" for part in seen.fractions for x in part.ravel()]
    return {"shape": list(seen.V.shape), "fractions": texts}


def is_proof(x: Any, I: int) -> bool:
    """Return whether the data x has the form of a proof for a certificate with I limits.

    This does not check that the data prove anything.
    """
    if not isinstance(x, dict) or not {"V"} <= x.keys() <= {"V", "V_lam", "infeasible"}:
        return False
    shape = _shape_of(x["V"])
    if shape is None or len(shape) not in (3, 4) or shape[1] != 1 + I:
        return False
    of_bound = "V_lam" not in x or _ends_in(_shape_of(x["V_lam"]), shape[-1])
    return of_bound and ("infeasible" not in x or _is_farkas(x["infeasible"], I, shape[-1]))


def _ends_in(shape: list[int] | None, S: int) -> bool:
    """Return whether a shape is [S] or [n, S]: one vector over S states, or several."""
    return shape is not None and len(shape) in (1, 2) and shape[-1] == S


def _is_farkas(x: Any, I: int, S: int) -> bool:
    if not isinstance(x, dict) or x.keys() != {"lam", "V"} or not isinstance(x["lam"], list) or len(x["lam"]) != I:
        return False
    return all(is_number(v) for v in x["lam"]) and _ends_in(_shape_of(x["V"]), S)


def _shape_of(x: Any) -> list[int] | None:
    """Return the shape that x states, where x is an array in the form of `pack` or `_pack_fractions`.

    Return None if x is malformed, or if the number of its entries does not match the shape.
    """
    if not isinstance(x, dict) or x.keys() not in ({"shape", "float64"}, {"shape", "fractions"}):
        return None
    shape = x["shape"]
    if not isinstance(shape, list) or not all(isinstance(n, int) and 0 < n < 2**40 for n in shape):
        return None
    return shape if _count(x) == math.prod(shape) else None


def _count(x: dict[str, Any]) -> int:
    if "fractions" in x:
        texts = x["fractions"] if isinstance(x["fractions"], list) else [None]
        return len(texts) if all(isinstance(t, str) and FRACTION.fullmatch(t) for t in texts) else -1
    try:
        return len(base64.b64decode(x["float64"], validate=True)) // 8
    except (TypeError, ValueError, binascii.Error):
        return -1
