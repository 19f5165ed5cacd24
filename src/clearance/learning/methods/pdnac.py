"""PD-NAC: online primal-dual natural actor-critic along one trajectory (Zeng, Doan, Romberg 2021).

It needs neither resets nor a generative model. It follows one trajectory of the behaviour policy (1−ε)π + ε/|A|, trains
a TD critic for each signal, and alternates the updates

    θ ← θ + α (Q̂_r + Σ_i λ_i Q̂_gi),        λ_i ← P_[0,Λ](λ_i − η (Σ_s ρ(s) Σ_a π(a|s) Q̂_gi(s, a) − b_i − κ_i))

Here α and η are the step sizes of θ and λ, β is the step size of the critic, and ε the share of uniform actions.
Guarantee of the paper: on ergodic chains with α, η ~ K^(−5/6), β ~ K^(−1/2), ε ~ K^(−1/6), the gap and the violation of
the average iterate fall like K^(−1/6). The equations are reconstructed, not copied from the paper;
docs/research/table1.md reports the measured rate. There are three differences. The critic takes the expectation over π
at the next state, so it learns the value of π and not of the behaviour policy. At the end of an episode, the trajectory
restarts from ρ. There are N steps between two updates.
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
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class PDNAC:
    """PD-NAC (Zeng et al. 2021) with constant step sizes α and η.

    The critic's step size β and the share ε of uniform actions are settings of the sampler `Trajectory`.
    """

    K: int = setting(1000, "iterations")
    N: int = setting(100, "steps of the trajectory in each iteration")
    alpha: float = setting(0.1, "α, the step of θ")
    eta: float = setting(0.1, "η, the step of λ")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "κ ≥ 0, the margin kept from the limits")
    lam_max: float | None = setting(None, "Λ, upper bound of λ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")

    draw_kind: ClassVar[DrawKind] = "trajectory"

    def __post_init__(self) -> None:
        check_settings(self, positives=("alpha", "eta"))

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Follow the trajectory for N steps, then update θ and λ once.

        θ moves along the estimated advantages Q̂ − V̂ instead of Q̂. The two differ by a constant for each state, so
        the policy is the same.
        """
        limits = sampler.statement
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N)
        omega = exact_direction(sampler)(draws, state.lam, limits.gamma)
        theta = state.theta + self.alpha * (1 - limits.gamma) * omega
        lam = dual.step(state.lam, J_hat[1:] - limits.b, self.eta, kappa_value(self.kappa), lam_max)
        return State(theta, lam, state.k + 1, memory), Info(J_hat, float(np.linalg.norm(omega)), steps)
