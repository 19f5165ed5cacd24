"""PRISM's explicit files: transitions (.tra) with labels (.lab), state rewards (.srew) and transition rewards (.trew).

    model.tra                 3 4 6            states, choices, transitions
                              0 0 1 0.3 go     state, choice, next state, probability, action
    model.lab                 0="init" 1="done"
                              0: 0
    model.srew, model.trew    # Reward structure "energy"
                              3 1              states, entries      (.trew: states, choices, entries)
                              1 2.5            state, reward        (.trew: state, choice, next state, reward)

Files with the same stem as the .tra file are read with it. A model with several reward structures has `model.NAME.srew`
and `model.NAME.trew`, or `model1.srew`, `model2.srew` as PRISM numbers them. If the first line of a reward file
contains a name, this name is used instead of the one in the file name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.exchange.choices import name_choices, start_at
from clearance.exchange.explicit_model import ExplicitModel, Whole, check_pairs, expect, varies
from clearance.exchange.text_lines import TextFile

TOLERANCE = 1e-8
STRUCTURE = re.compile(r'#.*reward structure.*"([^"]+)".*', re.IGNORECASE)


def read_prism(path: str | Path) -> ExplicitModel:
    """Read the model in a .tra file and in the .lab, .srew and .trew files with the same stem."""
    tra = _Transitions(Path(path))
    action, actions = name_choices(*tra.labelled_choices())
    number = {key: n for n, key in enumerate(tra.labels)}
    of_choice = np.array([number[key] for key in zip(tra.s, tra.choice, strict=True)], np.int64)
    s, a, A = np.array(tra.s, np.int64), np.array(action, np.int64)[of_choice], max(action) + 1
    check_pairs(str(path), tra.S, A)
    row, prob = s * A + a, np.array(tra.prob, float)
    rewards, averaged = _read_rewards(Path(path), tra, row, prob, A)
    lab = Path(path).with_suffix(".lab")
    rho = start_at(tra.S, _read_initial(lab, tra.S)) if lab.exists() else None
    return ExplicitModel(
        str(path), tra.S, A, s, a, np.array(tra.s_next, np.int64), prob, rewards, rho, None, actions,
        place=lambda n: f"line {tra.lines[n]}", tolerance=TOLERANCE, averaged=averaged,
    )  # fmt: skip


class _Transitions:
    """The columns of a .tra file, one entry per transition."""

    def __init__(self, path: Path) -> None:
        text = TextFile(path)
        self.path = path
        self.s: list[int] = []
        self.choice: list[int] = []
        self.s_next: list[int] = []
        self.prob: list[float] = []
        self.lines: list[int] = []
        self.labels: dict[tuple[int, int], str] = {}  # of each (state, choice)
        lines = (line for line in text if not line.startswith("#"))
        head = next(lines, "").split()
        if len(head) != 3:
            what = "a Markov chain has two: give an MDP" if len(head) == 2 else f"got {len(head)}"
            raise text.error("header", f"must be three numbers, of states, choices and transitions; {what}")
        fields = ("number of states", "number of choices", "number of transitions")
        self.S, choices, count = (text.whole(field, word) for field, word in zip(fields, head, strict=True))
        for line in lines:
            self._read(text, line)
        self._check_counts(text, choices, count)
        self.at = {key: n for n, key in enumerate(zip(self.s, self.choice, self.s_next, strict=True))}

    def _read(self, text: TextFile, line: str) -> None:
        words = line.split(maxsplit=4)
        if len(words) < 4:
            raise text.error("transition", f"must be `STATE CHOICE NEXT PROBABILITY [ACTION]`, got {line[:60]!r}")
        s, choice = text.whole("state", words[0], self.S), text.whole("choice", words[1])
        label = words[4] if len(words) == 5 else ""
        if self.labels.setdefault((s, choice), label) != label:
            raise text.error("action", f"is {label!r}, and {self.labels[s, choice]!r} in a line above, of one choice")
        self.s.append(s)
        self.choice.append(choice)
        self.s_next.append(text.whole("next state", words[2], self.S))
        self.prob.append(text.number("probability", words[3]))
        self.lines.append(text.line)

    def _check_counts(self, text: TextFile, choices: int, count: int) -> None:
        text.line = 1
        for field, told, found in (("choices", choices, len(self.labels)), ("transitions", count, len(self.s))):
            if told != found:
                raise text.error(f"number of {field}", f"is {told}, the file has {found}")
        if self.S > len(self.labels) > 0:
            raise text.error("number of states", f"is {self.S}, the file has {len(self.labels)} choices: too few")
        if not self.s:
            raise text.error("number of transitions", "is 0")

    def labelled_choices(self) -> tuple[list[int], list[str]]:
        return [s for s, _ in self.labels], list(self.labels.values())


def _read_initial(path: Path, S: int) -> list[int]:
    """Return the states with the label "init"."""
    text = TextFile(path)
    lines = iter(text)
    names = dict(re.findall(r'(\d+)="([^"]*)"', next(lines, "")))
    if not names:
        raise text.error("header", 'must name the labels: 0="init" 1="deadlock" …')
    initial = []
    for line in lines:
        state, colon, labels = line.partition(":")
        if not colon:
            raise text.error("labels", f"must be `STATE: LABEL …`, got {line[:60]!r}")
        s = text.whole("state", state.strip(), S)
        for label in labels.split():
            if label not in names:
                raise text.error("label", f"{label[:40]!r} is not in the header")
            if names[label] == "init":
                initial.append(s)
    return initial


def _read_rewards(path: Path, tra: _Transitions, row: Whole, prob: Array, A: int) -> tuple[dict[str, Array], Any]:
    """Return the rewards [S, A] of all reward structures by name, each the sum of state and transition rewards.

    Also return by name where [S, A] transition rewards differ between the transitions of one pair.

    row, prob  the row s·A + a and the probability of each transition
    """
    found: dict[str, Array] = {}
    averaged: dict[str, Any] = {}
    for file, fallback in _reward_files(path):
        name, entries = _read_entries(file, tra)
        values = np.zeros(len(prob))
        if file.suffix == ".srew":
            table = np.zeros(tra.S)
            table[[n for n, _ in entries]] = [x for _, x in entries]
            part = np.repeat(table[:, None], A, axis=1)
        else:
            values[[n for n, _ in entries]] = [x for _, x in entries]
            part = expect(tra.S, A, row, prob, values)
        key = name or fallback
        averaged[key] = averaged.get(key, False) | varies(tra.S, A, row, prob, values)
        found[key] = found[key] + part if key in found else part
    return found, averaged


def _reward_files(path: Path) -> list[tuple[Path, str]]:
    """Return (file, name) of the reward files of a .tra file; the name is used if the file contains none."""
    listed = []
    for file in sorted(path.parent.iterdir()):
        match = re.fullmatch(re.escape(path.stem) + r"(?:\.(.+)|(\d*))\.(?:srew|trew)", file.name)
        if match and file.is_file():
            listed.append((file, match[1] or match[2] or "reward"))
    return listed


def _read_entries(file: Path, tra: _Transitions) -> tuple[str, list[tuple[int, float]]]:
    """Return the name of the reward structure in a file ("" if it has none), and its entries.

    An entry is (state, reward) in a .srew file, and (index of the transition, reward) in a .trew file.
    """
    text = TextFile(file)
    name, head, entries = "", None, []
    fields = ("state", "choice", "next state") if file.suffix == ".trew" else ("state",)
    for line in text:
        words = line.split()
        if line.startswith("#"):
            match = STRUCTURE.fullmatch(line)
            name = match[1] if match else name
        elif head is None:
            if len(words) != max(2, len(fields)):
                raise text.error("header", f"must be {max(2, len(fields))} numbers, got {line[:60]!r}")
            head = [text.whole("header", word) for word in words]
            if head[0] != tra.S:
                raise text.error("number of states", f"is {head[0]}, {tra.path.name} has {tra.S}")
        elif len(words) != len(fields) + 1:
            raise text.error("entry", f"must be `{' '.join(fields).upper()} REWARD`, got {line[:60]!r}")
        else:
            at = [text.whole(field, word) for field, word in zip(fields, words, strict=False)]
            entries.append((_entry(text, tra, at), text.number("reward", words[-1])))
    if head is None:
        raise text.error("header", "is missing")
    if head[-1] != len(entries):
        raise InputError(f"{file}, header: number of entries is {head[-1]}, the file has {len(entries)}")
    return name, entries


def _entry(text: TextFile, tra: _Transitions, at: list[int]) -> int:
    if len(at) == 1:
        if at[0] >= tra.S:
            raise text.error("state", f"must be in 0..{tra.S - 1}, got {at[0]}")
        return at[0]
    n = tra.at.get((at[0], at[1], at[2]))
    if n is None:
        raise text.error("transition", f"from state {at[0]}, choice {at[1]} to {at[2]} is not in {tra.path.name}")
    return n
