"""CRPO for networks on simulators (Xu, Liang, Lan, ICML 2021): the steps of `PracticalCNPGPD`, without multipliers.

    if all Ĵ_gi ≥ b_i + κ_i − η   a step that raises J_r
    otherwise                     a step that raises the J_gi that is violated most, in its own units

Here η is the setting `tolerance`. The paper has no margin κ, but without a margin no certificate from samples could be
issued. The margin is that of `PracticalCNPGPD`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clearance.core.validation import check_non_negative
from clearance.learning.methods.method_base import setting
from clearance.learning.methods.natural_step import NaturalSteps
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class PracticalCRPO(NaturalSteps):
    """CRPO for simulators and networks, with its settings."""

    tolerance: float = setting(0.0, "η, how far below its limit a Ĵ_g may be before it is rectified")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_non_negative("tolerance", self.tolerance)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Take one step of θ; `lam_max` is not used.

        The step raises J_r if all limits plus the margin are met up to the tolerance, else the J_gi that is violated
        most.
        """
        assert self.N is not None
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N)
        slack = J_hat[1:] - sampler.statement.b - self.margin(state.k, memory)
        kept = bool(np.all(slack >= -self.tolerance))
        turn = 0 if kept else 1 + int(np.argmin(slack / np.maximum(np.asarray(memory.miss, float), 1e-12)))
        quiet = self.quieter(float(state.method_memory or 0.0), bool(np.all(J_hat[1:] >= sampler.statement.b)), state.k)
        theta, size = self.moved(draws, draws.A[:, turn], state, quiet)
        return State(theta, state.lam, state.k + 1, memory, quiet), Info(J_hat, size, steps, float(kept))
