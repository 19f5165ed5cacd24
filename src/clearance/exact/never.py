"""Costs that must never be paid: non-negative costs with the limit 0.

Whether such a cost can be avoided depends only on which transitions are possible, not on their probabilities. A pair is
removed if it has a cost, or if it may lead to a state without remaining pairs. The remaining model is solved without
the limit, since no policy on it can have the cost. If a start state has no pairs left, no policy meets the limit. With
a horizon, the pairs are removed backwards from the last step, separately for every step.

Under the average criterion, the limit 0 on a long-run mean allows costs for a finite time. A run must only end up in an
end component without costs. So a pair is removed if it may lead to a state from which no policy reaches such components
with probability 1. Of the remaining pairs, only those inside these components may be taken infinitely often
(`CMDP.recurring`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.exact.pair_rows import PairRows
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import Chain
from clearance.finite.mixture import Mixture
from clearance.finite.support_graph import Labels, Mask, end_components, reachable, surely_reaching

SMALLEST = 5e-324  # the least number above 0


def zero_limits(cmdp: CMDP) -> list[int]:
    """Return the indices of limits b_i = 0 on utilities g_i ≤ 0: they are met only if J_gi is exactly 0."""
    never = (cmdp.b == 0) & np.all(cmdp.g <= 0, axis=(1, 2)) & np.any(cmdp.g < 0, axis=(1, 2))
    return np.flatnonzero(never).tolist()


@dataclass(frozen=True, eq=False)
class Never:
    """The part of a model that remains if the costs of the constraints with indices `limits` are never paid."""

    cmdp: CMDP
    limits: list[int]

    @property
    def costly(self) -> Mask:
        return np.any(self.cmdp.g[self.limits] < 0, axis=0)

    @cached_property
    def _inside(self) -> Mask:
        """A mask [S, A] of the pairs inside end components where no pair has a cost of the constraints `limits`."""
        return end_components(self.cmdp, self.cmdp.available & ~self.costly)[1]

    @cached_property
    def allowed(self) -> Mask:
        """A mask of the pairs with which the costs of the constraints `limits` can be avoided for ever.

        It is [S, A] or, with a horizon, [H, S, A].
        """
        rows, free = PairRows.of(self.cmdp), self.cmdp.available & ~self.costly
        if self.cmdp.kind == "average":
            good = surely_reaching(self.cmdp, np.asarray(self._inside.any(axis=1)))
            return self.cmdp.available & ~rows.leading_to(~good) & good[:, None]
        safe: Mask = np.ones(self.cmdp.S, bool)
        found: list[Mask] = []
        while True:
            left = free & ~rows.leading_to(~safe)
            found.append(left)
            done = np.array_equal(left.any(1), safe) if self.cmdp.horizon is None else len(found) == self.cmdp.horizon
            if done:
                return left if self.cmdp.horizon is None else np.stack(found[::-1])
            safe = np.asarray(left.any(1))

    @property
    def lost(self) -> Labels:
        """The indices of the states from which the costs of the constraints `limits` cannot be avoided.

        From such a state, every policy has one of these costs with positive probability. Under the average criterion,
        every policy has, with positive probability, one of these costs again and again for ever.
        """
        first = self.allowed if self.cmdp.horizon is None else self.allowed[0]
        return np.flatnonzero(~first.any(-1))

    @property
    def impossible(self) -> bool:
        return bool(np.any(self.cmdp.rho[self.lost] > 0))

    @cached_property
    def rest(self) -> CMDP:
        """The model with only the allowed pairs, and without the limits on costs that must never be paid.

        States from which such a cost cannot be avoided keep their pairs, since no run gets there.
        """
        cmdp, others = self.cmdp, [i for i in range(self.cmdp.I) if i not in self.limits]
        lost = ~self.allowed.any(-1, keepdims=True)
        allowed = np.where(lost, cmdp.available, self.allowed)
        part = cmdp.replace(
            h=cmdp.h[[0, *(1 + i for i in others)]], b=cmdp.b[others], names=[cmdp.names[i] for i in others]
        )
        if cmdp.horizon is not None:
            part.__dict__["allowed"] = allowed
            return part
        for cached in ("available", "rows", "elimination"):
            part.__dict__.pop(cached, None)
        part.__dict__["P"] = _only(cmdp, allowed)
        part.__dict__["h"] = np.where(allowed, part.h, 0.0)
        if cmdp.kind == "average":
            part.__dict__["recurring"] = np.where(lost, cmdp.available, self.allowed & self._inside)
        return part

    def expand(self, lam: Array) -> Array:
        """Return the multipliers of all limits [I].

        `lam` holds the multipliers of the remaining limits. Limits on costs that must never be paid get 0.
        """
        found = np.zeros(self.cmdp.I)
        found[[i for i in range(self.cmdp.I) if i not in self.limits]] = lam
        return found


def _only(cmdp: CMDP, pairs: Mask) -> Any:
    if not cmdp.is_sparse:
        return np.where(pairs[:, :, None], cmdp.P, 0.0)
    P = sparse.csr_array(sparse.diags_array(pairs.ravel().astype(float)) @ cmdp.P)
    P.eliminate_zeros()
    return sparse.csr_array((P.data, P.indices.astype(np.int32), P.indptr.astype(np.int32)), shape=P.shape)


def never_of(cmdp: CMDP) -> Never | None:
    """Return the part of a model in which costs with the limit 0 are never paid; None if there is no such limit."""
    limits = zero_limits(cmdp)
    return Never(cmdp, limits) if limits else None


def used_pairs(cmdp: CMDP, pi: Array) -> Mask:
    """Return a mask [S, A] of the pairs that the policy π takes with positive probability, at any time.

    Under the average criterion, only pairs that it takes infinitely often count.
    """
    if cmdp.kind == "horizon":
        return _used_in_time(cmdp, pi)
    seen = reachable(cmdp, pi > 0)
    if cmdp.kind == "average":
        seen &= Chain.of(cmdp, pi).label >= 0
    return (pi > 0) & seen[:, None]


def _used_in_time(cmdp: CMDP, pi: Array) -> Mask:
    rows, here, found = PairRows.of(cmdp), cmdp.rho > 0, np.zeros(pi.shape[1:], bool)
    for table in pi:
        taken = (table > 0) & here[:, None]
        found |= taken
        here = np.zeros(cmdp.S, bool)
        here[rows.target[taken.ravel()[rows.pair]]] = True
    return found


def decide_by_support(
    cmdp: CMDP, mixture: Mixture, parts: Array, lower: Array, upper: Array
) -> tuple[Array, Array, Array]:
    """Sharpen the values and bounds of a mixture for costs with the limit 0; return (parts, lower, upper).

    parts         J of the M components [M, 1+I]
    lower, upper  bounds [1+I] on J of the mixture

    Only the possible transitions matter: J_g is exactly 0 if no possible step has a cost, else below 0.
    """
    limits = zero_limits(cmdp)
    if not limits:
        return parts, lower, upper
    parts, lower, upper = parts.copy(), lower.copy(), upper.copy()
    used = [used_pairs(cmdp, pi) for pi in mixture.tables(cmdp)]
    for i in limits:
        pays = np.array([bool(np.any((cmdp.g[i] < 0) & pairs)) for pairs in used])
        parts[~pays, 1 + i] = 0.0
        if np.any(pays & (mixture.weights > 0)):
            upper[1 + i] = min(float(upper[1 + i]), -SMALLEST)
        else:
            lower[1 + i] = upper[1 + i] = 0.0
    return parts, lower, upper


def never_words(cmdp: CMDP) -> str:
    """Return a sentence that names the states from which a cost with the limit 0 cannot be avoided.

    Return "" if some policy avoids all such costs.
    """
    found = never_of(cmdp)
    if found is None or not found.impossible:
        return ""
    names, lost = ", ".join(cmdp.names[i] for i in found.limits), found.lost
    shown = [cmdp.states[s] if cmdp.states else str(s) for s in lost[:20]]
    more = f" and {len(lost) - 20:,} more" if len(lost) > 20 else ""
    names += " in the long run" if cmdp.kind == "average" else ""
    return f"{names} cannot be avoided from state{'s' if len(lost) > 1 else ''} {', '.join(shown)}{more}"
