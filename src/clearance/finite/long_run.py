"""Evaluate policies of finite models in floating point for the criteria other than the discounted sum.

horizon    V_t = h_π + γ P_π V_{t+1},  V_H = 0
total      V = (I − Q)⁻¹ h_π on the transient states, where Q is P_π among them; 0 on closed classes without signals
average    gain of a closed class = cycle sum / cycle length through one of its states;  from a transient state the
           gain is the expected gain of the class in which the run ends
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.compiled.backward_induction import follow
from clearance.core.errors import InputError
from clearance.finite.cmdp import CMDP, PATIENCE
from clearance.finite.linear_systems import Places, factorise, transition_matrix
from clearance.finite.support_graph import Labels, Mask, closed_classes, spread

# ---------------------------------------------------------------------------------------------------------- horizon


def tables_over_time(cmdp: CMDP, pi: Array) -> Array:
    """Return π as [..., H, S, A]; a policy [S, A] is repeated for every step of the horizon, as a view."""
    return np.broadcast_to(pi, cmdp.policy_shape) if pi.ndim == 2 else pi


def horizon_visits(cmdp: CMDP, pi: Array) -> Array:
    """Return the occupancy γ^t P(s_t = s, a_t = a) [H, S, A] of one policy [H, S, A]."""
    found, here = np.empty(pi.shape), cmdp.rho.copy()
    turned = cmdp.rows.T
    for t in range(len(pi)):
        found[t] = here[:, None] * pi[t]
        here = cmdp.gamma * (turned @ found[t].ravel())
    return found


def horizon_values(cmdp: CMDP, pi: Array) -> Array:
    """Return V [1+I, H, S] of one policy [H, S, A]: at index t, the expected sum of the signals from step t on."""
    V = np.zeros((1 + cmdp.I, len(pi), cmdp.S))
    later, step = np.zeros((cmdp.S, 1 + cmdp.I)), stepper(cmdp)
    for t in reversed(range(len(pi))):
        later = step(pi[t], later)[0]
        V[:, t] = later.T
    return V


def stepper(cmdp: CMDP) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return a function of π [S, A] and V [S, n] that returns (h_π + γ P_π V, |h|_π + γ P_π |V|), each [S, n].

    Here n = 1 + I. The rounding error of the first array is at most a few units of rounding times the second one.
    """
    if not cmdp.is_sparse:
        size_h = np.abs(cmdp.h)

        def dense(pi: Array, V: Array) -> tuple[Array, Array]:
            signals = ((cmdp.h, V), (size_h, np.abs(V)))
            Q = (h + cmdp.gamma * (cmdp.rows @ x).T.reshape(h.shape) for h, x in signals)
            now, size = (np.einsum("sa,hsa->sh", pi, q) for q in Q)
            return now, size

        return dense
    P, h = cmdp.P, np.ascontiguousarray(cmdp.h.reshape(1 + cmdp.I, -1).T)

    def step(pi: Array, V: Array) -> tuple[Array, Array]:
        now, size = np.empty(V.shape), np.empty(V.shape)
        table = np.ascontiguousarray(pi)
        follow(P.indptr, P.indices, P.data, h, cmdp.gamma, table, np.ascontiguousarray(V), now, size)
        return now, size

    return step


# ------------------------------------------------------------------------------------------------ the chain of a policy


@dataclass(frozen=True, eq=False)
class Chain:
    """The Markov chain of a policy: P_π [S, S] with normalised rows, and the signals h_π [1+I, S].

    `label` [S] is the label 0, 1, … of the closed class of each state, or −1 if the state is transient. `hint` are
    states that runs visit often, if they are known.
    """

    cmdp: CMDP
    P: Any
    h: Array
    label: Labels
    hint: Labels | None = None  # states that runs visit often, if they are known

    @classmethod
    def of(cls, cmdp: CMDP, pi: Array) -> Chain:
        P = _normalise(transition_matrix(cmdp, pi))
        support = transition_matrix(cmdp, (pi > 0).astype(float))  # no product of small numbers may vanish here
        return cls(cmdp, P, np.einsum("sa,hsa->hs", pi, cmdp.h), closed_classes(support))

    @property
    def classes(self) -> int:
        return int(self.label.max(initial=-1)) + 1

    @cached_property
    def representatives(self) -> Labels:
        """The index of one state of each closed class, a state that runs visit often."""
        if self.hint is not None and represents(self.hint, self.label):
            return self.hint[np.argsort(self.label[self.hint])]
        return often_visited(self.cmdp, self.P, self.label)

    def without(self, rows: Mask, columns: Mask) -> Any:
        """Return a copy of P_π in which the rows and columns selected by the masks [S] are 0."""
        if not sparse.issparse(self.P):
            return np.where(rows[:, None] | columns, 0.0, self.P)
        left, right = (sparse.diags_array((~mask).astype(float), format="csr") for mask in (rows, columns))
        found = sparse.csr_array(left @ self.P @ right)
        found.eliminate_zeros()
        return found

    # ------------------------------------------------------------------------------------------------ total

    @cached_property
    def _until_absorption(self):
        closed = self.label >= 0
        return factorise(self.cmdp, self.without(closed, closed), 1.0)

    def until_absorption(self, y: Array) -> Array:
        """Return (I − Q)⁻¹ y for y [S], where Q is P_π restricted to the transient states.

        For each start state, this is the expected sum of y over the states visited before a closed class is entered.
        y must be 0 in closed classes.
        """
        return self._until_absorption[0](y)

    def visits(self) -> Array:
        """Return the expected number of visits [S] to each transient state, for a run from ρ; 0 in closed classes."""
        closed = self.label >= 0
        return np.where(closed, 0.0, np.maximum(self._until_absorption[1](np.where(closed, 0.0, self.cmdp.rho)), 0.0))

    def steps(self) -> Array:
        """Return for each state [S] the expected number of steps until a closed class is entered."""
        return self._until_absorption[0](np.where(self.label >= 0, 0.0, 1.0))

    def sums(self) -> Array:
        """Return V [1+I, S], the expected sums of the signals until absorption.

        V is ±∞ in states from which a run may enter a closed class where the signal is not 0.
        """
        closed = self.label >= 0
        V = self._until_absorption[0](np.where(closed, 0.0, self.h).T).T
        for k, h in enumerate(self.h):
            endless = _endless_classes(h, self.label)
            if len(endless):
                V[k] = self._with_endless(V[k], h, endless)
        return V

    def _with_endless(self, V: Array, h: Array, classes: Labels) -> Array:
        """Return V [S] with ±∞ in the states from which a run can reach one of the closed `classes`.

        In these classes the signal h [S] is not 0, so its sum never stops changing; the sign of ∞ is the sign of h.
        Raise InputError if h has both signs in one of these classes and runs from ρ reach that class.
        """
        for k in classes:
            inside = self.label == k
            low, high = h[inside].min(), h[inside].max()
            if low < 0 < high and np.any(inside & self._reached):
                state = int(np.flatnonzero(inside)[0])
                raise InputError(f"policy stays for ever around state {state}, where a signal has both signs: its sum "
                                 "until absorption is not defined; use criterion='average'")  # fmt: skip
            V = np.where(self._can_reach(inside), np.inf if high > 0 else -np.inf, V)
        return V

    @cached_property
    def _reached(self) -> Mask:
        """The states [S] that runs from ρ reach."""
        P = sparse.coo_array(self.P)
        row, column = P.coords
        return spread(row[P.data > 0].astype(np.int64), column[P.data > 0].astype(np.int64), self.cmdp.rho > 0)

    def _can_reach(self, goal: Mask) -> Mask:
        P = sparse.coo_array(self.P)
        row, column = P.coords
        return spread(column[P.data > 0].astype(np.int64), row[P.data > 0].astype(np.int64), goal)

    # ------------------------------------------------------------------------------------------------ average

    @cached_property
    def _between_visits(self):
        """The solvers of (I − M) x = y and of its transpose, where M is P_π without steps into the representatives.

        A representative is one chosen state of each closed class. So x(s) is the expected sum of y over the steps of a
        run from s until it next enters a representative.
        """
        S, enters = len(self.label), np.zeros(len(self.label), bool)
        enters[self.representatives] = True
        return factorise(self.cmdp, self.without(np.zeros(S, bool), enters), 1.0)

    def frequencies(self) -> Array:
        """Return the long-run share of time [S] that runs from ρ spend in each state.

        The share of a state is the probability that a run ends in the state's closed class, times the stationary
        probability of the state within that class.
        """
        closed, rho = self.label >= 0, self.cmdp.rho
        ends = np.where(closed, rho, 0.0)
        if not closed.all():
            moved = self.P.T @ self.visits()
            ends = ends + np.where(closed, moved, 0.0)
        mass = np.bincount(self.label[closed], ends[closed], self.classes)
        cycle = np.zeros(len(rho))
        cycle[self.representatives] = 1.0
        share = np.where(closed, np.maximum(self._between_visits[1](cycle), 0.0), 0.0)
        length = np.bincount(self.label[closed], share[closed], self.classes)
        return np.where(closed, share * (mass / length)[self.label], 0.0)

    def gains(self) -> tuple[Array, Array]:
        """Return the gain g and the bias v, each [1+I, S], of all signals.

        They satisfy g = P_π g and g + v = h_π + P_π v, and v is 0 at one representative state of each closed class.
        """
        solve, at, closed = self._between_visits[0], self.representatives, self.label >= 0
        sums = solve(np.concatenate([np.ones((1, len(self.label))), self.h]).T)
        steps, cycle = sums[:, :1], sums[at, 1:] / sums[at, :1]
        if self.classes == 1:
            v = solve(self.h.T - cycle)
            short = v[at] / steps[at]  # v must be 0 at the representative: what is left there corrects the gain
            return np.repeat((cycle + short).T, len(self.label), axis=1), (v - short * steps).T
        v = solve(np.where(closed[:, None], self.h.T - cycle[self.label], 0.0))
        cycle = cycle + v[at] / steps[at]
        gain = cycle[self.label]
        if not closed.all():
            enter = np.zeros(gain.shape)
            enter[at] = cycle
            gain = np.where(closed[:, None], gain, solve(np.ascontiguousarray(self.P @ enter)))
        return gain.T, solve(self.h.T - gain).T


def often_visited(model: Places, P_pi: Any, label: Labels) -> Labels:
    """Return one state of each closed class: the one with the most discounted visits from a uniform start.

    The discount factor is near 1. `label` [S] is the label of each state's closed class under P_π, or −1.
    """
    S = len(label)
    visits = np.ones(S) if S == 1 else factorise(model, P_pi, PATIENCE)[1](np.full(S, 1 / S))
    order = np.argsort(visits, kind="stable")
    order = order[label[order] >= 0]
    found = np.zeros(int(label.max(initial=-1)) + 1, np.int64)
    found[label[order]] = order  # the last one, with the most visits, stays
    return found


def represents(states: Labels, label: Labels) -> bool:
    """Return whether `states` holds exactly one state of each closed class; `label` [S] is each state's class label."""
    return np.array_equal(np.sort(label[states]), np.arange(int(label.max(initial=-1)) + 1))


def _endless_classes(h: Array, label: Labels) -> Labels:
    """Return the labels of the closed classes in which a signal h [S] is not 0 everywhere.

    The undiscounted sum of the signal does not settle there. `label` [S] is the label of each state's closed class, a
    whole number, or −1 for a transient state.
    """
    return np.unique(label[(label >= 0) & (h != 0)])


def _normalise(P: Any) -> Any:
    total = np.asarray(P.sum(axis=1)).ravel()
    if not sparse.issparse(P):
        return P / total[:, None]
    found = sparse.csr_array(sparse.diags_array(1 / total) @ P)
    found.eliminate_zeros()
    return found


def scale_of(cmdp: CMDP) -> float:
    """Return the size that J typically has if the signals have size 1.

    For "total", this is the mean number of steps of an episode under the uniform policy, but at least 1. For the other
    criteria, it is the sum of the weights of all steps (`CMDP.length`).
    """
    if cmdp.kind != "total":
        return cmdp.length
    uniform = cmdp.available / cmdp.available.sum(1, keepdims=True)
    return max(1.0, float(cmdp.rho @ Chain.of(cmdp, uniform).steps()))
