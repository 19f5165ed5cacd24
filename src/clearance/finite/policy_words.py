"""Describe a policy of a finite model in words:
its threshold, the states in which it randomises, or its commonest action.

States that the policy never visits are ignored, since its actions there have no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.text import visible
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy
from clearance.finite.mixture import Mixture
from clearance.finite.support_graph import reachable

# A state is called randomised if another than the most likely action has more probability than this.
HAIR = 1e-6
SPELT = 1e-3  # actions below this probability are not listed by name
NEVER = 1e-12  # the share of visits below which a state counts as never visited
MOST_RUNS, MOST_RANDOM, MOST_COMPONENTS = 8, 5, 3  # that are spelt out

Names = Sequence[str] | None
Flags = NDArray[np.bool_]


def describe_policy(cmdp: CMDP, mixture: Mixture, states: Names = None, actions: Names = None) -> list[str]:
    """Return sentences that describe the policy, a few per component;
    states and actions are named if names are given.
    """
    found = []
    for m in range(min(mixture.M, MOST_COMPONENTS)):
        visited = _visited(cmdp, mixture.pi[m])
        timed = mixture.pi.ndim == 4
        table, visited = mixture.pi[m][0] if timed else mixture.pi[m], visited[0] if visited.ndim > 1 else visited
        lines = describe_table(table, visited, states, actions)
        if timed:
            lines = [f"It depends on the step, 0 to {mixture.pi.shape[1] - 1}. In step 0: {lines[0]}", *lines[1:]]
        head = f"Component {m + 1} of {mixture.M} (weight {mixture.weights[m]:.4g}): " if mixture.M > 1 else ""
        found += [f"{head}{lines[0]}", *lines[1:]]
    more = mixture.M - MOST_COMPONENTS
    return [*found, f"And {more:,} more components."] if more > 0 else found


def _visited(cmdp: CMDP, pi: Array) -> Flags:
    if cmdp.kind == "total":  # visits are not counted where runs end
        return reachable(cmdp, pi > 0)
    return occupancy(cmdp, pi).sum(-1) > NEVER


def describe_table(pi: Array, visited: Flags, states: Names = None, actions: Names = None) -> list[str]:
    """Return sentences that describe one policy π [S, A] in the states that it visits (`visited` [S]).

    >>> describe_table(np.eye(2)[[0, 0, 1, 1]], np.ones(4, bool))
    ['Threshold policy: action 0 in states 0 to 1, action 1 in states 2 to 3.', 'It never randomises.']
    """
    state, action = _namer("state", states), _namer("action", actions)
    random = visited & (pi.max(-1) < 1 - HAIR)
    found = [_certain(pi.argmax(-1), visited, random, state, action), _random(pi, random, state, action)]
    never = int(np.sum(~visited))
    found.append(f"{never:,} of {len(pi):,} states are never visited." if never else "")
    return [line for line in found if line]


def list_policy(mixture: Mixture, states: Names = None, actions: Names = None) -> list[dict[str, Any]]:
    """Return a row for every action with positive probability:
    component, time (with a horizon), state, action, probability.
    """
    found = []
    for at in np.argwhere(mixture.pi > 0).tolist():
        m, *time, s, a = at
        row = {"component": m} | ({"time": time[0]} if time else {})
        row |= {"state": states[s] if states else s, "action": actions[a] if actions else a}
        found.append(row | {"probability": float(mixture.pi[tuple(at)])})
    return found


def _namer(what: str, names: Names) -> Any:
    """Return a function from an index to its name; without names it returns `what` and the index, as in "state 3"."""
    return (lambda i: f"{what} {i}") if names is None else [visible(name) for name in names].__getitem__


def _certain(act: NDArray[np.int64], visited: Flags, random: Flags, state: Any, action: Any) -> str:
    """Return a sentence about the visited states in which the policy takes the action act[s] for certain: one action
    everywhere, a few ranges of states, or counts of each action. It is empty if there are no such states.

    `state` and `action` are functions from an index to a name.
    """
    sure = np.flatnonzero(visited & ~random)
    if not len(sure):
        return ""
    runs = [(a, list(part)) for a, part in groupby(sure.tolist(), key=lambda s: int(act[s]))]
    if len(runs) == 1:
        also = ", except where it randomises" if random.any() else ""
        return f"{_upper(action(runs[0][0]))} in every state that it visits{also}."
    if len(runs) <= MOST_RUNS and len(runs) < len(sure):
        parts = ", ".join(f"{action(a)} in {_span(part, state)}" for a, part in runs)
        climbs = len({a for a, _ in runs}) == len(runs)  # no action comes back
        return f"Threshold policy: {parts}." if climbs else _upper(f"{parts}.")
    return _mostly(act[sure], action)


def _mostly(taken: NDArray[np.int64], action: Any) -> str:
    count = np.bincount(taken)
    order = [int(a) for a in np.argsort(-count, kind="stable") if count[a]]
    first = f"Same action ({action(order[0])}) in {count[order[0]]:,} of {len(taken):,} states"
    others = [f"{action(a)} in {count[a]:,}" for a in order[1 : 1 + MOST_RANDOM]]
    more = [f"{len(order) - 1 - MOST_RANDOM:,} other actions in the rest"] if len(order) > 1 + MOST_RANDOM else []
    return f"{'; '.join([first, *others, *more])}."


def _random(pi: Array, random: Flags, state: Any, action: Any) -> str:
    at = np.flatnonzero(random)
    if not len(at):
        return "It never randomises."
    parts = []
    for s in at[:MOST_RANDOM].tolist():
        likely = [a for a in np.argsort(-pi[s], kind="stable")[:4].tolist() if pi[s, a] > SPELT]
        said = ", ".join(f"{action(a)} with {pi[s, a]:.4g}" for a in likely)
        rest = 1 - pi[s, likely].sum()
        parts.append(f"{state(s)} ({said}{f', others with {rest:.2g}' if rest > HAIR else ''})")
    more = [f"and {len(at) - MOST_RANDOM:,} more"] if len(at) > MOST_RANDOM else []
    return f"It randomises in {len(at):,} of {len(pi):,} states: {'; '.join([*parts, *more])}."


def _span(part: list[int], state: Any) -> str:
    if len(part) == 1:
        return state(part[0])
    first, last = state(part[0]), state(part[-1])
    return f"states {first.removeprefix('state ')} to {last.removeprefix('state ')}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
