"""Gains and biases of deterministic policies inside end components, for models of 10⁵ states and more.

For each closed class one of its states is the reference, and M is P_π without the steps into references. Then

    x = (I − M)⁻¹ (1, h_π)         x_1: expected steps, x_h: expected sum of h, until the next visit of the reference
    gain = x_h / x_1 at the reference,     bias v = (I − M)⁻¹ (h_π − gain)

The factorisation of I − M is kept: for the next policy, only the rows that depend on changed actions are computed
again. A reference that is rarely visited makes x large and v inaccurate, so references are states that runs visit
often. The results need not be accurate: bounds are proven from the residuals of v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled.iterative import linear_solve
from clearance.core.compiled.sparse_lu import Factor
from clearance.exact.pair_rows import PairRows
from clearance.finite.cmdp import CMDP
from clearance.finite.linear_systems import LU_STATES, factorise
from clearance.finite.long_run import often_visited, represents
from clearance.finite.support_graph import Labels, Mask, closed_classes

LONG = 1e7  # mean steps until the reference beyond which another reference is tried
ALMOST_ONE = 1 - 2.0**-53  # the iterations need a discount below 1


class Gains(NamedTuple):
    """The gains and biases of one policy for n signals.

    label   [S] the closed class of each state; −1 if the state is transient
    gain    [S, n] the gains
    v       [S, n] the biases
    single  whether every component has exactly one closed class. If not, v is 0, and `gain` has a meaning only at the
            states of closed classes
    """

    label: Labels
    gain: Array
    v: Array
    single: bool


@dataclass(eq=False)
class ComponentGains:
    """An evaluator of deterministic policies act [S] that stay in their end components.

    rows        the transitions of the model
    node        the label of each state's component [S]. States in no component have labels of their own, numbered
                after those of the components
    pairs       a mask [S, A] of the pairs inside components. A state in no component stays in place without signals
    references  one state of each closed class (see the module's head)
    """

    cmdp: CMDP
    rows: PairRows
    node: Labels
    pairs: Mask
    references: Labels = field(default_factory=lambda: np.zeros(0, np.int64))
    _x: Array | None = None  # x of the last policy
    _cut: tuple[Any, Factor] | None = None

    @cached_property
    def P(self) -> Any:
        """The normalised rows of the pairs inside components, as CSR [S·A, S]; other rows are empty."""
        whole = np.array_equal(self.pairs, self.cmdp.available)
        return (self.rows if whole else self.rows.only(self.pairs)).matrix

    @property
    def has_factors(self) -> bool:
        """Whether the model has local structure, so that one cheap factorisation serves all signals."""
        return self.cmdp.S > LU_STATES and self.cmdp.elimination is not None

    def evaluate(self, act: Labels, h: Array) -> Gains:
        """Return gain and bias of the policy act [S] for the signals h [S, n] of its pairs."""
        M = self.P[np.arange(self.cmdp.S) * self.cmdp.A + act]
        label = closed_classes(M)
        if not represents(self.references, label):
            self._refer_to(often_visited(self.cmdp, M, label))
        solve = self._solver(act, M)
        x = solve(np.column_stack([np.ones(len(h)), h]), self._x)
        if not np.all(x[:, 0] <= LONG):
            often = often_visited(self.cmdp, M, label)
            if not np.array_equal(np.sort(often), np.sort(self.references)):
                self._refer_to(often)
                solve = self._solver(act, M)
                x = solve(np.column_stack([np.ones(len(h)), h]), None)
        self._x = x
        return self._gains(label, h, x, solve)

    def _gains(self, label: Labels, h: Array, x: Array, solve: Callable[[Array, Array | None], Array]) -> Gains:
        at, single = self.references, len(self.references) == int(self.node.max()) + 1
        cycle = np.zeros((len(at), h.shape[1]))
        place = self.node if single else label
        cycle[place[at]] = x[at, 1:] / x[at, :1]
        gain = cycle[place]
        if not single:
            return Gains(label, np.where(label[:, None] >= 0, gain, 0.0), np.zeros_like(h), False)
        v = solve(h - gain, x[:, 1:] - gain * x[:, :1])
        short = np.zeros_like(cycle)  # v must be 0 at the references: what is left there corrects the gain
        short[place[at]] = v[at] / x[at, :1]
        return Gains(label, gain + short[place], v - short[place] * x[:, :1], True)

    def _refer_to(self, states: Labels) -> None:
        self.references, self._cut, self._x = states, None, None

    def _solver(self, act: Labels, M: Any) -> Callable[[Array, Array | None], Array]:
        """Return a function that solves (I − M') x = y for x, given y and a first guess of x.

        M' is the transition matrix M of the policy act without the steps into `references`.
        """
        keeps = np.ones(self.cmdp.S)
        keeps[self.references] = 0.0
        order = self.cmdp.elimination
        if self.has_factors and order is not None:
            if self._cut is None:
                self._cut = _without_columns(self.P, keeps), Factor(order, 1.0)
            factor = self._cut[1].update(self._cut[0], self.cmdp.A, act)
            return lambda y, _: factor.solve(y)
        cut = _without_columns(M, keeps)
        if self.cmdp.S <= LU_STATES:
            direct = factorise(self.cmdp, cut, 1.0)[0]
            return lambda y, _: direct(y)
        return lambda y, start: _iterate(cut, y, start)


def _without_columns(P: Any, keeps: Array) -> Any:
    return sparse.csr_array((P.data * keeps[P.indices], P.indices, P.indptr), shape=P.shape)


def _iterate(M: Any, y: Array, start: Array | None) -> Array:
    """Return (I − M)⁻¹ y [S, n] by iterations, column by column."""
    x = np.ascontiguousarray((y if start is None else start).T)
    for right, solution in zip(np.ascontiguousarray(y.T), x, strict=True):
        linear_solve(M, ALMOST_ONE, right, solution, 0.0)
    return np.ascontiguousarray(x.T)
