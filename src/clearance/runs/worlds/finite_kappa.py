"""Settings of a run on a finite model that follow from its budget and its Slater margin.

They are K iterations, N samples per iteration, the margin κ, and the upper bound Λ of λ.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from clearance.certificates.sequential_test import slack_per_sd
from clearance.core.arrays import Array
from clearance.core.errors import InputError, no_room_message
from clearance.exact.feasibility import slater_margin
from clearance.finite.cmdp import CMDP
from clearance.learning import dual
from clearance.learning.methods.method_base import kappa_value
from clearance.learning.methods.regularised_cnpgpd import RegularisedCNPGPD
from clearance.runs.worlds.finite_margin import FiniteMargin


class ConservatismWarning(UserWarning):
    """A warning that the margin κ is not below the Slater margin.

    Then no policy meets the tightened limits, and λ grows to its upper bound Λ.
    """


def fit_to_budget(method: Any, cmdp: CMDP, budget: float) -> Any:
    """Return the method with its numbers K of iterations and N of samples chosen for the budget.

    Methods other than `RegularisedCNPGPD` are returned unchanged.
    """
    return method.fitted(cmdp.gamma, budget) if isinstance(method, RegularisedCNPGPD) else method


def with_kappa(method: Any, cmdp: CMDP, margin: FiniteMargin, samples: float, delta: float | None = None) -> Any:
    """Return the method with its margin κ computed by `kappa_of`, if its κ is "auto"; else unchanged.

    The other arguments are those of `kappa_of`.
    """
    if getattr(method, "kappa", 0.0) != "auto":
        return method
    if not cmdp.I:
        return replace(method, kappa=0.0)
    decided = replace(method, kappa=kappa_of(cmdp, margin, samples, delta))
    if isinstance(decided, RegularisedCNPGPD) and decided.kappa_first is None:
        return replace(decided, kappa_first=0.5 * max(margin.slater, 0.0))
    return decided


def kappa_of(cmdp: CMDP, margin: FiniteMargin, samples: float, delta: float | None = None) -> tuple[float, ...]:
    """Return the margin κ [I]: the noise of an estimate of J_g, but at most half of the Slater margin in `margin`.

    With `delta` (evidence from samples), the noise is the slack that a certificate from `samples` episodes needs.
    Without `delta` (exact evidence), it is a tenth of the range of J_g, divided by √samples. A tenth is enough, because
    the choice among the iterates then uses exact values, and only some iterates must meet the limits.
    """
    if delta is None or margin.sd is None:
        noise = 0.1 * cmdp.signal_ranges[1] / (1 - cmdp.gamma) / np.sqrt(samples)
    else:
        noise = margin.sd * slack_per_sd(samples, delta)
    return tuple(np.minimum(0.5 * max(margin.slater, 0.0), noise).tolist())


def conservative_margin(cmdp: CMDP, kappa: float | Array, slater: float, *, exact: bool) -> float:
    """Return the Slater margin of the problem with the tightened limits J_g ≥ b + κ.

    The result is `slater` − max κ, which is a lower bound if κ differs between the constraints. If this bound is not
    positive and `exact` is true, the margin is computed from the model instead.
    """
    if np.ndim(kappa) and np.shape(kappa) != (cmdp.I,):
        raise InputError(f"kappa has {np.size(kappa)} entries for {cmdp.I} constraints; give one number, or one each")
    room = slater - float(np.max(kappa, initial=0.0))
    if room > 0 or not exact or np.ndim(kappa) == 0:
        return room
    return slater_margin(cmdp.tightened(kappa))[0]


def bound_of_multipliers(cmdp: CMDP, method: Any, slater: float, *, exact: bool) -> float:
    """Return Λ, the upper bound of λ while learning.

    It is the method's `lam_max`. If that is not set, Λ follows from the Slater margin `slater`. If the margin κ of the
    method is not below the Slater margin, raise InputError; if `lam_max` is set, only warn. `exact` says whether the
    Slater margin may be computed from the model.
    """
    kappa, bound = kappa_value(getattr(method, "kappa", 0.0)), getattr(method, "lam_max", None)
    room = conservative_margin(cmdp, kappa, slater, exact=exact) if cmdp.I else np.inf
    # The margin is one number for all limits: it must exceed the rounding error of the limit with the smallest scale.
    rounding = 1e-9 * float(np.abs(cmdp.g).max(axis=(1, 2)).min(initial=np.inf)) / (1 - cmdp.gamma) if cmdp.I else 0.0
    if room <= rounding:
        text, remedy = _no_room(kappa, slater, room, rounding)
        if bound is None:
            raise InputError(f"{text}{remedy}, or give lam_max to run it all the same")
        warnings.warn(f"{text} and lam will run into lam_max = {bound:g}", ConservatismWarning, stacklevel=3)
    if bound is not None:
        return float(bound)
    return dual.lam_max_of(cmdp.gamma, room, 0.0, float(np.ptp(cmdp.r))) if cmdp.I else 1.0


def _no_room(kappa: float | Array, slater: float, room: float, rounding: float) -> tuple[str, str]:
    """Return two phrases for a message: why no policy meets limits tightened by κ, and what the user can do.

    slater  the Slater margin;  room: the Slater margin of the tightened limits;  rounding: its rounding error
    """
    if slater <= 0:  # and it is not proven that no policy meets the limits
        return no_room_message(slater), ""
    if room > 0:
        left = f"kappa = {np.max(kappa):g} leaves {room:.3g} of the Slater margin {slater:.6g}"
        return f"{left}, which is below the rounding error {rounding:.3g} of J_g", "; relax the limits a little"
    text = f"kappa = {np.max(kappa):g} is not below the Slater margin {slater:.6g}, so no policy keeps it"
    return text, f"; choose kappa < {slater:.6g}"
