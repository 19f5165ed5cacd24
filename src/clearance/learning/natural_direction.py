"""The natural direction of networks, computed by conjugate gradients, and a step of θ bounded in KL.

    ω = (F + damping·1)⁻¹ E_d[score A_L],     F = E_d Jᵀ M J,     J = ∂out/∂θ

Here J is the Jacobian of the network's output `out`, and M the Fisher matrix of the action distribution with respect to
`out`. So F is an exact expectation over actions. The regression in the paper uses the sampled actions instead, and with
more parameters than draws it would fit the noise of Â. The scores compute the products F v that conjugate gradients
need (`NetworkScore`). The conjugate gradients run in float64.

    θ ← θ + β ω,     β = min(η₁, √(2 kl/ωᵀFω)),   halved while the mean KL of old and new policy is above 1.5 kl
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from clearance.core.arrays import Array


class FisherRows(Protocol):
    """A protocol for a set of draws that gives an estimate of the Fisher matrix F of a policy π_θ."""

    @property
    def theta(self) -> Any: ...

    def fisher(self, v: Array) -> Array:
        """Return the product F v [d] of the Fisher matrix with a vector v [d]."""
        ...

    def kl_to(self, new: Array) -> float:
        """Return the mean KL divergence between π_θ and the policy with parameters `new` [d]."""
        ...


class NaturalScore(Protocol):
    """A protocol for scores [N, d] of a policy whose Fisher matrix is known in closed form."""

    def gradient(self, A: Array) -> Array:
        """Return the policy gradient Σ_n weight_n A_n score_n [d] for advantages A [N]."""
        ...

    def every(self, stride: int) -> FisherRows:
        """Return every stride-th row of the scores. Estimating the Fisher matrix F from these rows costs less."""
        ...

    def at(self, theta: Array) -> tuple[NaturalScore, Array]:
        """Return the scores of the same rows at other parameters θ, and the ratios [N] of new to old probabilities.

        The probabilities are those of the drawn actions.
        """
        ...


@dataclass(frozen=True)
class Natural:
    """The computation of the natural direction ω, the update direction of θ, with its settings.

    iterations  number of conjugate-gradient iterations
    damping     the number added to the diagonal of the Fisher matrix F
    share       the share of rows from which F is estimated
    """

    iterations: int = 10
    damping: float = 0.1
    share: float = 1.0

    @property
    def stride(self) -> int:
        return max(1, round(1 / self.share))

    def __call__(self, score: NaturalScore, A_L: Array) -> tuple[Array, float, FisherRows]:
        """Return (ω, ωᵀFω, rows): the natural direction ω [d] for the scores [N, d] and the advantages A_L [N].

        F is the Fisher matrix, and `rows` are the draws from which it was estimated.
        """
        g, rows = score.gradient(A_L), score.every(self.stride)
        omega, rest = conjugate_gradients(lambda v: rows.fisher(v) + self.damping * v, g, self.iterations)
        return omega, float(omega @ (g - rest) - self.damping * omega @ omega), rows


def bound_step(rows: FisherRows, omega: Array, quad: float, eta: float, kl: float) -> Array:
    """Return βω, a step of θ that is bounded in its factor β and in KL.

    β starts at min(η, √(2 kl/quad)), where η is `eta` and `quad` is ωᵀFω. It is halved, up to ten times, until the mean
    KL divergence between old and new policy is at most 1.5 `kl`. `rows` are the draws from which the Fisher matrix F
    was estimated.
    """
    beta = min(eta, float(np.sqrt(2 * kl / max(quad, 1e-30))))
    theta = np.asarray(rows.theta, float)
    for _ in range(10):
        if rows.kl_to(theta + beta * omega) <= 1.5 * kl:
            break
        beta *= 0.5
    return beta * omega


def conjugate_gradients(F: Callable[[Array], Array], g: Array, iterations: int) -> tuple[Array, Array]:
    """Return x ≈ F⁻¹ g after `iterations` steps of conjugate gradients from 0, and the residual g − F x."""
    x, r, p = np.zeros_like(g), g, g
    for _ in range(iterations):
        rr = r @ r
        if rr == 0:
            break
        Fp = F(p)
        a = rr / max(p @ Fp, 1e-300)
        x, r = x + a * p, r - a * Fp
        p = r + (r @ r) / rr * p
    return x, r
