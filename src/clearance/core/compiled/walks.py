"""Compiled walks on a finite model for Algorithm 2.

`LANES` walks advance together, which hides the memory's latency on large models. Each walk has its own random stream
(`alias_tables`), so results do not depend on how the walks are interleaved.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.compiled.alias_tables import (
    LOW,
    G,
    U,
    alias_mask,
    alias_scratch,
    below,
    even,
    fold,
    geometric,
    may_be_uneven,
    mix,
    packed_of,
    state_of,
    unit,
    vose,
)
from clearance.core.compiled.compilation import kernel, piece

LANES = 64
FROM_RHO, FROM_PAIR, COIN = range(3)
READY = -1  # the tick of a policy whose rows are all computed


class Rows(NamedTuple):
    """A softmax policy in the form that the kernels read: π [S, A], its alias tables `pol` [S·A], θ, bias and features.

    The row of a state is computed when the state is first visited in iteration `tick`; then stamp[s] is set to tick. So
    the cost of the walks depends on the number of visited states and not on |S|. The tick READY means that all rows are
    computed. The features are CSR (`fptr`, `fidx`, `fval`) over rows s·A + a; `fact` is the action of each entry.
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


@kernel(inline="always")
def pack_row(rows, A, s, scratch):
    """Compute the alias table of π(·|s), and store it in rows.pol; `scratch` are arrays from `alias_scratch`.

    Each 64-bit word has the threshold in its high bits and the alias action in its low bits.
    """
    q, alias, small = scratch
    pol, mask = rows.pol, alias_mask(A)
    vose(rows.pi, s, A, q, alias, small)
    for a in range(A):
        pol[s * A + a] = packed_of(q[a], alias[a], mask)


@piece
def softmax_row(rows, A, s, scratch):
    """Compute π(a|s) ∝ exp(bias_sa + ⟨Φ_sa, θ⟩) of all actions a at one state s, and the alias table of π(·|s).

    Φ are the features in `rows`; `scratch` are arrays from `alias_scratch`.
    """
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


@piece
def look_evenly(lane_cell, lane_coin, lane_x, lane_at, active, indptr, width):
    """Draw the alias cells for the next states of all lanes again, now with exactly equal probabilities.

    A lane is one of the walks that advance together. For each of the `active` lanes, the arrays hold its cell, its
    coin, its random counter (`lane_x`) and its pair (`lane_at`). Random words that would make some cells too likely are
    replaced by later words of their stream (`even`).
    """
    for lane in range(active):
        row = lane_at[lane]
        first, n = (row * width, width) if width > 0 else (indptr[row], indptr[row + 1] - indptr[row])
        word = even(mix(lane_x[lane]), n)
        lane_cell[lane], lane_coin[lane] = first + below(word, n), word & LOW


@piece
def walks(key, model, rows, tick, start, sums, last, lanes):
    """Run the geometric rollouts n = 0..N−1 on the random streams fold(key, n); return the number of environment steps.

    tick      the index of the iteration, or READY (see `Rows`)
    start[n]  −1: start from ρ;  −2−s: from state s with a new action;  s·A + a: from that state-action pair
    sums      [N, 1+I], set to the sums of the signals over each walk
    last      [N], set to the pair s·A + a of the last step. If the walk starts from ρ, this is a draw from the
              occupancy d_ρ^π
    lanes     scratch arrays that `workspace` returns

    Lanes are walks that advance together. All lanes go through one phase of a step before the next phase begins, so
    their memory accesses overlap. Arrays are unpacked first, because a call that passes arrays would count references
    in the innermost loop, which takes ten times as long as the step itself.
    """
    lane_n, lane_at, lane_left, lane_x, lane_cell, lane_coin, lane_sum, scratch = lanes
    cells, indptr, width, origin, h, A, tail, guide, inv_log_gamma = model
    pol, stamp, mask = rows.pol, rows.stamp, alias_mask(A)
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
                word = even(mix(x), len(origin))
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
                word = even(mix(lane_x[lane]), A)
                i = below(word, A)
                packed = pol[s * A + i]
                lane_at[lane] = s * A + (i if (word & LOW) < (packed >> U(32)) else np.int64(packed & mask))
        if H == 2:  # one constraint: this common case has its own, faster loop
            for lane in range(active):
                row = U(lane_at[lane])
                lane_sum[lane, 0] += h[row, 0]
                lane_sum[lane, 1] += h[row, 1]
        else:
            for lane in range(active):
                for i in range(H):
                    lane_sum[lane, i] += h[U(lane_at[lane]), i]
        lane = 0
        while lane < active:  # when a walk has ended, the last lane moves to its place
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
        drawn, uneven = active, False
        if width > 0:
            for lane in range(active):  # the cell that holds the next state
                x = lane_x[lane] + G
                word = mix(x)
                uneven |= may_be_uneven(word, width)
                lane_cell[lane] = lane_at[lane] * width + below(word, width)
                lane_coin[lane], lane_x[lane] = word & LOW, x
        else:
            for lane in range(active):
                first, n = indptr[lane_at[lane]], indptr[lane_at[lane] + 1] - indptr[lane_at[lane]]
                x = lane_x[lane] + G
                word = mix(x)
                uneven |= may_be_uneven(word, n)
                lane_cell[lane], lane_coin[lane], lane_x[lane] = first + below(word, n), word & LOW, x
        if uneven:
            look_evenly(lane_cell, lane_coin, lane_x, lane_at, active, indptr, width)
        for lane in range(
            active
        ):  # the next state, selected by bit operations: half of all branches would be mispredicted
            cell = U(lane_cell[lane])
            own, other = np.int64(cells[cell, 1]), np.int64(cells[cell, 2])
            lane_at[lane] = other ^ ((own ^ other) & -np.int64(lane_coin[lane] < U(cells[cell, 0])))
        if tick != READY:
            for lane in range(active):
                s = lane_at[lane]
                if stamp[s] != tick:
                    softmax_row(rows, A, s, scratch)
                    stamp[s] = tick
        uneven = False
        for lane in range(active):  # the cell that holds the next action
            x = lane_x[lane] + G
            word = mix(x)
            uneven |= may_be_uneven(word, A)
            lane_cell[lane], lane_coin[lane], lane_x[lane] = below(word, A), word & LOW, x
        if uneven:
            for lane in range(active):
                word = even(mix(lane_x[lane]), A)
                lane_cell[lane], lane_coin[lane] = below(word, A), word & LOW
        for lane in range(active):  # the action
            s, own = lane_at[lane], lane_cell[lane]
            packed = pol[U(s * A + own)]
            other = np.int64(packed & mask)
            lane_at[lane] = s * A + (other ^ ((own ^ other) & -np.int64(lane_coin[lane] < (packed >> U(32)))))
    return steps


def workspace(width: int, signals: int, lanes: int = LANES):
    """Return the scratch arrays of `walks` for `lanes` parallel walks and alias tables of `width` cells.

    `signals` is the number of signals 1 + I.
    """
    n, at, left, cell = (np.empty(lanes, np.int64) for _ in range(4))
    x, coin = np.empty(lanes, np.uint64), np.empty(lanes, np.uint64)
    return n, at, left, x, cell, coin, np.empty((lanes, signals)), alias_scratch(width)


@kernel(inline="always")  # inlined into its caller: together they compile in half the time
def rollouts(key, model, rows, tick, resets, pair, start, last, J, QV, lanes):
    """Draw one batch of Algorithm 2, and return the number of environment steps.

    The first group of 2N walks starts from ρ. For N of them, the last pair is written to `pair` [N]; it is a draw from
    the occupancy d_ρ^π. The other N walks estimate J in J[N:], where J is [2N, 1+I]. The second group starts from the
    drawn pairs; its sums are Q̂ in QV[:N] and V̂ in QV[N:]. Without `resets`, V̂ is 0 and Q̂ is ±2 Σ h. In both cases
    the advantage is Â = Q̂ − V̂. `start` and `last` are scratch arrays [2N]; `tick` and `lanes` are those of `walks`.
    """
    N, per_A = len(pair), 1.0 / model.A
    coin, steps = fold(key, np.int64(COIN)), 0
    for n in range(2 * N):
        start[n] = -1
    for group in range(2):  # FROM_RHO, FROM_PAIR
        many = 2 * N if group == FROM_RHO or resets else N
        sums = J if group == FROM_RHO else QV
        steps += walks(fold(key, group), model, rows, tick, start[:many], sums[:many], last[:many], lanes)
        if group == FROM_RHO:
            for n in range(N):
                pair[n] = last[n]
                start[n], start[N + n] = pair[n], -2 - state_of(pair[n], per_A)
                if not resets and unit(fold(coin, n)) >= 0.5:
                    start[n] = start[N + n]
    if not resets:
        for n in range(N):
            sign = 2.0 if unit(fold(coin, n)) < 0.5 else -2.0
            for i in range(QV.shape[1]):
                QV[n, i] *= sign
                QV[N + n, i] = 0.0
    return steps
