"""Enclosures: bounds on J that hold in real arithmetic for the model as stored.

For any V̂, let δ(s) = (h_π + γ P_π V̂ − V̂)(s) be its residual, and c at least the largest row sum of P_π. Then

    V̂(s) + min(0, min δ)/(1 − γc)  ≤  V_π(s)  ≤  V̂(s) + max(0, max δ)/(1 − γc)         (needs γc < 1)

since V_π − V̂ = Σ_t (γP_π)^t δ. Every sum in floating point is widened by its rounding bound γ_n = n·u/(1 − n·u)
(Higham 2002, section 3.1). So the enclosure holds for exactly the stored numbers: π, ρ and P are taken literally, even
if a row sums to 1 ± 1e-16. The residual of the Bellman operator for the signal r + λ·g bounds the optimum from above in
the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.exact.bellman import Operator
from clearance.exact.oracles import BOUNDS, oracle_of
from clearance.exact.pair_rows import TINY, U
from clearance.exact.pair_rows import rounding as _g
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import evaluate
from clearance.finite.linear_systems import solve_systems
from clearance.learning.direction import lagrangian


def enclose(cmdp: CMDP, pi: Array, V: Array | None = None) -> tuple[Array, Array, Array]:
    """Return J of M policies pi [M, S, A] and its proven lower and upper bounds, each [M, 1+I].

    V [M, 1+I, S] are approximate values, if they are known; the bounds hold for any V. Criteria other than the
    discounted one use other vectors in place of V (`oracles`).
    """
    if cmdp.kind != "discounted":
        return BOUNDS[cmdp.kind].enclose(cmdp, pi, approximate_values(cmdp, pi) if V is None else V)
    parts = [_enclose(cmdp, pi[i], None if V is None else V[i]) for i in _chunks(cmdp, len(pi))]
    return tuple(np.concatenate(p) for p in zip(*parts, strict=True))  # type: ignore[return-value]


def approximate_values(cmdp: CMDP, pi: Array) -> Array:
    """Return V [M, 1+I, S] of M policies pi [M, S, A] in floating point; the bounds do not rely on its accuracy."""
    if cmdp.kind != "discounted":
        return BOUNDS[cmdp.kind].approximate(cmdp, pi)
    parts = [_approximate_V(cmdp, pi[i]) for i in _chunks(cmdp, len(pi))]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def mix(weights: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return lower and upper bounds [1+I] of a mixture's J = Σ_m w_m J_m, from bounds [M, 1+I] of its M components."""
    slop = _g(len(weights) + 2) * (weights @ np.maximum(np.abs(lower), np.abs(upper)))
    return weights @ lower - slop, weights @ upper + slop


def dual_function(
    cmdp: CMDP, lam: Array, V: Array | None = None, act: NDArray[np.int64] | None = None
) -> tuple[float, Array, NDArray[np.int64]]:
    """Return (D(λ) rounded up, V [S], act [S]) for D(λ) = max_π J_r(π) + Σ_i λ_i (J_gi(π) − b_i).

    V proves the bound, and `act` is the greedy policy of V. By weak duality, D(λ) ≥ J_r(π') for every policy π' that
    meets the limits and every λ ≥ 0. The search starts from the arguments V and act, if given; the bound holds for any
    V and act.
    """
    if cmdp.kind != "discounted":
        return oracle_of(cmdp).dual(lam, start=act)
    model = Operator.of(cmdp)
    start = np.argmax(cmdp.available, axis=1) if act is None else act.copy()
    h_L = np.ascontiguousarray(lagrangian(np.moveaxis(cmdp.h, 0, -1), lam).ravel())
    size = max(float(np.abs(h_L).max()), 1e-300)
    digits = 1e-15 if cmdp.S <= 2000 else 1e-12  # the last digits would take too long in a large model
    V, gain = model.maximise(h_L, np.zeros(cmdp.S) if V is None else V, start, digits * size / (1 - cmdp.gamma))
    V = V + gain / (1 - cmdp.gamma)  # iteration may stop where TV − V is a nonzero constant: add its sum
    return _bellman_bound(cmdp, lam, V), V, start


def _bellman_bound(cmdp: CMDP, lam: Array, V: Array) -> float:
    h_L = lagrangian(np.moveaxis(cmdp.h, 0, -1), lam)
    size = lagrangian(np.abs(np.moveaxis(cmdp.h, 0, -1)), lam)
    next_V, next_size = _expect(cmdp, V), _expect(cmdp, np.abs(V))
    n = _row_width(cmdp) + cmdp.I + 8
    residual = h_L + cmdp.gamma * next_V - V[:, None]
    error = _g(n) * (size + cmdp.gamma * next_size + np.abs(V)[:, None]) + n * TINY
    worst = float(np.max(residual + error, where=cmdp.available, initial=0.0))
    up = _tail(cmdp, worst, _row_sums(cmdp).max(), n)
    value, spread = cmdp.rho @ V - lam @ cmdp.b, cmdp.rho @ np.abs(V) + lam @ np.abs(cmdp.b)
    mass = cmdp.rho.sum() * (1 + _g(cmdp.S))
    return float((value + up * mass) + _g(cmdp.S + cmdp.I + 8) * (spread + up * mass))


def _enclose(cmdp: CMDP, pi: Array, V: Array | None) -> tuple[Array, Array, Array]:
    V = _approximate_V(cmdp, pi) if V is None else V  # [M, 1+I, S]; the bounds hold for any V
    n = _row_width(cmdp) + cmdp.A + 8
    Q = cmdp.h + cmdp.gamma * _expect(cmdp, V)
    size = np.abs(cmdp.h) + cmdp.gamma * _expect(cmdp, np.abs(V))
    residual = np.einsum("msa,mhsa->mhs", pi, Q) - V
    error = _g(n) * (np.einsum("msa,mhsa->mhs", pi, size) + np.abs(V)) + n * TINY
    c = np.einsum("msa,sa->ms", pi, _row_sums(cmdp)).max(-1, keepdims=True) * (1 + _g(n))
    down = -_tail(cmdp, np.maximum(0.0, (error - residual).max(-1)), c, n)
    up = _tail(cmdp, np.maximum(0.0, (error + residual).max(-1)), c, n)
    J, spread = V @ cmdp.rho, np.abs(V) @ cmdp.rho
    mass = cmdp.rho.sum() * (1 + _g(cmdp.S))
    slop = _g(cmdp.S + 8) * (spread + (up - down) * mass)
    return J, J + down * mass - slop, J + up * mass + slop


def _tail(cmdp: CMDP, x: Any, c: Any, n: int) -> Any:
    """Return x / (1 − γc), rounded away from 0, where c is the largest row sum of P_π.

    The bound on the rounding error is that of a sum of n terms.
    """
    rest = (1 - cmdp.gamma * c) - 4 * U
    if np.any(rest <= 0):
        raise InputError("gamma times the largest row sum of P reaches 1: no finite value can be proven")
    return x / rest * (1 + _g(n))


def _approximate_V(cmdp: CMDP, pi: Array) -> Array:
    if cmdp.is_sparse:
        return np.stack([evaluate(cmdp, p).V for p in pi])
    h_pi = np.einsum("msa,hsa->msh", pi, cmdp.h)
    system = np.eye(cmdp.S) - cmdp.gamma * np.einsum("msa,sat->mst", pi, cmdp.P, optimize=True)
    return np.moveaxis(solve_systems(system, h_pi), -1, 1)


def _expect(cmdp: CMDP, V: Array) -> Array:
    """Return the expected value Σ_s' P(s'|s, a) V(…, s') [..., S, A] of V at the next state."""
    flat = (cmdp.rows @ V.reshape(-1, cmdp.S).T).T
    return flat.reshape(*V.shape[:-1], cmdp.S, cmdp.A)


def _row_sums(cmdp: CMDP) -> Array:
    """Return upper bounds on Σ_s' P(s'|s, a) [S, A]."""
    sums = np.asarray(cmdp.rows.sum(axis=1)).reshape(cmdp.S, cmdp.A)
    return sums * (1 + _g(_row_width(cmdp)))


def _row_width(cmdp: CMDP) -> int:
    return int(np.diff(cmdp.P.indptr).max()) if cmdp.is_sparse else cmdp.S


def _chunks(cmdp: CMDP, M: int):
    """Return slices of the M policies, such that P_π and Q of each slice fit in about 64 MB."""
    size = max(1, int(8e6) // (cmdp.S * max(cmdp.A, 1 if cmdp.is_sparse else cmdp.S) * (1 + cmdp.I)))
    return (slice(i, i + size) for i in range(0, M, size))
