"""C-NPG-PD for networks on simulators: Algorithm 1 with a KL-bounded natural step, in units of its own.

    A_L = A_r + λ⁺·A_g, normalised              λ⁺ = P(λ − η_p (Ĵ_g − b − κ))      what the policy answers to
    θ ← θ + β ω                                 ω natural direction, β bounded in KL                  (line 16, θ)
    λ ← P_[0,Λ](λ − η₂ (Ĵ_g − b − κ))                                                                 (line 16, λ)

Limits that the first policy breaks are approached over the first 30 % of the iterations, from where it stands: a
reward that is rarely seen would else be given up before it is found. What is certified is the limit itself.
λ⁺ looks one step ahead (as PMD-PD does, Liu et al. 2021): the multiplier alone would go round the limit for long. κ
shrinks from its first value to its last. Ĵ_g is the estimate of what is limited, never of a stand-in.

Units: advantages are measured by their own root mean square u, distances from a limit by theirs, v. Steps of λ are
η₂ (u_r/u_gi) (Ĵ_gi − b_i − κ_i)/v_i, so that rewards and costs of any scale see the same settings.
Ranges tried: see docs/research/simulator_log.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import check_positive
from clearance.learning import dual
from clearance.learning.direction import lagrangian
from clearance.learning.methods.method_base import setting
from clearance.learning.methods.natural_step import NaturalSteps, Sizes
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class PracticalCNPGPD(NaturalSteps):
    """C-NPG-PD for simulators and networks, with its settings; the default of `solve` there."""

    eta2: float = setting(0.1, "η₂, the step of λ, in units of the problem")
    eta_p: float = setting(1.0, "η_p, how far λ⁺ looks ahead, in the same units")
    relax: float = setting(0.3, "share of the iterations over which a limit that is broken at first is approached")
    lam_max: float = setting(50.0, "Λ, upper bound of λ in units of the problem")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("lam_max", self.lam_max)
        for name in ("eta2", "eta_p"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(f"{name} must be a number ≥ 0, got {getattr(self, name)!r}")
        if not 0 <= self.relax <= 1:
            raise InputError(f"relax must be in [0, 1], got {self.relax!r}")

    def relaxed_at(self, k: int) -> float:
        """The share of the first shortfall by which the limits are relaxed in iteration k; it falls linearly to 0."""
        return max(1 - k / (self.relax * self._K), 0.0) if self.relax else 0.0

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """One iteration."""
        assert self.N is not None
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N)
        scale = pace(memory)
        most = np.minimum(self.lam_max * units(memory), lam_max)
        slack = J_hat[1:] - sampler.statement.b
        short, quiet = (np.maximum(-slack, 0.0), 0.0) if state.method_memory is None else state.method_memory
        quiet = self.quieter(float(quiet), bool(np.all(slack >= 0)), state.k)
        kappa = self.margin(state.k, memory) - self.relaxed_at(state.k) * short
        ahead = np.clip(state.lam - self.eta_p * scale * (slack - kappa), 0.0, most)
        theta, size = self.moved(draws, lagrangian(draws.A, ahead), state, quiet)
        lam = np.minimum(dual.step(state.lam, slack, self.eta2 * scale, kappa, np.inf), most)
        return State(theta, lam, state.k + 1, memory, (short, quiet)), Info(J_hat, size, steps)


def units(memory: Sizes) -> Array:
    """u_r/u_gi [I]: the λ at which reward and constraint weigh the same."""
    size = np.asarray(memory.size, float)
    return size[0] / np.maximum(size[1:], 1e-12)


def pace(memory: Sizes) -> Array:
    """Steps of λ_i for a slack of 1 in J_gi, at η₂ = 1: u_r/(u_gi v_i) [I]."""
    return units(memory) / np.maximum(np.asarray(memory.miss, float), 1e-12)
