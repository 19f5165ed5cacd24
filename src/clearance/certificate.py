"""Certificates: the policy is measured again, from nothing but the problem and the policy; never read from a trace.

For a finite model the values are enclosed in real arithmetic. For any V̂, with residual δ(s) = (h_π + γ P_π V̂ − V̂)(s)
and c ≥ the largest row sum of P_π,

    V̂(s) + min(0, min δ)/(1 − γc)  ≤  V_π(s)  ≤  V̂(s) + max(0, max δ)/(1 − γc)         (needs γc < 1)

since V_π − V̂ = Σ_t (γP_π)^t δ. Every sum in floating point is widened by its rounding bound γ_n = n·u/(1 − n·u)
(Higham 2002, section 3.1), so the enclosure holds for the numbers as stored: π, ρ and P are taken literally, also where
a row sums to 1 ± 1e-16. The same residual with the Bellman operator of r + λ·g encloses the optimum from above.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from clearance.direction import lagrangian
from clearance.errors import InputError
from clearance.mixture import Mixture
from clearance.oracle import Optimum, dual_function, optimum
from clearance.problem import CMDP, Array

Verdict = Literal["CERTIFIED", "VIOLATED", "UNDECIDED"]
U = 2.0**-53


@dataclass(frozen=True)
class Certificate:
    """What is proven of one policy of one problem.

    verdict          CERTIFIED: J_gi ≥ b_i is proven for all i. VIOLATED: J_gi < b_i is proven for some i.
                     UNDECIDED: a limit lies inside the enclosure
    J_r, J_g, slack  values, and J_g − b
    J_lower, J_upper the enclosure [1+I]
    bound, gap       proven upper bound on the reward of every feasible policy, and bound − J_r; None if infeasible
    lam, complementarity  λ* of the problem and λ*_i · slack_i
    worst_slack      the smallest slack of any single component of a mixture: one episode follows one component
    """

    verdict: Verdict
    J_r: float
    J_g: list[float]
    b: list[float]
    slack: list[float]
    J_lower: list[float]
    J_upper: list[float]
    bound: float | None
    gap: float | None
    lam: list[float] | None
    complementarity: list[float] | None
    worst_slack: float | None
    components: int
    evidence: Literal["exact"]
    message: str

    @property
    def J_r_lower(self) -> float:
        return self.J_lower[0]

    @property
    def J_g_lower(self) -> list[float]:
        return self.J_lower[1:]

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"J_r_lower": self.J_r_lower, "J_g_lower": self.J_g_lower}


def certify(cmdp: CMDP, policy: Mixture | ArrayLike, *, best: Optimum | None = None) -> Certificate:
    """Does this policy meet every limit of this finite model? Proven, with its distance from the optimum.

    policy  a table [S, A] or a `Mixture`;  best  the problem's `optimum`, if it is at hand already.
    """
    mixture = policy if isinstance(policy, Mixture) else Mixture.single(policy)
    mixture.check(cmdp)
    J, lower, upper = enclose(cmdp, mixture.pi)
    J_lower, J_upper = _mix(mixture.weights, lower, upper)
    J_mean = mixture.weights @ J
    best = optimum(cmdp) if best is None else best
    verdict = _verdict(J_lower[1:], J_upper[1:], cmdp.b)
    feasible = best.status == "optimal"
    bound = bellman_bound(cmdp, best.lam) if feasible else None
    slack = J_mean[1:] - cmdp.b
    return Certificate(
        verdict=verdict,
        J_r=float(J_mean[0]),
        J_g=J_mean[1:].tolist(),
        b=cmdp.b.tolist(),
        slack=slack.tolist(),
        J_lower=J_lower.tolist(),
        J_upper=J_upper.tolist(),
        bound=bound,
        gap=None if bound is None else bound - float(J_mean[0]),
        lam=best.lam.tolist() if feasible else None,
        complementarity=(best.lam * slack).tolist() if feasible else None,
        worst_slack=float(np.min(J[:, 1:] - cmdp.b)) if cmdp.I else None,
        components=mixture.M,
        evidence="exact",
        message=_message(cmdp, verdict, J_lower, J_upper, best),
    )


def enclose(cmdp: CMDP, pi: Array) -> tuple[Array, Array, Array]:
    """J of policies pi [M, S, A] and its proven lower and upper bounds, each [M, 1+I]."""
    parts = [_enclose(cmdp, chunk) for chunk in _chunks(cmdp, pi)]
    return tuple(np.concatenate(p) for p in zip(*parts, strict=True))  # type: ignore[return-value]


def bellman_bound(cmdp: CMDP, lam: Array) -> float:
    """Proven upper bound on J_r of every policy that meets the limits: D(λ), enclosed for the stored numbers."""
    V, _, _ = dual_function(cmdp, lam)
    h_L = lagrangian(np.moveaxis(cmdp.h, 0, -1), lam)
    size = lagrangian(np.abs(np.moveaxis(cmdp.h, 0, -1)), lam)
    next_V, next_size = _expect(cmdp, V), _expect(cmdp, np.abs(V))
    n = _row_width(cmdp) + cmdp.I + 8
    residual = h_L + cmdp.gamma * next_V - V[:, None]
    error = _g(n) * (size + cmdp.gamma * next_size + np.abs(V)[:, None])
    up = _tail(cmdp, max(0.0, float(np.max(residual + error))), _row_sums(cmdp).max(), n)
    value, spread = cmdp.rho @ V - lam @ cmdp.b, cmdp.rho @ np.abs(V) + lam @ np.abs(cmdp.b)
    mass = cmdp.rho.sum() * (1 + _g(cmdp.S))
    return float((value + up * mass) + _g(cmdp.S + cmdp.I + 8) * (spread + up * mass))


def _enclose(cmdp: CMDP, pi: Array) -> tuple[Array, Array, Array]:
    V = _approximate_V(cmdp, pi)  # [M, 1+I, S], as good as it is: nothing below trusts it
    n = _row_width(cmdp) + cmdp.A + 8
    Q = cmdp.h + cmdp.gamma * _expect(cmdp, V)
    size = np.abs(cmdp.h) + cmdp.gamma * _expect(cmdp, np.abs(V))
    residual = np.einsum("msa,mhsa->mhs", pi, Q) - V
    error = _g(n) * (np.einsum("msa,mhsa->mhs", pi, size) + np.abs(V))
    c = np.einsum("msa,sa->ms", pi, _row_sums(cmdp)).max(-1, keepdims=True) * (1 + _g(n))
    down = -_tail(cmdp, np.maximum(0.0, (error - residual).max(-1)), c, n)
    up = _tail(cmdp, np.maximum(0.0, (error + residual).max(-1)), c, n)
    J, spread = V @ cmdp.rho, np.abs(V) @ cmdp.rho
    mass = cmdp.rho.sum() * (1 + _g(cmdp.S))
    slop = _g(cmdp.S + 8) * (spread + (up - down) * mass)
    return J, J + down * mass - slop, J + up * mass + slop


def _tail(cmdp: CMDP, x: Any, c: Any, n: int) -> Any:
    """x / (1 − γc), rounded away from 0."""
    rest = (1 - cmdp.gamma * c) - 4 * U
    if np.any(rest <= 0):
        raise InputError("gamma times the largest row sum of P reaches 1: no finite value can be proven")
    return x / rest * (1 + _g(n))


def _approximate_V(cmdp: CMDP, pi: Array) -> Array:
    if cmdp.is_sparse:
        from clearance.problem import evaluate

        return np.stack([evaluate(cmdp, p).V for p in pi])
    h_pi = np.einsum("msa,hsa->msh", pi, cmdp.h)
    system = np.eye(cmdp.S) - cmdp.gamma * np.einsum("msa,sat->mst", pi, cmdp.P, optimize=True)
    return np.moveaxis(np.linalg.solve(system, h_pi), -1, 1)


def _expect(cmdp: CMDP, V: Array) -> Array:
    """Σ_s' P(s'|s, a) V(…, s') [..., S, A]."""
    flat = (cmdp.rows @ V.reshape(-1, cmdp.S).T).T
    return flat.reshape(*V.shape[:-1], cmdp.S, cmdp.A)


def _row_sums(cmdp: CMDP) -> Array:
    """Upper bounds on Σ_s' P(s'|s, a) [S, A]."""
    sums = np.asarray(cmdp.rows.sum(axis=1)).reshape(cmdp.S, cmdp.A)
    return sums * (1 + _g(_row_width(cmdp)))


def _row_width(cmdp: CMDP) -> int:
    return int(np.diff(cmdp.P.indptr).max()) if cmdp.is_sparse else cmdp.S


def _g(n: int) -> float:
    """A bound on the relative error of a sum of n products, with room for the rounding of the bound itself."""
    return 2 * n * U / (1 - n * U)


def _chunks(cmdp: CMDP, pi: Array):
    """Batches of policies whose P_π fit in about 64 MB."""
    size = max(1, int(8e6) // (cmdp.S * (1 if cmdp.is_sparse else cmdp.S) * (1 + cmdp.I) + 1))
    return (pi[i : i + size] for i in range(0, len(pi), size))


def _mix(weights: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """The enclosure of Σ_m w_m J_m."""
    slop = _g(len(weights) + 2) * (weights @ np.maximum(np.abs(lower), np.abs(upper)))
    return weights @ lower - slop, weights @ upper + slop


def _verdict(lower: Array, upper: Array, b: Array) -> Verdict:
    if np.all(lower >= b):
        return "CERTIFIED"
    return "VIOLATED" if np.any(upper < b) else "UNDECIDED"


def _message(cmdp: CMDP, verdict: Verdict, lower: Array, upper: Array, best: Optimum) -> str:
    if best.status == "infeasible":
        return f"the limits cannot be met by any policy (Slater margin {best.slater:.6g}): relax b"
    if verdict == "CERTIFIED":
        return "every limit is met, proven for the numbers as stored"
    if verdict == "VIOLATED":
        broken = [f"{cmdp.names[i]} by {cmdp.b[i] - upper[1 + i]:.3g}" for i in np.flatnonzero(upper[1:] < cmdp.b)]
        return "limits broken: " + ", ".join(broken)
    i = int(np.argmin(lower[1:] - cmdp.b))
    width = upper[1 + i] - lower[1 + i]
    return f"{cmdp.names[i]} lies within {width:.1e} of its limit: tighten b a little and solve again"
