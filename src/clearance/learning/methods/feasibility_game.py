"""Find the safest policy, max_π min_i (J_gi(π) − b_i), by natural gradients.

The method is a game between two players. The policy π increases Σ_i μ_i J_gi. The weights μ on the simplex shift
towards the limits with the smallest slack:

    θ ← (1−ν) θ + ν (1−γ) ω/τ_k,        μ_i ← μ_i exp(−η (Ĵ_gi − b_i)), normalised

Here ω is the natural direction for the advantages Σ_i μ_i A_gi, ν the share of θ that is replaced in an iteration, τ_k
a temperature that falls during the run, and η the step size of μ. The value of the game is the Slater margin φ. If φ is
negative, the limits are infeasible, and μ shows which of them conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from clearance.core.arrays import Array
from clearance.learning.methods.method_base import exact_direction, first_state
from clearance.learning.methods.regularised_cnpgpd import pull_to_uniform
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State


@dataclass(frozen=True)
class Feasibility:
    """The method that finds the safest policy by a game between π and weights μ of the limits, with its settings.

    K is the number of iterations and N the number of walks in each. The temperature τ falls from tau[0] to tau[1]; the
    docstring of the module explains ν, η and τ. `State.lam` holds log μ.
    """

    K: int = 200
    N: int = 100
    nu: float = 0.1
    tau: tuple[float, float] = (0.3, 0.01)
    eta: float = 0.2

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Update once the policy's θ and the weights μ of the limits; `lam_max` is not used."""
        limits = sampler.statement
        _, g = limits.signal_ranges
        draws, J_hat, memory, steps = sampler.batch(key, state.sampler_memory, state.theta, self.N)
        mu = softmax(state.lam)
        draws = draws._replace(A=np.column_stack([np.zeros(len(draws.A)), draws.A[:, 1:]]))
        omega = exact_direction(sampler)(draws, mu, limits.gamma)
        first, last = self.tau
        tau = first * (last / first) ** min(1.0, state.k / (0.7 * self.K)) * float(mu @ g)
        theta = pull_to_uniform(state.theta, omega, self.nu, tau, limits.gamma)
        log_mu = state.lam - self.eta * (1 - limits.gamma) * (J_hat[1:] - limits.b) / g.mean()
        state = State(theta, log_mu - log_mu.max(), state.k + 1, memory)
        return state, Info(J_hat, float(np.linalg.norm(omega)), steps)
