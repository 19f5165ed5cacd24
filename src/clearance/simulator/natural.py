"""The natural direction for networks: conjugate gradient on products with the Fisher matrix, and a step that is bounded
in KL.

    ω = (F + damping·1)⁻¹ E_d[score A_L],     F = E_d Jᵀ M J,     J = ∂out/∂θ,  M the head's Fisher matrix at out

F is the expectation over actions in closed form, where the paper's regression has the sampled ones: with more
parameters than draws that regression would fit the noise of Â. Products F v need one pass forwards and one back
(jacobian.py); the method of conjugate gradients itself runs in float64.

    θ ← θ + β ω,     β = min(η₁, √(2 kl/ωᵀFω)),   halved while the mean KL of old and new policy is above 1.5 kl
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from clearance.problem import Array
from clearance.simulator import jacobian
from clearance.simulator.backend import jax, real
from clearance.simulator.jacobian import Tape, grouped, side_by_side, summed
from clearance.simulator.policy import NetworkPolicy


class Part:
    """Rows in groups, and what the network did at them: products with F, and KL."""

    def __init__(self, policy: NetworkPolicy, theta: Any, z: Any, weight: Any) -> None:
        self.policy, self.theta, self.groups = policy, theta, grouped(z, weight / weight.sum())
        self.tapes: list[Tape] = side_by_side(lambda g: jacobian.record(policy, theta, g[0]), self.groups)

    def fisher(self, v: Array) -> Array:
        """F v [d]."""
        product, v = partial(jacobian.fisher_product, self.policy, self.theta), real(v)
        return summed(lambda group, tape: product(tape, group[1], v), self.groups, self.tapes)

    def apart(self, new: Array) -> float:
        """The mean KL of π_θ and π_new."""
        apart, new = partial(jacobian.apart, self.policy, self.theta), real(new)
        return float(summed(lambda group, tape: apart(tape, *group, new), self.groups, self.tapes))


class Scores(LinearOperator):
    """∇ log π_θ(u_n|z_n) [N, d] of a network, as a linear operator: products by JVP and VJP, no matrix.

    z [N, inputs] normalised observations, latent [N, …], weight [N]; JAX arrays.
    """

    def __init__(self, policy: NetworkPolicy, theta: Array, z: Any, latent: Any, weight: Any) -> None:
        super().__init__(np.dtype(float), (len(z), len(theta)))
        self.policy, self.theta, self.z, self.latent, self.weight = policy, real(theta), z, latent, weight

    def _matvec(self, x: Array) -> Array:
        return np.asarray(_push(self.policy, self.theta, self.z, self.latent, real(np.ravel(x))), float)

    def _rmatvec(self, x: Array) -> Array:
        return np.asarray(_pull(self.policy, self.theta, self.z, self.latent, real(np.ravel(x))), float)

    def toarray(self) -> Array:
        """The scores as they are: N times d numbers, for the paper's regression on few draws."""
        return np.asarray(_each(self.policy, self.theta, self.z, self.latent), float)

    def gradient(self, A: Array) -> Array:
        """Σ_n weight_n A_n score_n [d]."""
        groups = grouped(self.z, self.latent, self.weight * real(A))
        return summed(lambda group: jacobian.score_sum(self.policy, self.theta, *group), groups)

    def every(self, stride: int) -> Part:
        """Every stride-th row."""
        return Part(self.policy, self.theta, self.z[::stride], self.weight[::stride])


@dataclass(frozen=True)
class Natural:
    """How ω is found: conjugate-gradient iterations, damping, and the share of the rows that F is estimated from."""

    iterations: int = 10
    damping: float = 0.1
    share: float = 1.0

    @property
    def stride(self) -> int:
        return max(1, round(1 / self.share))

    def __call__(self, score: Scores, A_L: Array) -> tuple[Array, float, Part]:
        """ω [d] for advantages A_L [N], ωᵀFω, and the rows that F was estimated from."""
        g, rows = score.gradient(A_L), score.every(self.stride)
        omega, rest = conjugate(lambda v: rows.fisher(v) + self.damping * v, g, self.iterations)
        return omega, float(omega @ (g - rest) - self.damping * omega @ omega), rows


def bounded_step(rows: Part, omega: Array, quad: float, eta: float, kl: float) -> Array:
    """βω with β as in the head of the module."""
    beta = min(eta, float(np.sqrt(2 * kl / max(quad, 1e-30))))
    theta = np.asarray(rows.theta, float)
    for _ in range(10):
        if rows.apart(theta + beta * omega) <= 1.5 * kl:
            break
        beta *= 0.5
    return beta * omega


def _log_probs(policy: NetworkPolicy, z: Any, latent: Any, theta: Any) -> Any:
    net = policy.net(theta)
    return jax.vmap(lambda x, u: policy.head.log_prob(policy.out(net, x), u))(z, latent)


@partial(jax.jit, static_argnums=0)
def _each(policy: NetworkPolicy, theta: Any, z: Any, latent: Any) -> Any:
    def likely(th: Any, x: Any, u: Any) -> Any:
        return policy.head.log_prob(policy.out(policy.net(th), x), u)

    return jax.vmap(jax.grad(likely), (None, 0, 0))(theta, z, latent)


@partial(jax.jit, static_argnums=0)
def _push(policy: NetworkPolicy, theta: Any, z: Any, latent: Any, v: Any) -> Any:
    return jax.jvp(partial(_log_probs, policy, z, latent), (theta,), (v,))[1]


@partial(jax.jit, static_argnums=0)
def _pull(policy: NetworkPolicy, theta: Any, z: Any, latent: Any, v: Any) -> Any:
    return jax.vjp(partial(_log_probs, policy, z, latent), theta)[1](v)[0]


def conjugate(F: Callable[[Array], Array], g: Array, iterations: int) -> tuple[Array, Array]:
    """x ≈ F⁻¹ g after so many steps of the method of conjugate gradients from 0, and what is left, g − F x."""
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
