"""Models from Gymnasium's own transition tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from clearance.core.errors import InputError, MissingExtraError
from clearance.finite.cmdp import CMDP
from clearance.zoo.transition_rows import transitions

# f(s, a, s_next, reward, terminated): a signal of one transition.
Signal = Callable[[int, int, int, float, bool], float]


def frozen_lake(size: int = 4, *, budget: float = 0.1, gamma: float = 0.99) -> CMDP:
    """FrozenLake (4×4 or 8×8, slippery) with a budget on falling into holes: E Σγ^t 1{enter a hole at t} ≤ budget.

    Reward 1 for entering the goal; holes and goal are absorbing with zero signals; the start is state 0.
    """
    if size not in (4, 8):
        raise InputError(f"size must be 4 or 8, got {size!r}")
    env = _make("FrozenLake", map_name=f"{size}x{size}", is_slippery=True)
    holes = env.desc.ravel() == b"H"
    P, r, rho = gymnasium_table(env)
    cost = gymnasium_signal(env, lambda s, a, s_next, reward, over: float(holes[s_next]))
    return CMDP(P, r, rho=rho, gamma=gamma, cost=cost, limit=budget, names=["holes"])


def cliff(*, falls: float = 0.1, slip: float = 0.05, gamma: float = 0.99) -> CMDP:
    """CliffWalking on slippery ground, with a budget on stepping off the cliff: E Σγ^t 1{fall at t} ≤ falls.

    4 × 12 cells, actions 0..3: up, right, down, left. With probability `slip` the step goes to one side of the
    direction chosen, left or right alike. Who falls is back at the start; the goal ends the episode.

        r = −1 per step,   cost = P(fall | s, a)

    Gymnasium's reward of −100 for a fall is the cost here: a limit says what a penalty can only hint at.

    Known: without a limit the way leads along the edge, the book's "optimal path"; the limit moves it up, to the "safe
    path". At slip 0 nobody falls, and at 2/3, which Gymnasium calls slippery, the safe way is no longer than the
    other: at both the limit is free.

    Source: Sutton and Barto 2018, example 6.6; Gymnasium's CliffWalking. The budget, slip .05 and γ = 0.99 are this
    library's.
    """
    env = _make("CliffWalking")
    P, r, rho = gymnasium_table(env, dense=True)
    fall = gymnasium_signal(env, lambda s, a, s_next, reward, over: float(reward < -1))
    turn = np.array([-1, 0, 1])[:, None] + np.arange(4)  # left of, along and right of each direction
    weight = np.array([slip / 2, 1 - slip, slip / 2])
    P = np.einsum("w,swat->sat", weight, P[:, turn % 4])
    r, cost = (np.einsum("w,swa->sa", weight, x[:, turn % 4]) for x in (np.maximum(r, -1.0), fall))
    return CMDP(P, r, rho=rho, gamma=gamma, cost=cost, limit=falls, names=["falls"])


def taxi(*, crossings: float = 0.3, gamma: float = 0.99) -> CMDP:
    """Taxi with a quiet street: the cell in row 2, column 3 may be entered only so often, on average over all trips.

    Rewards as Gymnasium has them: −1 per step, +20 for the passenger delivered, −10 for a pick-up or drop-off out of
    place. cost = 1 for driving into the cell, limit = `crossings` per (discounted) trip. The cell lies on the short way
    to the stand B; the way round takes four steps more. S = 501 and P is sparse: trips end in one extra state, since
    the table can also pass through the states in which its trips end (by a way that no trip takes).

    Source: Dietterich 2000; Gymnasium's Taxi. The quiet street and γ = 0.99 are this library's.
    """
    env = _make("Taxi")
    P, r, rho = gymnasium_table(env)
    cell = [tuple(int(x) for x in env.decode(s))[:2] for s in range(len(env.P))]

    def enters(s: int, a: int, s_next: int, reward: float, over: bool) -> float:
        return float(cell[s_next] == (2, 3) != cell[s])

    cost = gymnasium_signal(env, enters)
    return CMDP(P, r, rho=rho, gamma=gamma, cost=cost, limit=crossings, names=["quiet street"])


def gymnasium_table(env: Any, *, dense: bool | None = None) -> tuple[Any, Array, Array]:
    """P, r [S, A] and ρ [S] of an environment with a table `P[s][a] = [(prob, next, reward, terminated), …]`.

    P is dense [S, A, S], or CSR [S·A, S] for large tables (`dense` True or False to choose).

    A state whose every way in ends the episode (a hole, the goal) is absorbing with zero reward; its own rows in the
    table are never used. Where an episode can end in a state that can also be entered and left again, one extra
    absorbing state, the last one, takes the endings. ρ is the environment's own; without one, uniform over the states
    that are not ends.
    """
    t = _read(env)
    loops, every = np.repeat(t.ends, t.A), np.tile(np.arange(t.A), len(t.ends))
    s, a, s_next = np.append(t.s, loops), np.append(t.a, every), np.append(t.s_next, loops)
    P = transitions(t.S, t.A, s, a, s_next, np.append(t.prob, np.ones(len(loops))), dense=dense)
    return P, _expect(t, t.reward), t.rho


def gymnasium_signal(env: Any, f: Signal) -> Array:
    """E f(s, a, s', reward, terminated) [S, A] over the table's transitions, on the states of `gymnasium_table`.

    For costs that the environment knows only by its transitions: falling, entering, bumping. Zero where it is over.
    """
    t = _read(env)
    listed = zip(t.s.tolist(), t.a.tolist(), t.s_table.tolist(), t.reward.tolist(), t.over.tolist(), strict=True)
    return _expect(t, np.array([f(*transition) for transition in listed], float))


class _Table(NamedTuple):
    """The transitions out of states that are no ends, as columns. S, ends and rho count the extra state, if any.

    s_table is the next state by the table, s_next the one of the model.
    """

    S: int
    A: int
    s: Array
    a: Array
    prob: Array
    s_table: Array
    s_next: Array
    reward: Array
    over: Array
    ends: Array
    rho: Array


def _read(env: Any) -> _Table:
    env = getattr(env, "unwrapped", env)
    table = getattr(env, "P", None)
    if not isinstance(table, dict):
        raise InputError("the environment has no transition table: `env.unwrapped.P` is what FrozenLake, Taxi, … have")
    S, A = len(table), len(table[0])
    listed = [(s, a, *outcome) for s in range(S) for a in range(A) for outcome in table[s][a] if outcome[0] > 0]
    columns = (np.array(column) for column in zip(*listed, strict=True))
    s, a, prob, s_table, reward, over = (
        x.astype(kind) for x, kind in zip(columns, (int, int, float, int, float, bool), strict=True)
    )
    rho, is_end = _start_and_ends(S, s, s_table, over, getattr(env, "initial_state_distrib", None))
    keep = ~is_end[s]
    s, a, prob, s_table, reward, over = (x[keep] for x in (s, a, prob, s_table, reward, over))
    elsewhere = over & ~is_end[s_table]  # ends in a state that is not an end: in the extra one
    ends = np.append(np.flatnonzero(is_end), np.full(int(elsewhere.any()), S))
    rho = np.append(rho, np.zeros(int(elsewhere.any())))
    return _Table(len(rho), A, s, a, prob, s_table, np.where(elsewhere, S, s_table), reward, over, ends, rho)


def _start_and_ends(S: int, s: Array, s_next: Array, over: Array, rho: Any) -> tuple[Array, Array]:
    """ρ [S], and which states [S] are entered by endings only; a loop is no way in."""
    is_end = np.zeros(S, bool)
    is_end[s_next[over]] = True
    is_end[s_next[~over & (s != s_next)]] = False
    if rho is None:
        return ~is_end / (~is_end).sum(), is_end
    rho = np.asarray(rho, float)
    return rho, is_end & (rho == 0)


def _expect(t: _Table, x: Array) -> Array:
    out = np.zeros((t.S, t.A))
    np.add.at(out, (t.s, t.a), t.prob * x)
    return out


def _make(name: str, **kwargs: Any) -> Any:
    """The newest version of an environment, since versions come and go with Gymnasium's own."""
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError("gymnasium", "sim") from None
    versions = [spec.version or 0 for spec in gymnasium.registry.values() if spec.name == name]
    return gymnasium.make(f"{name}-v{max(versions)}", **kwargs).unwrapped
