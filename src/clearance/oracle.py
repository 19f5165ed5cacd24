"""The exact optimum: the linear program over occupancy measures (Altman 1999; Bai et al. 2023, eq. 25), by HiGHS.

    maximise ⟨r, x⟩   subject to   Σ_a x(s, a) − γ Σ P(s|s', a') x(s', a') = ρ(s),   ⟨g_i, x⟩ ≥ b_i,   x ≥ 0

with x = d/(1−γ). Its multipliers are λ* (limits) and V (states). Whatever the solver says is measured again: J is
the exact value of the policy returned, and `bound` is the dual function at λ*, by policy iteration:

    D(λ) = max_π J_r(π) + Σ_i λ_i (J_gi(π) − b_i)  ≥  J_r(π')  for every feasible π' and every λ ≥ 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import optimize, sparse

from clearance.direction import lagrangian
from clearance.problem import CMDP, Array, evaluate, policy_of

# An LP vertex lies on the limit, so its policy is off by ±1e-15. The program asks for this much more (relative to the
# scale of J_g), so that the policy returned meets the limits in floating point too, at a price of λ* · 1e-10.
TIGHTEN = 1e-10


@dataclass(frozen=True)
class Optimum:
    """What the linear program says, measured again.

    status  "optimal" or "infeasible"
    J       exact [1+I] of `policy`; of the least violating policy when infeasible
    lam     λ* [I]; what one unit less of limit i would earn
    policy  π [S, A]; the least violating policy when infeasible
    d       its occupancy [S, A]
    bound   proven upper bound on the reward of every feasible policy, D(λ*); −inf when infeasible
    slater  max_π min_i (J_gi − b_i); negative means infeasible, inf without constraints
    """

    status: Literal["optimal", "infeasible"]
    J: Array
    lam: Array
    policy: Array
    d: Array
    bound: float
    slater: float
    b: Array

    @property
    def J_r(self) -> float:
        return float(self.J[0])

    @property
    def slack(self) -> Array:
        """J_g − b [I]."""
        return self.J[1:] - self.b

    @property
    def gap(self) -> float:
        """bound − J_r ≥ 0: how far from optimal the policy can be."""
        return self.bound - self.J_r

    @property
    def complementarity(self) -> Array:
        """λ*_i (J_gi − b_i) [I]: zero, up to the tightening, at an optimum."""
        return self.lam * self.slack


def optimum(cmdp: CMDP) -> Optimum:
    """The best policy among those that meet the limits, with multipliers and a proven bound."""
    slater, safest = slater_margin(cmdp)
    if slater < 0:
        at = evaluate(cmdp, safest)
        nothing = np.full(cmdp.I, np.nan)
        return Optimum("infeasible", at.J, nothing, safest, at.d, -np.inf, slater, cmdp.b)
    tighten = np.minimum(TIGHTEN * _scale(cmdp), slater / 2 if cmdp.I else 0.0)
    for _ in range(4):  # once, except where the solver's own tolerance ate the tightening
        x, lam = _occupancy_lp(cmdp, cmdp.b + tighten)
        V, bound = dual_function(cmdp, lam)
        pi = _policy_of(cmdp, x, lam, V)
        at = evaluate(cmdp, pi)
        if np.all(at.J[1:] >= cmdp.b):
            break
        tighten = np.minimum(10 * tighten, slater / 2)
    return Optimum("optimal", at.J, lam, pi, at.d, bound, slater, cmdp.b)  # pyright: ignore[reportPossiblyUnboundVariable]


def slater_margin(cmdp: CMDP) -> tuple[float, Array]:
    """φ = max_π min_i (J_gi(π) − b_i) and a policy [S, A] that attains it; inf without constraints.

    The margin is the exact one of the policy returned, so it is attained, not a solver's word.
    """
    if cmdp.I == 0:
        return np.inf, np.full((cmdp.S, cmdp.A), 1 / cmdp.A)
    n = cmdp.S * cmdp.A
    flow = sparse.hstack([_flow(cmdp), sparse.csr_array((cmdp.S, 1))])  # variables x and t, maximise t
    limits = np.hstack([-cmdp.g.reshape(cmdp.I, n), np.ones((cmdp.I, 1))])
    cost = np.append(np.zeros(n), -1.0)
    bounds = np.array([(0, np.inf)] * n + [(-np.inf, np.inf)])
    x = _highs(cost, limits, -cmdp.b, flow, cmdp.rho, bounds).x[:n]
    pi = policy_of(x.reshape(cmdp.S, cmdp.A))
    return float(np.min(evaluate(cmdp, pi).J[1:] - cmdp.b)), pi


def dual_function(cmdp: CMDP, lam: Array) -> tuple[Array, float]:
    """V [S] and D(λ) = max_π J_r + λ·(J_g − b), by policy iteration on r + λ·g; rounded up by the Bellman residual."""
    h_L = lagrangian(np.moveaxis(cmdp.h, 0, -1), lam)
    V = np.zeros(cmdp.S)
    for _ in range(1000):
        greedy = np.argmax(_Q(cmdp, h_L, V), axis=1)
        V_new = lagrangian(evaluate(cmdp, np.eye(cmdp.A)[greedy]).V.T, lam)
        done = np.max(np.abs(V_new - V)) <= 1e-14 * max(1.0, float(np.max(np.abs(V_new))))
        V = V_new
        if done or np.all(np.max(_Q(cmdp, h_L, V), axis=1) <= V):
            break
    residual = max(0.0, float(np.max(_Q(cmdp, h_L, V) - V[:, None])))
    return V, float(cmdp.rho @ V + residual / (1 - cmdp.gamma) - lam @ cmdp.b)


def _Q(cmdp: CMDP, h_L: Array, V: Array) -> Array:
    return h_L + cmdp.gamma * (cmdp.rows @ V).reshape(cmdp.S, cmdp.A)


def _policy_of(cmdp: CMDP, x: Array, lam: Array, V: Array) -> Array:
    """π from the LP's occupancy; greedy for r + λ·g where the state is never visited."""
    x = np.where(x.reshape(cmdp.S, cmdp.A) > 1e-12 * x.max(), x.reshape(cmdp.S, cmdp.A), 0.0)
    h_L = lagrangian(np.moveaxis(cmdp.h, 0, -1), lam)
    greedy = np.eye(cmdp.A)[np.argmax(_Q(cmdp, h_L, V), axis=1)]
    return np.where(x.sum(1, keepdims=True) > 0, policy_of(x), greedy)


def _occupancy_lp(cmdp: CMDP, b: Array) -> tuple[Array, Array]:
    """x [S·A] and λ [I] of the program with limits b."""
    limits = -cmdp.g.reshape(cmdp.I, -1) if cmdp.I else None
    result = _highs(-cmdp.r.ravel(), limits, -b if cmdp.I else None, _flow(cmdp), cmdp.rho, (0, None))
    lam = np.maximum(-result.ineqlin.marginals, 0.0) if cmdp.I else np.zeros(0)
    return result.x, lam


def _flow(cmdp: CMDP) -> sparse.csr_array:
    """The conservation of occupancy, [S, S·A]: outflow of s minus γ times inflow."""
    S, A = cmdp.S, cmdp.A
    out = sparse.csr_array((np.ones(S * A), (np.repeat(np.arange(S), A), np.arange(S * A))), shape=(S, S * A))
    return sparse.csr_array(out - cmdp.gamma * sparse.csr_array(cmdp.rows).T)


def _scale(cmdp: CMDP) -> Array:
    """The size of J_gi − b_i [I], against which tolerances are meant."""
    return np.maximum(np.abs(cmdp.g).max(axis=(1, 2)) / (1 - cmdp.gamma), np.abs(cmdp.b)) if cmdp.I else np.zeros(0)


def _highs(c: Array, A_ub: Any, b_ub: Any, A_eq: Any, b_eq: Any, bounds: Any) -> Any:
    """Dual simplex for small programs; interior point beyond, where simplex takes minutes."""
    method = "highs-ds" if len(c) <= 2000 else "highs-ipm"
    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = optimize.linprog(
        c, A_ub=A_ub, b_ub=b_ub, A_eq=A_eq, b_eq=b_eq, bounds=bounds, method=method, options=tolerances
    )
    if result.status != 0:
        raise RuntimeError(f"the linear program was not solved: {result.message}")
    return result
