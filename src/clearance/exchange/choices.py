"""Models in which each state has a list of choices with labels that need not be unique, as in model checkers.

A CMDP has one list of actions for all states, so labels become actions. If a state has the same label twice, its
actions are `label` and `label#2`. If no choice has a label, choices are numbered within their state. If only some
choices have no label, these choices are called "unlabelled".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.exchange.explicit_model import ExplicitModel, Whole, check_pairs, index_names

UNLABELLED = "unlabelled"


def name_choices(states: Sequence[int], labels: Sequence[str]) -> tuple[list[int], tuple[str, ...] | None]:
    """Return the action of each choice, and the names of the actions (None if they are only numbered).

    states, labels  the state and the label of each choice

    >>> name_choices([0, 0, 1], ["go", "go", "stop"])
    ([0, 1, 2], ('go', 'go#2', 'stop'))
    """
    counts: dict[tuple[int, str], int] = {}
    named = []
    bare = not any(labels)
    for state, label in zip(states, labels, strict=True):
        key = (state, label)
        counts[key] = counts.get(key, 0) + 1
        if bare:
            named.append(str(counts[key] - 1))
        else:
            named.append((label or UNLABELLED) + (f"#{counts[key]}" if counts[key] > 1 else ""))
    index, names = index_names(list(dict.fromkeys(named)))
    return [index[name] for name in named], names


class ChoiceList:
    """A list of choices that is filled state by state; a choice has rewards and branches to next states."""

    def __init__(self) -> None:
        self.begun = False  # whether the present state has a choice
        self._states: list[int] = []
        self._labels: list[str] = []
        self._rewards: list[list[float]] = []
        self._choice: list[int] = []
        self._s_next: list[int] = []
        self._prob: list[float] = []
        self._lines: list[int] = []
        self._state = -1

    def begin_state(self) -> None:
        self._state += 1
        self.begun = False

    def begin_choice(self, label: str, rewards: list[float], line: int) -> None:
        self.begun = True
        self._states.append(self._state)
        self._labels.append(label)
        self._rewards.append(rewards)

    def add_branch(self, s_next: int, prob: float, line: int) -> None:
        self._choice.append(len(self._states) - 1)
        self._s_next.append(s_next)
        self._prob.append(prob)
        self._lines.append(line)

    def finish(
        self, source: str, S: int, names: Sequence[str], state_rewards: Sequence[Sequence[float]],
        initial: Sequence[int], states: tuple[str, ...] | None, tolerance: float,
    ) -> ExplicitModel:  # fmt: skip
        """Return the model of the collected choices; error messages name the file `source`.

        names          the names of the rewards
        state_rewards  rewards [S, names] that are added to those of every choice in the state
        initial        the states to start in
        states         the names of the states, or None
        tolerance      as in `ExplicitModel`
        """
        for s_next, line in zip(self._s_next, self._lines, strict=True):
            if s_next >= S:
                raise InputError(f"{source}, line {line}: next state must be in 0..{S - 1}, got {s_next}")
        action, actions = name_choices(self._states, self._labels)
        A = max(action) + 1
        check_pairs(source, S, A)
        s, a = np.array(self._states, np.int64), np.array(action, np.int64)
        per_choice = np.array(self._rewards, float).reshape(len(s), len(names))
        total = per_choice + np.array(state_rewards, float).reshape(S, len(names))[s]
        rewards = {name: spread(S, A, s, a, total[:, n]) for n, name in enumerate(names)}
        choice, lines = np.array(self._choice, np.int64), self._lines
        return ExplicitModel(
            source, S, A, s[choice], a[choice], np.array(self._s_next, np.int64), np.array(self._prob, float), rewards,
            start_at(S, initial), states, actions, place=lambda n: f"line {lines[n]}", tolerance=tolerance,
        )  # fmt: skip


def spread(S: int, A: int, s: Whole, a: Whole, values: Array) -> Array:
    """Return a table [S, A] with values[n] at state s[n] and action a[n], and 0 elsewhere."""
    table = np.zeros((S, A))
    table[s, a] = values
    return table


def start_at(S: int, initial: Sequence[int]) -> Array | None:
    """Return the start distribution ρ [S], uniform over the initial states; None if there are none."""
    if not len(initial):
        return None
    rho = np.zeros(S)
    rho[list(initial)] = 1 / len(initial)
    return rho
