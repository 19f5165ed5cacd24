"""The compiled kernels of finite models: random streams, alias tables, walks, and whole runs of Algorithm 1.

One file, because a compiled function is cached by the file it stands in: a callee in another file could change
without its callers being compiled anew.

Streams are counter-based: every number is a pure function of (seed, k, purpose, n, position). A stream is a 64-bit
key; its words are mix(key + j·G), the generator SplitMix64 (Steele, Lea, Flood 2014) read at chosen positions. Keys
are words of other streams (`fold`), so a result does not depend on threads, machines or batching, or on an
interruption and resume.

A transition costs the same for any |S|: next states and actions come from alias tables (Walker 1977; Vose 1991).
Many walks advance together (`LANES`), which hides the memory's latency on large models; each has a stream of its own,
so their interleaving changes no result. Cells and coins have 32 bits each: the chance of a state is met
to a share of n·2⁻³² of a table of n cells.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
def geometric(word, tail, guide, inv_log_gamma):
    """T on {1, 2, …} with P(T > t) = γ^t, by inversion: the first t with u ≥ γ^t, from where the guide table says.

    Beyond the table (γ very close to 1) by the logarithm itself, which takes five times longer.
    """
    u = unit(word)
    t = np.int64(guide[np.int64(word >> U(56))])
    while t < len(tail):
        if u >= tail[t]:
            return t
        t += 1
    return np.int64(np.log(u) * inv_log_gamma) + 1


def geometric_tables(gamma: float) -> tuple[Array, NDArray[np.int64], float]:
    """γ^t for t = 0, 1, … (until it is 0 for a 53-bit u, or 10⁵ of them), where to begin for each high byte of the word
    (never too late: the largest u with that byte needs at least so many steps), and 1 / log γ.
    """
    longest = int(min(1e5, np.ceil(55 * np.log(2) / -np.log(gamma)))) + 1
    tail = gamma ** np.arange(longest, dtype=float)
    top = np.minimum((np.arange(256) + 1) / 256, 1 - 2.0**-54)
    guide = np.maximum(1, np.floor(np.log(top) / np.log(gamma)).astype(np.int64))
    return tail, guide, 1 / np.log(gamma)


@njit(cache=True, nogil=True)
def below(word, n):
    """A number in 0..n−1 from the high half of a word, and leaves the low half for the alias coin."""
    return np.int64(((word >> U(32)) * U(n)) >> U(32))


@njit(cache=True, nogil=True)
def state_of(row, per_A):
    """row // A from 1/A: a division of integers takes ten times longer. Exact: (row + ½)/A is ½/A off any integer."""
    return np.int64((row + 0.5) * per_A)


# ------------------------------------------------------------------------------------------ alias tables, walks

LANES = 64
FROM_RHO, FROM_PAIR, COIN = range(3)
READY = -1  # the tick of a policy all of whose rows are made


class Tables(NamedTuple):
    """A finite model as the kernels read it.

    `cells[i] = (threshold, own state, alias state)` of transition i, rows delimited by `indptr` [S·A + 1] or, if all
    have the same number of cells, by that `width` (else 0); `start` the same for ρ; `h` [S·A, 1+I];
    the rest is for the geometric horizon (`geometric_tables`).
    """

    cells: NDArray[np.uint32]
    indptr: NDArray[np.int64]
    width: int
    start: NDArray[np.uint32]
    h: Array
    A: int
    tail: Array
    guide: NDArray[np.int64]
    inv_log_gamma: float


class Rows(NamedTuple):
    """A policy as the kernels read it: π [S, A]; its alias tables `pol` [S·A]; θ, bias and features behind it.

    A row is made when its state is first visited in iteration `tick` (`stamp[s] == tick`), so that the walks cost what
    they visit, not |S| (θ, its trace and the SGD still cost d); tick READY says that all rows are made. Features are
    CSR over rows s·A + a; `fact` is the action of each entry.
    """

    pi: Array
    pol: NDArray[np.uint64]
    stamp: NDArray[np.int64]
    theta: Array
    bias: Array
    fptr: NDArray[np.int64]
    fidx: NDArray[np.int64]
    fval: Array
    fact: NDArray[np.int64]


@njit(cache=True, nogil=True)
def _vose(p, row, n, threshold, alias, small):
    """Alias table of the weights p[row, :n]: P(i) = (threshold_i + Σ_{j: alias_j = i} (1 − threshold_j)) / n."""
    total = 0.0
    for i in range(n):
        total += p[row, i]
    lo, hi = 0, n  # a stack of the cells below average grows from the left, of the others from the right
    for i in range(n):
        threshold[i] = p[row, i] * n / total
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


def alias_cells(indptr: Any, indices: Any, data: Array, width: int) -> NDArray[np.uint32]:
    """Alias tables of all rows of a CSR matrix: cells of (threshold, own index, alias index), each row filled up to
    `width` cells with impossible ones if width > 0 (a fixed width saves the look-up of where a row begins).

    NumPy makes the array: it asks for huge pages, without which large models wait for the address translation.
    """
    cells = np.empty(((len(indptr) - 1) * width if width > 0 else len(data), 3), np.uint32)
    _fill_cells(indptr, indices, data, width, cells)
    return cells


@njit(cache=True, nogil=True)
def _fill_cells(indptr, indices, data, width, cells):
    rows, widest = len(indptr) - 1, width
    for row in range(rows):
        widest = max(widest, indptr[row + 1] - indptr[row])
    p, q = np.empty((1, widest)), np.empty(widest)
    alias, small = np.empty(widest, np.int64), np.empty(widest, np.int64)
    for row in range(rows):
        a, n = indptr[row], indptr[row + 1] - indptr[row]
        first, m = (row * width, width) if width > 0 else (a, n)
        if n == 0:
            continue  # no such action: nobody looks here
        p[0, :n] = data[a : a + n]
        p[0, n:m] = 0.0
        _vose(p, 0, m, q, alias, small)
        for i in range(m):
            cells[first + i, 0] = _threshold(q[i])
            cells[first + i, 1] = indices[a + min(i, n - 1)]
            cells[first + i, 2] = indices[a + min(alias[i], n - 1)]


@njit(cache=True, nogil=True)
def pack_row(rows, A, s, scratch):
    """The alias table of π(·|s): threshold in the high half of a word, alias action in the low half."""
    q, alias, small = scratch
    pol = rows.pol
    _vose(rows.pi, s, A, q, alias, small)
    for a in range(A):
        pol[s * A + a] = (_threshold(q[a]) << U(32)) | U(alias[a])


@njit(cache=True, nogil=True)
def softmax_row(rows, A, s, scratch):
    """π(a|s) ∝ exp⟨Φ_sa, θ⟩ at one state, and its alias table."""
    pi, bias, theta, fptr, fidx, fval = rows.pi, rows.bias, rows.theta, rows.fptr, rows.fidx, rows.fval
    top = -np.inf
    for a in range(A):
        logit = bias[s, a]
        for i in range(fptr[s * A + a], fptr[s * A + a + 1]):
            logit += fval[i] * theta[U(fidx[i])]
        pi[s, a] = logit
        top = max(top, logit)
    total = 0.0
    for a in range(A):
        pi[s, a] = np.exp(pi[s, a] - top)
        total += pi[s, a]
    for a in range(A):
        pi[s, a] /= total
    pack_row(rows, A, s, scratch)


@njit(cache=True, nogil=True)
def walks(key, model, rows, tick, start, sums, last, lanes):
    """Geometric rollouts n = 0..N−1 on the streams fold(key, n); returns the number of environment steps.

    start[n]  −1: from ρ;  −2−s: from state s with a fresh action;  s·A + a: from that pair
    sums      [N, 1+I] becomes Σ_{t<T} h
    last      [N] becomes s·A + a of the last step, a draw of d_ρ^π when the walk starts from ρ

    All lanes go through each phase of a step together: the loads of one phase do not wait for each other, so that the
    memory's latency is paid once for all lanes. Arrays are unpacked first: a call that passes arrays would count
    references in the innermost loop, which costs ten times the step itself.
    """
    lane_n, lane_at, lane_left, lane_x, lane_cell, lane_coin, lane_sum, scratch = lanes
    cells, indptr, width, origin, h, A, tail, guide, inv_log_gamma = model
    pol, stamp = rows.pol, rows.stamp
    N, H, L = len(start), sums.shape[1], len(lane_n)
    steps, fresh, active, drawn = 0, 0, 0, 0
    while fresh < N or active > 0:
        while fresh < N and active < L:  # fill the free lanes: (s, a), or s whose action is drawn below
            x = fold(key, fresh)
            lane_left[active] = geometric(x, tail, guide, inv_log_gamma)  # the stream's own key is its first word
            steps += lane_left[active]
            at = start[fresh]
            if at == -1:
                x += G
                word = mix(x)
                i = below(word, len(origin))
                at = -2 - np.int64(origin[i, 1] if (word & LOW) < U(origin[i, 0]) else origin[i, 2])
            lane_n[active], lane_at[active], lane_x[active] = fresh, at, x
            for i in range(H):
                lane_sum[active, i] = 0.0
            fresh += 1
            active += 1
        for lane in range(drawn, active):  # first actions of the new lanes
            if lane_at[lane] < 0:
                s = -2 - lane_at[lane]
                if tick != READY and stamp[s] != tick:
                    softmax_row(rows, A, s, scratch)
                    stamp[s] = tick
                lane_x[lane] += G
                word = mix(lane_x[lane])
                i = below(word, A)
                packed = pol[s * A + i]
                lane_at[lane] = s * A + (i if (word & LOW) < (packed >> U(32)) else np.int64(packed & LOW))
        if H == 2:  # one constraint, the common case: worth a loop of its own
            for lane in range(active):
                row = U(lane_at[lane])
                lane_sum[lane, 0] += h[row, 0]
                lane_sum[lane, 1] += h[row, 1]
        else:
            for lane in range(active):
                for i in range(H):
                    lane_sum[lane, i] += h[U(lane_at[lane]), i]
        lane = 0
        while lane < active:  # a walk that is over leaves its lane to the last one
            lane_left[lane] -= 1
            if lane_left[lane] == 0:
                last[lane_n[lane]] = lane_at[lane]
                active -= 1
                for i in range(H):
                    sums[lane_n[lane], i] = lane_sum[lane, i]
                    lane_sum[lane, i] = lane_sum[active, i]
                lane_n[lane], lane_at[lane] = lane_n[active], lane_at[active]
                lane_left[lane], lane_x[lane] = lane_left[active], lane_x[active]
            else:
                lane += 1
        drawn = active
        if width > 0:
            for lane in range(active):  # where to look for the next state
                x = lane_x[lane] + G
                word = mix(x)
                lane_cell[lane] = lane_at[lane] * width + below(word, width)
                lane_coin[lane], lane_x[lane] = word & LOW, x
        else:
            for lane in range(active):
                first, n = indptr[lane_at[lane]], indptr[lane_at[lane] + 1] - indptr[lane_at[lane]]
                x = lane_x[lane] + G
                word = mix(x)
                lane_cell[lane], lane_coin[lane], lane_x[lane] = first + below(word, n), word & LOW, x
        for lane in range(
            active
        ):  # the next state; chosen by bits, since a branch would be guessed wrong half the time
            cell = U(lane_cell[lane])
            own, other = np.int64(cells[cell, 1]), np.int64(cells[cell, 2])
            lane_at[lane] = other ^ ((own ^ other) & -np.int64(lane_coin[lane] < U(cells[cell, 0])))
        if tick != READY:
            for lane in range(active):
                s = lane_at[lane]
                if stamp[s] != tick:
                    softmax_row(rows, A, s, scratch)
                    stamp[s] = tick
        for lane in range(active):  # where to look for its action
            x = lane_x[lane] + G
            word = mix(x)
            lane_cell[lane], lane_coin[lane], lane_x[lane] = below(word, A), word & LOW, x
        for lane in range(active):  # the action
            s, own = lane_at[lane], lane_cell[lane]
            packed = pol[U(s * A + own)]
            other = np.int64(packed & LOW)
            lane_at[lane] = s * A + (other ^ ((own ^ other) & -np.int64(lane_coin[lane] < (packed >> U(32)))))
    return steps


def workspace(width: int, signals: int, lanes: int = LANES):
    """What `walks` needs besides its arguments: the lanes, and scratch for an alias table of `width` cells."""
    scratch = (np.empty(width), np.empty(width, np.int64), np.empty(width, np.int64))
    n, at, left, cell = (np.empty(lanes, np.int64) for _ in range(4))
    x, coin = np.empty(lanes, np.uint64), np.empty(lanes, np.uint64)
    return n, at, left, x, cell, coin, np.empty((lanes, signals)), scratch


@njit(cache=True, nogil=True)
def rollouts(key, model, rows, tick, resets, pair, start, J, QV, lanes):
    """One batch of Algorithm 2 in two groups of 2N walks each (one group keeps all lanes busy longer than two would).

    First from ρ: N walks whose last pairs are the draws (s, a) ~ d_ρ^π [N], and N rollouts of J, in J[N:] [2N, 1+I].
    Then from those draws: Q̂ in QV[:N] and V̂ in QV[N:]. Without resets V̂ is 0 and Q̂ is ±2 Σ h, so that Â = Q̂ − V̂ in
    either case. `start` is scratch [2N].
    """
    N, per_A = len(pair), 1.0 / model.A
    last = np.empty(2 * N, np.int64)
    start[:] = -1
    steps = walks(fold(key, FROM_RHO), model, rows, tick, start, J, last, lanes)
    for n in range(N):
        pair[n] = last[n]
        start[n], start[N + n] = pair[n], -2 - state_of(pair[n], per_A)
    if resets:
        return steps + walks(fold(key, FROM_PAIR), model, rows, tick, start, QV, last, lanes)
    coin = fold(key, COIN)
    for n in range(N):
        if unit(fold(coin, n)) >= 0.5:
            start[n] = start[N + n]
    steps += walks(fold(key, FROM_PAIR), model, rows, tick, start[:N], QV[:N], last[:N], lanes)
    for n in range(N):
        sign = 2.0 if unit(fold(coin, n)) < 0.5 else -2.0
        for i in range(QV.shape[1]):
            QV[n, i] *= sign
            QV[N + n, i] = 0.0
    return steps


# -------------------------------------------------------------------------------------- Algorithm 1, whole runs


@njit(cache=True, nogil=True)
def sgd(rows, A, pair, A_L, step, scale, x, mean):
    """Averaged SGD of `direction.SGD` with sparse scores; leaves the mean of the iterates in `mean`.

    score = Φ_sa − Σ_a' π(a'|s) Φ_sa'. An update is part of the iterates n..N: it joins the mean with weight (N−n)/N.
    """
    pi, fptr, fidx, fval, fact = rows.pi, rows.fptr, rows.fidx, rows.fval, rows.fact
    N, per_A = len(pair), 1.0 / A
    x[:], mean[:] = 0.0, 0.0
    for n in range(N):
        row = pair[n]
        s = state_of(row, per_A)
        first, end = fptr[s * A], fptr[s * A + A]
        fit = 0.0
        for i in range(fptr[row], fptr[row + 1]):
            fit += fval[i] * x[U(fidx[i])]
        for i in range(first, end):
            fit -= pi[s, U(fact[i])] * fval[i] * x[U(fidx[i])]
        move = -step * (scale * fit - A_L[n])
        share = (N - n) / N
        for i in range(first, end):
            by = -move * pi[s, U(fact[i])] * fval[i]
            x[U(fidx[i])] += by
            mean[U(fidx[i])] += share * by
        for i in range(fptr[row], fptr[row + 1]):
            by = move * fval[i]
            x[U(fidx[i])] += by
            mean[U(fidx[i])] += share * by


@njit(cache=True, nogil=True)
def run(root, k0, model, rows, lam, b, resets, N, eta1, eta2, kappa, lam_max, scales, lanes, out):
    """Iterations k0 .. k0 + n − 1 of Algorithm 1; θ (in rows) and λ are advanced in place."""
    theta_out, lam_out, J_out, norm_out, steps_out = out
    step, scale, factor = scales
    d, H = len(rows.theta), model.h.shape[1]
    pair, start = np.empty(N, np.int64), np.empty(2 * N, np.int64)
    J, QV = np.empty((2 * N, H)), np.empty((2 * N, H))
    A_L, x, omega = np.empty(N), np.empty(d), np.empty(d)
    for i in range(len(norm_out)):
        key = fold(root, k0 + i)
        theta_out[i], lam_out[i] = rows.theta, lam
        tick = k0 + i + 1
        if len(rows.stamp) <= N:  # few states: make all rows at once rather than ask at every step
            for s in range(len(rows.stamp)):
                softmax_row(rows, model.A, s, lanes[-1])
            tick = READY
        steps_out[i] = rollouts(key, model, rows, tick, resets, pair, start, J, QV, lanes)
        for n in range(N):
            A_L[n] = QV[n, 0] - QV[N + n, 0]
            for j in range(1, H):
                A_L[n] += lam[j - 1] * (QV[n, j] - QV[N + n, j])
        sgd(rows, model.A, pair, A_L, step, scale, x, omega)
        norm = 0.0
        for j in range(d):
            rows.theta[j] += eta1 * factor * omega[j]
            norm += (factor * omega[j]) ** 2
        norm_out[i] = np.sqrt(norm)
        for j in range(H):
            J_out[i, j] = J[N:, j].mean()
        for j in range(H - 1):
            lam[j] = min(max(lam[j] - eta2 * (J_out[i, j + 1] - b[j] - kappa), 0.0), lam_max)
