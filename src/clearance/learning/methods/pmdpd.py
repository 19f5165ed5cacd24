"""PMD-PD and PMD-PD-Zero: policy mirror descent primal-dual (Liu, Zhou, Kalathil, Kumar, Tian 2021).

    λ_k = max(η' s_k, λ_{k−1} − η' s_k),   λ̃_k = λ_k − η' s_k ≥ 0,   s_k = J_g(π_k) − b        λ_0 = max(0, η' s_0)
    π_{k+1} = argmax_p  J_r(p) + λ̃_k J_g(p) − α KL(p ‖ π_k) along p's own visits, by T natural steps:

    p ← p exp(A'/α),   A' the advantage of r + λ̃ g − α log(p/π_k)                              from p = π_k

Here s_k is the slack, η' the step size of λ and α the weight of the KL divergence, which is averaged over the states
that p visits. The optimistic multiplier λ̃ damps the oscillations of NPG-PD. PMD-PD-Zero is the same method with limits
b + δ (the setting `kappa`). With one inner step, it is NPG with η₁ = (1−γ)/α and multiplier λ̃. Guarantee of the paper:
with exact gradients, gap and violation of the average iterate are O(log K/K), and the violation is zero for
δ = O(log K/K); with sampling, ε⁻³ samples are needed. `State.lam` is λ̃; the method's memory holds λ_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.core.arrays import Array
from clearance.core.random_streams import fold
from clearance.core.validation import check_count
from clearance.learning.methods.method_base import DrawKind, check_settings, exact_direction, kappa_value, setting
from clearance.learning.sampler import TabularSampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class PMDPD:
    """PMD-PD (Liu et al. 2021) with its settings."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "walks for each inner step")
    alpha: float = setting(0.2, "α, the weight of the KL divergence to the last policy")
    eta: float = setting(1.0, "η', the step of λ")
    inner: int = setting(1, "T, natural steps in each iteration")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "δ of PMD-PD-Zero, added to the limits")

    draw_kind: ClassVar[DrawKind] = "critic"

    def __post_init__(self) -> None:
        check_settings(self, positives=("alpha", "eta"))
        check_count("inner", self.inner)

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return State(theta, np.zeros(I), 0, memory, np.zeros(I))

    def step(self, key: np.uint64, sampler: TabularSampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Compute the optimistic multiplier λ̃_k from Ĵ at π_k, then take T (`inner`) natural steps from π_k.

        `lam_max` is not used. The docstring of the module gives the formulas.
        """
        limits, policy = sampler.statement, sampler.policy
        anchor = policy.log_pi(state.theta)
        theta, lam, lam_k, total = state.theta, state.lam, state.method_memory, 0
        memory: Any = state.sampler_memory
        J_hat = np.zeros(1 + limits.I)
        omega = np.zeros_like(theta)
        for t in range(self.inner):
            away = np.where(np.isfinite(sampler.policy.bias), anchor - policy.log_pi(theta), 0.0) if t else None
            inner = key if t == 0 else fold(key, t)
            draws, J, memory, steps = sampler.batch(inner, memory, theta, self.N, away)
            if t == 0:
                J_hat = J
                s = self.eta * (J[1:] - limits.b - kappa_value(self.kappa))
                lam_k = np.maximum(s, lam_k - s) if state.k else np.maximum(0.0, s)
                lam = lam_k - s
            omega = exact_direction(sampler)(draws, lam if away is None else np.append(lam, self.alpha), limits.gamma)
            theta, total = theta + (1 - limits.gamma) / self.alpha * omega, total + steps
        info = Info(J_hat, float(np.linalg.norm(omega)), total)
        return State(theta, lam, state.k + 1, memory, lam_k), info
