"""Compiled sparse kernels: linear solves (I − γM) x = y for a stochastic M, greedy sweeps, policy iteration.

The main solver is BiCGStab (van der Vorst 1992). On slow-mixing models, plain sweeps take twenty times longer; on
random graphs, a sparse LU needs too much memory. If BiCGStab breaks down or stalls, Gauss–Seidel is used, which always
converges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled.compilation import kernel, piece

EPS = 2.0**-52
U = np.uint64


@kernel(inline="always")
def row_dot(indices, data, first, end, x):
    """Return Σ data[i] x[indices[i]] over first ≤ i < end.

    Four sums are computed in parallel, since each addition has to wait for the previous one of the same sum. Indices
    are unsigned, since numba checks signed ones for negative values. Together this is twice as fast.
    """
    i, stop = U(first), U(end)
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    while i + U(3) < stop:
        a += data[i] * x[U(indices[i])]
        b += data[i + U(1)] * x[U(indices[i + U(1)])]
        c += data[i + U(2)] * x[U(indices[i + U(2)])]
        d += data[i + U(3)] * x[U(indices[i + U(3)])]
        i += U(4)
    while i < stop:
        a += data[i] * x[U(indices[i])]
        i += U(1)
    return (a + b) + (c + d)


@piece
def _apply(indptr, indices, data, gamma, x, y):
    """Compute y ← (I − γM) x for the CSR matrix M = (indptr, indices, data)."""
    for s in range(len(x)):
        y[s] = x[s] - gamma * row_dot(indices, data, indptr[s], indptr[s + 1], x)


@piece
def _apply_dot(indptr, indices, data, gamma, x, y, z):
    """Compute y ← (I − γM) x for the CSR matrix M = (indptr, indices, data).

    Return y·z and y·y from the same pass over the data.
    """
    yz, yy = 0.0, 0.0
    for s in range(len(x)):
        y[s] = x[s] - gamma * row_dot(indices, data, indptr[s], indptr[s + 1], x)
        yz += y[s] * z[s]
        yy += y[s] * y[s]
    return yz, yy


@piece
def _dot(x, y):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@piece
def _largest(x):
    most = 0.0
    for i in range(len(x)):
        most = max(most, abs(x[i]))
    return most


@kernel(error_model="numpy")  # a breakdown divides by 0; it is detected by values that are not finite
def bicgstab(indptr, indices, data, gamma, y, x, tol, limit):
    """Solve (I − γM) x = y, starting from the given x, until max|residual| ≤ tol; return the residual.

    M is CSR (indptr, indices, data). At most `limit` iterations of BiCGStab are made.
    """
    n = len(y)
    r, p, v, s, t = np.empty(n), np.zeros(n), np.zeros(n), np.empty(n), np.empty(n)
    _apply(indptr, indices, data, gamma, x, v)
    for i in range(n):
        r[i] = y[i] - v[i]
    shadow = r.copy()
    v[:] = 0.0
    rho, alpha, omega = 1.0, 1.0, 1.0
    worst, rho_new = _largest(r), _dot(shadow, r)
    for _ in range(limit):
        if worst <= tol:
            break
        beta = (rho_new / rho) * (alpha / omega)
        for i in range(n):
            p[i] = r[i] + beta * (p[i] - omega * v[i])
        alpha = rho_new / _apply_dot(indptr, indices, data, gamma, p, v, shadow)[0]
        for i in range(n):
            s[i] = r[i] - alpha * v[i]
        ts, tt = _apply_dot(indptr, indices, data, gamma, s, t, s)
        omega = ts / tt if tt > 0 else 0.0
        if not (np.isfinite(alpha) and np.isfinite(beta) and np.isfinite(omega)) or rho_new == 0.0:
            break
        rho, rho_new, worst = rho_new, 0.0, 0.0
        for i in range(n):
            x[i] += alpha * p[i] + omega * s[i]
            r[i] = s[i] - omega * t[i]
            rho_new += shadow[i] * r[i]
            worst = max(worst, abs(r[i]))
        if omega == 0.0:
            break
    _apply(indptr, indices, data, gamma, x, v)  # compute the true residual: that of the recursion drifts
    worst = 0.0
    for i in range(n):
        worst = max(worst, abs(y[i] - v[i]))
    return worst


@kernel
def sweeps(indptr, indices, data, gamma, y, x, tol, limit):
    """Solve (I − γM) x = y by at most `limit` Gauss–Seidel sweeps x ← y + γMx in place; return the last change of x.

    M is CSR (indptr, indices, data). The sweeps stop when no entry of x changes by more than tol. They always converge,
    but slowly.
    """
    worst = np.inf
    for _ in range(limit):
        worst = 0.0
        for s in range(len(x)):
            total, own = 0.0, 0.0
            for i in range(indptr[s], indptr[s + 1]):
                if indices[i] == s:
                    own += data[i]
                else:
                    total += data[i] * x[indices[i]]
            new = (y[s] + gamma * total) / (1.0 - gamma * own)
            worst = max(worst, abs(new - x[s]) * (1.0 - gamma * own))
            x[s] = new
        if worst <= tol:
            break
    return worst


@kernel
def sweep(indptr, indices, data, h, gamma, V, act):
    """Set `act` [S] to the greedy policy of V; return the largest and the smallest entry of TV − V.

    T is the Bellman operator: (TV)(s) = max_a h(s, a) + γ Σ_s' P(s'|s, a) V(s'), with P [S·A, S] as CSR (indptr,
    indices, data). If the present action in `act` is as good as the best one, it is kept.
    """
    S = len(V)
    A = len(h) // S
    most, least = -np.inf, np.inf
    for s in range(S):
        best, choice, kept = -np.inf, act[s], -np.inf
        for a in range(A):
            row = s * A + a
            if indptr[row] == indptr[row + 1]:
                continue  # no such action in this state
            q = h[row] + gamma * row_dot(indices, data, indptr[row], indptr[row + 1], V)
            if a == act[s]:
                kept = q
            if q > best:
                best, choice = q, a
        if kept < best - 1e-14 * abs(best):
            act[s] = choice
        gain = best - V[s]
        most, least = max(most, gain), min(least, gain)
    return most, least


@piece
def _chosen_rows(indptr, indices, data, act, A, mptr, midx, mval):
    """Write the transition matrix of the policy act [S] as CSR to (mptr, midx, mval): row s is row s·A + act[s] of P.

    P is CSR (indptr, indices, data).
    """
    at = 0
    for s in range(len(act)):
        mptr[s] = at
        row = s * A + act[s]
        for i in range(indptr[row], indptr[row + 1]):
            midx[at], mval[at] = indices[i], data[i]
            at += 1
    mptr[len(act)] = at


@kernel
def _solve(mptr, midx, mval, gamma, y, x, tol):
    """Solve (I − γM) x = y by BiCGStab with restarts, or by Gauss–Seidel if that fails; return the residual.

    M is CSR (mptr, midx, mval); the residual should be at most `tol`.
    """
    tol = max(tol, 4 * EPS * _largest(y))
    residual = previous = np.inf
    saved = x.copy()
    for _ in range(4):
        residual = bicgstab(mptr, midx, mval, gamma, y, x, tol, 2000)
        if residual <= max(tol, 64 * EPS * _largest(x)):
            return residual
        if not residual < 0.5 * previous:
            break
        previous = residual
        saved[:] = x
    if not residual < previous:
        x[:] = saved
    sweeps(mptr, midx, mval, gamma, y, x, tol, np.int64(min(20000.0, 1.0 + 40.0 / (1.0 - gamma))))
    return bicgstab(mptr, midx, mval, gamma, y, x, tol, 0)


@kernel
def policy_iteration(indptr, indices, data, h, gamma, V, act, tol):
    """Improve V and the policy `act` until max(TV − V) − min(TV − V) is at most tol, or no longer shrinks.

    T is the Bellman operator. Return max(TV − V). The arguments are those of `sweep`. Each policy is evaluated up to a
    residual of a thousandth of the present difference; for early policies this is accurate enough.
    """
    S = len(V)
    A = len(h) // S
    largest = np.int64(0)
    for s in range(S):
        widest = np.int64(0)
        for a in range(A):
            widest = max(widest, np.int64(indptr[s * A + a + 1] - indptr[s * A + a]))
        largest += widest
    mptr, midx, mval = np.empty(S + 1, indptr.dtype), np.empty(largest, indices.dtype), np.empty(largest)
    y = np.empty(S)
    most, best = np.inf, np.inf
    for _ in range(200):
        most, least = sweep(indptr, indices, data, h, gamma, V, act)
        spread = most - least
        if spread <= tol or (spread <= 1e3 * tol and not spread < 0.9 * best):
            break
        best = min(best, spread)
        _chosen_rows(indptr, indices, data, act, A, mptr, midx, mval)
        for s in range(S):
            y[s] = h[s * A + act[s]]
        _solve(mptr, midx, mval, gamma, y, V, max(1e-3 * spread, 0.2 * tol))
    return most


@kernel
def _transposed(indptr, indices, data, act, A, tptr, tidx, tval):
    """Write the transposed transition matrix of the policy act [S] as CSR to (tptr, tidx, tval).

    The transitions P [S·A, S] of the model are CSR (indptr, indices, data).
    """
    S = len(act)
    for s in range(S):
        row = s * A + act[s]
        for i in range(indptr[row], indptr[row + 1]):
            tptr[indices[i] + 1] += 1
    for s in range(S):
        tptr[s + 1] += tptr[s]
    at = tptr[:-1].copy()
    for s in range(S):
        row = s * A + act[s]
        for i in range(indptr[row], indptr[row + 1]):
            t = indices[i]
            tidx[at[t]], tval[at[t]] = s, data[i]
            at[t] += 1


def transposed_rows(indptr: Any, indices: Any, data: Array, act: NDArray[np.int64], A: int) -> sparse.csr_array:
    """Return the transposed transition matrix P_actᵀ [S, S] of the deterministic policy act [S].

    The transitions P [S·A, S] of the model are CSR (indptr, indices, data).
    """
    S = len(act)
    rows = np.arange(S) * A + act
    n = int((indptr[rows + 1] - indptr[rows]).sum())
    tptr, tidx, tval = np.zeros(S + 1, indptr.dtype), np.empty(n, indices.dtype), np.empty(n)
    _transposed(indptr, indices, data, act, A, tptr, tidx, tval)
    return sparse.csr_array((tval, tidx, tptr), shape=(S, S))


def linear_solve(M: sparse.csr_array, gamma: float, y: Array, x: Array, tol: float) -> float:
    """Solve (I − γM) x = y in place until max|residual| ≤ tol, as far as rounding allows; return the residual.

    M is CSR; for the transposed system pass Mᵀ. If rounding makes BiCGStab drift, it is restarted from the true
    residual. If this does not help, Gauss–Seidel takes over.
    """
    return _solve(M.indptr, M.indices, M.data, gamma, y, x, tol)
