"""RPG-PD: regularised policy gradient primal-dual (Ding, Wei, Zhang, Ribeiro, NeurIPS 2023), for the last iterate.

    π ← π exp(η A_τ),   A_τ the advantage of r + λ g − τ log π
    λ ← P_[0,Λ]((1 − ητ) λ − η (J_g − b − κ))

Here η is the step size and τ the weight of the regularisation. The entropy of π and the square of λ make the saddle
point unique, and each step a contraction towards it. Guarantee of the paper: with constant η and τ, the *last* iterate
converges linearly to a point near the optimum; the smaller τ, the nearer this point. With τ = Θ(ε²), η = Θ(ε⁴) and
exact gradients, it is ε-optimal after Õ(ε⁻⁶) iterations. The paper uses η = .1, τ = .08.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.core.arrays import Array
from clearance.learning import dual
from clearance.learning.methods.method_base import (
    DrawKind,
    check_settings,
    exact_direction,
    first_state,
    kappa_value,
    setting,
)
from clearance.learning.sampler import TabularSampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class RPGPD:
    """RPG-PD (Ding et al. 2023) with its settings."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "walks per iteration")
    eta: float = setting(0.1, "η, the step of π and of λ")
    tau: float = setting(0.08, "τ, the weight of the entropy of π and of λ²/2")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "κ ≥ 0, the margin kept from the limits")
    lam_max: float | None = setting(None, "Λ, upper bound of λ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")

    draw_kind: ClassVar[DrawKind] = "critic"

    def __post_init__(self) -> None:
        check_settings(self, positives=("eta", "tau"))

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    def step(self, key: np.uint64, sampler: TabularSampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Update θ and λ once, both from the same batch of samples."""
        limits = sampler.statement
        entropy = -np.where(np.isfinite(sampler.policy.bias), sampler.policy.log_pi(state.theta), 0.0)
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N, entropy)
        omega = exact_direction(sampler)(draws, np.append(state.lam, self.tau), limits.gamma)
        theta = state.theta + self.eta * (1 - limits.gamma) * omega
        shrunk = (1 - self.eta * self.tau) * state.lam
        lam = dual.step(shrunk, J_hat[1:] - limits.b, self.eta, kappa_value(self.kappa), lam_max)
        return State(theta, lam, state.k + 1, memory), Info(J_hat, float(np.linalg.norm(omega)), steps)
