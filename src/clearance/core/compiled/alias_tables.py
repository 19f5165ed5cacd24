"""Random streams, geometric horizons and alias tables: what every compiled walk on a finite model draws from.

Streams are counter-based: every number is a pure function of (seed, k, purpose, n, position). A stream is a 64-bit
key; its words are mix(key + j·G), the generator SplitMix64 (Steele, Lea, Flood 2014) read at chosen positions. Keys
are words of other streams (`fold`), so a result does not depend on threads, machines or batching, or on an
interruption and resume.

A transition costs the same for any |S|: next states and actions come from alias tables (Walker 1977; Vose 1991).
The high half of a word picks one of n cells, all with exactly the same chance: the few words that would favour some
cells are replaced by the next of their own stream (Lemire 2019). The low half is the coin; where it equals the first 32
bits of a threshold, 32 more bits decide. So a chance is met to what float64 makes of the table (`draw_error`). The
walks of `walks`, which learn and certify nothing, decide by 32 bits of the threshold.

Kernels copy entry by entry and get their scratch from NumPy: numba takes seconds to compile an assignment of slices.
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
    """The finaliser of SplitMix64: a bijection of 64-bit words that passes the usual batteries."""
    z = (z ^ (z >> U(30))) * U(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> U(27))) * U(0x94D049BB133111EB)
    return z ^ (z >> U(31))


@piece
def fold(key, i):
    """The key of sub-stream i of a stream."""
    return mix(key + U(i + 1) * G)


@piece
def unit(word):
    """A word as a double in (0, 1), 53 bits, never 0 or 1."""
    return (float(word >> U(11)) + 0.5) * (1.0 / 9007199254740992.0)


@piece
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


@piece
def below(word, n):
    """A number in 0..n−1 from the high half of a word, and leaves the low half for the alias coin.

    All numbers are equally likely if the word is one of `even`.
    """
    return np.int64(((word >> U(32)) * U(n)) >> U(32))


@piece
def may_be_uneven(word, n):
    """Whether `even` has to look at the word: a chance of n·2⁻³²."""
    return (((word >> U(32)) * U(n)) & LOW) < U(n)


@piece
def even(word, n):
    """The word, or the next of its own stream as long as it belongs to those that make some of n numbers too likely.

    Of 2³² high halves, 2³² mod n are too many: those where the product with n leaves a remainder below that.
    """
    if may_be_uneven(word, n):
        surplus = U(4294967296) % U(n)
        while (((word >> U(32)) * U(n)) & LOW) < surplus:
            word = mix(word + G)
    return word


@piece
def wins(word, threshold, fine):
    """The coin in the low half of a word against a chance of threshold·2⁻³² + fine·2⁻⁶⁴."""
    coin = word & LOW
    return coin < threshold or (coin == threshold and (mix(word + G) >> U(32)) < fine)


@piece
def alias_mask(A):
    """The low bits of a packed word that hold the alias action, one of A."""
    mask = U(1)
    while mask < U(A):
        mask = mask << U(1)
    return mask - U(1)


@piece
def state_of(row, per_A):
    """row // A from 1/A: a division of integers takes ten times longer. Exact: (row + ½)/A is ½/A off any integer."""
    return np.int64((row + 0.5) * per_A)


class Tables(NamedTuple):
    """A finite model as the kernels read it.

    `cells[i] = (threshold, own state, alias state, fine)` of transition i, rows delimited by `indptr` [S·A + 1] or, if
    all have the same number of cells, by that `width` (else 0); `start` the same for ρ; `h` [S·A, 1+I];
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


@piece
def vose(p, row, n, threshold, alias, small):
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


@piece
def threshold_of(q):
    """The first 32 bits of a probability in [0, 1]; at 1 the alias is the cell itself, so 2³²−1 is exact."""
    return U(4294967295) if q >= 1.0 else U(q * 4294967296.0)


@piece
def fine_of(q):
    """The 32 bits of a probability after those of `threshold_of`."""
    return U(0) if q >= 1.0 else U((q * 4294967296.0 - np.floor(q * 4294967296.0)) * 4294967296.0)


@piece
def packed_of(q, alias, mask):
    """A threshold in the high bits of a word, as many as the alias action in the low bits leaves."""
    return (threshold_of(q) << U(32)) | (fine_of(q) & ~mask) | U(alias)


def draw_error(sums: Array, n: int) -> float:
    """Bound the distance in total variation between stored probabilities, of rows that sum to `sums`, and what is
    drawn from tables of at most n of them.

    An alias table rounds the sum (n·2⁻⁵³), the shares (2·2⁻⁵³) and n subtractions from numbers of at most n; what they
    leave over counts twice. NumPy's `choice` rounds n sums and n draws. Bits that are cut off come to 2⁻⁵³ at most.
    """
    return float(np.abs(1 - np.asarray(sums)).max(initial=0.0)) + (4 * n + 8) * 2.0**-53


def alias_cells(indptr: Any, indices: Any, data: Array, width: int) -> NDArray[np.uint32]:
    """Return the alias tables of all rows of a CSR matrix: cells of (threshold, own index, alias index, fine), each row
    filled up to `width` cells with impossible ones if width > 0 (a fixed width saves the look-up of where it begins).

    NumPy makes the array: it asks for huge pages, without which large models wait for the address translation.
    """
    cells = np.empty(((len(indptr) - 1) * width if width > 0 else len(data), 4), np.uint32)
    widest = max(width, int(np.diff(indptr).max(initial=0)))
    matrix = tuple(read_only(np.asarray(part)) for part in (indptr, indices, data))
    _fill_cells(*matrix, width, np.empty((1, widest)), alias_scratch(widest), cells)
    return cells


def read_only(x: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, as the arrays of a model are: one compiled version serves them all."""
    view = x.view()
    view.flags.writeable = False
    return view


def alias_scratch(width: int) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return what `vose` needs besides its arguments, for tables of at most `width` cells."""
    return np.empty(width), np.empty(width, np.int64), np.empty(width, np.int64)


@kernel
def _fill_cells(indptr, indices, data, width, p, scratch, cells):
    q, alias, small = scratch
    for row in range(len(indptr) - 1):
        a, n = indptr[row], indptr[row + 1] - indptr[row]
        first, m = (row * width, width) if width > 0 else (a, n)
        if n == 0:
            continue  # no such action: nobody looks here
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
    """Return the alias tables [S·A] of a policy π [S, A]: threshold in a word's high bits, alias action in the low."""
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
