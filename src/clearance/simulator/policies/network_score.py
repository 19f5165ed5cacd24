"""The scores of a network policy as a linear operator, products with the policy's Fisher matrix, and KL divergences."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from clearance.core.arrays import Array
from clearance.simulator.jax_backend import jax, real
from clearance.simulator.policies import jacobian
from clearance.simulator.policies.jacobian import Tape, group_rows, map_groups, sum_groups
from clearance.simulator.policies.network_policy import NetworkPolicy

LARGE = 20.0  # log ratios of probabilities beyond this are cut off, so that none overflows


class NetworkRows:
    """Rows (steps) of a batch, with the inputs of all layers recorded at each row.

    They are used for products with the Fisher matrix F of the policy and for KL divergences.
    """

    def __init__(self, policy: NetworkPolicy, theta: Any, z: Any, weight: Any) -> None:
        self.policy, self.theta, self.groups = policy, theta, group_rows(z, weight / weight.sum())
        self.tapes: list[Tape] = map_groups(lambda g: jacobian.record(policy, theta, g[0]), self.groups)

    def fisher(self, v: Array) -> Array:
        """Return the product F v [d] of the Fisher matrix with a vector v [d]."""
        product, v = partial(jacobian.fisher_product, self.policy, self.theta), real(v)
        return sum_groups(lambda group, tape: product(tape, group[1], v), self.groups, self.tapes)

    def kl_to(self, new: Array) -> float:
        """Return the weighted mean over the rows of KL(π_θ ‖ π_new); `new` [d] are the parameters of π_new."""
        apart, new = partial(jacobian.kl_divergence, self.policy, self.theta), real(new)
        return float(sum_groups(lambda group, tape: apart(tape, *group, new), self.groups, self.tapes))


class NetworkScore(LinearOperator):
    """The matrix of scores ∇_θ log π_θ(u_n|z_n) [N, d] of a network, as a linear operator that is never stored.

    z       normalised observations z_n [N, inputs]
    latent  the values u_n [N, …] that the policy drew, before they were turned into actions
    weight  weights of the rows [N];  z, latent and weight are JAX arrays
    """

    def __init__(self, policy: NetworkPolicy, theta: Array, z: Any, latent: Any, weight: Any) -> None:
        super().__init__(np.dtype(float), (len(z), len(theta)))
        self.policy, self.theta, self.z, self.latent, self.weight = policy, real(theta), z, latent, weight

    def _matvec(self, x: Array) -> Array:
        return np.asarray(_push(self.policy, self.theta, self.z, self.latent, real(np.ravel(x))), float)

    def _rmatvec(self, x: Array) -> Array:
        return np.asarray(_pull(self.policy, self.theta, self.z, self.latent, real(np.ravel(x))), float)

    def toarray(self) -> Array:
        """Return the scores as a dense matrix [N, d], for the paper's regression on few draws."""
        return np.asarray(_each_score(self.policy, self.theta, self.z, self.latent), float)

    def gradient(self, A: Array) -> Array:
        """Return the policy gradient Σ_n weight_n A_n score_n [d] for advantages A [N]."""
        groups = group_rows(self.z, self.latent, self.weight * real(A))
        return sum_groups(lambda group: jacobian.score_sum(self.policy, self.theta, *group), groups)

    def every(self, stride: int) -> NetworkRows:
        """Return every stride-th row of the batch, with the inputs of all layers recorded."""
        return NetworkRows(self.policy, self.theta, self.z[::stride], self.weight[::stride])

    def at(self, theta: Array) -> tuple[NetworkScore, Array]:
        """Return the scores of the same rows at other parameters `theta`, and π_theta(u_n|z_n)/π_θ(u_n|z_n) [N]."""
        there = NetworkScore(self.policy, theta, self.z, self.latent, self.weight)
        old, new = (np.asarray(_log_probs_of(self.policy, self.z, self.latent, x.theta), float) for x in (self, there))
        return there, np.exp(np.clip(new - old, -LARGE, LARGE))

    def bound_noise(self, theta: Array, least: float, most: float) -> Array:
        """Return θ with the standard deviation σ of actions clipped to [least, most] times its initial value.

        If σ is fixed or depends on the state, θ is returned unchanged.
        """
        return self.policy.with_noise(theta, least, most)


def _log_probs(policy: NetworkPolicy, z: Any, latent: Any, theta: Any) -> Any:
    net = policy.net(theta)
    return jax.vmap(lambda x, u: policy.head.log_prob(policy.out(net, x), u))(z, latent)


_log_probs_of = jax.jit(_log_probs, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def _each_score(policy: NetworkPolicy, theta: Any, z: Any, latent: Any) -> Any:
    def likely(th: Any, x: Any, u: Any) -> Any:
        return policy.head.log_prob(policy.out(policy.net(th), x), u)

    return jax.vmap(jax.grad(likely), (None, 0, 0))(theta, z, latent)


@partial(jax.jit, static_argnums=0)
def _push(policy: NetworkPolicy, theta: Any, z: Any, latent: Any, v: Any) -> Any:
    return jax.jvp(partial(_log_probs, policy, z, latent), (theta,), (v,))[1]


@partial(jax.jit, static_argnums=0)
def _pull(policy: NetworkPolicy, theta: Any, z: Any, latent: Any, v: Any) -> Any:
    return jax.vjp(partial(_log_probs, policy, z, latent), theta)[1](v)[0]
