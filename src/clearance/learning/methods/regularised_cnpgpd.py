"""C-NPG-PD with a fading entropy regulariser and a critic: the default method of `solve` on finite models.

    maximise J_r + τ_k E_d H(π(·|s))   subject to   J_g ≥ b + κ

    ω    natural direction of A_r + λ·A_g                      as in Algorithm 1, from the critic's tables
    θ ←  (1−ν) θ + ν (1−γ) ω/τ_k                              line 16 with η₁ = ν(1−γ)/τ_k, and −ν θ, a pull to uniform
    λ ←  P_[0,Λ](λ − η₂ (Ĵ_g − b − κ))                        line 16

Here τ_k is the weight of the entropy H, and ν the share of θ that is replaced in an iteration. For tabular softmax, the
logits are A_L/τ_k averaged over the last 1/ν iterations. So noise averages out, and every action can become likely
again. Algorithm 1, which has no pull, saturates early at a deterministic policy that it cannot leave.

As τ falls, the policy becomes greedy for r + λ·g, and λ settles where the limits are just met. The policy reacts to λ
in proportion to 1/τ, so the steps of λ fall with τ. They are large while τ is large, which matters if the margin is
small and λ* is large. A close relative is RPG-PD (Ding et al. 2023), with constant τ. Nothing is proven about the
iterates; the result is selected from them and then certified.

Settings are in units of the problem: rewards of range 1, utilities of range 1, J times 1−γ. Ranges tried on random
models (docs/research/guarantee_study.md): ν .02–.2, η₂/τ 2–100, final τ .0003–.03, K 2000–6000.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import check_count, check_non_negative, check_positive
from clearance.learning import dual
from clearance.learning.methods.method_base import (
    DrawKind,
    check_kappa,
    exact_direction,
    first_state,
    kappa_value,
    setting,
)
from clearance.learning.sampler import Limits, Sampler
from clearance.learning.state import Info, State

ITERATIONS = 4000
FADED = 0.7  # share of the iterations over which τ falls
SHARP = 0.03  # below this τ, the step of λ is proportional to τ; a larger value makes λ overshoot λ* early on
SHRUNK = 0.85  # share of the iterations over which κ shrinks


@dataclass(frozen=True)
class RegularisedCNPGPD:
    """C-NPG-PD with a critic and fading regularisation; the default method of `solve` on finite models."""

    K: int | None = setting(None, "iterations; 4000, or fewer where the budget is small")
    N: int | None = setting(None, "walks per iteration; as many as the budget allows")
    nu: float = setting(0.05, "ν, the share of the logits that is renewed in an iteration")
    tau: tuple[float, float] = setting((0.3, 0.001), "τ at the beginning and at the end, in units of the range of r")
    eta2: float = setting(60.0, "η₂/τ_k once τ_k < .03, constant before: the step of λ, in units of the problem")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(
        "auto", "κ ≥ 0, the margin kept from the limits at the end, one or one each"
    )
    kappa_first: float | None = setting(
        None, "κ at the beginning, from which it shrinks; half the Slater margin if auto"
    )
    lam_max: float | None = setting(None, "Λ, upper bound of λ; from the Slater margin φ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")

    draw_kind: ClassVar[DrawKind] = "critic"

    def __post_init__(self) -> None:
        for name in ("K", "N"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if not (isinstance(self.tau, tuple) and len(self.tau) == 2):
            raise InputError(f"tau must be two numbers, at the beginning and at the end, got {self.tau!r}")
        check_positive("eta2", self.eta2)
        for value in self.tau:
            check_positive("tau", value)
        if not (0 < self.nu <= 1):
            raise InputError(f"nu must be in (0, 1], got {self.nu!r}")
        check_kappa(self.kappa)
        if self.kappa_first is not None:
            check_non_negative("kappa_first", self.kappa_first)
        if self.lam_max is not None:
            check_positive("lam_max", self.lam_max)

    def fitted(self, gamma: float, budget: float) -> RegularisedCNPGPD:
        """Return the same method with K and N chosen for `budget` environment steps, unless they are set.

        An iteration has at least ten walks, or fewer if there would otherwise be less than 50 iterations.
        """
        walks = 0.99 * budget * (1 - gamma)
        K = int(np.clip(walks / (self.N or 10), 50, ITERATIONS)) if self.K is None else self.K
        return replace(self, K=K, N=max(1, int(walks / K)) if self.N is None else self.N)

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        """Return the first state, with the given parameters θ¹ (0 for softmax) and λ¹ = 0 [I]."""
        return first_state(theta, I, memory)

    @property
    def _K(self) -> int:
        return ITERATIONS if self.K is None else self.K

    @property
    def _N(self) -> int:
        return 100 if self.N is None else self.N

    def tau_at(self, k: Any) -> Any:
        """Return τ_k, the entropy weight, which falls geometrically from τ[0] to τ[1] in the first 70 % of the run."""
        first, last = self.tau
        return first * (last / first) ** np.minimum(1.0, k / (FADED * self._K))

    def kappa_at(self, k: Any) -> Array:
        """Return the margin of iteration k, κ_k = κ + (κ_1 − κ)(1 − k/.85K)₊².

        The margin shrinks from κ_1, the setting `kappa_first`, to κ. So the iterates have many different margins, and
        the final selection can choose among them.
        """
        kappa = np.atleast_1d(kappa_value(self.kappa))
        first = kappa if self.kappa_first is None else np.maximum(kappa, self.kappa_first)
        return kappa + np.multiply.outer(np.maximum(1 - k / (SHRUNK * self._K), 0.0) ** 2, first - kappa)

    def dual_step(self, limits: Limits, k: Any) -> Array:
        """Return the step size η₂ [I] of λ in iteration k, in the units of λ_i and J_gi.

        For an array of iterations k [K], the result is [K, I].
        """
        r, g = limits.signal_ranges
        return np.multiply.outer(self.eta2 * np.minimum(self.tau_at(k), SHARP), (1 - limits.gamma) * r / g**2)

    def dual_schedule(self, limits: Limits, K: int) -> tuple[Array, Array]:
        """Return the step sizes η₂ [K, I] of λ and the mean margin κ [I] over K iterations, for `dual.path_bound`."""
        k = np.arange(K)
        return self.dual_step(limits, k), self.kappa_at(k).mean(0)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Run one iteration: update the critic, θ and λ once."""
        limits = sampler.statement
        r, _ = limits.signal_ranges
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self._N)
        omega = exact_direction(sampler)(draws, state.lam, limits.gamma)
        theta = pull_to_uniform(state.theta, omega, self.nu, self.tau_at(state.k) * r, limits.gamma)
        lam = dual.step(
            state.lam, J_hat[1:] - limits.b, self.dual_step(limits, state.k), self.kappa_at(state.k), lam_max
        )
        return State(theta, lam, state.k + 1, memory), Info(J_hat, float(np.linalg.norm(omega)), steps)


def pull_to_uniform(theta: Array, omega: Array, nu: float, tau: float, gamma: float) -> Array:
    """Return the parameters (1−ν) θ + ν (1−γ) ω/τ: a natural step along ω plus a pull to the uniform policy by ν."""
    return (1 - nu) * theta + nu * (1 - gamma) / tau * omega
