"""The complete linear program over occupancy measures, solved by HiGHS; for small models, and as a cross-check.

    maximise ⟨r, x⟩   subject to   Σ_a x(s, a) − γ Σ P(s|s', a') x(s', a') = ρ(s),   ⟨g_i, x⟩ ≥ b_i,   x ≥ 0

with x = d/(1−γ) (Altman 1999; Bai et al. 2023, eq. 29).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize, sparse

from clearance.core.arrays import Array
from clearance.core.errors import SolverError
from clearance.finite.cmdp import CMDP


def richest(cmdp: CMDP, b: Array) -> tuple[Array, Array]:
    """Return (x, lam) for the policy with the largest J_r subject to J_g ≥ b.

    x [S, A] are its discounted visits, and `lam` [I] are the multipliers λ*.
    """
    limits = -cmdp.g.reshape(cmdp.I, -1) if cmdp.I else None
    result = highs(-cmdp.r.ravel(), limits, -b if cmdp.I else None, _flow(cmdp), cmdp.rho, _bounds(cmdp))
    lam = np.maximum(-result.ineqlin.marginals, 0.0) if cmdp.I else np.zeros(0)
    return result.x.reshape(cmdp.S, cmdp.A), lam


def safest(cmdp: CMDP, unit: Array) -> tuple[Array, Array]:
    """Return (x, lam) for the policy that maximises t = min_i (J_gi − b_i)/unit_i.

    x [S, A] are its discounted visits, and `lam` [I] multipliers with Σ λ_i unit_i = 1. If the maximum t is negative, λ
    is the proof (Farkas): max_π Σ_i λ_i (J_gi − b_i) = t < 0.
    """
    n = cmdp.S * cmdp.A
    flow = sparse.hstack([_flow(cmdp), sparse.csr_array((cmdp.S, 1))])  # variables x and t, maximise t
    limits = np.hstack([-cmdp.g.reshape(cmdp.I, n), unit[:, None]])
    bounds = np.vstack([_bounds(cmdp), [-np.inf, np.inf]])
    result = highs(np.append(np.zeros(n), -1.0), limits, -cmdp.b, flow, cmdp.rho, bounds)
    lam = np.maximum(-result.ineqlin.marginals, 0.0)
    return result.x[:n].reshape(cmdp.S, cmdp.A), lam


def _flow(cmdp: CMDP) -> sparse.csr_array:
    """Return the matrix [S, S·A] of the flow constraints: row s is the outflow of state s minus γ times its inflow."""
    S, A = cmdp.S, cmdp.A
    out = sparse.csr_array((np.ones(S * A), (np.repeat(np.arange(S), A), np.arange(S * A))), shape=(S, S * A))
    return sparse.csr_array(out - cmdp.gamma * sparse.csr_array(cmdp.rows).T)


def _bounds(cmdp: CMDP) -> Array:
    """Return the bounds (low, high) of the visits x: x ≥ 0, and x = 0 if the state has no such action."""
    return np.stack([np.zeros(cmdp.S * cmdp.A), np.where(cmdp.available.ravel(), np.inf, 0.0)], axis=1)


def highs(c: Array, A_ub: Any, b_ub: Any, A_eq: Any, b_eq: Any, bounds: Any, method: str | None = None) -> Any:
    """Solve a linear program, whose arguments are those of SciPy's `linprog`; return the result of `linprog`.

    Raise SolverError if that fails. Small programs use dual simplex, large ones interior point, since simplex would
    take minutes.
    """
    method = method or ("highs-ds" if len(c) <= 2000 else "highs-ipm")
    tolerances = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    result = optimize.linprog(
        c, A_ub=A_ub, b_ub=b_ub, A_eq=A_eq, b_eq=b_eq, bounds=bounds, method=method, options=tolerances
    )
    if result.status != 0:
        said = result.message.splitlines()[0]
        raise SolverError(
            f"the linear program was not solved ({said}): bring r, g and b to the size of 1, or gamma further from 1"
        )
    return result
