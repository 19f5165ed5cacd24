"""Exact evaluation of policies of a finite model: V, Q, A, J and occupancies, by one factorisation.

V_π = (I − γ P_π)⁻¹ h_π,   Q = h + γ P V,   A = Q − V,   J = ρ·V
d(s) = (1−γ) ρᵀ (I − γ P_π)⁻¹,   d(s, a) = d(s) π(a|s),   J = ⟨h, d⟩ / (1−γ)

The other criteria define other occupancies d, with J = length · ⟨h, d⟩ (`CMDP.length`): shares of time (average),
expected visits before absorption (total), and with a horizon the visits of each step, d [H, S, A].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearance.certificates.verdict_words import join_some
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import read_distributions, read_numbers
from clearance.finite.cmdp import CMDP
from clearance.finite.linear_systems import factorise, solve_systems, transition_matrix
from clearance.finite.long_run import Chain, horizon_values, horizon_visits, tables_over_time


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The exact values of one policy: V [1+I, S], Q and A [1+I, S, A], the occupancy d [S, A], and J [1+I].

    With a horizon V, Q, A and d have one more axis, the time, before the states. Under the average criterion V is the
    bias, and Q = h − gain + P V.
    """

    V: Array
    Q: Array
    A: Array
    d: Array
    J: Array

    def __repr__(self) -> str:
        J = join_some([f"{x:.6g}" for x in self.J], most=8)
        return f"<Evaluation: J = ({J}); V {self.V.shape}, Q and A {self.Q.shape}, d {self.d.shape}>"


def evaluate(cmdp: CMDP, pi: ArrayLike) -> Evaluation:
    """Return V, Q, A, the occupancy d and J of the stationary policy π [S, A], by one factorisation.

    V = (I − γ P_π)⁻¹ h_π;  Q = h + γ P V;  A = Q − V;  d(s) = (1−γ) (I − γ P_πᵀ)⁻¹ ρ;  J = ρ·V.
    """
    pi = check_policy(cmdp, pi)
    if cmdp.kind != "discounted":
        return _EVALUATE[cmdp.kind](cmdp, pi)
    solve, solve_T = factorise(cmdp, transition_matrix(cmdp, pi), cmdp.gamma)
    V = solve(np.einsum("sa,hsa->sh", pi, cmdp.h)).T
    Q = cmdp.h + cmdp.gamma * (cmdp.rows @ V.T).T.reshape(cmdp.h.shape)
    d = (1 - cmdp.gamma) * solve_T(cmdp.rho)[:, None] * pi
    return Evaluation(V=V, Q=Q, A=Q - V[:, :, None], d=d, J=V @ cmdp.rho)


def _evaluate_horizon(cmdp: CMDP, pi: Array) -> Evaluation:
    pi = tables_over_time(cmdp, pi)
    V = horizon_values(cmdp, pi)
    later = np.concatenate([V[:, 1:], np.zeros((1 + cmdp.I, 1, cmdp.S))], axis=1).reshape(-1, cmdp.S)
    Q = cmdp.h[:, None] + cmdp.gamma * (cmdp.rows @ later.T).T.reshape(1 + cmdp.I, len(pi), cmdp.S, cmdp.A)
    return Evaluation(V, Q, Q - V[..., None], horizon_visits(cmdp, pi) / cmdp.length, V[:, 0] @ cmdp.rho)


def _evaluate_total(cmdp: CMDP, pi: Array) -> Evaluation:
    chain = Chain.of(cmdp, pi)
    V = chain.sums()
    Q = cmdp.h + _expect_next(cmdp, V)
    with np.errstate(invalid="ignore"):  # ∞ − ∞
        A = Q - V[:, :, None]
    return Evaluation(V, Q, A, chain.visits()[:, None] * pi, _expect_start(cmdp, V))


def _evaluate_average(cmdp: CMDP, pi: Array) -> Evaluation:
    chain = Chain.of(cmdp, pi)
    gain, V = chain.gains()
    Q = cmdp.h - gain[:, :, None] + (cmdp.rows @ V.T).T.reshape(cmdp.h.shape)
    return Evaluation(V, Q, Q - V[:, :, None], chain.frequencies()[:, None] * pi, gain @ cmdp.rho)


def _expect_next(cmdp: CMDP, V: Array) -> Array:
    """Return P V [1+I, S, A]. An infinite V(s') affects only the pairs (s, a) that can lead to s'."""
    found = cmdp.rows @ np.where(np.isfinite(V), V, 0.0).T
    for end in (np.inf, -np.inf):
        here = np.isinf(V) & (np.sign(V) == np.sign(end))
        if np.any(here):
            found = np.where(cmdp.rows @ here.T.astype(float) > 0, end, found)
    return found.T.reshape(cmdp.h.shape)


def _expect_start(cmdp: CMDP, V: Array) -> Array:
    """Return ρ·V [1+I]; an infinite V counts only in states with a positive start probability."""
    return np.where(cmdp.rho > 0, V, 0.0) @ cmdp.rho


_EVALUATE = {"horizon": _evaluate_horizon, "total": _evaluate_total, "average": _evaluate_average}


def occupancy(cmdp: CMDP, pi: ArrayLike) -> Array:
    """Return the occupancy d(s, a) = (1−γ) Σ_t γ^t P(s_t = s, a_t = a) of one policy [S, A] or of many [..., S, A].

    Many policies of a small dense model are solved in one batch. With a horizon, d and time-dependent policies are
    [..., H, S, A]. For the criterion "total", visits to closed classes without signals are not counted.
    """
    pi = np.asarray(pi, float)
    if cmdp.kind != "discounted":
        return _occupancy_of_kind(cmdp, pi)
    if pi.shape[-2:] != (cmdp.S, cmdp.A):
        raise InputError(f"policy has shape {pi.shape}, the model needs [..., S, A] = {(cmdp.S, cmdp.A)}")
    if pi.ndim > 2 and cmdp.is_sparse:
        return np.stack([occupancy(cmdp, p) for p in pi.reshape(-1, cmdp.S, cmdp.A)]).reshape(pi.shape)
    if cmdp.is_sparse:
        _, solve_T = factorise(cmdp, transition_matrix(cmdp, pi), cmdp.gamma)
        return (1 - cmdp.gamma) * solve_T(cmdp.rho)[:, None] * pi
    # One small product per state, so that a policy's result does not depend, bit for bit, on the size of the batch.
    P_pi = np.matmul(pi[..., None, :], cmdp.P)[..., 0, :]
    system = np.eye(cmdp.S) - cmdp.gamma * np.swapaxes(P_pi, -1, -2)
    rhs = np.broadcast_to(cmdp.rho[:, None], (*pi.shape[:-2], cmdp.S, 1))
    return (1 - cmdp.gamma) * solve_systems(system, rhs) * pi


def _occupancy_of_kind(cmdp: CMDP, pi: Array) -> Array:
    pi = tables_over_time(cmdp, pi) if cmdp.kind == "horizon" else pi
    axes = len(cmdp.policy_shape)
    if pi.shape[-axes:] != cmdp.policy_shape:
        raise InputError(f"policy has shape {pi.shape}, the model needs [..., S, A] = {cmdp.policy_shape}")
    if pi.ndim > axes:
        parts = [_occupancy_of_kind(cmdp, p) for p in pi.reshape(-1, *cmdp.policy_shape)]
        return np.stack(parts).reshape(pi.shape) if parts else np.zeros(pi.shape)
    if cmdp.kind == "horizon":
        return horizon_visits(cmdp, pi) / cmdp.length
    chain = Chain.of(cmdp, pi)
    return (chain.visits() if cmdp.kind == "total" else chain.frequencies())[:, None] * pi


def values_from_occupancy(cmdp: CMDP, d: Array) -> Array:
    """Return J [..., 1+I] = ⟨h, d⟩ / (1−γ) for occupancies d [..., S, A]."""
    if cmdp.kind != "discounted":
        d = d.sum(-3) if cmdp.kind == "horizon" else d
        return cmdp.length * np.einsum("...sa,hsa->...h", d, cmdp.h)
    flat = d.reshape(*d.shape[:-2], cmdp.S * cmdp.A)
    return (flat[..., None, :] @ cmdp.h.reshape(1 + cmdp.I, -1).T)[..., 0, :] / (1 - cmdp.gamma)


def policy_from_occupancy(d: ArrayLike, available: NDArray[np.bool_] | None = None) -> Array:
    """Return π(a|s) = d(s, a) / Σ_a d(s, a) (Bai et al. 2023, Assumption 5).

    In states that are never visited, π is uniform over the available actions.
    """
    d = np.maximum(np.asarray(d, float), 0.0)
    total = d.sum(-1, keepdims=True)
    if available is None:
        elsewhere = np.full(d.shape[-1], 1.0 / d.shape[-1])
    else:
        elsewhere = available / available.sum(-1, keepdims=True)
    return np.where(total > 0, d / np.where(total > 0, total, 1.0), elsewhere)


def check_policy(cmdp: CMDP, pi: ArrayLike) -> Array:
    """Return π as an array [S, A], or [H, S, A] with a horizon.

    Raise InputError that names the state if a row is no probability distribution.
    """
    timed = cmdp.horizon is not None and np.ndim(pi) == 3
    pi = read_numbers("policy", pi, ndim=3 if timed else 2)
    if pi.shape != (cmdp.policy_shape if timed else (cmdp.S, cmdp.A)):
        raise InputError(f"policy has shape {pi.shape}, the model needs [S, A] = {(cmdp.S, cmdp.A)}")
    pi = read_distributions("policy", pi)
    check_available(cmdp, pi)
    return pi


def check_available(cmdp: CMDP, pi: Array) -> None:
    """Raise InputError if a policy [..., S, A] takes an action that does not exist in its state."""
    forbidden = np.argwhere(pi.reshape(-1, cmdp.S, cmdp.A).any(axis=0) & ~cmdp.available)
    if len(forbidden):
        s, a = (int(i) for i in forbidden[0])
        state = s if cmdp.states is None else repr(cmdp.states[s])
        action = a if cmdp.actions is None else repr(cmdp.actions[a])
        raise InputError(f"policy takes action {action} at state {state}, which has no such action")
