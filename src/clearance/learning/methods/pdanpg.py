"""PD-ANPG: primal-dual natural policy gradient with an accelerated regression (Mondal, Aggarwal 2024).

Guarantee of the paper: if the Fisher matrix of a general parametrisation is F ⪰ μ_F > 0, the average over the iterates
needs ε⁻² samples. For softmax policies F is singular. But the regression starts at 0 and stays in the range of F, so
there μ_F is the smallest positive eigenvalue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.core.arrays import Array
from clearance.learning.direction import AcceleratedSGD
from clearance.learning.methods.cnpgpd import primal_dual_step
from clearance.learning.methods.method_base import DrawKind, check_settings, first_state, kappa_value, setting
from clearance.learning.sampler import Limits, Sampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class PDANPG:
    """PD-ANPG (Mondal and Aggarwal 2024) with its settings; κ > 0 makes it conservative."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "samples per iteration, for the direction and again for Ĵ")
    eta1: float = setting(0.1, "η₁, the step of θ")
    eta2: float = setting(0.1, "η₂, the step of λ")
    mu_F: float = setting(0.05, "μ_F, the smallest eigenvalue of the Fisher matrix that matters")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "κ ≥ 0, the margin kept from the limits")
    lam_max: float | None = setting(None, "Λ, upper bound of λ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")

    draw_kind: ClassVar[DrawKind] = "walks"

    def __post_init__(self) -> None:
        check_settings(self, positives=("eta1", "eta2", "mu_F"))

    @property
    def direction(self) -> AcceleratedSGD:
        return AcceleratedSGD(self.mu_F)

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Take one step θ ← θ + η₁ω and one step `λ ← P_[0,Λ](λ − η₂(Ĵ_g − b − κ))`, both from the same samples."""
        return primal_dual_step(self, key, sampler, state, lam_max)

    def dual_schedule(self, limits: Limits, K: int) -> tuple[float, float | Array]:
        """Return the step size η₂ of λ and the margin κ for `dual.path_bound`; both are the same in all iterations."""
        return self.eta2, kappa_value(self.kappa)
