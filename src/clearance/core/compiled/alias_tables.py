"""Random streams, geometric horizons and alias tables: the random draws of every compiled walk on a finite model.

Streams are counter-based: each number is a pure function of (seed, iteration k, purpose, sample n, position). A stream
is given by a 64-bit key. Its words are mix(key + j·G), j = 1, 2, …, that is, the generator SplitMix64 (Steele, Lea,
Flood 2014) evaluated at chosen positions. Keys are themselves words of other streams (`fold`). So a result does not
depend on threads, machines, batch sizes, or on whether the run was interrupted and resumed.

A transition costs the same for any |S|, because next states and actions are drawn from alias tables (Walker 1977; Vose
1991). The high half of a word selects one of n cells. All cells have exactly the same probability: the few words that
would favour some cells are replaced by the next word of their stream (Lemire 2019). The low half of the word is a coin
that decides between the cell's own entry and its alias; if it equals the first 32 bits of the threshold, 32 more bits
decide. So each probability is exact up to the rounding of the table to float64 (`draw_error`). The walks in `walks` use
only the first 32 bits of the threshold; they serve learning and never certificates.

Kernels copy entry by entry and get their scratch arrays from NumPy, because numba takes seconds to compile an
assignment of slices.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.compiled.compilation import kernel, piece

U = np.uint64
G = U(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio, the increment of SplitMix64
LOW = U(0xFFFFFFFF)


@piece
def mix(z):
    """Return the SplitMix64 finaliser of the 64-bit word z, a bijection that passes the usual tests of randomness."""
    z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return z ^ (z >> U(31))


@piece
def fold(key, i):
    """Return the key of sub-stream i of the random stream `key`; both keys are 64-bit words."""
    return mix(key + U(i + 1) * G)


@piece
def unit(word):
    """Convert a random 64-bit word to a double in (0, 1) with 53 random bits; the result is never 0 or 1."""
    return (float(word >> U(11)) + 0.5) * (1.0 / 9007199254740992.0)


@piece
def geometric(word, tail, guide, inv_log_gamma):
    """Return a random horizon T in {1, 2, …} with P(T > t) = γ^t.

    T is the first t with u ≥ γ^t, where the random `word` gives u in (0, 1). The arguments `tail` (the powers γ^t),
    `guide` and `inv_log_gamma` come from `geometric_tables`; `guide` gives the t at which the search starts. If T is
    beyond the end of `tail` (γ very close to 1), it is computed by a logarithm, which takes five times longer.
    """
    u = unit(word)
    t = np.int64(guide[np.int64(word >> U(56))])
    while t < len(tail):
        if u >= tail[t]:
            return t
        t += 1
    return np.int64(np.log(u) * inv_log_gamma) + 1


def geometric_tables(gamma: float) -> tuple[Array, NDArray[np.int64], float]:
    """Return the tables that `geometric` needs: the powers γ^t, the guide table, and 1 / log γ.

    `geometric` draws a random number u with 53 bits and searches for the first t with u ≥ γ^t. The table of powers ends
    where γ^t is below every possible u, or after 10⁵ entries. The guide table [256] has one entry for each value of the
    highest byte of u: a t at which the search can start, because no u with this byte has an earlier result.
    """
    longest = int(min(1e5, np.ceil(55 * np.log(2) / -np.log(gamma)))) + 1
    tail = gamma ** np.arange(longest, dtype=float)
    top = np.minimum((np.arange(256) + 1) / 256, 1 - 2.0**-54)
    guide = np.maximum(1, np.floor(np.log(top) / np.log(gamma)).astype(np.int64))
    return tail, guide, 1 / np.log(gamma)


@piece
def below(word, n):
    """Return a number in 0..n−1 from the high half of a random word; the low half is the coin of the alias table.

    All n numbers are equally likely if the word was first passed through `even`.
    """
    return np.int64(((word >> U(32)) * U(n)) >> U(32))


@piece
def may_be_uneven(word, n):
    """Return whether `even` may have to replace this random word; the probability of this is n·2⁻³²."""
    return (((word >> U(32)) * U(n)) & LOW) < U(n)


@piece
def even(word, n):
    """Return a random word from which `below` draws each of the n numbers with the same probability.

    This is the given word or, rarely, a later word of the same stream. The high half of a word has 2³² values, which n
    need not divide. So 2³² mod n of the values are rejected: those whose product with n has low bits below 2³² mod n.
    """
    if may_be_uneven(word, n):
        surplus = U(4294967296) % U(n)
        while (((word >> U(32)) * U(n)) & LOW) < surplus:
            word = mix(word + G)
    return word


@piece
def wins(word, threshold, fine):
    """Return whether a random word selects the own entry of a cell, not its alias: the coin is below the threshold.

    The probability is threshold·2⁻³² + fine·2⁻⁶⁴. The coin is the low half of the word; if it equals the threshold, 32
    more bits are drawn and compared with `fine`.
    """
    coin = word & LOW
    return coin < threshold or (coin == threshold and (mix(word + G) >> U(32)) < fine)


@piece
def alias_mask(A):
    """Return a mask of the low bits of a packed word that store the index of an action, 0..A−1."""
    mask = U(1)
    while mask < U(A):
        mask = mask << U(1)
    return mask - U(1)


@piece
def state_of(row, per_A):
    """Return the state s of the state-action pair `row` = s·A + a; `per_A` is 1/A.

    A multiplication replaces the integer division row // A, which would take ten times longer. The result is exact:
    (row + ½)/A is at least ½/A away from any integer.
    """
    return np.int64((row + 0.5) * per_A)


class Tables(NamedTuple):
    """A finite model in the form that the kernels read: alias tables of its transitions, and its signals.

    cells[i] = (threshold, own state, alias state, fine) belongs to transition i; the docstring of the module explains
    how it is used. If `width` is 0, the cells of the pair s·A + a are those from indptr[s·A + a] to
    indptr[s·A + a + 1] − 1. Otherwise each pair has `width` cells, from index (s·A + a)·width on; some of them may
    never be drawn. `start` holds the cells of the start distribution ρ, and `h` [S·A, 1+I] the reward and utilities.
    The last three fields are the tables for geometric horizons (`geometric_tables`).
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


@piece
def vose(p, row, n, threshold, alias, small):
    """Write the alias table of the weights p[row, :n] to `threshold` [n] and `alias` [n]; `small` [n] is scratch space.

    A draw from the table then gives i with probability (threshold_i + Σ_{j: alias_j = i} (1 − threshold_j)) / n, which
    is p[row, i] divided by the sum of the weights.
    """
    total = 0.0
    for i in range(n):
        total += p[row, i]
    lo, hi = 0, n  # two stacks: cells below average grow from the left, the others from the right
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
    for k in range(lo):  # cells that remain because of rounding get threshold 1
        alias[small[k]] = small[k]


@piece
def threshold_of(q):
    """Return the first 32 bits of a probability q in [0, 1] as a whole number.

    For q = 1 the result is 2³²−1. Draws are still exact, because a cell with q = 1 is its own alias.
    """
    return U(4294967295) if q >= 1.0 else U(q * 4294967296.0)


@piece
def fine_of(q):
    """Return bits 33 to 64 of a probability q as a whole number; `threshold_of` returns the first 32 bits."""
    return U(0) if q >= 1.0 else U((q * 4294967296.0 - np.floor(q * 4294967296.0)) * 4294967296.0)


@piece
def packed_of(q, alias, mask):
    """Return one 64-bit word of a packed policy: the own action has probability q, and the alias action the rest.

    The low bits, given by `mask`, hold the index of the alias action. The other bits hold the first bits of q.
    """
    return (threshold_of(q) << U(32)) | (fine_of(q) & ~mask) | U(alias)


def draw_error(sums: Array, n: int) -> float:
    """Return a bound on the total variation distance between stored probabilities and those that are drawn.

    Each row of stored probabilities has at most n entries, and `sums` are the sums of the rows. The bound holds for
    alias tables and for NumPy's `choice`. It is the sum of two errors: the distance of `sums` from 1, and at most 4n +
    8 rounding errors of 2⁻⁵³, mainly from sums and subtractions of n numbers.
    """
    return float(np.abs(1 - np.asarray(sums)).max(initial=0.0)) + (4 * n + 8) * 2.0**-53


def alias_cells(indptr: Any, indices: Any, data: Array, width: int) -> NDArray[np.uint32]:
    """Return the alias tables of all rows of a CSR matrix, as cells (threshold, own index, alias index, fine).

    The matrix is (indptr, indices, data); `wins` explains threshold and fine. If width > 0, each row is filled up to
    `width` cells with cells that are never drawn; then kernels need not look up where a row begins. The result is
    allocated by NumPy because NumPy requests huge pages, which speed up large models.
    """
    cells = np.empty(((len(indptr) - 1) * width if width > 0 else len(data), 4), np.uint32)
    widest = max(width, int(np.diff(indptr).max(initial=0)))
    matrix = tuple(read_only(np.asarray(part)) for part in (indptr, indices, data))
    _fill_cells(*matrix, width, np.empty((1, widest)), alias_scratch(widest), cells)
    return cells


def read_only(x: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of x; the kernels are compiled for read-only arrays, which models have."""
    view = x.view()
    view.flags.writeable = False
    return view


def alias_scratch(width: int) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the scratch arrays that `vose` needs for tables of at most `width` cells."""
    return np.empty(width), np.empty(width, np.int64), np.empty(width, np.int64)


@kernel
def _fill_cells(indptr, indices, data, width, p, scratch, cells):
    q, alias, small = scratch
    for row in range(len(indptr) - 1):
        a, n = indptr[row], indptr[row + 1] - indptr[row]
        first, m = (row * width, width) if width > 0 else (a, n)
        if n == 0:
            continue  # this action does not exist, so its cells are never read
        for i in range(m):
            p[0, i] = data[a + i] if i < n else 0.0
        vose(p, np.int64(0), m, q, alias, small)
        for i in range(m):
            j = alias[i]
            cells[first + i, 0] = threshold_of(q[i])
            cells[first + i, 1] = indices[a + (i if i < n else n - 1)]
            cells[first + i, 2] = indices[a + (j if j < n else n - 1)]
            cells[first + i, 3] = fine_of(q[i])


def pack(pi: Array) -> NDArray[np.uint64]:
    """Return the alias tables of a policy π [S, A] as one 64-bit word per pair [S·A].

    The high bits of a word hold the threshold, the low bits the alias action.
    """
    packed = np.empty(pi.size, np.uint64)
    _pack_rows(np.ascontiguousarray(pi), packed, alias_scratch(pi.shape[1]))
    return packed


@kernel
def _pack_rows(pi, packed, scratch):
    q, alias, small = scratch
    S, A = pi.shape
    mask = alias_mask(A)
    for s in range(S):
        vose(pi, s, A, q, alias, small)
        for a in range(A):
            packed[s * A + a] = packed_of(q[a], alias[a], mask)
