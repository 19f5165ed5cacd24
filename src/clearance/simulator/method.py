"""C-NPG-PD for networks on simulators: Algorithm 1 with a KL-bounded natural step, in units of its own.

    A_L = A_r + λ⁺·A_g, normalised              λ⁺ = P(λ − η_p (Ĵ_g − b − κ))      what the policy answers to
    θ ← θ + β ω                                 ω natural direction, β bounded in KL                  (line 16, θ)
    λ ← P_[0,Λ](λ − η₂ (Ĵ_g − b − κ))                                                                 (line 16, λ)

Limits that the first policy breaks are approached over the first 40 % of the iterations, from where it stands: a
reward that is rarely seen would else be given up before it is found. What is certified is the limit itself.
λ⁺ looks one step ahead (as PMD-PD does, Liu et al. 2021): the multiplier alone would go round the limit for long. κ
shrinks from its first value to its last. Ĵ_g is the estimate of what is limited, never of a stand-in.

Units: advantages are measured by their own root mean square u, distances from a limit by theirs, v. Steps of λ are
η₂ (u_r/u_gi) (Ĵ_gi − b_i − κ_i)/v_i, so that rewards and costs of any scale see the same settings.
Ranges tried: see docs/simulators.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from clearance import dual
from clearance.direction import lagrangian
from clearance.errors import InputError
from clearance.inputs import counted, positive
from clearance.methods.method import Info, State, check_kappa, margin_of, setting
from clearance.problem import Array
from clearance.simulator.natural import Natural, bounded_step
from clearance.simulator.practical import Practical, World

SHRUNK = 0.85  # share of the iterations over which κ shrinks
ITERATIONS = 500  # at most, unless given


@dataclass(frozen=True)
class PracticalCNPGPD:
    """Hyper-parameters of the algorithm for networks."""

    K: int | None = setting(None, "iterations; as many as the budget allows, at most 500")
    N: int | None = setting(None, "steps per iteration; 8 episodes or more, and what 500 iterations leave")
    kl: tuple[float, float] = setting(
        (0.02, 0.005), "bound on the mean KL of one step, at the beginning and at the end"
    )
    eta1: float = setting(1.0, "η₁, the longest step of θ, for advantages of size 1")
    eta2: float = setting(0.1, "η₂, the step of λ, in units of the problem")
    eta_p: float = setting(1.0, "η_p, how far λ⁺ looks ahead, in the same units")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(
        "auto", "κ ≥ 0, the margin kept from the limits at the end"
    )
    kappa_first: float | None = setting(None, "κ at the beginning, from which it shrinks; twice the last one if auto")
    relax: float = setting(0.4, "share of the iterations over which a limit that is broken at first is approached")
    lam_max: float = setting(50.0, "Λ, upper bound of λ in units of the problem")
    direction: Natural = field(default_factory=Natural, metadata={"help": "how ω is found from the draws"})

    def __post_init__(self) -> None:
        for name in ("K", "N"):
            if getattr(self, name) is not None:
                counted(name, getattr(self, name))
        if not (isinstance(self.kl, tuple) and len(self.kl) == 2):
            raise InputError(f"kl must be two numbers, at the beginning and at the end, got {self.kl!r}")
        for name, value in (("kl", self.kl[0]), ("kl", self.kl[1]), ("eta1", self.eta1), ("lam_max", self.lam_max)):
            positive(name, value)
        for name in ("eta2", "eta_p"):
            if not 0 <= getattr(self, name) < np.inf:
                raise InputError(f"{name} must be a number ≥ 0, got {getattr(self, name)!r}")
        if not 0 <= self.relax <= 1:
            raise InputError(f"relax must be in [0, 1], got {self.relax!r}")
        check_kappa(self.kappa)

    def fitted(self, episode: int, budget: float) -> PracticalCNPGPD:
        """The same with K and N decided, for episodes of so many steps."""
        N = int(max(8 * episode, budget / ITERATIONS)) if self.N is None else self.N
        return replace(self, N=N, K=max(1, int(budget / N)) if self.K is None else self.K)

    def init(self, theta: Array, I: int, world: Any = None) -> State:
        """θ¹ as the policy starts, λ¹ = 0."""
        return State(theta, np.zeros(I), 0, world)

    @property
    def _K(self) -> int:
        return self.K or ITERATIONS

    def kl_at(self, k: int) -> float:
        """The bound of iteration k: it falls linearly."""
        return float(self.kl[0] + (self.kl[1] - self.kl[0]) * k / self._K)

    def kappa_at(self, k: int) -> Array:
        """κ_k = κ + (κ_1 − κ)(1 − k/.85K)₊²."""
        kappa = np.atleast_1d(margin_of(self.kappa))
        first = 2 * kappa if self.kappa_first is None else np.maximum(kappa, self.kappa_first)
        return kappa + max(1 - k / (SHRUNK * self._K), 0.0) ** 2 * (first - kappa)

    def relaxed_at(self, k: int) -> float:
        """The share of the first shortfall by which the limits are relaxed in iteration k; it falls linearly to 0."""
        return max(1 - k / (self.relax * self._K), 0.0) if self.relax else 0.0

    def step(self, key: np.uint64, sampler: Practical, state: State, lam_max: float) -> tuple[State, Info]:
        """One iteration."""
        assert self.N is not None
        draws, J_hat, world, steps = sampler.batch(key, state.world, state.theta, self.N)
        scale = pace(world)
        most = np.minimum(self.lam_max * units(world), lam_max)
        slack = J_hat[1:] - sampler.cmdp.b
        short = np.maximum(-slack, 0.0) if state.memory is None else state.memory
        kappa = self.kappa_at(state.k) - self.relaxed_at(state.k) * short
        ahead = np.clip(state.lam - self.eta_p * scale * (slack - kappa), 0.0, most)
        A_L = normalised(lagrangian(draws.A, ahead), draws.weight)
        omega, quad, rows = self.direction(draws.score, A_L)
        theta = state.theta + bounded_step(rows, omega, quad, self.eta1, self.kl_at(state.k))
        lam = np.minimum(dual.step(state.lam, slack, self.eta2 * scale, kappa, np.inf), most)
        return State(theta, lam, state.k + 1, world, short), Info(J_hat, float(np.linalg.norm(omega)), steps)


def units(world: World) -> Array:
    """u_r/u_gi [I]: the λ at which reward and constraint weigh the same."""
    size = np.asarray(world.size, float)
    return size[0] / np.maximum(size[1:], 1e-12)


def pace(world: World) -> Array:
    """Steps of λ_i for a slack of 1 in J_gi, at η₂ = 1: u_r/(u_gi v_i) [I]."""
    return units(world) / np.maximum(np.asarray(world.miss, float), 1e-12)


def normalised(A: Array, weight: Array) -> Array:
    """Advantages with mean 0 and mean square 1 under the weights; as they are where they are all equal."""
    A = A - weight @ A
    size = np.sqrt(weight @ A**2)
    return A / size if size > 0 else A
