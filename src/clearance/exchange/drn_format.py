"""DRN, the text format of the Storm model checker, for MDPs and Markov chains.

    @type: MDP
    @reward_models
    profit energy
    @model
    state 0 [0, 0] init
    //[name of the state]
        action go [3, 1.5]
            1 : 0.3
            0 : 0.7

The numbers in brackets are the rewards of a state or an action, in the order of @reward_models. Storm writes the values
of a state's variables as a comment below the state; this comment is read and written as the name of the state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from clearance.core.arrays import Array
from clearance.core.atomic_files import write_whole
from clearance.core.errors import InputError
from clearance.core.text import split_unit
from clearance.exchange.choices import ChoiceList
from clearance.exchange.explicit_model import ExplicitModel, describe_cmdp
from clearance.exchange.text_lines import MOST, TextFile
from clearance.finite.cmdp import CMDP

TYPES = ("mdp", "dtmc")
STATE = re.compile(r"state\s+(\S+)(?:\s+\[([^\]]*)\])?(?:\s+(.*))?")
ACTION = re.compile(r"action\s+(\S+)(?:\s+\[([^\]]*)\])?")
BRANCH = re.compile(r"(\S+)\s*:\s*(\S+)")
NO_LABEL = "__NOLABEL__"
# Storm prints ten digits.
TOLERANCE = 1e-8


def read_drn(path: str | Path) -> ExplicitModel:
    """Read the model in a DRN file."""
    return _Reader(path).read()


class _Reader:
    """A reader of a DRN file, line by line; the meaning of a line depends on its section, such as @model."""

    def __init__(self, path: str | Path) -> None:
        self.text = TextFile(path)
        self.header: dict[str, list[str]] = {}
        self.placeholders: dict[str, float] = {}
        self.section = ""
        self.states: list[str] = []  # names, from comments
        self.initial: list[int] = []
        self.state_rewards: list[list[float]] = []
        self.choices = ChoiceList()

    def read(self) -> ExplicitModel:
        for line in self.text:
            if line.startswith("@"):
                self._begin_section(line)
            elif self.section == "model":
                self._read_model_line(line)
            elif line.startswith("//"):
                continue
            elif self.section == "placeholders":
                name, _, value = line.partition(":")
                self.placeholders[name.strip()] = self.text.number("placeholder", value.strip())
            else:
                self.header.setdefault(self.section, []).extend(line.split())
        return self._finish()

    def _begin_section(self, line: str) -> None:
        name, colon, value = line[1:].partition(":")
        self.section = name.strip()
        self.header[self.section] = value.split() if colon else []
        if self.section == "type" and self.header["type"] and self.header["type"][0].lower() not in TYPES:
            raise self.text.error("@type", f"must be MDP or DTMC, got {self.header['type'][0]!r}")
        if self.section == "value_type" and "interval" in value.lower():
            raise self.text.error("@value_type", f"must be numbers, got {value.strip()!r}")
        if self.section == "model":
            self._check_header()

    def _check_header(self) -> None:
        if not self.header.get("type"):
            raise self.text.error("@type", "is missing before @model")
        if self.header.get("parameters"):
            raise self.text.error("@parameters", f"has {self.header['parameters'][0]!r}: give every parameter a value")
        for name in ("nr_states", "nr_choices"):
            for word in self.header.get(name, ())[:1]:
                self.text.whole(f"@{name}", word, MOST)

    @property
    def rewards(self) -> list[str]:
        return self.header.get("reward_models", [])

    def _read_model_line(self, line: str) -> None:
        if line.startswith("//"):
            name = line[2:].strip()
            if self.states and not self.choices.begun and name.startswith("[") and name.endswith("]"):
                self.states[-1] = name[1:-1]
        elif line.startswith("state"):
            self._read_state(line)
        elif line.startswith("action"):
            self._read_action(line)
        else:
            self._read_branch(line)

    def _read_state(self, line: str) -> None:
        match = STATE.fullmatch(line)
        if not match:
            raise self.text.error("state", f"must be `state NUMBER [REWARDS] LABELS`, got {line[:60]!r}")
        number = self.text.whole("state", match[1])
        if number != len(self.states):
            raise self.text.error("state", f"must be {len(self.states)}, the next one, got {number}")
        self._end_state()
        labels = (match[3] or "").split()
        if labels and labels[0][0] in "{!":
            raise self.text.error("state", f"has {labels[0]!r}: observations and rates are not for an MDP")
        if "init" in labels:
            self.initial.append(number)
        self.states.append("")
        self.state_rewards.append(self._rewards("state", match[2]))
        self.choices.begin_state()

    def _end_state(self) -> None:
        if self.states and not self.choices.begun:
            raise self.text.error("action", f"is missing in state {len(self.states) - 1}, which ends here")

    def _read_action(self, line: str) -> None:
        match = ACTION.fullmatch(line)
        if not match:
            raise self.text.error("action", f"must be `action NAME [REWARDS]`, got {line[:60]!r}")
        if not self.states:
            raise self.text.error("action", "stands before the first state")
        name = "" if match[1] == NO_LABEL else match[1]
        self.choices.begin_choice(name, self._rewards("action", match[2]), self.text.line)

    def _read_branch(self, line: str) -> None:
        match = BRANCH.fullmatch(line)
        if not match:
            raise self.text.error("transition", f"must be `STATE : PROBABILITY`, got {line[:60]!r}")
        if not self.choices.begun:
            if self.header["type"][0].lower() != "dtmc" or not self.states:
                raise self.text.error("transition", "stands before the first action of its state")
            self.choices.begin_choice("", [0.0] * len(self.rewards), self.text.line)
        s_next = self.text.whole("next state", match[1])
        self.choices.add_branch(s_next, self._value("probability", match[2]), self.text.line)

    def _rewards(self, field: str, text: str | None) -> list[float]:
        if text is None:
            return [0.0] * len(self.rewards)
        found = [self._value(f"reward of the {field}", x.strip()) for x in text.split(",") if x.strip()]
        if len(found) != len(self.rewards):
            raise self.text.error(
                f"rewards of the {field}", f"are {len(found)}, @reward_models has {len(self.rewards)}"
            )
        return found

    def _value(self, field: str, text: str) -> float:
        return self.placeholders[text] if text in self.placeholders else self.text.number(field, text)

    def _finish(self) -> ExplicitModel:
        if not self.states:
            raise self.text.error("@model", "has no states" if "model" in self.header else "is missing")
        self._end_state()
        S = len(self.states)
        told = self.header.get("nr_states", [])
        if told and int(told[0]) != S:
            raise self.text.error("@nr_states", f"is {told[0]}, the file has {S} states")
        named = all(self.states) and len(set(self.states)) == S
        return self.choices.finish(
            str(self.text.path), S, self.rewards, self.state_rewards, self.initial,
            tuple(self.states) if named else None, TOLERANCE,
        )  # fmt: skip


# ------------------------------------------------------------------------------------------ out


def write_drn(cmdp: CMDP, path: str | Path) -> None:
    """Write a model as an MDP with one reward per signal; states with positive start probability get the label init."""
    m = describe_cmdp(cmdp)
    m = replace(m, rewards=_without_units(m.rewards))
    starts = start_states(cmdp.rho)
    if starts is None:
        raise InputError(f"{path}: DRN has no initial distribution but a uniform one; write .umb, .csv or .npz")
    for what, names in (("reward", m.rewards), ("action", m.actions or ())):
        for name in names:
            if not name or re.search(r"[\s\[\]]|^//", name):
                raise InputError(
                    f"{path}: DRN has no {what} {name!r} with spaces or brackets; rename it, or write .umb"
                )
    if any("\n" in name or "\r" in name for name in m.states or ()):
        raise InputError(f"{path}: DRN has no names of states with line breaks; rename them, or write .umb")
    with write_whole(path) as f:
        f.write("\n".join(_lines(cmdp, m, starts)).encode() + b"\n")


def _without_units(rewards: Mapping[str, Array]) -> dict[str, Array]:
    """Return the rewards by names without units (`energy` for `energy [kWh]`), unless two names would then be equal."""
    short = [split_unit(name)[0] for name in rewards]
    named = zip(rewards, short, rewards.values(), strict=True)
    return {bare if short.count(bare) == 1 else name: values for name, bare, values in named}


def start_states(rho: Array) -> set[int] | None:
    """Return the states with positive start probability if ρ is uniform over them, else None."""
    at = np.flatnonzero(rho)
    return set(at.tolist()) if np.all(rho[at] == 1 / len(at)) else None


def _lines(cmdp: CMDP, m: ExplicitModel, starts: set[int]) -> list[str]:
    lines = ["// Exported by clearance", "@type: MDP", "@value_type: double", "@parameters", "", "@reward_models"]
    lines += [" ".join(m.rewards), "@nr_states", str(m.S), "@nr_choices", str(int(cmdp.available.sum())), "@model"]
    zeros = ", ".join(["0"] * len(m.rewards))
    ends = np.searchsorted(m.s * m.A + m.a, np.arange(m.S * m.A + 1))
    s_next, prob = m.s_next.tolist(), m.prob.tolist()
    signals = np.stack(list(m.rewards.values()))
    for s in range(m.S):
        lines.append(f"state {s} [{zeros}]{' init' if s in starts else ''}")
        if m.states:
            lines.append(f"//[{m.states[s]}]")
        for a in np.flatnonzero(cmdp.available[s]).tolist():
            values = ", ".join(repr(x) for x in signals[:, s, a].tolist())
            lines.append(f"\taction {m.actions[a] if m.actions else a} [{values}]")
            lines += [f"\t\t{s_next[n]} : {prob[n]!r}" for n in range(ends[s * m.A + a], ends[s * m.A + a + 1])]
    return lines
