"""C-NPG-PD: the conservative natural policy gradient primal-dual algorithm (Bai, Bedi, Aggarwal, AAAI 2023, Alg. 1).

Guarantee (their Theorem 1): if κ is below the Slater constant, the *uniform mixture of the iterates* violates no limit
and is ε-optimal, both in expectation and up to the errors of the policy class. No single iterate has this guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.core.arrays import Array
from clearance.learning import dual
from clearance.learning.direction import SGD, Direction, check_direction
from clearance.learning.methods.method_base import DrawKind, check_settings, first_state, kappa_value, setting
from clearance.learning.sampler import Limits, Sampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class CNPGPD:
    """C-NPG-PD, Algorithm 1 of Bai et al. (2023); its settings are named by the symbols of the paper."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "samples per iteration, for the direction and again for Ĵ")
    eta1: float = setting(0.1, "η₁, the step of θ")
    eta2: float = setting(0.1, "η₂, the step of λ")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(
        "auto", "κ ≥ 0, the margin kept from the limits, one or one each"
    )
    lam_max: float | None = setting(None, "Λ, upper bound of λ; from the Slater margin φ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")
    direction: Direction = field(default_factory=SGD, metadata={"help": "how ω is found from the draws"})

    draw_kind: ClassVar[DrawKind] = "walks"

    def __post_init__(self) -> None:
        check_settings(self, positives=("eta1", "eta2"))
        check_direction(self.direction)

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        """Return the first state, with the given parameters θ¹ (0 for softmax) and λ¹ = 0 [I] (Algorithm 1, line 1)."""
        return first_state(theta, I, memory)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Run one iteration, lines 2–17 of Algorithm 1."""
        return primal_dual_step(self, key, sampler, state, lam_max)

    def dual_schedule(self, limits: Limits, K: int) -> tuple[float, float | Array]:
        """Return the step size η₂ of λ and the margin κ for `dual.path_bound`; both are the same in all iterations."""
        return self.eta2, kappa_value(self.kappa)


def primal_dual_step(method: Any, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
    """Run lines 2–17 of Algorithm 1: an ascent step of the Lagrangian in θ, and a descent step in λ."""
    limits = sampler.statement
    draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, method.N)  # lines 3–7 and 11–15
    omega = method.direction(draws, state.lam, limits.gamma)  # lines 8–10
    theta = state.theta + method.eta1 * omega  # line 16, θ
    lam = dual.step(state.lam, J_hat[1:] - limits.b, method.eta2, kappa_value(method.kappa), lam_max)  # line 16, λ
    return State(theta, lam, state.k + 1, memory), Info(J_hat, float(np.linalg.norm(omega)), steps)
