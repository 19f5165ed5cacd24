"""Describe in words where runs start: for certificates, and for models without a given start distribution."""

from __future__ import annotations

import numpy as np

from clearance.core.text import visible
from clearance.finite.cmdp import CMDP

ALIKE = 1e-12  # probabilities whose difference is at most this count as equal


def start_words(cmdp: CMDP) -> str:
    """Return a phrase that says in which states runs start.

    >>> start_words(CMDP(P=[[[1.0, 0.0]], [[0.0, 1.0]]], r=[[1.0], [0.0]], gamma=0.5))
    'any of its 2 states with equal probability'
    """
    at = np.flatnonzero(cmdp.rho > 0)
    if len(at) == 1:
        return visible(cmdp.states[at[0]]) if cmdp.states else f"state {at[0]}"
    which = f"any of its {cmdp.S:,}" if len(at) == cmdp.S else f"{len(at):,} of its {cmdp.S:,}"
    alike = np.ptp(cmdp.rho[at]) <= ALIKE
    return f"{which} states with {'equal probability' if alike else 'the probabilities of the model'}"
