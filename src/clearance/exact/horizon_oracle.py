"""Exact results for finite horizons, by backward induction over H steps. The time is not made part of the state.

    V_t(s) = max_a h(s, a) + γ Σ P(s'|s, a) V_{t+1}(s'),   V_H = 0

Any V [H, S] proves bounds by its residuals, which add up step by step. With δ_t = h_π + γ P_π V_{t+1} − V_t and the
largest row sum c,

    ρ·V_0 + Σ_t (γc)^t min(0, min δ_t)  ≤  J  ≤  ρ·V_0 + Σ_t (γc)^t max(0, max δ_t)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled.backward_induction import induct
from clearance.exact.pair_rows import TINY, rounding
from clearance.finite.cmdp import CMDP
from clearance.finite.linear_systems import as_int32
from clearance.finite.long_run import horizon_values, stepper

Acts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HorizonOracle:
    """An oracle that finds a best deterministic policy act [H, S] for a finite horizon, and proves upper bounds."""

    cmdp: CMDP

    @cached_property
    def _rows(self) -> Any:
        """The rows of P as CSR arrays, which are read-only like those of a sparse model."""
        P = self.cmdp.P if self.cmdp.is_sparse else as_int32(sparse.csr_array(self.cmdp.rows))
        for part in (P.indptr, P.indices, P.data):
            part.flags.writeable = False
        return P

    @cached_property
    def _signals(self) -> Array:
        return np.ascontiguousarray(self.cmdp.h.reshape(1 + self.cmdp.I, -1).T)

    @cached_property
    def _allowed(self) -> NDArray[np.bool_]:
        """A mask [H, S, A] of the pairs that a policy may choose at each step; [1, S, A] if all steps are alike."""
        allowed = self.cmdp.allowed
        return self.cmdp.available[None] if allowed is None else allowed

    def best(self, weights: Array, accuracy: float = 0.0, start: Any = None) -> tuple[Acts, float, Array]:
        """Maximise weights·J over policies; return (act, maximum, J).

        The deterministic policy act [H, S] attains the maximum, and J [1+I] are its values. `accuracy` and `start` are
        not used: backward induction is exact up to rounding.
        """
        act, V, first = self._induct(weights)
        return act, float(self.cmdp.rho @ V[0]), self.cmdp.rho @ first

    def _induct(self, weights: Array) -> tuple[Acts, Array, Array]:
        """Return (act, V, V_0): the best policy act [H, S] for the signal weights·h, and its values V [H, S].

        V_0 [S, 1+I] are its values for each signal of the model, from the first step on.
        """
        cmdp, P = self.cmdp, self._rows
        V = np.empty((cmdp.policy_shape[0], cmdp.S))
        act = np.empty(V.shape, np.int64)
        allowed = np.ascontiguousarray(self._allowed.reshape(len(self._allowed), -1))
        mixed = np.tensordot(weights, cmdp.h, 1).ravel()
        first = induct(P.indptr, P.indices, P.data, self._signals, mixed, cmdp.gamma, allowed, act, V)
        return act, V, first

    def dual(self, lam: Array, reward: float = 1.0, start: Any = None) -> tuple[float, Array, Acts]:
        """Bound the maximum over policies of reward·J_r + Σ_i λ_i (J_gi − b_i); return (bound, V, act).

        `bound` is the maximum rounded up. V [H, S] proves the bound, and act [H, S] is the greedy policy of V. `start`
        is not used.
        """
        weights = np.append(reward, lam)
        act, V, _ = self._induct(weights)
        return self._bound(weights, lam, V), V, act

    def _bound(self, weights: Array, lam: Array, V: Array) -> float:
        cmdp, n = self.cmdp, row_width(self.cmdp) + self.cmdp.I + 8
        h, size = (np.tensordot(weights, x, 1) for x in (cmdp.h, np.abs(cmdp.h)))
        worst = np.zeros(len(V))
        for t, (now, later) in enumerate(_steps(V)):
            Q, bound = (cmdp.gamma * (cmdp.rows @ x).reshape(cmdp.S, cmdp.A) for x in (later, np.abs(later)))
            error = rounding(n) * (size + bound + np.abs(now)[:, None]) + n * TINY
            worst[t] = np.max(h + Q - now[:, None] + error, where=self._allowed[t % len(self._allowed)], initial=0.0)
        up = _add_up(cmdp, worst, largest_row_sum(cmdp), n)
        mass = cmdp.rho.sum() * (1 + rounding(cmdp.S))
        value, spread = cmdp.rho @ V[0] - lam @ cmdp.b, cmdp.rho @ np.abs(V[0]) + lam @ np.abs(cmdp.b)
        return float(value + up * mass + rounding(cmdp.S + cmdp.I + 8) * (spread + up * mass))


def approximate(cmdp: CMDP, pi: Array) -> Array:
    """Return V [M, 1+I, H, S] of M policies pi [M, H, S, A]; the bounds do not rely on its accuracy."""
    return np.stack([horizon_values(cmdp, p) for p in pi])


def enclose(cmdp: CMDP, pi: Array, V: Array) -> tuple[Array, Array, Array]:
    """Return J of M policies pi [M, H, S, A], and its proven lower and upper bounds, each [M, 1+I].

    V [M, 1+I, H, S] are approximate values; the bounds hold for any V.
    """
    found = [_enclose_one(cmdp, p, v) for p, v in zip(pi, V, strict=True)]
    J, lower, upper = (np.array(x) for x in zip(*found, strict=True))
    return J, lower, upper


def _enclose_one(cmdp: CMDP, pi: Array, V: Array) -> tuple[Array, Array, Array]:
    n = row_width(cmdp) + cmdp.A + 8
    low, high = np.zeros(V.shape[:2]), np.zeros(V.shape[:2])
    step = stepper(cmdp)
    for t, (now, later) in enumerate(_steps(np.swapaxes(V, 0, 1))):
        found, size = step(pi[t], later.T)
        residual = found - now.T
        error = rounding(n) * (size + np.abs(now.T)) + n * TINY
        low[:, t] = np.minimum(0.0, (residual - error).min(0))
        high[:, t] = np.maximum(0.0, (residual + error).max(0))
    c = largest_row_sum(cmdp) * max(1.0, float(pi.sum(-1).max()) * (1 + rounding(cmdp.A)))
    mass = cmdp.rho.sum() * (1 + rounding(cmdp.S))
    down, up = (_add_up(cmdp, x, c, n) * mass for x in (-low, high))
    J, spread = V[:, 0] @ cmdp.rho, np.abs(V[:, 0]) @ cmdp.rho
    slop = rounding(cmdp.S + 8) * (spread + up + down)
    return J, J - down - slop, J + up + slop


def _steps(V: Array):
    """Return the pairs (V_t, V_{t+1}) of V [..., H, S] for every step t, with V_H = 0."""
    return zip(V, [*V[1:], np.zeros_like(V[0])], strict=True)


def _add_up(cmdp: CMDP, x: Array, c: float, n: int) -> Any:
    """Return Σ_t (γc)^t x_t for x ≥ 0, rounded up; c is the largest row sum of P, n the number of rounded terms."""
    H = x.shape[-1]
    weights = (cmdp.gamma * c * (1 + rounding(4))) ** np.arange(H) * (1 + rounding(2 * H))
    return (x @ weights) * (1 + rounding(H + n))


def row_width(cmdp: CMDP) -> int:
    return int(np.diff(cmdp.P.indptr).max()) if cmdp.is_sparse else cmdp.S


def largest_row_sum(cmdp: CMDP) -> float:
    """Return an upper bound on the largest Σ_s' P(s'|s, a)."""
    return float(np.asarray(cmdp.rows.sum(axis=1)).max()) * (1 + rounding(row_width(cmdp)))
