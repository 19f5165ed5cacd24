"""Convert Gymnasium's transition tables, `env.P[s][a] = [(probability, next state, reward, terminated), …]`,
to arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray as Array

from clearance.core.errors import InputError
from clearance.finite.transition_rows import transitions

# f(s, a, s_next, reward, terminated): a signal of one transition.
Signal = Callable[[int, int, int, float, bool], float]


def gymnasium_table(env: Any, *, dense: bool | None = None) -> tuple[Any, Array, Array]:
    """Return P, r [S, A] and ρ [S] of an environment that has a transition table `env.unwrapped.P`.

    An entry of the table is P[s][a] = [(probability, next state, reward, terminated), …]. The returned P is dense
    [S, A, S], or CSR [S·A, S] if the table is large; `dense` = True or False overrides this choice.

    If every transition into a state ends the episode (a hole, the goal), the state is absorbing with zero reward, and
    its own rows in the table are not used. If episodes can also end in states that runs can leave again, the model has
    one extra absorbing state, the last one, and these endings lead to it. ρ is the environment's start distribution; if
    the environment has none, ρ is uniform over the states that do not end the episode.
    """
    t = _read(env)
    loops, every = np.repeat(t.ends, t.A), np.tile(np.arange(t.A), len(t.ends))
    s, a, s_next = np.append(t.s, loops), np.append(t.a, every), np.append(t.s_next, loops)
    P = transitions(t.S, t.A, s, a, s_next, np.append(t.prob, np.ones(len(loops))), dense=dense)
    return P, _expect(t, t.reward), t.rho


def gymnasium_varies(env: Any, f: Signal) -> Array:
    """Return where [S, A] a signal f, as for `gymnasium_signal`, differs between the possible transitions of a pair."""
    t = _read(env)
    x = _values(t, f)
    low, high = np.full((t.S, t.A), np.inf), np.full((t.S, t.A), -np.inf)
    np.minimum.at(low, (t.s, t.a), x)
    np.maximum.at(high, (t.s, t.a), x)
    return low < high


def gymnasium_signal(env: Any, f: Signal) -> Array:
    """Return the expected value [S, A] of a signal f(s, a, s', reward, terminated) over the next state s'.

    The states are those of `gymnasium_table`; in states that end the episode the result is 0. Use this function for
    costs that depend on the whole transition, such as falling, entering or bumping.
    """
    t = _read(env)
    return _expect(t, _values(t, f))


def _values(t: _Table, f: Signal) -> Array:
    listed = zip(t.s.tolist(), t.a.tolist(), t.s_table.tolist(), t.reward.tolist(), t.over.tolist(), strict=True)
    return np.array([f(*transition) for transition in listed], float)


class _Table(NamedTuple):
    """The transitions out of states that do not end the episode, as columns of equal length.

    s, a        state and action
    prob        probability
    s_table     the next state in Gymnasium's table
    s_next      the next state in the model, where endings may lead to one extra state
    over        whether the transition ends the episode
    ends, rho   which states [S] end the episode, and the start distribution [S]; the extra state is included
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
    elsewhere = over & ~is_end[s_table]  # the episode ends in a state that is no end: use the extra state
    ends = np.append(np.flatnonzero(is_end), np.full(int(elsewhere.any()), S))
    rho = np.append(rho, np.zeros(int(elsewhere.any())))
    return _Table(len(rho), A, s, a, prob, s_table, np.where(elsewhere, S, s_table), reward, over, ends, rho)


def _start_and_ends(S: int, s: Array, s_next: Array, over: Array, rho: Any) -> tuple[Array, Array]:
    """Return the start distribution ρ [S], and which states [S] end the episode.

    s, s_next and over describe the transitions: each leads from s to s_next, and `over` says whether the episode ends
    then. A state ends the episode if all transitions from other states into it do and, if `rho` is given, no episode
    starts in it. If `rho` is None, ρ is uniform over the states that do not end the episode.
    """
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
