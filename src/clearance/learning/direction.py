"""Compute the natural direction ω, the update direction of the policy parameters θ, from weighted draws and λ.

    ω* = argmin_ω E_{(s,a)~d} (score·(1−γ)ω − A_L)²  =  F† ∇J_L,       A_L = A_r + Σ_i λ_i A_gi

See Bai et al. 2023, eq. (12) and Lemma "Proof of NPG update direction". For tabular softmax, ω* = A_L/(1−γ) up to a
constant for each state; such a constant does not change the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import LinearOperator

from clearance.core.arrays import Array
from clearance.core.compiled import regression
from clearance.core.errors import InputError
from clearance.core.validation import check_non_negative, check_positive
from clearance.learning.draws import Draws, PairScore

WIDE = 4  # if there are more than WIDE times as many parameters as rows, X Xᵀ is decomposed instead of X
G2 = 2.0  # G² ≥ ‖score‖², where the scores are those of a softmax with one-hot features


def lagrangian(A: Array, lam: Array) -> Array:
    """Return A_r + Σ_i λ_i A_gi, the Lagrangian combination of stacked advantages or signals A [..., 1+I].

    This is eq. (14) of Bai et al. (2023). `lam` is λ [I].
    """
    return A[..., 0] + A[..., 1:] @ lam


@dataclass(frozen=True)
class SGD:
    """Estimate ω by averaged stochastic gradient descent from 0, as in lines 3–10 of Algorithm 1.

    Each draw has a score ∇ log π(a|s) and an advantage Â_L of the Lagrangian. With the step size α (`alpha`), each draw
    updates w = (1−γ)ω or, with printed=True, ω itself:

        w ← w − α (score·w − Â_L) score,                     ω = mean of all w, divided by 1−γ
        ω ← ω − 2α(1−γ) (score·(1−γ)ω − Â_L) score,          result: mean of all ω                printed=True

    The second form is the one printed in the paper. It needs 1/(2(1−γ)²) times as many samples until the result no
    longer depends on the initial ω = 0, so 100 samples are far too few. The theory requires α ≤ 1/(4G²), where G bounds
    ‖score‖; this is 1/8 for one-hot features.
    """

    alpha: float = 0.05
    printed: bool = False

    def scales(self, gamma: float) -> tuple[float, float, float]:
        """Return the coefficients (step, scale, out) of this formula, which covers both forms of SGD:

        x ← x − step·(scale·score·x − Â_L) score,    ω = out · mean of the iterates x
        """
        if self.printed:
            return 2 * self.alpha * (1 - gamma), 1 - gamma, 1.0
        return self.alpha, 1.0, 1 / (1 - gamma)

    def __call__(self, draws: Draws, lam: Array, gamma: float) -> Array:
        """Return the update direction ω [d] of θ for multipliers λ [I].

        All draws must have the same weight. They are used in the given order.
        """
        step, scale, out = self.scales(gamma)
        score = dense(draws.score)
        x, total = np.zeros(score.shape[1]), np.zeros(score.shape[1])
        for row, A_L in zip(score, lagrangian(draws.A, lam), strict=True):
            x = x - step * (scale * (row @ x) - A_L) * row
            total += x
        return out * total / len(score)


@dataclass(frozen=True)
class WeightedSGD:
    """Estimate ω by weighted SGD, with one regression for each signal (Ding et al., JMLR 2025).

    score is ∇ log π(a|s), and Â the estimated advantage of one signal. From N draws,

        w ← w − α_n (score·w − Â) score,   α_n = 2/(σ_F (n+1));        result of one signal: Σ_n 2(n+1) w_n/(N(N+1))
        ω = (w_r + Σ_i λ_i w_gi)/(1−γ)                                 from the results for r and for every g_i

    `sigma_F` is σ_F, the assumed smallest eigenvalue of the Fisher matrix. Step sizes are capped at 1/(2G²), where G
    bounds ‖score‖, since the large first steps would diverge; the paper projects on a ball instead. Without a
    projection the result is linear in Â, so the sum of the separate regressions equals one regression of A_r + Σ_i λ_i
    A_gi.
    """

    sigma_F: float = 0.1

    def __call__(self, draws: Draws, lam: Array, gamma: float) -> Array:
        """Return the update direction ω [d] of θ for multipliers λ [I].

        All draws must have the same weight. They are used in the given order.
        """
        A, score = np.ascontiguousarray(draws.A), draws.score
        if isinstance(score, PairScore):
            w = regression.weighted_table(score.pair, score.pi, A, self.sigma_F, 0.5 / G2)
        else:
            w = regression.weighted(dense(score), A, self.sigma_F, 0.5 / G2)
        return (w[:, 0] + w[:, 1:] @ lam) / (1 - gamma)


@dataclass(frozen=True)
class AcceleratedSGD:
    """Estimate ω by accelerated SGD (Mondal and Aggarwal 2024; Jain et al. 2018).

        u = a·x + (1−a)·v,    ĝ = (score·u − Â_L/(1−γ)) score,    x = u − δĝ,    v = βu + (1−β)v − ξĝ
        a = 3√5G²/(μ_F + 3√5G²),    β = μ_F/(9G²),    ξ = 1/(3√5G²),    δ = 1/(5G²)

    score is ∇ log π(a|s), and Â_L the advantage of the Lagrangian. ω is the mean of the last half of all x. G bounds
    ‖score‖, and `mu_F` is the assumed smallest eigenvalue μ_F of the Fisher matrix.
    """

    mu_F: float = 0.05

    def constants(self) -> tuple[float, float, float, float]:
        """Return the coefficients (a, β, ξ, δ) of accelerated SGD, which the docstring of the class defines."""
        root = 3 * np.sqrt(5) * G2
        return root / (self.mu_F + root), self.mu_F / (9 * G2), 1 / root, 1 / (5 * G2)

    def __call__(self, draws: Draws, lam: Array, gamma: float) -> Array:
        """Return the update direction ω [d] of θ for multipliers λ [I].

        All draws must have the same weight. They are used in the given order.
        """
        A_L = np.ascontiguousarray(lagrangian(draws.A, lam)) / (1 - gamma)
        if isinstance(draws.score, PairScore):
            return regression.accelerated_table(draws.score.pair, draws.score.pi, A_L, *self.constants())
        return regression.accelerated(dense(draws.score), A_L, *self.constants())


@dataclass(frozen=True)
class LeastSquares:
    """Compute ω by least squares, with the pseudo-inverse or, if `ridge` > 0, with a ridge.

        F w = E[score A_L],    F = E[score scoreᵀ] + ridge·1,    ω = w/(1−γ)

    score is ∇ log π(a|s), and A_L the advantage of the Lagrangian. With exact draws the result is the exact natural
    gradient. F is singular for softmax policies, so the pseudo-inverse is the default; it gives the shortest ω. If the
    policy has saturated at a state (probabilities below about 1e-18), the pseudo-inverse ignores this state, and the
    parameters of this state do not change. `Tabular` does not have this limitation.
    """

    ridge: float = 0.0

    def __call__(self, draws: Draws, lam: Array, gamma: float) -> Array:
        """Return the update direction ω [d] of θ from weighted draws, for multipliers λ [I]."""
        score = dense(draws.score)
        A_L = lagrangian(draws.A, lam)
        if self.ridge == 0:  # rows times √weight: the square root of the normal equations' condition number
            root = np.sqrt(draws.weight)
            if score.shape[1] > WIDE * len(score):
                return _shortest(root[:, None] * score, root * A_L) / (1 - gamma)
            u, sigma, vt = linalg.svd(root[:, None] * score, full_matrices=False)
            # The second threshold is for policies that are saturated in all states: then σ is small and A_L/σ is noise.
            keep = sigma > np.maximum(1e-9 * sigma[0], 1e-13 * np.linalg.norm(score, axis=1).max())
            w = vt[keep].T @ ((u[:, keep].T @ (root * A_L)) / sigma[keep])
        else:
            F = fisher(draws) + self.ridge * np.eye(score.shape[1])
            w = linalg.solve(F, score.T @ (draws.weight * A_L), assume_a="pos")
        return np.asarray(w) / (1 - gamma)


def _shortest(X: Array, y: Array) -> Array:
    """Return the shortest w [d] that minimises ‖Xw − y‖ for X [N, d] with N much smaller than d.

    The result is computed from the eigenvalues of X Xᵀ. Compared with a decomposition of X, it has only half as many
    correct digits, but takes a hundredth of the time if d is large, as it is for networks.
    """
    size, u = linalg.eigh(X @ X.T)
    keep = size > 1e-10 * size[-1]
    return X.T @ (u[:, keep] @ ((u[:, keep].T @ y) / size[keep]))


@dataclass(frozen=True)
class Tabular:
    """The closed form of ω for tabular softmax: the mean of the advantage Â_L at each pair (s, a), divided by 1−γ.

    Â_L is the advantage of the Lagrangian. Pairs without draws have ω = 0. With exact draws the result is the exact
    natural gradient, even if the policy is saturated (Agarwal et al. 2021, Lemma 15).
    """

    def __call__(self, draws: Draws, lam: Array, gamma: float) -> Array:
        """Return the update direction ω [S·A] of θ, for multipliers λ [I].

        The plain mean over the draws of a pair is used: all draws of one pair have the same weight.
        """
        d = draws.score.shape[1]
        total = np.bincount(draws.pair, weights=lagrangian(draws.A, lam), minlength=d)
        return total / np.maximum(np.bincount(draws.pair, minlength=d), 1) / (1 - gamma)


def fisher(draws: Draws) -> Array:
    """Return the Fisher matrix F = Σ_n weight_n score_n score_nᵀ [d, d] (Bai et al. 2023, eq. 8)."""
    score = dense(draws.score)
    return score.T @ (score * draws.weight[:, None])


def dense(score: Any) -> Array:
    """Return scores, which may be a linear operator or sparse, as an array [N, d]."""
    if hasattr(score, "toarray"):
        return score.toarray()
    return np.asarray(score @ np.eye(score.shape[1]) if isinstance(score, LinearOperator) else score)


Direction = SGD | WeightedSGD | AcceleratedSGD | LeastSquares | Tabular
# Directions that process the draws one after the other; they need draws of equal weight.
STOCHASTIC = SGD | WeightedSGD | AcceleratedSGD


def check_direction(direction: Any) -> None:
    """Raise InputError unless `direction` is an object of one of this module's classes with valid settings."""
    if not isinstance(direction, Direction):
        names = "SGD(), WeightedSGD(), AcceleratedSGD(), LeastSquares() or Tabular()"
        raise InputError(f"direction must be {names}, got {direction!r}")
    check_non_negative("ridge", getattr(direction, "ridge", 0.0))
    for name in ("alpha", "sigma_F", "mu_F"):
        check_positive(name, getattr(direction, name, 1.0))
