"""Sparse LU of I − γM for models with local structure: grids, queues, networks of roads, corridors.

Nested dissection (George 1973): a small set of states that separates the others in two halves is eliminated last, and
so on in each half. On a planar graph of S states the factor has O(S log S) entries and takes O(S^1.5) operations, where
iterations need hundreds of products as γ nears 1. On a random graph there is no such set: `Elimination.of` notices
after a few states and returns None, and iterations (`linear`) do the work.

The order and the places of all entries are found once for a model, for the union of its actions; a policy then needs
numbers only, and only in the rows that its changes reach. I − γM has a dominant diagonal in each row, so elimination in
any order needs no pivots (Higham 2002, section 9.5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from clearance.compiling import announce

Array = NDArray[np.float64]
U = np.uint64  # signed indices are asked whether they count from the end
LEAF = 6  # parts of so many states are not divided further
SMALL = 64  # or of so many, if they cannot
WIDTH = 4.0  # a separator of n states has at most WIDTH·√n
WORK = 4000  # multiplications per state beyond which iterations are cheaper


@njit(cache=True, nogil=True)
def _spreads(indptr, indices, S, A, hub, width):
    """Whether the states reached from some state multiply at once, as on a random graph (states in `hub` aside)."""
    seen, queue = np.full(S, -1, np.int64), np.empty(S, np.int64)
    for root in range(0, S, S // 3 + 1):
        queue[0], seen[root] = root, root
        head, level, n = 0, 1, 1
        while head < n:
            while head < level:
                s = queue[head]
                head += 1
                for i in range(indptr[s * A], indptr[s * A + A]):
                    t = indices[i]
                    if seen[t] != root and not hub[t]:
                        seen[t], queue[n] = root, t
                        n += 1
            if n - level > 8 + width * np.sqrt(S):
                return True
            level = n
    return False


@njit(cache=True, nogil=True)
def graph(indptr, indices, A, width):
    """Which states lead to each other by any action, either way, as CSR (with repetitions), and which have very many
    such neighbours; empty if the model has no local structure.
    """
    S = (len(indptr) - 1) // A
    ptr, hub, last = np.zeros(S + 1, np.int64), np.zeros(S, np.bool_), np.full(S, -1, np.int64)
    for s in range(S):  # one entry of ptr for both directions: first count, then make places, then fill
        for i in range(indptr[s * A], indptr[s * A + A]):
            t = indices[i]
            if last[t] != s:
                last[t] = s
                ptr[s + 1] += 1
                ptr[t + 1] += 1
    many = 16 + 4 * ptr.sum() / S
    for s in range(S):
        hub[s] = ptr[s + 1] > many
    if hub.sum() > np.sqrt(S) or _spreads(indptr, indices, S, A, hub, width):
        return ptr, np.empty(0, np.int64), hub
    for s in range(S):
        ptr[s + 1] += ptr[s]
    idx, at = np.empty(ptr[S], np.int64), ptr[:-1].copy()
    last[:] = -1
    for s in range(S):
        for i in range(indptr[s * A], indptr[s * A + A]):
            t = indices[i]
            if last[t] != s:
                last[t] = s
                idx[at[s]] = t
                at[s] += 1
                idx[at[t]] = s
                at[t] += 1
    return ptr, idx, hub


@njit(cache=True, nogil=True)
def _levels(ptr, idx, part, label, root, queue, depth):
    """Breadth-first search from a root within the states of one label: queue and depth; returns how many it reaches."""
    queue[0], depth[root], part[root] = root, 0, -label
    head, n = 0, 1
    while head < n:
        s = queue[head]
        head += 1
        for i in range(ptr[s], ptr[s + 1]):
            t = idx[i]
            if part[t] == label:
                part[t], depth[t] = -label, depth[s] + 1
                queue[n] = t
                n += 1
    for i in range(n):
        part[queue[i]] = label
    return n


@njit(cache=True, nogil=True)
def dissection(ptr, idx, hub, width):
    """An order of elimination for a symmetric graph, or an empty one if it has no small separators.

    A part is a stretch of `order`. It becomes [one side | other side | separator], so the stretches, once they are
    small, are the order itself. A few states that many others lead to (a common restart) come last of all.
    """
    S = len(ptr) - 1
    order, part, depth = np.empty(S, np.int64), np.ones(S, np.int64), np.zeros(S, np.int64)
    queue, count = np.empty(S, np.int64), np.zeros(S + 1, np.int64)
    none = np.empty(0, np.int64)
    lo, hi = 0, S
    for s in range(S):
        if hub[s]:
            hi -= 1
            order[hi], part[s] = s, 0
        else:
            order[lo] = s
            lo += 1
    stack = [(0, hi)]
    label = 1
    while len(stack) > 0:
        lo, hi = stack.pop()
        n = hi - lo
        if n <= LEAF:
            continue
        label += 1
        for i in range(lo, hi):
            part[order[i]] = label
        root, reached = order[lo], 0
        for _ in range(3):  # the last state reached is far from everything: levels from there are narrow
            reached = _levels(ptr, idx, part, label, root, queue, depth)
            root = queue[reached - 1]
        if reached < n:  # two parts that have nothing to do with each other
            for i in range(reached):
                part[queue[i]] = -1
            at = reached
            for i in range(lo, hi):
                if part[order[i]] == label:
                    queue[at] = order[i]
                    at += 1
            order[lo:hi] = queue[:n]
            stack.append((lo, lo + reached))
            stack.append((lo + reached, hi))
            continue
        deepest = depth[queue[n - 1]]
        count[: deepest + 2] = 0
        for i in range(n):
            count[depth[queue[i]] + 1] += 1
        for i in range(deepest + 1):
            count[i + 1] += count[i]
        best, cut = n, 0
        for i in range(1, deepest):  # the narrowest level that leaves a quarter on each side
            if count[i + 1] - count[i] < best and 4 * count[i + 1] >= n and 4 * count[i] <= 3 * n:
                best, cut = count[i + 1] - count[i], i
        if best > width * np.sqrt(n):
            if n <= SMALL:
                continue
            return none
        at, low, high = lo, hi, count[cut]
        for i in range(high):
            order[at] = queue[i]
            at += 1
        for i in range(high, count[cut + 1]):  # of the level itself only what touches the next one separates
            s, touches = queue[i], False
            for j in range(ptr[s], ptr[s + 1]):
                if part[idx[j]] == label and depth[idx[j]] > cut:
                    touches = True
            if touches:
                low -= 1
                order[low] = s
            else:
                order[at] = s
                at += 1
        stack.append((lo, at))
        stack.append((at, low))
        for i in range(count[cut + 1], n):
            order[at] = queue[i]
            at += 1
    return order


@njit(cache=True, nogil=True)
def fill(ptr, idx, order, work):
    """Where L and U have entries: U by rows (uptr, uidx), L by rows (lptr, lidx, ascending), parents; empty if too many.

    Row i of U holds the graph's later neighbours of i, and what the rows inherit whose first entry is i.
    """
    S = len(order)
    place = np.empty(S, np.int64)
    for i in range(S):
        place[order[i]] = i
    uptr, lptr = np.zeros(S + 1, np.int64), np.zeros(S + 1, np.int64)
    parent, child, sibling = np.full(S, -1, np.int64), np.full(S, -1, np.int64), np.full(S, -1, np.int64)
    mark = np.full(S, -1, np.int64)
    uidx = np.empty(4 * S + len(idx), np.uint32)
    at, total = 0, 0.0
    for i in range(S):
        mark[i] = i
        if at + S > len(uidx):
            more = np.empty(2 * len(uidx) + S, np.uint32)
            more[:at] = uidx[:at]
            uidx = more
        s = order[i]
        for j in range(ptr[s], ptr[s + 1]):
            t = place[idx[j]]
            if t > i and mark[t] != i:
                mark[t], uidx[at] = i, t
                at += 1
        c = child[i]
        while c >= 0:
            for j in range(uptr[c], uptr[c + 1]):
                t = uidx[j]
                if mark[t] != i:
                    mark[t], uidx[at] = i, t
                    at += 1
            c = sibling[c]
        uptr[i + 1] = at
        total += float(at - uptr[i]) ** 2
        if total > work:
            parent[0] = -2
            return uptr, uidx, lptr, uidx, parent
        uidx[uptr[i] : at].sort()
        if at > uptr[i]:
            p = uidx[uptr[i]]
            parent[i], sibling[i], child[p] = p, child[p], i
        for j in range(uptr[i], at):
            lptr[uidx[j] + 1] += 1
    for i in range(S):
        lptr[i + 1] += lptr[i]
    lidx, here = np.empty(at, np.uint32), lptr[:-1].copy()
    for i in range(S):
        for j in range(uptr[i], uptr[i + 1]):
            t = uidx[j]
            lidx[here[t]] = i
            here[t] += 1
    return uptr, uidx[:at].copy(), lptr, lidx, parent


@njit(cache=True, nogil=True)
def factorise(indptr, indices, data, A, act, gamma, order, place, uptr, uidx, lptr, lidx, parent, dirty, L, Uv, D):
    """L U = I − γM in the given order, row by row, where row s of M is row s·A + act[s]; D holds the inverse diagonal
    of U. Only the `dirty` rows, which become those that depend on them too: those above them in the tree of parents.
    """
    S = len(order)
    w, twin = np.zeros(S), np.zeros(S, np.bool_)
    for k in range(S - 1):
        twin[k] = parent[k] == k + 1 and uptr[k + 1] - uptr[k] == uptr[k + 2] - uptr[k + 1] + 1
    for i in range(S):
        if not dirty[i]:
            continue
        if parent[i] >= 0:
            dirty[parent[i]] = True
        row = order[i] * A + act[order[i]]
        w[i] = 1.0
        for j in range(indptr[row], indptr[row + 1]):
            w[place[indices[j]]] -= gamma * data[j]
        j, end = lptr[i], lptr[i + 1]
        while j < end:
            k = lidx[j]
            first, stop = U(uptr[k]), U(uptr[k + 1])
            L[j] = w[k] * D[k]
            w[k] = 0.0
            if twin[k] and j + 1 < end:  # row k + 1 has the places of row k: both in one pass
                one, ahead = L[j], stop - first - U(1)
                two = (w[k + 1] - one * Uv[first]) * D[k + 1]
                L[j + 1], w[k + 1] = two, 0.0
                for m in range(first + U(1), stop):
                    w[uidx[m]] -= one * Uv[m] + two * Uv[m + ahead]
                j += 2
            else:
                for m in range(first, stop):
                    w[uidx[m]] -= L[j] * Uv[m]
                j += 1
        D[i] = 1.0 / w[i]
        w[i] = 0.0
        for j in range(uptr[i], uptr[i + 1]):
            Uv[j] = w[uidx[j]]
            w[uidx[j]] = 0.0


@njit(cache=True, nogil=True)
def _forward_back(order, uptr, uidx, lptr, lidx, L, Uv, D, y, x):
    """x [S, n] with L U x = y. Four columns at a time: their sums do not wait for each other."""
    S, n = y.shape
    z = np.zeros((S, 4))
    for begin in range(0, n, 4):
        width = min(4, n - begin)
        for i in range(S):
            for c in range(width):
                z[i, c] = y[order[i], begin + c]
            a0, a1, a2, a3 = z[i, 0], z[i, 1], z[i, 2], z[i, 3]
            for j in range(lptr[i], lptr[i + 1]):
                k = lidx[j]
                a0, a1, a2, a3 = a0 - L[j] * z[k, 0], a1 - L[j] * z[k, 1], a2 - L[j] * z[k, 2], a3 - L[j] * z[k, 3]
            z[i, 0], z[i, 1], z[i, 2], z[i, 3] = a0, a1, a2, a3
        for i in range(S - 1, -1, -1):
            a0, a1, a2, a3 = z[i, 0], z[i, 1], z[i, 2], z[i, 3]
            for j in range(uptr[i], uptr[i + 1]):
                k = uidx[j]
                a0, a1, a2, a3 = a0 - Uv[j] * z[k, 0], a1 - Uv[j] * z[k, 1], a2 - Uv[j] * z[k, 2], a3 - Uv[j] * z[k, 3]
            z[i, 0], z[i, 1], z[i, 2], z[i, 3] = a0 * D[i], a1 * D[i], a2 * D[i], a3 * D[i]
            for c in range(width):
                x[order[i], begin + c] = z[i, c]


@njit(cache=True, nogil=True)
def _forward_back_T(order, uptr, uidx, lptr, lidx, L, Uv, D, y, x):
    """x [S] with (L U)ᵀ x = y."""
    S = len(y)
    z = np.empty(S)
    for i in range(S):
        z[i] = y[order[i]]
    for i in range(S):
        z[i] *= D[i]
        for j in range(uptr[i], uptr[i + 1]):
            z[uidx[j]] -= Uv[j] * z[i]
    for i in range(S - 1, -1, -1):
        for j in range(lptr[i], lptr[i + 1]):
            z[lidx[j]] -= L[j] * z[i]
        x[order[i]] = z[i]


@dataclass(frozen=True, eq=False)
class Elimination:
    """The order of elimination of a model's states, and where L and U have entries (see `fill`)."""

    order: NDArray[np.int64]
    place: NDArray[np.int64]
    uptr: NDArray[np.int64]
    uidx: NDArray[np.uint32]
    lptr: NDArray[np.int64]
    lidx: NDArray[np.uint32]
    parent: NDArray[np.int64]

    @classmethod
    def of(cls, P: sparse.csr_array, A: int) -> Elimination | None:
        """For a model with rows s·A + a; None if it has no local structure, or iterations would be cheaper."""
        ptr, idx, hub = graph(P.indptr, P.indices, A, WIDTH)
        order = dissection(ptr, idx, hub, WIDTH) if len(idx) else idx
        if not len(order):
            return None
        uptr, uidx, lptr, lidx, parent = fill(ptr, idx, order, WORK * float(len(order)))
        if parent[0] == -2:
            return None
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(order, place, uptr, uidx, lptr, lidx, parent)


class Factor:
    """L U = I − γM, kept up to date while the rows of M change: M is the matrix of a deterministic policy in a model
    with rows s·A + a, or any matrix with the same or fewer entries (A = 1).
    """

    def __init__(self, places: Elimination, gamma: float) -> None:
        announce(factorise)
        self.places, self.gamma, n = places, gamma, len(places.uidx)
        self.numbers = np.empty(n), np.empty(n), np.empty(len(places.order))
        self.act: NDArray[np.int64] | None = None

    def update(self, M: sparse.csr_array, A: int = 1, act: NDArray[np.int64] | None = None) -> Factor:
        """Take in another policy act [S] of the same model M; without one, another matrix M [S, S]."""
        p = self.places
        dirty = np.ones(len(p.order), bool)
        if act is None:
            self.act = act = np.zeros(len(p.order), np.int64)
        elif self.act is not None:
            dirty = (act != self.act)[p.order]
        self.act = act.copy()
        where = p.order, p.place, p.uptr, p.uidx, p.lptr, p.lidx, p.parent
        factorise(M.indptr, M.indices, M.data, A, act, self.gamma, *where, dirty, *self.numbers)
        return self

    def solve(self, y: Array) -> Array:
        """(I − γM)⁻¹ y for y [S] or [S, n]."""
        p, right = self.places, np.ascontiguousarray(y.reshape(len(y), -1))
        x = np.empty_like(right)
        _forward_back(p.order, p.uptr, p.uidx, p.lptr, p.lidx, *self.numbers, right, x)
        return x.reshape(y.shape)

    def solve_T(self, y: Array) -> Array:
        """(I − γMᵀ)⁻¹ y for y [S]."""
        p, x = self.places, np.empty(len(y))
        _forward_back_T(p.order, p.uptr, p.uidx, p.lptr, p.lidx, *self.numbers, y, x)
        return x
