"""The compiled kernels of finite models: random streams, alias tables, walks, and whole runs of Algorithm 1.

One file, because a compiled function is cached by the file it stands in: a callee in another file could change
without its callers being compiled anew.

Streams are counter-based: every number is a pure function of (seed, k, purpose, n, position). A stream is a 64-bit
key; its words are mix(key + j·G), the generator SplitMix64 (Steele, Lea, Flood 2014) read at chosen positions. Keys
are words of other streams (`fold`), so a result does not depend on threads, machines or batching, or on an
interruption and resume.

A transition costs the same for any |S|: next states and actions come from alias tables (Walker 1977; Vose 1991).
Several walks advance in turn (`LANES`), which hides the memory's latency on large models; each has a stream of its
own, so their interleaving changes no result. Coins have 32 bits: a probability is met to 2⁻³³.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[np.float64]

U = np.uint64
G = U(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, the increment of SplitMix64
LOW = U(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def mix(z):
    """The finaliser of SplitMix64: a bijection of 64-bit words that passes the usual batteries."""
    z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return z ^ (z >> U(31))


@njit(cache=True, nogil=True)
def fold(key, i):
    """The key of sub-stream i of a stream."""
    return mix(key + U(i + 1) * G)


@njit(cache=True, nogil=True)
def unit(word):
    """A word as a double in (0, 1), 53 bits, never 0 or 1."""
    return (float(word >> U(11)) + 0.5) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def geometric(word, inv_log_gamma):
    """T on {1, 2, …} with P(T > t) = γ^t, by inversion; inv_log_gamma = 1 / log γ."""
    return np.int64(np.log(unit(word)) * inv_log_gamma) + 1


@njit(cache=True, nogil=True)
def below(word, n):
    """A number in 0..n−1 from the high half of a word, and leaves the low half for the alias coin."""
    return np.int64(((word >> U(32)) * U(n)) >> U(32))


# ------------------------------------------------------------------------------------------ alias tables, walks

LANES = 16
VISIT, Q_ROLLOUT, V_ROLLOUT, J_ROLLOUT, COIN = range(5)


class Tables(NamedTuple):
    """A finite model as the kernels read it.

    `cells[i] = (threshold, own state, alias state)` of transition i, rows delimited by `indptr` [S·A + 1];
    `start` the same for ρ; `h` [S·A, 1+I]; `inv_log_gamma` = 1 / log γ.
    """

    cells: NDArray[np.uint32]
    indptr: NDArray[np.int64]
    start: NDArray[np.uint32]
    h: Array
    A: int
    inv_log_gamma: float


class Rows(NamedTuple):
    """A policy as the kernels read it: π [S, A]; its alias tables `pol` [S·A]; θ, bias and features behind it.

    A row is made when its state is first visited in iteration `tick` (`stamp[s] == tick`), so that an iteration
    costs what it visits, not |S|. Features are CSR over rows s·A + a.
    """

    pi: Array
    pol: NDArray[np.uint64]
    stamp: NDArray[np.int64]
    theta: Array
    bias: Array
    fptr: NDArray[np.int64]
    fidx: NDArray[np.int64]
    fval: Array


@njit(cache=True, nogil=True)
def _vose(p, threshold, alias, small):
    """Alias table of the weights p [n]: P(i) = (threshold_i + Σ_{j: alias_j = i} (1 − threshold_j)) / n."""
    n = len(p)
    total = 0.0
    for i in range(n):
        total += p[i]
    lo, hi = 0, n  # a stack of the cells below average grows from the left, of the others from the right
    for i in range(n):
        threshold[i] = p[i] * n / total
        alias[i] = i
        if threshold[i] < 1.0:
            small[lo] = i
            lo += 1
        else:
            hi -= 1
            small[hi] = i
    while lo > 0 and hi < n:
        lo -= 1
        i, j = small[lo], small[hi]
        alias[i] = j
        threshold[j] -= 1.0 - threshold[i]
        if threshold[j] < 1.0:
            hi += 1
            small[lo] = j
            lo += 1
    for k in range(lo):  # what rounding leaves over has threshold 1
        alias[small[k]] = small[k]


@njit(cache=True, nogil=True)
def _threshold(q):
    """A probability in [0, 1] as a 32-bit threshold; at 1 the alias is the cell itself, so 2³²−1 is exact."""
    return U(4294967295) if q >= 1.0 else U(q * 4294967296.0)


@njit(cache=True, nogil=True)
def alias_cells(indptr, indices, data):
    """Alias tables of all rows of a CSR matrix: [nnz, 3] of (threshold, own index, alias index)."""
    widest = 0
    for row in range(len(indptr) - 1):
        widest = max(widest, indptr[row + 1] - indptr[row])
    q, alias, small = np.empty(widest), np.empty(widest, np.int64), np.empty(widest, np.int64)
    cells = np.empty((len(data), 3), np.uint32)
    for row in range(len(indptr) - 1):
        a, z = indptr[row], indptr[row + 1]
        n = z - a
        _vose(data[a:z], q[:n], alias[:n], small[:n])
        for i in range(n):
            cells[a + i, 0] = _threshold(q[i])
            cells[a + i, 1] = indices[a + i]
            cells[a + i, 2] = indices[a + alias[i]]
    return cells


@njit(cache=True, nogil=True)
def pack_row(rows, A, s, scratch):
    """The alias table of π(·|s): threshold in the high half of a word, alias action in the low half."""
    q, alias, small = scratch
    _vose(rows.pi[s], q[:A], alias[:A], small[:A])
    for a in range(A):
        rows.pol[s * A + a] = (_threshold(q[a]) << U(32)) | U(alias[a])


@njit(cache=True, nogil=True)
def softmax_row(rows, A, s, scratch):
    """π(a|s) ∝ exp⟨Φ_sa, θ⟩ at one state, and its alias table."""
    top = -np.inf
    for a in range(A):
        logit = rows.bias[s, a]
        for i in range(rows.fptr[s * A + a], rows.fptr[s * A + a + 1]):
            logit += rows.fval[i] * rows.theta[rows.fidx[i]]
        rows.pi[s, a] = logit
        top = max(top, logit)
    total = 0.0
    for a in range(A):
        rows.pi[s, a] = np.exp(rows.pi[s, a] - top)
        total += rows.pi[s, a]
    for a in range(A):
        rows.pi[s, a] /= total
    pack_row(rows, A, s, scratch)


@njit(cache=True, nogil=True)
def walks(key, model, rows, tick, start, sums, last, lanes):
    """Geometric rollouts n = 0..N−1 on the streams fold(key, n); returns the number of environment steps.

    start[n]  −1: from ρ;  −2−s: from state s with a fresh action;  s·A + a: from that pair
    sums      [N, 1+I] becomes Σ_{t<T} h; with no columns, signals are not looked up
    last      [N] becomes s·A + a of the last step, a draw of d_ρ^π when the walk starts from ρ

    Arrays are unpacked and the two alias draws written out: a call that passes arrays would count references in
    the innermost loop, which costs ten times the step itself.
    """
    lane_n, lane_row, lane_left, lane_x, scratch = lanes
    cells, indptr, origin, h, A, inv_log_gamma = model
    pol, stamp = rows.pol, rows.stamp
    N, H, L = len(start), sums.shape[1], len(lane_n)
    steps, fresh, active = 0, 0, 0
    while fresh < N or active > 0:
        while fresh < N and active < L:  # fill the free lanes
            x = fold(key, fresh)
            T = geometric(x, inv_log_gamma)  # the stream's own key is its first word
            row = start[fresh]
            if row < 0:
                s = -2 - row
                if row == -1:
                    x += G
                    word = mix(x)
                    i = below(word, len(origin))
                    s = np.int64(origin[i, 1] if (word & LOW) < U(origin[i, 0]) else origin[i, 2])
                if stamp[s] != tick:
                    softmax_row(rows, A, s, scratch)
                    stamp[s] = tick
                x += G
                word = mix(x)
                i = below(word, A)
                packed = pol[s * A + i]
                row = s * A + (i if (word & LOW) < (packed >> U(32)) else np.int64(packed & LOW))
            lane_n[active], lane_row[active], lane_left[active], lane_x[active] = fresh, row, T, x
            for i in range(H):
                sums[fresh, i] = 0.0
            steps += T
            fresh += 1
            active += 1
        lane = 0
        while lane < active:  # one step of every lane
            row = lane_row[lane]
            for i in range(H):
                sums[lane_n[lane], i] += h[row, i]
            lane_left[lane] -= 1
            if lane_left[lane] == 0:
                last[lane_n[lane]] = row
                active -= 1
                lane_n[lane], lane_row[lane] = lane_n[active], lane_row[active]
                lane_left[lane], lane_x[lane] = lane_left[active], lane_x[active]
                continue
            x = lane_x[lane] + G
            word = mix(x)
            i = indptr[row] + below(word, indptr[row + 1] - indptr[row])
            s = np.int64(cells[i, 1] if (word & LOW) < U(cells[i, 0]) else cells[i, 2])
            if stamp[s] != tick:
                softmax_row(rows, A, s, scratch)
                stamp[s] = tick
            x += G
            word = mix(x)
            i = below(word, A)
            packed = pol[s * A + i]
            lane_row[lane] = s * A + (i if (word & LOW) < (packed >> U(32)) else np.int64(packed & LOW))
            lane_x[lane] = x
            lane += 1
    return steps


def workspace(width: int):
    """What `walks` needs besides its arguments: the lanes, and scratch for an alias table of `width` cells."""
    scratch = (np.empty(width), np.empty(width, np.int64), np.empty(width, np.int64))
    lane_n, lane_row, lane_left = (np.empty(LANES, np.int64) for _ in range(3))
    return lane_n, lane_row, lane_left, np.empty(LANES, np.uint64), scratch


@njit(cache=True, nogil=True)
def pack_all(rows, A, scratch):
    """The alias tables of every state."""
    for s in range(len(rows.pi)):
        pack_row(rows, A, s, scratch)


@njit(cache=True, nogil=True)
def rollouts(key, model, rows, tick, resets, pair, start, Q, V, J, lanes):
    """One batch of Algorithm 2: pairs (s, a) [N], Q̂ and V̂ [N, 1+I], and rollouts of J from ρ [N, 1+I].

    Without resets V̂ is 0 and Q̂ is ±2 Σ h, so that Â = Q̂ − V̂ in either case.
    """
    N = len(pair)
    no_signal = np.empty((N, 0))
    start[:] = -1
    steps = walks(fold(key, VISIT), model, rows, tick, start, no_signal, pair, lanes)
    if resets:
        start[:] = pair
        steps += walks(fold(key, Q_ROLLOUT), model, rows, tick, start, Q, start.copy(), lanes)
        start[:] = -2 - pair // model.A
        steps += walks(fold(key, V_ROLLOUT), model, rows, tick, start, V, start.copy(), lanes)
    else:
        coin = fold(key, COIN)
        for n in range(N):
            heads = unit(fold(coin, n)) < 0.5
            start[n] = pair[n] if heads else -2 - pair[n] // model.A
        steps += walks(fold(key, Q_ROLLOUT), model, rows, tick, start, Q, start.copy(), lanes)
        for n in range(N):
            sign = 2.0 if unit(fold(coin, n)) < 0.5 else -2.0
            for i in range(Q.shape[1]):
                Q[n, i] *= sign
                V[n, i] = 0.0
    start[:] = -1
    return steps + walks(fold(key, J_ROLLOUT), model, rows, tick, start, J, start.copy(), lanes)


# -------------------------------------------------------------------------------------- Algorithm 1, whole runs


@njit(cache=True, nogil=True)
def sgd(rows, A, pair, A_L, step, scale, x, mean):
    """Averaged SGD of `direction.SGD` with sparse scores; leaves the mean of the iterates in `mean`."""
    N = len(pair)
    x[:], mean[:] = 0.0, 0.0
    for n in range(N):
        row = pair[n]
        s = row // A
        fit = 0.0
        for a in range(A):
            weight = (1.0 if s * A + a == row else 0.0) - rows.pi[s, a]
            for i in range(rows.fptr[s * A + a], rows.fptr[s * A + a + 1]):
                fit += weight * rows.fval[i] * x[rows.fidx[i]]
        move = -step * (scale * fit - A_L[n])
        share = (N - n) / N  # x_n is part of the averages n..N
        for a in range(A):
            weight = move * ((1.0 if s * A + a == row else 0.0) - rows.pi[s, a])
            for i in range(rows.fptr[s * A + a], rows.fptr[s * A + a + 1]):
                x[rows.fidx[i]] += weight * rows.fval[i]
                mean[rows.fidx[i]] += share * weight * rows.fval[i]


@njit(cache=True, nogil=True)
def run(root, k0, model, rows, lam, b, resets, N, eta1, eta2, kappa, lam_max, scales, lanes, out):
    """Iterations k0 .. k0 + n − 1 of Algorithm 1; θ (in rows) and λ are advanced in place."""
    theta_out, lam_out, J_out, norm_out, steps_out = out
    step, scale, factor = scales
    d, H = len(rows.theta), model.h.shape[1]
    pair, start = np.empty(N, np.int64), np.empty(N, np.int64)
    Q, V, J = np.empty((N, H)), np.empty((N, H)), np.empty((N, H))
    A_L, x, omega = np.empty(N), np.empty(d), np.empty(d)
    for i in range(len(norm_out)):
        key = fold(root, k0 + i)
        theta_out[i], lam_out[i] = rows.theta, lam
        steps_out[i] = rollouts(key, model, rows, k0 + i + 1, resets, pair, start, Q, V, J, lanes)
        for n in range(N):
            A_L[n] = Q[n, 0] - V[n, 0]
            for j in range(1, H):
                A_L[n] += lam[j - 1] * (Q[n, j] - V[n, j])
        sgd(rows, model.A, pair, A_L, step, scale, x, omega)
        norm = 0.0
        for j in range(d):
            rows.theta[j] += eta1 * factor * omega[j]
            norm += (factor * omega[j]) ** 2
        norm_out[i] = np.sqrt(norm)
        for j in range(H):
            J_out[i, j] = J[:, j].mean()
        for j in range(H - 1):
            lam[j] = min(max(lam[j] - eta2 * (J_out[i, j + 1] - b[j] - kappa), 0.0), lam_max)


def announce_compilation() -> None:
    """Tell the person who waits, when the kernels are about to be compiled: once per machine and version."""
    cached = Path(run.stats.cache_path or ".").glob("kernels.run-*.nbc")
    if not run.signatures and not any(cached):
        print("clearance: compiling the kernels, once on this machine (about 10 s) …", file=sys.stderr, flush=True)
