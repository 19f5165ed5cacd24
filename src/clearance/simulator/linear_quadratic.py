"""Truth for continuous actions: the discounted linear-quadratic regulator with a limit on effort.

    minimise E Σγ^t x'Qx   subject to   E Σγ^t u'Ru ≤ budget,        x' = Ax + Bu + w,  w ~ N(0, W),  x_0 ~ N(0, X0)

Without duality gap the optimum is the regulator of Q + λR (Riccati), with λ such that the budget is just spent: a
search in one dimension. A linear-Gaussian policy u = −Kx + c + ξ, ξ ~ N(0, Σ), has its values from the discounted
Lyapunov equation M = X0 + γ(A_K M A_K' + (W + BΣB')/(1−γ)) for M = Σγ^t E xx'. Costs are unbounded, so samples could
not certify it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from clearance.core.arrays import Array
from clearance.core.errors import InputError

EPS = float(np.finfo(float).eps)


class LinearPolicy(NamedTuple):
    """u = −Kx + c + ξ, ξ ~ N(0, Σ):  K [m, n], c [m], Sigma [m, m]."""

    K: Array
    c: Array
    Sigma: Array


class Values(NamedTuple):
    """J = (E Σγ^t x'Qx, E Σγ^t u'Ru) of a linear policy, and a bound on the error of each."""

    J: Array
    error: Array


class Regulator(NamedTuple):
    """The optimum: gain K of u = −Kx, its values (J_x, J_u) with the exploration noise asked for, and λ."""

    K: Array
    J: Array
    lam: float


@dataclass(frozen=True, eq=False)
class LQR:
    """The problem; see the head of the module."""

    A: Array
    B: Array
    Q: Array
    R: Array
    W: Array
    X0: Array
    gamma: float
    budget: float

    @classmethod
    def double_integrator(cls, budget: float = 2.0) -> LQR:
        """Position and speed with a force as action, dt = .1."""
        A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [0.1]])
        return cls(A, B, np.diag([1.0, 0.1]), np.eye(1), 0.01 * np.eye(2), np.eye(2), 0.95, budget)

    def gain(self, lam: float) -> Array:
        """K of the regulator for Q + λR: K = γ(λR + γB'PB)⁻¹B'PA, P the solution of the discounted Riccati equation."""
        root = np.sqrt(self.gamma)
        P = linalg.solve_discrete_are(root * self.A, root * self.B, self.Q, lam * self.R)
        BP = self.gamma * self.B.T @ P
        return np.asarray(linalg.solve(lam * self.R + BP @ self.B, BP @ self.A, assume_a="pos"))

    def optimum(self, Sigma: Array | None = None) -> Regulator:
        """The best policy within the budget among all whose actions carry noise N(0, Σ); none unless given."""
        Sigma = np.zeros_like(self.R) if Sigma is None else Sigma
        low, high = -20.0, 20.0
        if self._effort(np.exp(high), Sigma) > self.budget:
            least = self._effort(np.exp(high), Sigma)
            raise InputError(f"budget {self.budget:g} is below what the noise alone spends, {least:.6g}: raise it")
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._effort(np.exp(middle), Sigma) > self.budget else (low, middle)
        K = self.gain(float(np.exp(high)))
        return Regulator(K, self.values(LinearPolicy(K, np.zeros(len(K)), Sigma)).J, float(np.exp(high)))

    def _effort(self, lam: float, Sigma: Array) -> float:
        K = self.gain(lam)
        return float(self.values(LinearPolicy(K, np.zeros(len(K)), Sigma)).J[1])

    def values(self, policy: LinearPolicy) -> Values:
        """(J_x, J_u) by the Lyapunov equation for (x, 1), with an error bound that is computed from its residual.

        With S = 1 + γ A_K S A_K' the true M lies within e·λ_max(S)·S of the computed one, where e is the norm of the
        residual and what rounding may have added to it. The bound is about the numbers as stored, in real arithmetic;
        what an action's own rounding in float32 does is not in it.
        """
        n = len(self.A)
        closed = np.block(
            [[self.A - self.B @ policy.K, (self.B @ policy.c)[:, None]], [np.zeros((1, n)), np.ones((1, 1))]]
        )
        noise = linalg.block_diag(self.W + self.B @ policy.Sigma @ self.B.T, np.zeros((1, 1)))
        start = linalg.block_diag(self.X0, np.ones((1, 1))) + self.gamma / (1 - self.gamma) * noise
        if np.abs(np.linalg.eigvals(closed)).max() ** 2 * self.gamma >= 1:
            return Values(np.full(2, np.inf), np.zeros(2))  # the sums diverge
        one = np.eye(n + 1)
        M, S = (_lyapunov(closed, self.gamma, x) for x in (start, one))
        off, slip = (_residual(X, closed, self.gamma, C) for X, C in ((M, start), (S, one)))
        far = off * np.linalg.eigvalsh(S)[-1] / (1 - slip)
        feed = np.column_stack([-policy.K, policy.c])
        costs = [linalg.block_diag(self.Q, np.zeros((1, 1))), feed.T @ self.R @ feed]
        J = np.array([np.sum(C * M) for C in costs])
        J[1] += np.sum(self.R * policy.Sigma) / (1 - self.gamma)
        rounding = 16 * (n + 2) * EPS * np.array([np.sum(np.abs(C) * np.abs(M)) for C in costs])
        return Values(J, far * np.array([np.sum(C * S) for C in costs]) + rounding)

    def certify(self, policy: LinearPolicy) -> tuple[str, Values]:
        """CERTIFIED where the effort is within the budget for certain, VIOLATED where it is above, else UNDECIDED."""
        found = self.values(policy)
        J_u, error = found.J[1], found.error[1]
        kept = "CERTIFIED" if J_u + error <= self.budget else "VIOLATED" if J_u - error > self.budget else "UNDECIDED"
        return kept, found


def _lyapunov(A: Array, gamma: float, C: Any) -> Array:
    """X = C + γ A X A'."""
    return np.asarray(linalg.solve_discrete_lyapunov(np.sqrt(gamma) * A, C))


def _residual(X: Array, A: Array, gamma: float, C: Any) -> float:
    """‖C + γAXA' − X‖ in the Frobenius norm, and a bound of the rounding in it."""
    size = np.abs(C) + gamma * np.abs(A) @ np.abs(X) @ np.abs(A).T + np.abs(X)
    return float(np.linalg.norm(C + gamma * A @ X @ A.T - X) + 4 * (len(A) + 2) * EPS * np.linalg.norm(size))
