"""PMD-PD and PMD-PD-Zero: policy mirror descent primal-dual (Liu, Zhou, Kalathil, Kumar, Tian 2021).

    λ_k = max(η' s_k, λ_{k−1} − η' s_k),   λ̃_k = λ_k − η' s_k ≥ 0,   s_k = J_g(π_k) − b        λ_0 = max(0, η' s_0)
    π_{k+1} = argmax_p  J_r(p) + λ̃_k J_g(p) − α KL(p ‖ π_k) along p's own visits, by T natural steps:

    p ← p exp(A'/α),   A' the advantage of r + λ̃ g − α log(p/π_k)                              from p = π_k

The optimistic λ̃ damps what makes NPG-PD circle. PMD-PD-Zero is the same on limits b + δ: `kappa`. With one inner step
it is NPG with η₁ = (1−γ)/α and that λ̃. Guarantee (theirs): exact, gap and violation of the average O(log K/K), and zero
violation with δ = O(log K/K); sampled ε⁻³. `State.lam` is λ̃, the multiplier that is used; λ_k is remembered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.inputs import counted
from clearance.kernels import fold
from clearance.methods.method import Info, State, check, margin_of, natural, setting
from clearance.problem import Array
from clearance.sample import Critic, Sampler


@dataclass(frozen=True)
class PMDPD:
    """Hyper-parameters."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "walks for each inner step")
    alpha: float = setting(0.2, "α, the weight of the KL divergence to the last policy")
    eta: float = setting(1.0, "η', the step of λ")
    inner: int = setting(1, "T, natural steps in each iteration")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "δ of PMD-PD-Zero, added to the limits")

    sampler: ClassVar[Any] = Critic

    def __post_init__(self) -> None:
        check(self, positives=("alpha", "eta"))
        counted("inner", self.inner)

    def init(self, theta: Array, I: int, world: Any = None) -> State:
        return State(theta, np.zeros(I), 0, world, np.zeros(I))

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """The multiplier from Ĵ at π_k, then T natural steps from π_k; `lam_max` is not needed."""
        cmdp, policy = sampler.cmdp, sampler.policy
        anchor = policy.log_pi(state.theta)
        theta, lam, lam_k, total = state.theta, state.lam, state.memory, 0
        world: Any = state.world
        J_hat = np.zeros(1 + cmdp.I)
        omega = np.zeros_like(theta)
        for t in range(self.inner):
            away = np.where(cmdp.available, anchor - policy.log_pi(theta), 0.0) if t else None
            inner = key if t == 0 else np.uint64(fold(key, t))
            draws, J, world, steps = sampler.batch(inner, world, theta, self.N, away)
            if t == 0:
                J_hat = J
                s = self.eta * (J[1:] - cmdp.b - margin_of(self.kappa))
                lam_k = np.maximum(s, lam_k - s) if state.k else np.maximum(0.0, s)
                lam = lam_k - s
            omega = natural(sampler)(draws, lam if away is None else np.append(lam, self.alpha), cmdp.gamma)
            theta, total = theta + (1 - cmdp.gamma) / self.alpha * omega, total + steps
        info = Info(J_hat, float(np.linalg.norm(omega)), total)
        return State(theta, lam, state.k + 1, world, lam_k), info
