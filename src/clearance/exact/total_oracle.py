"""Exact results for undiscounted sums until absorption.

A run may end in a zero component: an end component whose pairs have no signals, usually a terminal state. Only policies
with finite sums count: those that end in zero components with probability 1. An error is raised if no policy does so
from some start state, or if a run can gain for ever in an end component. Components that cost for ever are allowed,
since no good policy stays there.

    for every policy   V ≥ h + P V for every pair, and V ≥ 0 on zero components, prove J ≤ ρ·V if the policy ends
    for one policy π   L ≤ h_π + P_π L and U ≥ h_π + P_π U, both 0 where runs end, and w ≥ 1 + P_π w elsewhere, prove
                       that π ends, and that ρ·L ≤ J ≤ ρ·U

In floating point, ε times the remaining steps is added to V. The inequalities then hold with a reserve of ε in each
step, which is more than rounding can take away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError, SolverError
from clearance.exact.average_oracle import largest_gains
from clearance.exact.pair_rows import PairRows, rounding
from clearance.exact.policy_drift import LIFTS, average_drift, between, hair
from clearance.exact.quotient import Quotient, walk_to
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import Chain
from clearance.finite.support_graph import Labels, Mask, end_components, reachable, surely_reaching

TIGHT = (1e-6, 1e-8, 1e-10)  # relative slack up to which a pair counts as one that a best policy might take


class Collapsed(NamedTuple):
    """A model in which every end component without relevant signals is collapsed to a node (`quotient`).

    `inside` [S, A] marks the pairs that stay in a node and have no relevant signals.
    """

    quotient: Quotient
    inside: Mask


@dataclass(eq=False)
class TotalOracle:
    """An oracle that finds a best deterministic policy act [S] for sums until absorption, and proves upper bounds.

    `last` and `collapsed` keep policies and models of earlier calls; their keys say which signals had nonzero weight.
    """

    cmdp: CMDP
    last: dict[tuple[bool, ...], Labels] = field(default_factory=dict)
    collapsed: dict[tuple[bool, ...], Collapsed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_end()
        self._check_gain()

    # ------------------------------------------------------------------------------------------------ structure

    @cached_property
    def rows(self) -> PairRows:
        return PairRows.of(self.cmdp)

    @cached_property
    def zero(self) -> tuple[Labels, Mask]:
        """The zero components: end components in which no pair has a signal, so that a run may end there.

        The value is (label of each state's zero component [S], mask [S, A] of the pairs that cannot leave the zero
        component of their state). The label is −1 for a state in no zero component.
        """
        return end_components(self.cmdp, np.asarray(~self.cmdp.h.any(axis=0)))

    @cached_property
    def ending(self) -> Mask:
        """A mask of the states [S] from which some policy reaches, with probability 1, a state where runs may end.

        If some signal may add up for ever in a state that no run reaches, unreachable states are left out of the mask.
        """
        found, seen = surely_reaching(self.cmdp, self.zero[0] >= 0), reachable(self.cmdp)
        gaining = end_components(self.cmdp)[1] & np.any(self.cmdp.h > 0, axis=0)
        return found & seen if np.any(gaining & ~seen[:, None]) else found

    @cached_property
    def pairs(self) -> Mask:
        """A mask of the available pairs [S, A] whose state and next states are all in the mask `ending`."""
        leading_out = self.rows.leading_to(~self.ending)
        return self.cmdp.available & self.ending[:, None] & ~leading_out

    def _check_end(self) -> None:
        lost = np.flatnonzero((self.cmdp.rho > 0) & ~self.ending)
        if len(lost):
            raise InputError(
                f"criterion 'total': no policy ends surely from {state_words(self.cmdp, lost)}: sums are infinite; "
                "give terminal states without signals, a horizon, or criterion='average'"
            )

    def _check_gain(self) -> None:
        """Raise InputError if a run can reach an end component in which some signal can add up for ever."""
        label, inside = end_components(self.cmdp)
        seen = reachable(self.cmdp)
        positive = inside & np.any(self.cmdp.h > 0, axis=0) & seen[:, None]
        suspects = np.unique(label[positive.any(axis=1)])
        if not len(suspects):
            return
        for k, h in enumerate(self.cmdp.h):
            gains = largest_gains(self.cmdp, h)
            for c in suspects:
                here = label == c
                if np.any((h > 0) & inside & here[:, None]) and not np.all(gains[here] < 0):
                    what = "the reward" if k == 0 else self.cmdp.names[k - 1]
                    states = state_words(self.cmdp, np.flatnonzero(here))
                    raise InputError(
                        f"criterion 'total': a run can stay for ever in {states}, where {what} adds up without end or "
                        "has no sum; make it end there, or give a horizon or criterion='average'"
                    )

    def _collapse(self, counts: tuple[bool, ...]) -> Collapsed:
        """Return the model in which end components without relevant signals are collapsed to nodes.

        `counts` [1+I] marks the relevant signals, those with nonzero weight.
        """
        if counts not in self.collapsed:
            free = ~self.cmdp.h[np.array(counts)].any(axis=0)
            label, inside = end_components(self.cmdp, free & self.pairs)
            node, alone = label.copy(), self.ending & (label < 0)
            node[alone] = label.max(initial=-1) + 1 + np.arange(alone.sum())
            stops = np.unique(node[self.ending & (self.zero[0] >= 0)])
            quotient = Quotient.of(self.rows, node, self.pairs & ~inside, stops)
            self.collapsed[counts] = Collapsed(quotient, inside)
        return self.collapsed[counts]

    @property
    def quotient(self) -> Quotient:
        """The model in which end components without any signal are collapsed to nodes."""
        return self._collapse((True,) * (1 + self.cmdp.I)).quotient

    # ------------------------------------------------------------------------------------------------ the best policy

    def best(self, weights: Array, accuracy: float = 0.0, start: Any = None) -> tuple[Labels, float, Array]:
        """Maximise weights·J over policies; return (act, maximum, J).

        The deterministic policy act [S] attains the maximum, and J [1+I] are its values. `accuracy` and `start` are not
        used.
        """
        counts = tuple(bool(w) for w in weights)
        quotient, inside = self._collapse(counts)
        h = self._row_signals(quotient)
        V, chosen = quotient.maximise(h @ weights, self.last.get(counts, quotient.stopping))
        self.last[counts] = chosen
        act = self._act(quotient, inside, chosen)
        chain = Chain.of(self.cmdp, np.eye(self.cmdp.A)[act])
        J = np.where(self.cmdp.rho > 0, chain.sums(), 0.0) @ self.cmdp.rho
        start = self._at_nodes(self.cmdp.rho, quotient)
        return act, float(start @ V), J

    def _row_signals(self, quotient: Quotient) -> Array:
        """Return the signals h [R, 1+I] of the R rows of a quotient; they are 0 for a row that stops the run."""
        h = self.cmdp.h.reshape(1 + self.cmdp.I, -1).T
        return np.where(quotient.pair[:, None] >= 0, h[quotient.pair], 0.0)

    def _at_nodes(self, x: Array, quotient: Quotient) -> Array:
        part = quotient.node >= 0
        return np.bincount(quotient.node[part], x[part], quotient.S).astype(float)

    def _act(self, quotient: Quotient, inside: Mask, chosen: Labels) -> Labels:
        """Return the policy act [S] that takes the row chosen[n] at each node n of the quotient.

        A row is a pair that leaves the node, or it stops the run. Inside a component, the policy goes to the state at
        which the chosen row leaves, or to states where runs may end. It uses only pairs marked in `inside` [S, A].
        """
        A, pair = self.cmdp.A, quotient.pair[chosen]
        act = np.argmax(self.cmdp.available, axis=1)
        leaves = pair[pair >= 0]
        act[leaves // A] = leaves % A
        goal = np.zeros(self.cmdp.S, bool)
        goal[leaves // A] = True
        stays = np.isin(quotient.node, np.flatnonzero(pair < 0)) & (self.zero[0] >= 0)
        act[stays] = np.argmax(self.zero[1][stays], axis=1)
        walk_to(self.rows, goal | stays, inside, act)
        return act

    # ------------------------------------------------------------------------------------------------ the proof

    def dual(self, lam: Array, reward: float = 1.0, start: Any = None) -> tuple[float, Array, Labels]:
        """Bound the maximum over policies of reward·J_r + Σ_i λ_i (J_gi − b_i); return (bound, V, act).

        `bound` is the maximum rounded up, or +∞ if no finite bound can be proven. V [S] proves the bound, and act [S]
        is a greedy policy. `start` is not used.
        """
        weights = np.append(reward, lam)
        counts = tuple(bool(w) for w in weights)
        quotient, inside = self._collapse(counts)
        h = self._row_signals(quotient) @ weights
        V, chosen = quotient.maximise(h, self.last.get(counts, quotient.stopping))
        act, slack = self._act(quotient, inside, chosen), V[quotient.source] - h - quotient.P @ V
        for tight in TIGHT:
            usable = slack <= tight * max(float(np.abs(V).max(initial=0.0)), float(np.abs(h).max(initial=0.0)))
            try:
                steps, _ = quotient.maximise(np.where(quotient.pair >= 0, 1.0, 0.0), chosen, usable)
            except SolverError:  # these pairs can go round for ever
                continue
            if np.all(np.isfinite(steps)) and np.all(steps >= 0):
                found = self._lift(weights, self._on_states(V, quotient), self._on_states(steps, quotient), inside)
                if found is not None:
                    return self._bound(lam, found), found, act
        return np.inf, self._on_states(V, quotient), act

    def _on_states(self, V: Array, quotient: Quotient) -> Array:
        return np.where(quotient.node >= 0, V[quotient.node], 0.0)

    def _lift(self, weights: Array, V: Array, steps: Array, inside: Mask) -> Array | None:
        """Return V + ε·steps [S], a proven upper bound on the expected sum of weights·h that starts in each state.

        Larger and larger ε are tried; return None if none gives a proof. `steps` [S] is the expected number of
        remaining steps. Pairs in the mask `inside` [S, A] need no proof: V is constant there, and there are no signals.
        """
        asked = self.pairs & ~inside  # inside a component V is constant without signals: no proof is needed
        over = self._excess(weights, V)
        lift = 2 * float(np.max(over, where=asked, initial=0.0)) + hair(V)
        for _ in range(LIFTS):
            lifted = V + lift * steps
            if not np.any(asked & (self._excess(weights, lifted) > 0)) and np.all(lifted[self.zero[0] >= 0] >= 0):
                return lifted
            lift *= 4
        return None

    def _excess(self, weights: Array, V: Array) -> Array:
        """Return an upper bound [S, A] of weights·h + P V − V in real arithmetic, where h are the signals."""
        h, size = (np.tensordot(weights, x, 1) for x in (self.cmdp.h, np.abs(self.cmdp.h)))
        drift, error = self.rows.drift(V)
        return h + drift + error + rounding(self.cmdp.I + 8) * (size + np.abs(drift))

    def _bound(self, lam: Array, V: Array) -> float:
        rho, b = self.cmdp.rho, self.cmdp.b
        spread = rho @ np.abs(V) + lam @ np.abs(b)
        return float(rho @ V - lam @ b + rounding(self.cmdp.S + self.cmdp.I + 8) * spread)


def state_words(cmdp: CMDP, states: Labels, most: int = 6) -> str:
    """Return the names or indices of the states as text for a message: the first `most` of them, and how many more."""
    names = [cmdp.states[s] if cmdp.states else str(s) for s in states[:most]]
    more = f" and {len(states) - most:,} more" if len(states) > most else ""
    return f"state{'s' if len(states) > 1 else ''} {', '.join(names)}{more}"


# ---------------------------------------------------------------------------------------------------- one policy


def approximate(cmdp: CMDP, pi: Array) -> Array:
    """Return vectors L, U and w [M, 1+I, 3, S] that prove ρ·L ≤ J ≤ ρ·U for the J of M policies pi [M, S, A].

    They are ±∞ where sums are infinite.
    """
    rows = PairRows.of(cmdp)
    return np.stack([_vectors(cmdp, rows, p) for p in pi])


def _vectors(cmdp: CMDP, rows: PairRows, pi: Array) -> Array:
    seen, chain = reachable(cmdp, pi > 0), Chain.of(cmdp, pi)
    found, moving = np.zeros((1 + cmdp.I, 3, cmdp.S)), seen & (chain.label < 0)
    try:
        V, w = chain.sums(), np.maximum(chain.steps(), 0.0) * (1 + 1e-6) + (chain.label < 0)
    except SolverError:  # no finite bound can be computed in floating point
        found[:, 0], found[:, 1] = -np.inf, np.inf
        return found
    found[:, 2] = w
    if np.any(moving & ~(average_drift(rows, pi, w, np.ones(pi.shape), 1)[1] <= 0)):  # too long for floating point
        found[:, 0], found[:, 1] = -np.inf, np.inf
        return found
    for k in range(1 + cmdp.I):
        for side, sign in ((0, -1.0), (1, 1.0)):
            found[k, side] = sign * _lifted(rows, pi, sign * V[k], sign * cmdp.h[k], w, moving)
    return found


def _lifted(rows: PairRows, pi: Array, V: Array, h: Array, w: Array, moving: Mask) -> Array:
    """Return U = V + ε w, with an ε for which U ≥ h_π + P_π U provably holds at the states in `moving` [S].

    `rows` are the transitions of the model, and w [S] bounds the remaining steps of the policy π. The result is ∞ if
    rounding prevents the proof.
    """
    if not np.all(np.isfinite(V[moving])):
        return V
    V = np.where(np.isfinite(V), V, 0.0)
    lift = 2 * float(np.max(average_drift(rows, pi, V, h, 1)[1], where=moving, initial=0.0)) + hair(V)
    for _ in range(LIFTS):
        lifted = V + lift * w
        if not np.any(moving & (average_drift(rows, pi, lifted, h, 1)[1] > 0)):
            return lifted
        lift *= 4
    return np.full(len(V), np.inf)


def enclose(cmdp: CMDP, pi: Array, V: Array) -> tuple[Array, Array, Array]:
    """Return J of M policies pi [M, S, A] and its proven lower and upper bounds, each [M, 1+I].

    V is the result of `approximate` for these policies.
    """
    start = cmdp.rho > 0
    low, high = (np.where(start, V[:, :, side], 0.0) @ cmdp.rho for side in (0, 1))
    return between(low, high, rounding(cmdp.S + 8) * (np.where(start, np.abs(V[:, :, :2]).max(2), 0.0) @ cmdp.rho))
