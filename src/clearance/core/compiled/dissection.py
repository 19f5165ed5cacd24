"""The order in which to eliminate the states of a model with local structure: grids, queues, roads, corridors.

Nested dissection (George 1973) finds a small set of states that separates the other states into two halves. This set is
eliminated last, and each half is treated in the same way. For a planar graph of S states, the LU factors of I − γM then
have O(S log S) entries and take O(S^1.5) operations. In comparison, iterative solvers need hundreds of matrix–vector
products if γ is near 1. A random graph has no small separating set. `Elimination.of` detects this after a few states,
or when it counts the entries, and returns None; then the iterations of `iterative` are used.

The order and the positions of all entries are computed once for a model, for the union of the transitions of all
actions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.compiled.compilation import kernel

LEAF = 6  # parts with at most this many states are not divided
SMALL = 64  # parts with at most this many states stay as they are if they have no small separator
WIDTH = 4.0  # if a level of a breadth-first search has more states than this times √S, the graph counts as random
WORK = 400  # the most multiplications per state and √(1/(1−γ)); beyond that, iterations are cheaper


@kernel
def _spreads(indptr, indices, S, A, hub, width):
    """Return whether a breadth-first search finds a level of more than 8 + width·√S states, as on a random graph.

    The S·A rows of transitions are CSR (`indptr`, `indices`). States marked in `hub` [S] are left out.
    """
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


@kernel
def graph(indptr, indices, A, width):
    """Return (ptr, idx, hub): the undirected graph of all transitions as CSR (ptr, idx), and a mask of its hubs [S].

    The transitions of all actions are CSR (`indptr`, `indices`) with rows s·A + a. Neighbours may be repeated in idx. A
    hub is a state with very many neighbours. If the model has no local structure (`_spreads` with this `width` is
    true), idx is empty.
    """
    S = (len(indptr) - 1) // A
    ptr, hub, last = np.zeros(S + 1, np.int64), np.zeros(S, np.bool_), np.full(S, -1, np.int64)
    for s in range(S):  # ptr has entries for both directions: count them, then sum up, then fill idx
        for i in range(indptr[s * A], indptr[s * A + A]):
            t = indices[i]
            if last[t] != s:
                last[t] = s
                ptr[s + 1] += 1
                ptr[t + 1] += 1
    total, hubs = 0, 0
    for s in range(S):
        total += ptr[s + 1]
    for s in range(S):
        hub[s] = ptr[s + 1] > 4 + 2 * total / S
        hubs += hub[s]
    if hubs > np.sqrt(S):  # so many hubs are nothing special: treat them as ordinary states
        for s in range(S):
            hub[s] = False
    if _spreads(indptr, indices, S, A, hub, width):
        return ptr, np.empty(0, np.int64), hub
    for s in range(S):
        ptr[s + 1] += ptr[s]
    idx, at = np.empty(ptr[S], np.int64), ptr.copy()
    for s in range(S):
        last[s] = -1
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


@kernel
def _levels(ptr, idx, part, label, root, queue, depth):
    """Search breadth-first from state `root` among the states with part[s] == label; return how many are reached.

    The graph is CSR (ptr, idx). Reached states are written to `queue`, and their distances from the root to `depth`.
    """
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


@kernel
def dissection(ptr, idx, hub):
    """Return an order of elimination for the symmetric graph (ptr, idx); an empty array if it has no small separators.

    The order is split recursively into [one side | other side | separator], until the parts are small. The few states
    that are marked in `hub` [S] come last; many states lead to them (such as to a common restart).
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
        for _ in range(3):  # the last state reached is far from all others: levels from there are narrow
            reached = _levels(ptr, idx, part, label, root, queue, depth)
            root = queue[reached - 1]
        if reached < n:  # two parts without a connection
            for i in range(reached):
                part[queue[i]] = -1
            at = reached
            for i in range(lo, hi):
                if part[order[i]] == label:
                    queue[at] = order[i]
                    at += 1
            for i in range(n):
                order[lo + i] = queue[i]
            stack.append((lo, lo + reached))
            stack.append((lo + reached, hi))
            continue
        deepest = depth[queue[n - 1]]
        for i in range(deepest + 2):
            count[i] = 0
        for i in range(n):
            count[depth[queue[i]] + 1] += 1
        for i in range(deepest + 1):
            count[i + 1] += count[i]
        best, cut = n, 0
        for i in range(1, deepest):  # the narrowest level that leaves a quarter on each side
            if count[i + 1] - count[i] < best and 4 * count[i + 1] >= n and 4 * count[i] <= 3 * n:
                best, cut = count[i + 1] - count[i], i
        if best > n // 2:  # wider levels than this are useless; `fill` checks the cost of the others
            if n <= SMALL:
                continue
            return none
        at, low, high = lo, hi, count[cut]
        for i in range(high):
            order[at] = queue[i]
            at += 1
        for i in range(high, count[cut + 1]):  # only those states of the level that touch the next level separate
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


@kernel
def fill(ptr, idx, order, work):
    """Return where the factors L U = I − γM have entries: (uptr, uidx) of U, (lptr, lidx) of L, and each row's parent.

    The states form the CSR graph (ptr, idx) and are eliminated in this `order`. Row i of U has an entry for each
    neighbour of state i that is eliminated later, and also the entries of each row whose parent is i. The parent of a
    row is the column of its first entry. If a factorisation needs more than `work` operations, parent[0] is −2.
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
            for j in range(at):
                more[j] = uidx[j]
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
        p = S
        for j in range(uptr[i], at):
            t = np.int64(uidx[j])
            p = min(p, t)
            lptr[t + 1] += 1
        if p < S:
            parent[i], sibling[i], child[p] = p, child[p], i
    for i in range(S):
        lptr[i + 1] += lptr[i]
    lidx, here = np.empty(at, np.uint32), lptr.copy()
    for i in range(S):
        for j in range(uptr[i], uptr[i + 1]):
            t = uidx[j]
            lidx[here[t]] = i
            here[t] += 1
    uidx, here = np.empty(at, np.uint32), uptr.copy()
    for i in range(S):  # transpose again, so that the rows of U are ascending too
        for j in range(lptr[i], lptr[i + 1]):
            t = lidx[j]
            uidx[here[t]] = i
            here[t] += 1
    return uptr, uidx, lptr, lidx, parent


@dataclass(frozen=True, eq=False)
class Elimination:
    """The order in which to eliminate states when I − γM is factorised, and the places of the factors' entries.

    M is the transition matrix of a policy. The function `fill` explains the arrays.
    """

    order: NDArray[np.int64]
    place: NDArray[np.int64]
    uptr: NDArray[np.int64]
    uidx: NDArray[np.uint32]
    lptr: NDArray[np.int64]
    lidx: NDArray[np.uint32]
    parent: NDArray[np.int64]

    @classmethod
    def of(cls, P: sparse.csr_array, A: int, gamma: float) -> Elimination | None:
        """Return the elimination for a model with transitions P [S·A, S]; None if iterations are cheaper."""
        ptr, idx, hub = graph(P.indptr, P.indices, A, WIDTH)
        order = dissection(ptr, idx, hub) if len(idx) else idx
        if not len(order):
            return None
        uptr, uidx, lptr, lidx, parent = fill(ptr, idx, order, WORK * len(order) / np.sqrt(1 - gamma))
        if parent[0] == -2:
            return None
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return cls(order, place, uptr, uidx, lptr, lidx, parent)
