"""OPG-PD and OMWU-PD: optimistic primal-dual methods for the last iterate (Ding, Wei, Zhang, Ribeiro, NeurIPS 2023).

    π̂ ← P(π̂ + η A(π_t, λ_t)),     λ̂ ← P_[0,Λ](λ̂ − η (J_g(π_t) − b − κ))          the step
    π_{t+1} = P(π̂ + η A(π_t, λ_t)),  λ_{t+1} = P_[0,Λ](λ̂ − η (J_g(π_t) − b − κ))   a prediction of the next step

Here η is the step size and A the advantage of the Lagrangian. With `geometry="euclidean"` (OPG-PD), π is the table
itself and P the projection on the simplex at each state. With "entropic" (OMWU-PD), logits are updated in place of π̂,
and there is no projection. Guarantee of the paper: the last iterate of OPG-PD converges linearly once it is near the
set of optima, for exact gradients and tabular policies. The prediction keeps the pair (π, λ) from oscillating.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.learning import dual
from clearance.learning.direction import Tabular
from clearance.learning.methods.method_base import DrawKind, check_settings, kappa_value, setting
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State

NEVER = 1e-300  # the smallest probability whose logarithm is taken, in place of 0


@dataclass(frozen=True)
class OPGPD:
    """OPG-PD and OMWU-PD with their settings, for tabular policies."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "walks per iteration")
    eta: float = setting(0.1, "η, the step of π and of λ")
    geometry: Literal["euclidean", "entropic"] = setting("euclidean", "euclidean: OPG-PD; entropic: OMWU-PD")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "κ ≥ 0, the margin kept from the limits")
    lam_max: float | None = setting(None, "Λ, upper bound of λ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")

    draw_kind: ClassVar[DrawKind] = "critic"
    tabular_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self, positives=("eta",))
        if self.geometry not in ("euclidean", "entropic"):
            raise InputError(f"geometry must be 'euclidean' or 'entropic', got {self.geometry!r}")

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        """Return the first state, with the given θ and λ = 0 [I]; its memory holds π̂ = π (as logits) and λ̂ = 0."""
        return State(theta, np.zeros(I), 0, memory, (theta, np.zeros(I)))

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Update π̂ (as logits) and λ̂ in the state's memory; return a new state with the predicted θ and λ.

        The docstring of the module gives the formulas.
        """
        limits = sampler.statement
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N)
        move = self.eta * (1 - limits.gamma) * Tabular()(draws, state.lam, limits.gamma)  # η A_L, as η ω (1−γ)
        theta_hat, lam_hat = state.method_memory
        theta_hat = self._move(theta_hat, move, sampler)
        theta = self._move(theta_hat, move, sampler)
        slack, kappa = J_hat[1:] - limits.b, kappa_value(self.kappa)
        lam_hat = dual.step(lam_hat, slack, self.eta, kappa, lam_max)
        lam = dual.step(lam_hat, slack, self.eta, kappa, lam_max)
        info = Info(J_hat, float(np.linalg.norm(move)), steps)
        return State(theta, lam, state.k + 1, memory, (theta_hat, lam_hat)), info

    def _move(self, theta: Array, move: Array, sampler: Sampler) -> Array:
        if self.geometry == "entropic":
            return theta + move
        pi = sampler.policy.pi(theta)
        moved = np.where(np.isfinite(sampler.policy.bias), pi + move.reshape(pi.shape), -np.inf)
        return np.log(np.maximum(on_simplex(moved), NEVER)).ravel()


def on_simplex(x: Array) -> Array:
    """Return the nearest point of the simplex to each row of x [S, A]; entries of −inf become 0 (Duchi et al. 2008)."""
    finite = np.where(
        np.isfinite(x), x, x.max(axis=1, keepdims=True) - 2.0
    )  # lower than the largest entry by more than 1, so never in the support
    ordered = -np.sort(-finite, axis=1)
    above = np.cumsum(ordered, axis=1) - 1.0
    count = np.arange(1, x.shape[1] + 1)
    support = np.sum(ordered * count > above, axis=1)
    level = above[np.arange(len(x)), support - 1] / support
    return np.maximum(finite - level[:, None], 0.0)
