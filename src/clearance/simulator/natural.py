"""The natural direction for networks: conjugate gradient on products with the Fisher matrix, and a step that is bounded
in KL.

    ω = (F + damping·1)⁻¹ E_d[score A_L],     F = E_d Jᵀ M J,     J = ∂out/∂θ,  M the head's Fisher matrix at out

F is the expectation over actions in closed form, where the paper's regression has the sampled ones: with more
parameters than draws that regression would fit the noise of Â. Products F v need one pass forwards and one back.

    θ ← θ + β ω,     β = min(η₁, √(2 kl/ωᵀFω)),   halved while the mean KL of old and new policy is above 1.5 kl
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from clearance.problem import Array
from clearance.simulator.backend import jax, jnp, real
from clearance.simulator.policy import NetworkPolicy

CHUNK = 256  # rows of a product with F that go through the network together


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


@dataclass(frozen=True)
class Natural:
    """How ω is found: conjugate-gradient iterations, damping, and the share of the rows that F is estimated from."""

    iterations: int = 10
    damping: float = 0.1
    share: float = 1.0

    @property
    def stride(self) -> int:
        return max(1, round(1 / self.share))

    def __call__(self, score: Scores, A_L: Array) -> tuple[Array, float]:
        """ω [d] for advantages A_L [N], and ωᵀFω."""
        found = _direction(self, score.policy, score.theta, score.z, score.latent, score.weight, real(A_L))
        return np.asarray(found[0], float), float(found[1])


def bounded_step(score: Scores, omega: Array, quad: float, eta: float, kl: float, stride: int) -> Array:
    """βω with β as in the head of the module."""
    beta = min(eta, float(np.sqrt(2 * kl / max(quad, 1e-30))))
    theta = np.asarray(score.theta, float)
    for _ in range(10):
        apart = _kl(score.policy, stride, score.theta, real(theta + beta * omega), score.z, score.weight)
        if float(apart) <= 1.5 * kl:
            break
        beta *= 0.5
    return beta * omega


def _log_probs(policy: NetworkPolicy, z: Any, latent: Any, theta: Any) -> Any:
    net = policy.net(theta)
    return jax.vmap(lambda x, u: policy.head.log_prob(policy.out(net, x), u))(z, latent)


@partial(jax.jit, static_argnums=0)
def _push(policy: NetworkPolicy, theta: Any, z: Any, latent: Any, v: Any) -> Any:
    return jax.jvp(partial(_log_probs, policy, z, latent), (theta,), (v,))[1]


@partial(jax.jit, static_argnums=0)
def _pull(policy: NetworkPolicy, theta: Any, z: Any, latent: Any, v: Any) -> Any:
    return jax.vjp(partial(_log_probs, policy, z, latent), theta)[1](v)[0]


@partial(jax.jit, static_argnums=(0, 1))
def _kl(policy: NetworkPolicy, stride: int, theta: Any, new: Any, z: Any, weight: Any) -> Any:
    """Σ_n weight_n KL(π_θ ‖ π_new) at z_n, over every stride-th row."""
    z, weight = z[::stride], weight[::stride]
    a, b = (jax.vmap(partial(policy.out, policy.net(th)))(z) for th in (theta, new))
    return weight @ jax.vmap(policy.head.kl)(a, b) / jnp.sum(weight)


@partial(jax.jit, static_argnums=(0, 1))
def _direction(
    how: Natural, policy: NetworkPolicy, theta: Any, z: Any, latent: Any, weight: Any, A_L: Any
) -> tuple[Any, Any]:
    """ω and ωᵀFω."""
    g = jax.grad(lambda th: _log_probs(policy, z, latent, th) @ (weight * A_L))(theta)
    F = fisher(policy, theta, z[:: how.stride], weight[:: how.stride])
    omega = conjugate(lambda v: F(v) + how.damping * v, g, how.iterations)
    return omega, omega @ F(omega)


def fisher(policy: NetworkPolicy, theta: Any, z: Any, weight: Any) -> Any:
    """v ↦ F v, by chunks of rows whose activations stay in the cache: half the time of all rows at once."""
    short = -len(z) % CHUNK if len(z) > CHUNK else 0
    z, share = jnp.pad(z, ((0, short), (0, 0))), jnp.pad(weight / jnp.sum(weight), (0, short))
    size = min(CHUNK, len(z))
    rows = z.reshape(-1, size, z.shape[1]), share.reshape(-1, size)

    def product(v: Any) -> Any:
        def add(total: Any, chunk: Any) -> Any:
            return total + _product(policy, theta, chunk[0], chunk[1], v), None

        return jax.lax.scan(add, jnp.zeros_like(v), rows)[0]

    return product


def _product(policy: NetworkPolicy, theta: Any, z: Any, share: Any, v: Any) -> Any:
    """Σ_n share_n J_nᵀ M_n J_n v: one pass forwards, one along v, one back."""
    outs, push = jax.linearize(lambda th: jax.vmap(partial(policy.out, policy.net(th)))(z), theta)
    pull = jax.linear_transpose(push, theta)
    return pull(share[:, None] * jax.vmap(policy.head.fisher)(outs, push(v)))[0]


def conjugate(F: Any, g: Any, iterations: int) -> Any:
    """x ≈ F⁻¹ g after so many steps of the method of conjugate gradients from 0."""

    def one(_: Any, carry: Any) -> Any:
        x, r, p, rr = carry
        Fp = F(p)
        a = rr / jnp.maximum(p @ Fp, 1e-30)
        x, r = x + a * p, r - a * Fp
        new = r @ r
        return x, r, r + new / jnp.maximum(rr, 1e-30) * p, new

    return jax.lax.fori_loop(0, iterations, one, (jnp.zeros_like(g), g, g, g @ g))[0]
