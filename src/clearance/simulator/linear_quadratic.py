"""The discounted linear-quadratic regulator with a limit on effort: a continuous problem with a known optimum.

    minimise E Σγ^t x'Qx   subject to   E Σγ^t u'Ru ≤ budget,   x_{t+1} = Ax_t + Bu_t + w,  w ~ N(0, W),  x_0 ~ N(0, X0)

There is no duality gap. So the optimum is the regulator for the cost x'Qx + λu'Ru (Riccati), with the λ at which the
budget is just used up; λ is found by bisection. Under a linear-Gaussian policy u = −Kx + c + ξ with ξ ~ N(0, Σ), the
vector z = (x, 1) follows z_{t+1} = Fz_t + noise, where the noise has the second moment V. So M = Σγ^t E zz' is
Σγ^t F^t N F'^t with

    F = | A − BK  Bc |    V = | W + BΣB'  0 |    N = | X0  0 | + γ/(1−γ) V
        |   0      1 |        |    0      0 |        | 0   1 |

    J_x = tr(QM)          J_u = tr((−K c)'R(−K c) M) + tr(RΣ)/(1−γ)

These are rational functions of the stored numbers and are computed in rational arithmetic (`discounted_sums`). The
costs are unbounded, so samples could not certify them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy import linalg

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.rational_algebra import Matrix, enclose_exp, is_semidefinite, round_down, round_up, to_fractions
from clearance.core.validation import freeze
from clearance.simulator.discounted_sums import sum_moments

MOST_STATES = 8  # the time grows with about the tenth power of the dimension: 8 states take seconds


class LinearPolicy(NamedTuple):
    """The policy u = −Kx + c + ξ with ξ ~ N(0, Σ), where x is the state.

    K is [m, n], c [m] and Sigma [m, m], where x has n entries and u has m. The diagonal of Σ holds variances σ², which
    may be rounded. Sigma_error [m] bounds their errors; None means no error.
    """

    K: Array
    c: Array
    Sigma: Array
    Sigma_error: Array | None = None


class Values(NamedTuple):
    """The values J = (E Σγ^t x'Qx, E Σγ^t u'Ru) of a linear policy, with proven lower and upper bounds.

    A value whose sum diverges is ∞. If a number of the policy is not finite, J is NaN and the bounds are −∞ and ∞.
    """

    J: Array
    lower: Array
    upper: Array


class Regulator(NamedTuple):
    """The optimal policy u = −Kx: its gain K, its values J = (J_x, J_u) with action noise, and the multiplier λ."""

    K: Array
    J: Array
    lam: float


@dataclass(frozen=True, eq=False)
class LQR:
    """A linear-quadratic regulator: minimise E Σγ^t x'Qx subject to E Σγ^t u'Ru ≤ budget.

    After the state x and the action u, the next state is Ax + Bu + w. W and X0 are the covariances of the noise w and
    of the initial state. Exact values hold for the numbers as stored.
    """

    A: Array
    B: Array
    Q: Array
    R: Array
    W: Array
    X0: Array
    gamma: float
    budget: float

    def __post_init__(self) -> None:
        if np.ndim(self.B) != 2 or not np.size(self.B):
            raise InputError(f"B must be a matrix [n, m], got shape {np.shape(self.B)}")
        n, m = np.shape(self.B)
        for name, size in {"A": (n, n), "B": (n, m), "Q": (n, n), "R": (m, m), "W": (n, n), "X0": (n, n)}.items():
            x = np.asarray(getattr(self, name), float)
            if x.shape != size or not np.isfinite(x).all():
                raise InputError(f"{name} must be a matrix of finite numbers of shape {size}, since B is [{n}, {m}]")
            if name not in "AB" and not is_semidefinite(to_fractions(x)):
                raise InputError(f"{name} must be symmetric and positive semidefinite, exactly as it is stored")
            object.__setattr__(self, name, freeze(x))
        if not 0 < self.gamma < 1:
            raise InputError(f"gamma must be above 0 and below 1, got {self.gamma!r}")

    @classmethod
    def double_integrator(cls, budget: float = 2.0) -> LQR:
        """Return the double integrator. The state is (position, speed), the action a force, and the time step 0.1."""
        A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[0.0], [0.1]])
        return cls(A, B, np.diag([1.0, 0.1]), np.eye(1), 0.01 * np.eye(2), np.eye(2), 0.95, budget)

    # ------------------------------------------------------------------------------------------------ the optimum

    def gain(self, lam: float) -> Array:
        """Return the gain K of the regulator for the cost x'Qx + λu'Ru, where λ is `lam`.

        K = γ(λR + γB'PB)⁻¹B'PA, where P solves the Riccati equation.
        """
        root = np.sqrt(self.gamma)
        try:
            P = linalg.solve_discrete_are(root * self.A, root * self.B, self.Q, lam * self.R)
            BP = self.gamma * self.B.T @ P
            return np.asarray(linalg.solve(lam * self.R + BP @ self.B, BP @ self.A, assume_a="pos"))
        except linalg.LinAlgError as e:
            raise InputError(f"no regulator of Q + λR can be computed for λ = {lam:g} ({e})") from None

    def optimum(self, Sigma: Array | None = None) -> Regulator:
        """Return the best policy within the budget if actions have the noise N(0, Σ) (default: no noise)."""
        Sigma = np.zeros_like(self.R) if Sigma is None else Sigma
        low, high = -20.0, 20.0
        if self._effort(np.exp(high), Sigma) > self.budget:
            least = self._effort(np.exp(high), Sigma)
            raise InputError(f"budget {self.budget:g} is below what the noise alone spends, {least:.6g}: raise it")
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._effort(np.exp(middle), Sigma) > self.budget else (low, middle)
        K = self.gain(float(np.exp(high)))
        return Regulator(K, self.enclose(LinearPolicy(K, np.zeros(len(K)), Sigma)).J, float(np.exp(high)))

    def _effort(self, lam: float, Sigma: Array) -> float:
        """Return the effort J_u = E Σγ^t u'Ru of the regulator for the cost x'Qx + λu'Ru, with action noise N(0, Σ).

        λ is `lam`, and Σ is `Sigma`. The effort is computed in floating point, since it is only used to search for λ.
        """
        K = self.gain(lam)
        N = self.X0 + self.gamma / (1 - self.gamma) * (self.W + self.B @ Sigma @ self.B.T)
        M = linalg.solve_discrete_lyapunov(np.sqrt(self.gamma) * (self.A - self.B @ K), N)
        return float(np.sum(K.T @ self.R @ K * M) + np.sum(self.R * Sigma) / (1 - self.gamma))

    # ------------------------------------------------------------------------------------------------ proof

    def enclose(self, policy: LinearPolicy) -> Values:
        """Return the values (J_x, J_u) of a linear policy with proven bounds, for the numbers as stored.

        The values increase with the noise covariance Σ of the policy. So the values at the smallest and the largest
        possible Σ are bounds. They do not cover the rounding of actions to float32.
        """
        self._check(policy)
        if not all(np.isfinite(x).all() for x in policy if x is not None):
            return Values(np.full(2, np.nan), np.full(2, -np.inf), np.full(2, np.inf))
        K, c, Sigma = (to_fractions(x) for x in policy[:3])
        error = np.diag(to_fractions(np.zeros(len(c)) if policy.Sigma_error is None else policy.Sigma_error))
        ends = [Sigma - error, Sigma + error] if error.any() else [Sigma]
        if not is_semidefinite(ends[0]):
            raise InputError("Sigma must be symmetric and positive semidefinite, exactly as it is stored")
        costs = self._sum_costs(K, c, ends)
        rows = [_round_outward(low, high) for low, high in zip(costs[0], costs[-1], strict=True)]
        return Values(*np.transpose(rows))

    def _sum_costs(self, K: Matrix, c: Matrix, Sigmas: Sequence[Matrix]) -> list[list[Fraction | float]]:
        """Return the exact (J_x, J_u) of the policy with gain K and offset c, for each noise covariance in Sigmas."""
        A, B, Q, R, W, X0 = (to_fractions(x) for x in (self.A, self.B, self.Q, self.R, self.W, self.X0))
        gamma = Fraction(float(self.gamma))
        F = np.block([[A - B @ K, (B @ c)[:, None]], [np.zeros((1, len(A)), object), np.ones((1, 1), object)]])
        feed = np.hstack([-K, c[:, None]])
        starts = [_extend(X0 + gamma / (1 - gamma) * (W + B @ S @ B.T), 1) for S in Sigmas]
        sums = sum_moments(F, starts, [_extend(Q, 0), feed.T @ R @ feed], gamma)
        return [[J_x, J_u + np.sum(R * S) / (1 - gamma)] for (J_x, J_u), S in zip(sums, Sigmas, strict=True)]

    def _check(self, policy: LinearPolicy) -> None:
        n, m = self.B.shape
        if n > MOST_STATES:
            raise InputError(f"exact values are computed for up to {MOST_STATES} states, got {n}")
        shapes = tuple(np.shape(x) for x in policy[:3])
        if shapes != ((m, n), (m,), (m, m)):
            raise InputError(f"K, c and Sigma must have shapes {(m, n)}, {(m,)} and {(m, m)}, got {shapes}")
        if policy.Sigma_error is not None and (np.shape(policy.Sigma_error) != (m,) or np.any(policy.Sigma_error < 0)):
            raise InputError(f"Sigma_error must hold {m} numbers that are not negative")

    def certify(self, policy: LinearPolicy) -> tuple[str, Values]:
        """Return a verdict and the values of the policy.

        The verdict is CERTIFIED if the effort is proven to be within the budget, VIOLATED if it is proven to be above,
        else UNDECIDED.
        """
        found = self.enclose(policy)
        lower, upper = found.lower[1], found.upper[1]
        return "CERTIFIED" if upper <= self.budget else "VIOLATED" if lower > self.budget else "UNDECIDED", found


def enclose_variance(log_std: float) -> tuple[float, float]:
    """Return the variance σ² = e^(2 log σ) and a bound on its rounding error; both are NaN if log σ is not finite."""
    if not math.isfinite(log_std):
        return math.nan, math.nan
    low, high = enclose_exp(2 * Fraction(log_std))
    variance = round_down(low)
    return variance, round_up(high - Fraction(variance))


def _extend(X: Matrix, corner: int) -> Matrix:
    """Return X with one more row and column of zeros and `corner` as the last diagonal entry."""
    wider = np.zeros((len(X) + 1, len(X) + 1), object)
    wider[:-1, :-1], wider[-1, -1] = X, corner
    return wider


def _round_outward(low: Fraction | float, high: Fraction | float) -> tuple[float, float, float]:
    """Return (middle, lower end, upper end) of the interval [low, high] as floats; they may be ∞.

    The lower end is rounded down and the upper end is rounded up.
    """
    if math.inf in (low, high):
        return math.inf, math.inf if low == math.inf else round_down(Fraction(low)), math.inf
    return round_down(Fraction(low + high) / 2), round_down(Fraction(low)), round_up(Fraction(high))
