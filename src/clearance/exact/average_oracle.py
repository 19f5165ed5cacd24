"""The best long-run means, with proofs, for models with any number of recurrent classes.

In a maximal end component every state can reach every other, so the largest gain is the same at all its states. Policy
iteration finds this gain in all components at once. In each component it keeps the best closed class of the present
policy, leads the other states to this class, and improves actions where g + v < h + P v (g is the gain, v the bias).
Then each component is collapsed to one node (`quotient`), in which staying is worth its gain.

    upper bound     g ≥ P g and g + v ≥ h + P v for every pair:           mean ≤ ρ·g for every policy
    of one policy   g ≤ P_π g and g + v ≤ h_π + P_π v:  ρ·g ≤ mean;       with ≥ in place of ≤:  mean ≤ ρ·g

Both bounds hold in real arithmetic. Where a run stays, g is constant, so P g = g exactly. Elsewhere a multiple of the
number of remaining steps is added to g and v, as in `total_oracle`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.errors import SolverError
from clearance.exact.pair_rows import PairRows, rounding
from clearance.exact.policy_drift import LIFTS, average_drift, between, hair
from clearance.exact.quotient import Quotient, walk_to
from clearance.finite.cmdp import CMDP
from clearance.finite.long_run import Chain
from clearance.finite.support_graph import Labels, Mask, closed_classes, end_components, reachable

BETTER = 1e-12  # relative to the values, what an action must gain to be taken instead


@dataclass(eq=False)
class AverageOracle:
    """An oracle that finds a deterministic policy act [S] with the largest long-run mean, and proves upper bounds.

    `last` is the policy of the last call, from which the next call starts.
    """

    cmdp: CMDP
    last: Labels | None = None

    @cached_property
    def rows(self) -> PairRows:
        return PairRows.of(self.cmdp)

    @cached_property
    def components(self) -> tuple[Labels, Mask]:
        """The maximal end components: (label of each state's component [S], mask [S, A] of pairs inside a component).

        The label is −1 for a state in no component. A pair is inside if it cannot leave the component of its state.
        """
        return end_components(self.cmdp)

    @cached_property
    def quotient(self) -> Quotient:
        label, inside = self.components
        node, alone = label.copy(), label < 0
        node[alone] = label.max(initial=-1) + 1 + np.arange(alone.sum())
        stops = np.arange(label.max(initial=-1) + 1)
        return Quotient.of(self.rows, node, self.cmdp.available & ~inside, stops)

    # ------------------------------------------------------------------------------------------------ inside components

    def inside(self, h: Array) -> tuple[Labels, Array, Array]:
        """Return (act, gain, bias), each [S], of a policy that has the largest gain in every end component.

        The gain is the long-run mean of h [S, A]. Outside of components, gain and bias are 0 and have no meaning.
        """
        label, pairs = self.components
        act = np.argmax(pairs, axis=1) if self.last is None else self.last.copy()
        seen: set[bytes] = set()
        while True:
            act, gain, v = self._one_class_each(act, h)
            Q = np.where(pairs, h - gain[:, None] + self.rows.expect(v) - v[:, None], -np.inf)
            top = Q.argmax(1)
            size = np.abs(h).max(1) + np.abs(v) + 1e-3 * np.abs(v).max(initial=0.0)
            better = (label >= 0) & (np.take_along_axis(Q, top[:, None], 1)[:, 0] > BETTER * size)
            next_act = np.where(better, top, act)
            if not better.any() or next_act.tobytes() in seen:  # what comes round again differs by rounding only
                break
            seen.add(next_act.tobytes())
            act = next_act
        self.last = act
        return act, gain, v

    def _one_class_each(self, act: Labels, h: Array) -> tuple[Labels, Array, Array]:
        """Give the policy act [S] a single closed class in each end component; return (act, gain, bias), each [S].

        Of the closed classes in a component, the one with the largest gain of h [S, A] stays. In all other states of
        the component, the actions are changed so that runs reach this class.
        """
        label, pairs = self.components
        chain, gain, v = self._evaluate(act, h)
        n = int(label.max(initial=-1)) + 1
        if chain.classes > n + int((label < 0).sum()):
            closed = (chain.label >= 0) & (label >= 0)
            top = np.full(n, -np.inf)
            np.maximum.at(top, label[closed], gain[closed])
            winner = np.full(n, -1)
            good = np.flatnonzero(closed & (gain >= top[label]))[::-1]
            winner[label[good]] = chain.label[good]
            goal = closed & (chain.label == winner[label])
            walk_to(self.rows, goal, pairs, act)
            chain, gain, v = self._evaluate(act, h)
        return act, np.where(label >= 0, gain, 0.0), np.where(label >= 0, v, 0.0)

    def _evaluate(self, act: Labels, h: Array) -> tuple[Chain, Array, Array]:
        """Return the Markov chain, the gain [S] and the bias [S] of the policy act [S] for the signal h [S, A].

        States outside of end components stay in place with signal 0.
        """
        chosen = np.arange(self.cmdp.S) * self.cmdp.A + act
        chain = chain_of(self.cmdp, self.rows, np.where(self.components[0] >= 0, chosen, -1), h)
        gain, v = chain.gains()
        return chain, gain[0], v[0]

    # ------------------------------------------------------------------------------------------------ the best policy

    def best(self, weights: Array) -> tuple[Labels, float, Array]:
        """Return (act, maximum, J): a deterministic policy act [S] that maximises weights·J, and its J [1+I]."""
        stay, gain, _ = self.inside(np.tensordot(weights, self.cmdp.h, 1))
        V, chosen = self._leave(gain)
        act = self._act(stay, chosen)
        chain = Chain.of(self.cmdp, np.eye(self.cmdp.A)[act])
        J = np.einsum("s,hs->h", chain.frequencies(), chain.h)
        return act, float(np.bincount(self.quotient.node, self.cmdp.rho, self.quotient.S) @ V), J

    def _leave(self, gain: Array) -> tuple[Array, Labels]:
        """Return (V, rows), each [N]: the largest gain that each node of the quotient can reach, and its best row.

        The quotient collapses every end component to one node. A row is a choice at a node: to stay in it, or a pair
        that leaves it. `gain` [S] is the gain of staying in the component of each state.
        """
        q = self.quotient
        worth = np.zeros(q.S)
        inside = self.components[0] >= 0
        worth[q.node[inside]] = gain[inside]
        h = np.where(q.pair < 0, worth[q.source], 0.0)
        V, chosen = q.maximise(h, q.stopping)
        stays = np.unique(q.source[q.pair < 0])
        V[stays] = np.maximum(V[stays], worth[stays])  # policy iteration leaves what rounding could explain
        return V, chosen

    def _act(self, stay: Labels, chosen: Labels) -> Labels:
        label, inside = self.components
        pair, A = self.quotient.pair[chosen], self.cmdp.A
        act = np.where(label >= 0, stay, np.argmax(self.cmdp.available, axis=1))
        leaves = pair[pair >= 0]
        act[leaves // A] = leaves % A
        goal = np.isin(self.quotient.node, np.flatnonzero(pair < 0))  # those who stay need not walk
        goal[leaves // A] = True
        walk_to(self.rows, goal, inside, act)
        return act

    # ------------------------------------------------------------------------------------------------ the proof

    def dual(self, lam: Array, reward: float = 1.0) -> tuple[float, Array, Labels]:
        """Return (bound, proof, act): the maximum over policies of reward·J_r + Σ_i λ_i (J_gi − b_i), rounded up.

        The proof is two vectors g and v [2, S] (see the module's head); act [S] is a best policy. Without a proof the
        bound is inf.
        """
        weights = np.append(reward, lam)
        h, size = (np.tensordot(weights, x, 1) for x in (self.cmdp.h, np.abs(self.cmdp.h)))
        stay, _, v = self.inside(h)
        found, chosen = self._prove(h, size, v)
        act = self._act(stay, chosen)
        if found is None:
            return np.inf, np.zeros((2, self.cmdp.S)), act
        rho, b = self.cmdp.rho, self.cmdp.b
        spread = rho @ np.abs(found[0]) + lam @ np.abs(b)
        return float(rho @ found[0] - lam @ b + rounding(self.cmdp.S + self.cmdp.I + 8) * spread), found, act

    def _prove(self, h: Array, size: Array, v: Array) -> tuple[Array | None, Labels]:
        """Return (proof, rows): vectors g and v [2, S] that bound the long-run mean of h [S, A] for every policy.

        It is proven that g ≥ P g and g + v ≥ h + P v for every pair; the proof is None if rounding prevents this. The
        vector v of the proof is the argument v [S], an approximate bias, plus a multiple of the remaining steps. `rows`
        [N] are the choices of a best policy at the nodes of the quotient. `size` [S, A] bounds |h| before rounding.
        """
        leaving = self.cmdp.available & ~self.components[1]
        left, lift = self._steps_left, 0.0
        chosen = self.quotient.stopping
        for _ in range(LIFTS):
            moved = v + lift * left
            V, chosen = self._leave(self.upper_gains(h, size, moved))
            g = self._lift_gain(V, leaving)
            if g is None:
                return None, chosen
            over = self._excess(h, size, g, moved)
            if not np.any((over > 0) & self.cmdp.available):
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

        g is V [N] at each state's node of the quotient, plus a multiple of the remaining steps. `leaving` [S, A] marks
        the pairs that leave an end component.
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
        """Return an upper bound [S, A] of h + P v − v − g in real arithmetic, for h [S, A] and vectors g and v [S].

        `size` [S, A] bounds |h| before rounding.
        """
        drift, error = self.rows.drift(v)
        total = h + drift - g[:, None]
        return total + error + rounding(self.cmdp.I + 8) * (size + np.abs(drift) + np.abs(g)[:, None])


def largest_gains(cmdp: CMDP, h: Array) -> Array:
    """Return upper bounds [S] on the long-run mean of h [S, A] for runs that stay in the state's end component.

    The bound is 0 for states in no component.
    """
    oracle = AverageOracle(cmdp)
    _, _, v = oracle.inside(h)
    return oracle.upper_gains(h, np.abs(h), v)


def chain_of(cmdp: CMDP, rows: PairRows, chosen: Labels, h: Array) -> Chain:
    """Return the Markov chain in which state s takes the pair chosen[s] = s·A + a, with the signal h [S, A].

    A state with chosen[s] = −1 stays in place with signal 0. `rows` are the transitions of the model.
    """
    S, stays = cmdp.S, chosen < 0
    at = np.full(S * cmdp.A, -1)
    at[chosen[~stays]] = np.flatnonzero(~stays)
    used = at[rows.pair] >= 0
    still = np.flatnonzero(stays)
    row = np.concatenate([at[rows.pair[used]], still])
    column = np.concatenate([rows.target[used], still])
    weight = np.concatenate([rows.p[used] / rows.total[rows.pair[used]], np.ones(len(still))])
    P = sparse.csr_array((weight, (row, column)), shape=(S, S))
    signal = np.where(stays, 0.0, h.ravel()[chosen])
    return Chain(cmdp, P, signal[None], closed_classes(P))


# ---------------------------------------------------------------------------------------------------- one policy


def approximate(cmdp: CMDP, pi: Array) -> Array:
    """Return vectors [M, 1+I, 4, S] that bound the long-run means of M policies pi [M, S, A].

    They are g and v of a lower bound, then g and v of an upper bound; each bound is ρ·g (see the module's head).
    """
    rows = PairRows.of(cmdp)
    return np.stack([_vectors(cmdp, rows, p) for p in pi])


def _vectors(cmdp: CMDP, rows: PairRows, pi: Array) -> Array:
    chain, seen = Chain.of(cmdp, pi), reachable(cmdp, pi > 0)
    found = np.empty((1 + cmdp.I, 4, cmdp.S))
    try:
        gain, bias = chain.gains()
        steps = np.maximum(chain.steps(), 0.0) * (1 + 1e-9) if np.any(chain.label < 0) else np.zeros(cmdp.S)
    except SolverError:  # nothing can be said in floating point
        found[:, :2], found[:, 2:] = -np.inf, np.inf
        return found
    for k in range(1 + cmdp.I):
        found[k, :2] = _prove_below(rows, pi, chain, seen, steps, cmdp.h[k], gain[k], bias[k])
        found[k, 2:] = -_prove_below(rows, pi, chain, seen, steps, -cmdp.h[k], -gain[k], -bias[k])
    return found


def _prove_below(
    rows: PairRows, pi: Array, chain: Chain, seen: Mask, steps: Array, h: Array, gain: Array, v: Array
) -> Array:
    """Return g and v [2, S] that prove the lower bound ρ·g on the long-run mean of h [S, A] under π.

    It is proven that g ≤ P_π g and g + v ≤ h_π + P_π v in all reachable states (`seen`). All entries are −∞ if rounding
    prevents this. `gain`, v and `steps` [S] are the approximate gain, bias and remaining steps of π. `rows` are the
    transitions of the model, and `chain` is the Markov chain of π.
    """
    closed, zero = chain.label >= 0, np.zeros(pi.shape)
    low = average_drift(rows, pi, v, h, 1)[0]
    least = np.full(chain.classes, np.inf)
    np.minimum.at(least, chain.label[closed], low[closed])
    inside, under, beside = 0.0, 0.0, 0.0  # what the gain of a class, g and v on the way there must give up
    for _ in range(LIFTS):
        g = np.where(closed, (least - inside)[chain.label], 0.0)
        if not closed.all():
            g = np.where(closed, g, chain.until_absorption(np.where(closed, 0.0, chain.P @ g)) - under * steps)
        moved = v - beside * steps
        short_g = -average_drift(rows, pi, g, zero, 1)[0]
        short_v = -average_drift(rows, pi, moved, h - g[:, None], 2)[0]
        if not np.any((short_g > 0) | (short_v > 0), where=seen):
            return np.stack([g, moved])
        inside += 4 * inside + 2 * _most(short_v, seen & closed) + hair(g)
        under += 4 * under + 2 * _most(short_g, seen & ~closed) + hair(g)
        beside += 4 * beside + 2 * _most(short_v, seen & ~closed) + hair(v)
    return np.full((2, len(v)), -np.inf)


def _most(x: Array, where: Mask) -> float:
    return float(np.max(x, where=where, initial=0.0))


def enclose(cmdp: CMDP, pi: Array, V: Array) -> tuple[Array, Array, Array]:
    """Return the long-run means of M policies with proven lower and upper bounds, each [M, 1+I].

    V is the result of `approximate` for the policies pi [M, S, A].
    """
    start = cmdp.rho > 0
    low, high = (np.where(start, V[:, :, side], 0.0) @ cmdp.rho for side in (0, 2))
    return between(low, high, rounding(cmdp.S + 8) * (np.where(start, np.abs(V[:, :, [0, 2]]).max(2), 0.0) @ cmdp.rho))
