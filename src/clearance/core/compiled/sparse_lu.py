"""Sparse LU of I − γM for models with local structure, in the order found by `dissection`.

M [S, S] is the transition matrix of a policy. The positions of the factors' entries are known in advance. So for each
policy only the values of the entries are computed, and only in the rows that a change of the policy affects. I − γM is
diagonally dominant in each row, so elimination needs no pivoting in any order (Higham 2002, section 9.5).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled.compilation import kernel
from clearance.core.compiled.dissection import Elimination

U = np.uint64  # for unsigned indices, numba does not check whether they count from the end


@kernel
def factorise(indptr, indices, data, A, act, gamma, order, place, uptr, uidx, lptr, lidx, parent, dirty, L, Uv, D):
    """Factorise L U = I − γM in the given order of states; row s of M is row s·A + act[s] of the model.

    The model is CSR (indptr, indices, data); order, place, uptr .. parent are the arrays of an `Elimination`. The
    entries are written to L and Uv, and the inverse diagonal of U to D. Only the rows that are marked in `dirty` [S]
    are computed, and the rows that depend on them, which are their ancestors in the elimination tree. The function
    marks these rows as dirty too.
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
            if twin[k] and j + 1 < end:  # row k + 1 has its entries in the same columns as row k: do both in one pass
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


@kernel
def _forward_back(order, uptr, uidx, lptr, lidx, L, Uv, D, y, x):
    """Solve L U x = y, and write the solution to x [S, n]. The columns are solved in groups of four.

    The other arguments are the arrays of an `Elimination` and the results L, Uv, D of `factorise`.
    """
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


@kernel
def _forward_back_T(order, uptr, uidx, lptr, lidx, L, Uv, D, y, x):
    """Solve (L U)ᵀ x = y for one vector, and write x [S]; the other arguments are those of `_forward_back`."""
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


class Factor:
    """The LU factors of I − γM, which are updated when rows of M change.

    M [S, S] is the transition matrix of a deterministic policy, or any other matrix that has entries only at positions
    that the `Elimination` `places` contains.
    """

    def __init__(self, places: Elimination, gamma: float) -> None:
        self.places, self.gamma, n = places, gamma, len(places.uidx)
        self.numbers = np.empty(n), np.empty(n), np.empty(len(places.order))
        self.act: NDArray[np.int64] | None = None

    def update(self, M: sparse.csr_array, A: int = 1, act: NDArray[np.int64] | None = None) -> Factor:
        """Compute the factors for another policy `act` [S] in a model with transitions M [S·A, S]; return this object.

        Only the rows whose action changed, and the rows that depend on them, are computed again. Without `act`, M is a
        matrix [S, S], and all rows are computed.
        """
        p = self.places
        dirty = np.ones(len(p.order), bool)
        if act is None:
            self.act = act = np.zeros(len(p.order), np.int64)
        elif self.act is not None:
            dirty = (act != self.act)[p.order]
        self.act = act.copy()
        for part in (M.data, M.indices, M.indptr):  # read-only like those of a model: one compiled version for both
            part.flags.writeable = False
        where = p.order, p.place, p.uptr, p.uidx, p.lptr, p.lidx, p.parent
        factorise(M.indptr, M.indices, M.data, A, act, self.gamma, *where, dirty, *self.numbers)
        return self

    def solve(self, y: Array) -> Array:
        """Return (I − γM)⁻¹ y for y [S] or [S, n]."""
        p, right = self.places, np.ascontiguousarray(y.reshape(len(y), -1))
        x = np.empty_like(right)
        _forward_back(p.order, p.uptr, p.uidx, p.lptr, p.lidx, *self.numbers, right, x)
        return x.reshape(y.shape)

    def solve_T(self, y: Array) -> Array:
        """Return (I − γMᵀ)⁻¹ y for y [S]."""
        p, x = self.places, np.empty(len(y))
        _forward_back_T(p.order, p.uptr, p.uidx, p.lptr, p.lidx, *self.numbers, y, x)
        return x
