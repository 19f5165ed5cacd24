"""CRPO: constraint-rectified policy optimisation (Xu, Liang, Lan, ICML 2021), a method without multipliers.

    if all Ĵ_gi ≥ b_i − η   a natural step that raises J_r, and the iterate θ^t joins the set N₀
    otherwise               a natural step that raises the J_gi that is violated most (in units of its range)

Here η is the tolerance, α the step size of θ and T the number of iterations. The output is the uniform mixture of N₀.
Guarantee (Theorem 1): for tabular softmax with α = (1−γ)^1.5/√(|S||A|T) and η = Θ(√(|S||A|)/((1−γ)^1.5 √T)), gap and
violation are O(1/√T) in expectation. With `two_layer` networks of width m as policy and critic (Theorem 2), the bound
has one more error term, which decreases with m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.core.arrays import Array
from clearance.core.validation import check_non_negative
from clearance.learning.methods.method_base import (
    DrawKind,
    check_settings,
    exact_direction,
    first_state,
    kappa_value,
    setting,
)
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class CRPO:
    """CRPO (Xu et al. 2021) with its settings. Without constraints it is the natural policy gradient method."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "walks per iteration")
    alpha: float = setting(0.1, "α, the step of θ, for reward and constraints alike")
    tolerance: float = setting(0.0, "η, how far below its limit a Ĵ_g may be before it is rectified")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "κ ≥ 0, added to the limits")

    draw_kind: ClassVar[DrawKind] = "critic"

    def __post_init__(self) -> None:
        check_settings(self, positives=("alpha",))
        check_non_negative("tolerance", self.tolerance)

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Take a natural step θ ← θ + α ω; `lam_max` is not used.

        If all limits are met up to the tolerance, the step raises J_r, else the J_gi that is violated most.
        """
        limits = sampler.statement
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N)
        slack = J_hat[1:] - limits.b - kappa_value(self.kappa)
        kept = bool(np.all(slack >= -self.tolerance))
        turn = 0 if kept else 1 + int(np.argmin(slack / limits.signal_ranges[1]))
        omega = exact_direction(sampler)(draws._replace(A=draws.A[:, [turn]]), np.zeros(0), limits.gamma)
        theta = state.theta + self.alpha * omega
        info = Info(J_hat, float(np.linalg.norm(omega)), steps, float(kept))
        return State(theta, state.lam, state.k + 1, memory), info
