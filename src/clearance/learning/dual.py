"""The conservative dual step: update the multipliers λ from the slacks J_g − b."""

from __future__ import annotations

import numpy as np

from clearance.core.arrays import Array


def step(lam: Array, slack: Array, eta2: float | Array, kappa: float | Array, lam_max: float) -> Array:
    """Return the next multipliers, `P_[0, Λ](λ − η₂ (Ĵ_g − b − κ))` [I] (Bai et al. 2023, Algorithm 1, line 16).

    `slack` is Ĵ_g − b [I], and Λ is `lam_max`. The projection P is on the closed interval [0, Λ]. The paper writes
    (0, Λ], which would exclude its own initial value λ = 0.
    """
    return np.clip(lam - eta2 * (slack - kappa), 0.0, lam_max)


def path_bound(lam: Array, lam_end: Array, eta2: float | Array, kappa: float | Array, lam_max: float) -> Array | None:
    """Return a lower bound [I] on mean_k (Ĵ_g − b), the mean slack over a run; None if λ reached its upper bound Λ.

    The bound is κ − (1/K) Σ_k (λ^{k+1} − λ^k)/η₂^k, where `lam` is λ^1..λ^K, `lam_end` is λ^{K+1}, and η₂ is one number
    or [K, I]. It holds for every run: each step without the upper clip gives λ^{k+1} ≥ λ^k − η₂ (Ĵ_g^k − b − κ), and
    the sum of these inequalities over k gives the bound. With a constant η₂ it is κ − (λ^{K+1} − λ^1)/(η₂ K).
    """
    if np.any(lam >= lam_max) or np.any(lam_end >= lam_max):
        return None
    moves = np.diff(np.concatenate([lam, lam_end[None]]), axis=0)
    return kappa - (moves / eta2).mean(0)


def lam_max_of(gamma: float, slater: float, kappa: float, r_range: float) -> float:
    """Return Λ = 2 (r⁺ − r⁻) / ((1−γ)(φ − κ)), at least twice every optimal multiplier of the conservative problem.

    φ (`slater`) is the Slater margin and r⁺ − r⁻ (`r_range`) the range of the reward. For a Slater point π̄,
    max J_r ≥ J_r(π̄) + λ*(J_g(π̄) − b − κ), so λ* ≤ (r⁺ − r⁻)/((1−γ)(φ−κ)). The paper's formula has φ, but its
    assumption implies φ − κ. For I > 1 the same bound holds for Σ_i λ_i. If the reward is constant, λ* = 0 and the
    result is 1.
    """
    return 2 * r_range / ((1 - gamma) * (slater - kappa)) if r_range > 0 else 1.0
