"""The best long-run means, with proofs, for models with any number of recurrent classes.

In a maximal end component every state can reach every other, so the largest gain is the same at all its states. Policy
iteration finds this gain in all components at once. In each component it keeps the best closed class of the present
policy, changes the other actions so that runs reach this class, and improves actions where g + v < h + P v (g is the
gain, v the bias). Then each component is collapsed to one node (`quotient`). The value of staying in a node is the gain
of its component.

    for every policy   g ≥ P g and g + v ≥ h + P v for every pair      prove    mean ≤ ρ·g
    for one policy π   g ≤ P_π g and g + v ≤ h_π + P_π v               prove    ρ·g ≤ mean
                       g ≥ P_π g and g + v ≥ h_π + P_π v               prove    mean ≤ ρ·g

All bounds hold in real arithmetic. In the components where runs stay, g is constant, so P g = g exactly. Elsewhere a
multiple of the number of remaining steps is added to g and v, as in `total_oracle`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.compiled.gain_sweeps import gain_sweeps
from clearance.exact.component_gains import ComponentGains
from clearance.exact.pair_rows import PairRows, rounding
from clearance.exact.policy_drift import LIFTS, hair
from clearance.exact.quotient import Quotient, walk_to
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import Chain
from clearance.finite.support_graph import Labels, Mask, closed_classes, end_components

SWEEPS = 20  # greedy sweeps over all states after each evaluation of a policy
BETTER = 1e-12  # an action replaces the present one only if it is better by this much, relative to the values


class Inside(NamedTuple):
    """A deterministic policy that stays in its end components, with its gain and bias.

    act    [S] the action in each state
    gain   [S] the long-run mean of the signal; 0 outside of components
    upper  [S] an upper bound, up to rounding, on the largest gain of any policy that stays in the state's component
    v      [S] the bias; 0 outside of components
    J      [1+I] the policy's values of all signals. It is known only if one component is the whole model and one
           factorisation gave the gains of all signals at once; else None
    """

    act: Labels
    gain: Array
    upper: Array
    v: Array
    J: Array | None


@dataclass(eq=False)
class AverageOracle:
    """An oracle that finds a deterministic policy act [S] with the largest long-run mean, and proves upper bounds."""

    cmdp: CMDP
    last: Labels | None = None

    @cached_property
    def rows(self) -> PairRows:
        return PairRows.of(self.cmdp)

    @cached_property
    def components(self) -> tuple[Labels, Mask]:
        """The maximal end components: (label of each state's component [S], mask [S, A] of pairs inside a component).

        The label is −1 for a state in no component. Only pairs in `CMDP.recurring`, if it is set, form components.
        """
        return end_components(self.cmdp, self.cmdp.recurring)

    @cached_property
    def blocks(self) -> tuple[Labels, Mask]:
        """The maximal end components that all available pairs form, as (labels, mask) like `components`.

        They differ from `components` only if `CMDP.recurring` is set. In a block, every state can reach every other. So
        from each state of a block, a policy can attain the largest gain of the components in the block.
        """
        return self.components if self.cmdp.recurring is None else end_components(self.cmdp)

    @cached_property
    def quotient(self) -> Quotient:
        label, inside = self.blocks
        stops = np.unique(label[self.components[0] >= 0])
        return Quotient.of(self.rows, _number_all(label), self.cmdp.available & ~inside, stops)

    @cached_property
    def gains(self) -> ComponentGains:
        return ComponentGains(self.cmdp, self.rows, _number_all(self.components[0]), self.components[1])

    # ------------------------------------------------------------------------------------------------ inside components

    def inside(self, h: Array, accuracy: float = 0.0) -> Inside:
        """Return a policy that has the largest possible gain in each end component, up to `accuracy`.

        The gain is the long-run mean of the signal h [S, A].
        """
        pairs = self.components[1]
        act = np.argmax(pairs, axis=1) if self.last is None else self.last
        mixed, P, over = np.ascontiguousarray(h.ravel()), self.gains.P, np.empty(len(h))
        sweeps = SWEEPS if self.gains.has_factors else 1  # without local structure, one sweep spreads changes far
        seen: set[bytes] = set()
        while True:
            act, gain, v, J = self._one_class_each(act, h)
            better = act.copy()
            changed = gain_sweeps(P.indptr, P.indices, P.data, mixed, gain, v, better, over, BETTER, sweeps)
            done = not changed or np.max(over, where=self.components[0] >= 0, initial=-np.inf) <= accuracy
            if done or better.tobytes() in seen:  # a policy that occurs again differs by rounding only
                break
            seen.add(better.tobytes())
            act = better
        self.last = act
        return Inside(act, gain, gain + self._largest(over), v, J)

    def _largest(self, x: Array) -> Array:
        """Return at each state [S] the largest x [S] in its component; 0 for states in no component."""
        label = self.components[0]
        top = np.full(int(label.max(initial=-1)) + 1, -np.inf)
        np.maximum.at(top, label[label >= 0], x[label >= 0])
        return np.where(label >= 0, top[label], 0.0)

    def _one_class_each(self, act: Labels, h: Array) -> tuple[Labels, Array, Array, Array | None]:
        """Return a policy that has only one closed class in each component, with its gain and bias for the signal h.

        In each component, the closed class of the policy act [S] with the largest gain is kept. In the other states of
        the component, actions are changed so that runs reach this class. The result is (policy [S], gain [S], bias [S],
        J), with J as in `Inside`.
        """
        pairs, inside = self.components[1], self.components[0] >= 0
        found = self.gains.evaluate(act, self._taken(act, h))
        if not found.single:
            act, node, gain = act.copy(), self.gains.node, found.gain[:, 0]
            closed = (found.label >= 0) & inside
            top = np.full(int(node.max()) + 1, -np.inf)
            np.maximum.at(top, node[closed], gain[closed])
            winner = np.full(len(top), -1)
            good = np.flatnonzero(closed & (gain >= top[node]))[::-1]
            winner[node[good]] = found.label[good]
            walk_to(self.rows, closed & (found.label == winner[node]), pairs, act)
            found = self.gains.evaluate(act, self._taken(act, h))
        J = found.gain[0, 1:] if found.gain.shape[1] > 1 else None
        return act, np.where(inside, found.gain[:, 0], 0.0), np.where(inside, found.v[:, 0], 0.0), J

    def _taken(self, act: Labels, h: Array) -> Array:
        """Return the signal h [S, A] at the actions of the policy act [S], as a column [S, 1].

        If one component is the whole model and the model has local structure, all signals of the model are appended:
        the result is then [S, 2+I]. The entries of states in no component are 0.
        """
        whole = self.gains.has_factors and not np.any(self.gains.node)
        signals = np.concatenate([h[None], self.cmdp.h]) if whole else h[None]
        chosen = signals[:, np.arange(len(h)), act].T
        return np.where(self.components[0][:, None] >= 0, chosen, 0.0)

    # ------------------------------------------------------------------------------------------------ the best policy

    def best(self, weights: Array, accuracy: float = 0.0, start: Labels | None = None) -> tuple[Labels, float, Array]:
        """Maximise weights·J over policies; return (act, bound, J).

        The policy act [S] attains the maximum up to `accuracy`, `bound` is an upper bound on the maximum, and J [1+I]
        are the values of act. The search begins with the policy `start` [S].
        """
        self.last = self.last if start is None else self._stay(start)
        found = self.inside(np.tensordot(weights, self.cmdp.h, 1), accuracy)
        V, chosen = self._leave(found.upper)
        act, J = self._act(found.act, chosen, found.upper), found.J
        if J is None:
            chain = self._chain(act)
            J = np.einsum("s,hs->h", chain.frequencies(), chain.h)
        return act, float(np.bincount(self.quotient.node, self.cmdp.rho, self.quotient.S) @ V), J

    def _leave(self, gain: Array) -> tuple[Array, Labels]:
        """Return (V, rows) for the N nodes of the quotient.

        V [N] is the largest gain that runs from each node can reach, and rows [N] are those that a best policy takes.
        The quotient collapses every end component to one node. A row is a choice at a node: to stay in it, or a pair
        that leaves it. `gain` [S] is the gain of staying in the component of each state.
        """
        q, worth = self.quotient, self._worth(gain)
        h = np.where(q.pair < 0, worth[q.source], 0.0)
        V, chosen = q.maximise(h, q.stopping)
        stays = q.source[q.pair < 0]
        V[stays] = np.maximum(V[stays], worth[stays])  # policy iteration ignores gains as small as rounding
        return V, chosen

    def _worth(self, gain: Array) -> Array:
        """Return the largest gain [N] of staying in each node of the quotient; −∞ for nodes without a component."""
        found, inside = np.full(self.quotient.S, -np.inf), self.components[0] >= 0
        np.maximum.at(found, self.quotient.node[inside], gain[inside])
        return found

    def _act(self, stay: Labels, chosen: Labels, gain: Array) -> Labels:
        """Return the policy act [S] that takes the rows `chosen` [N] of the quotient.

        If the chosen row of a node is to stay, the policy goes to a component of the node with the largest `gain` [S],
        and acts there like the policy `stay` [S].
        """
        node, inside = self.quotient.node, self.components[0] >= 0
        pair, A = self.quotient.pair[chosen], self.cmdp.A
        act = np.where(inside, stay, np.argmax(self.cmdp.available, axis=1))
        leaves = pair[pair >= 0]
        act[leaves // A] = leaves % A
        goal = inside & (pair[node] < 0) & (gain >= self._worth(gain)[node])  # where runs stay
        goal[leaves // A] = True
        walk_to(self.rows, goal, self.blocks[1], act)
        return act

    def _chain(self, act: Labels) -> Chain:
        """Return the Markov chain of a deterministic policy [S]."""
        M = self.rows.matrix[np.arange(self.cmdp.S) * self.cmdp.A + act]
        h = self.cmdp.h[:, np.arange(self.cmdp.S), act]
        return Chain(self.cmdp, M, h, closed_classes(M), self.gains.references)

    def _stay(self, act: Labels) -> Labels:
        """Return the policy act [S], in which every pair that leaves its component is replaced by a pair inside."""
        inside = self.components[1]
        stays = np.take_along_axis(inside, act[:, None], 1)[:, 0]
        return np.where(stays, act, np.argmax(inside, axis=1))

    # ------------------------------------------------------------------------------------------------ the proof

    def dual(self, lam: Array, reward: float = 1.0, start: Labels | None = None) -> tuple[float, Array, Labels]:
        """Bound the maximum over policies of reward·J_r + Σ_i λ_i (J_gi − b_i); return (bound, proof, act).

        `bound` is the maximum rounded up, or inf if no bound could be proven. `proof` [2, S] holds the vectors g and v
        that prove the bound, and act [S] is a best policy. The search begins with the policy `start` [S].
        """
        self.last = self.last if start is None else self._stay(start)
        weights = np.append(reward, lam)
        h, size = (np.tensordot(weights, x, 1) for x in (self.cmdp.h, np.abs(self.cmdp.h)))
        best = self.inside(h)
        found, chosen = self._prove(h, size, best.v)
        act = self._act(best.act, chosen, best.gain)
        if found is None:
            return np.inf, np.zeros((2, self.cmdp.S)), act
        rho, b = self.cmdp.rho, self.cmdp.b
        spread = rho @ np.abs(found[0]) + lam @ np.abs(b)
        return float(rho @ found[0] - lam @ b + rounding(self.cmdp.S + self.cmdp.I + 8) * spread), found, act

    def _prove(self, h: Array, size: Array, v: Array) -> tuple[Array | None, Labels]:
        """Return (proof, rows). The proof, g and v [2, S], bounds the long-run mean of h [S, A] for every policy.

        It is proven that g ≥ P g for all pairs, and g + v ≥ h + P v for all pairs that may be taken for ever. The proof
        is None if rounding prevents this. Its v is the given bias v [S], increased outside of components. `rows` [N]
        are the choices of a best policy at the nodes of the quotient. `size` [S, A] bounds |h| before rounding.
        """
        leaving = self.cmdp.available & ~self.blocks[1]
        left, lift = self._steps_left, 0.0
        chosen = self.quotient.stopping
        for _ in range(LIFTS):
            moved = v + lift * left
            V, chosen = self._leave(self.upper_gains(h, size, moved))
            g = self._lift_gain(V, leaving)
            if g is None:
                return None, chosen
            over = self._excess(h, size, g, moved)
            if not np.any((over > 0) & (self.cmdp.available if self.cmdp.recurring is None else self.components[1])):
                return np.stack([g, moved]), chosen
            lift = 4 * lift + 2 * float(np.max(over, where=leaving, initial=0.0)) + hair(moved)
        return None, chosen

    @cached_property
    def _steps_left(self) -> Array:
        """An upper bound [S] on the expected number of steps before a run stays in a component for ever."""
        q = self.quotient
        return q.maximise(np.where(q.pair >= 0, 1.0, 0.0), q.stopping)[0][q.node] * (1 + 1e-9)

    def _lift_gain(self, V: Array, leaving: Mask) -> Array | None:
        """Return g [S] with g ≥ P g proven for every pair; None if rounding prevents a proof.

        In each state, g is the value V [N] of the state's node plus a multiple of the number of remaining steps. The
        mask `leaving` [S, A] marks the pairs that leave their node.
        """
        zero, g = np.zeros(leaving.shape), V[self.quotient.node]
        lift = 0.0
        for _ in range(LIFTS):
            lifted = g + lift * self._steps_left
            over = float(np.max(self._excess(zero, zero, np.zeros(len(g)), lifted), where=leaving, initial=0.0))
            if over <= 0:
                return lifted
            lift = 4 * lift + 2 * over + hair(g)
        return None

    def upper_gains(self, h: Array, size: Array, v: Array) -> Array:
        """Return for each state [S] a proven upper bound of h + P v − v over the pairs of its end component.

        For any vector v [S], this is also an upper bound on the long-run mean of h [S, A] over runs that stay in the
        component. The bound is 0 for states in no component. `size` [S, A] bounds |h| before rounding.
        """
        label, inside = self.components
        high = self._excess(h, size, np.zeros(len(v)), v)
        high = high + 3 * rounding(self.cmdp.I + 8) * (size + np.abs(self.rows.drift(v)[0]) + np.abs(high))  # for g too
        top = np.full(int(label.max(initial=-1)) + 1, -np.inf)
        at = np.nonzero(inside)
        np.maximum.at(top, label[at[0]], high[at])
        return np.where(label >= 0, top[label], 0.0)

    def _excess(self, h: Array, size: Array, g: Array, v: Array) -> Array:
        """Return an upper bound [S, A] of h + P v − v − g in real arithmetic; `size` bounds |h| before rounding."""
        drift, error = self.rows.drift(v)
        total = h + drift - g[:, None]
        return total + error + rounding(self.cmdp.I + 8) * (size + np.abs(drift) + np.abs(g)[:, None])


def _number_all(label: Labels) -> Labels:
    """Return `label` [S], in which each state in no component (label −1) gets a label of its own.

    The new labels are numbered after those of the components.
    """
    found, alone = label.copy(), label < 0
    found[alone] = label.max(initial=-1) + 1 + np.arange(alone.sum())
    return found


def largest_gains(cmdp: CMDP, h: Array) -> Array:
    """Return upper bounds [S] on the long-run mean of h [S, A] for runs that stay in the state's end component.

    The bound is 0 for states in no component.
    """
    oracle = AverageOracle(cmdp)
    return oracle.upper_gains(h, np.abs(h), oracle.inside(h).v)
