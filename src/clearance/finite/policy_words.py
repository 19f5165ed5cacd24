"""Describe a policy of a finite model in words: its threshold, where it randomises, or its commonest action.

States that the policy never visits are ignored, since its actions there have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.text import visible
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy
from clearance.finite.mixture import Mixture
from clearance.finite.support_graph import reachable

# A state counts as randomised if the actions other than the most likely one have more probability than this in total.
HAIR = 1e-6
SPELT = 1e-3  # actions below this probability are not listed by name
NEVER = 1e-12  # the share of visits below which a state counts as never visited
MOST_RUNS, MOST_RANDOM, MOST_COMPONENTS, MOST_STRETCHES, MOST_NAMES = 8, 5, 3, 4, 5  # how many are listed one by one
SURE, UNSEEN = "It never randomises.", "Never visited: "

Names = Sequence[str] | None
Flags = NDArray[np.bool_]


def describe_policy(cmdp: CMDP, mixture: Mixture, states: Names = None, actions: Names = None) -> list[str]:
    """Return sentences that describe the policy, a few for each component of the mixture.

    States and actions are called by their names if these are given, otherwise by their indices.
    """
    found = []
    for m in range(min(mixture.M, MOST_COMPONENTS)):
        visited = _visited(cmdp, mixture.tables(cmdp)[m])
        if mixture.pi.ndim == 4:
            lines = describe_steps(mixture.pi[m], visited, states, actions)
        else:
            seen = visited.reshape(-1, cmdp.S).any(0)
            lines = describe_table(mixture.pi[m], np.asarray(seen), states, actions)
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
    return [line for line in (*found, _unseen(visited, state)) if line]


def describe_steps(pi: Array, visited: Flags, states: Names = None, actions: Names = None) -> list[str]:
    """Return sentences that describe a time-dependent policy π [H, S, A].

    There is one sentence for each run of successive steps in which the policy acts alike in every visited state.

    visited  a mask [H, S]: which states the policy visits in which step

    >>> describe_steps(np.eye(2)[[[0], [0], [1]]], np.ones((3, 1), bool))
    ['Steps 0 to 1: action 0 in every state that it visits.', 'Step 2: action 1 in every state that it visits.']
    """
    stretches = list(_stretches(pi, visited))
    if len(stretches) == 1:
        return describe_table(stretches[0].table, stretches[0].visited, states, actions)
    found = []
    for part in stretches[:MOST_STRETCHES]:
        steps = f"Step {part.first}" if part.first == part.last else f"Steps {part.first} to {part.last}"
        lines = [
            x for x in describe_table(part.table, part.visited, states, actions) if not x.startswith((SURE, UNSEEN))
        ]
        found.append(f"{steps}: {lines[0][:1].lower()}{' '.join(lines)[1:]}")
    more = len(stretches) - MOST_STRETCHES
    found += [f"After that it changes {more:,} more time{'s' * (more > 1)}."] if more > 0 else []
    never = _unseen(np.asarray(visited.any(0)), _namer("state", states))
    return [*found, *([never] if never else [])]


class _Stretch(NamedTuple):
    """A run of successive steps, `first` to `last`, in which the policy takes each action with the same probability.

    table    the action probabilities [S, A] in these steps
    visited  a mask [S] of the states that the policy visits in at least one of these steps
    """

    first: int
    last: int
    table: Array
    visited: Flags


def _stretches(pi: Array, visited: Flags) -> Iterator[_Stretch]:
    """Yield the longest runs of successive steps in which a policy π [H, S, A] acts alike in the states that it visits.

    A step t joins the current run if, in each state that is visited both in t and during the run, its action
    probabilities equal those of the run. `visited` is a mask [H, S].
    """
    now = _Stretch(0, 0, pi[0], visited[0])
    for t in range(1, len(pi)):
        both = now.visited & visited[t]
        if np.all(np.abs(now.table[both] - pi[t][both]) <= HAIR):
            new = visited[t] & ~now.visited
            now = _Stretch(now.first, t, np.where(new[:, None], pi[t], now.table), now.visited | new)
        else:
            yield now
            now = _Stretch(t, t, pi[t], visited[t])
    yield now


def list_policy(mixture: Mixture, states: Names = None, actions: Names = None) -> list[dict[str, Any]]:
    """Return one dict for each action that some component takes with positive probability in some state.

    Its keys are component, time (with a horizon only), state, action and probability.
    """
    found = []
    for at in np.argwhere(mixture.pi > 0).tolist():
        m, *time, s, a = at
        row = {"component": m} | ({"time": time[0]} if time else {})
        row |= {"state": states[s] if states else s, "action": actions[a] if actions else a}
        found.append(row | {"probability": float(mixture.pi[tuple(at)])})
    return found


def _namer(what: str, names: Names) -> Any:
    """Return a function from an index to a name; without `names`, the name is `what` and the index, as in "state 3"."""
    return (lambda i: f"{what} {i}") if names is None else [visible(name) for name in names].__getitem__


def _certain(act: NDArray[np.int64], visited: Flags, random: Flags, state: Any, action: Any) -> str:
    """Return a sentence about the states in which the policy does not randomise; act[s] is its action in state s.

    The sentence names one action for all of them, a few ranges of states, or counts of each action. It is empty if
    there are no such states. Only states in the mask `visited` are described, and `random` is a mask of the states in
    which the policy randomises. A range ends before a state in which another action is the most likely one. `state` and
    `action` are functions from an index to a name.
    """
    sure = np.flatnonzero(visited & ~random)
    if not len(sure):
        return ""
    if len(np.unique(act[sure])) == 1:
        also = ", except where it randomises" if random.any() else ""
        return f"{_upper(action(int(act[sure[0]])))} in every state that it visits{also}."
    alike = [(a, list(part)) for a, part in groupby(np.flatnonzero(visited).tolist(), key=lambda s: int(act[s]))]
    runs = [(a, certain) for a, part in alike if (certain := [s for s in part if not random[s]])]
    if len(runs) <= MOST_RUNS and (len(runs) < len(sure) or len(sure) <= MOST_NAMES):
        parts = ", ".join(f"{action(a)} in {_span(part, state)}" for a, part in runs)
        # No action comes back, not even as the most likely one, and some action is taken in more than one state.
        climbs = len({a for a, _ in alike}) == len(alike) and len(runs) < len(sure)
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
        return SURE
    parts = []
    for s in at[:MOST_RANDOM].tolist():
        likely = [a for a in np.argsort(-pi[s], kind="stable")[:4].tolist() if pi[s, a] > SPELT]
        said = ", ".join(f"{action(a)} with {pi[s, a]:.4g}" for a in likely)
        rest = 1 - pi[s, likely].sum()
        parts.append(f"{state(s)} ({said}{f', others with {rest:.2g}' if rest > HAIR else ''})")
    more = [f"and {len(at) - MOST_RANDOM:,} more"] if len(at) > MOST_RANDOM else []
    return f"It randomises in {len(at):,} of {len(pi):,} states: {'; '.join([*parts, *more])}."


def _unseen(visited: Flags, state: Any) -> str:
    """Return a sentence that names the states that are never visited or, if they are many, says how many they are."""
    at = np.flatnonzero(~visited).tolist()
    if len(at) > MOST_NAMES:
        return f"{UNSEEN}{len(at):,} of {len(visited):,} states."
    return f"{UNSEEN}{', '.join(state(s) for s in at)}." if at else ""


def _span(part: list[int], state: Any) -> str:
    """Return a phrase for the successive states in `part`.

    If their names are numbered, the phrase is a range. Otherwise it lists all names or, if there are more than
    `MOST_NAMES`, only the first and the last one. `state` is a function from an index to a name.
    """
    first, last = state(part[0]), state(part[-1])
    (what, _, start), (same, _, end) = first.rpartition(" "), last.rpartition(" ")
    if len(part) > 1 and what == same != "" and start.isdecimal() and end.isdecimal():  # "queue 1" to "queue 3"
        return f"{'states' if what == 'state' else what} {start} to {end}"
    if len(part) > MOST_NAMES:
        return f"{len(part):,} states, {first} to {last}"
    return " and ".join(x for x in (", ".join(state(s) for s in part[:-1]), last) if x)


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
