"""Thirty malformed files of each format: one line that names the file, the line and the field."""

# ruff: noqa: E501 (tables: one case per line)

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import pack

import clearance as cl
from clearance.exchange import explicit_model

GIVEN: dict[str, Any] = {"gamma": 0.9, "reward": "profit", "limits": {"energy": 4}}


def refusal(path: Path, *, file: str = "", **how: Any) -> str:
    """The one line that a file is refused with; it names the file."""
    with pytest.raises(cl.InputError) as e:
        cl.load_model(path, **GIVEN | how)
    said = str(e.value)
    assert "\n" not in said and len(said) < 400 and (file or path.name) in said, said
    return said


def swap(old: str, new: str) -> Callable[[str], str | bytes]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


CSV = """state,action,next_state,probability,profit,energy
new,run,new,0.7,1.5,3
new,run,worn,0.3,1.5,3
new,stop,new,1,0,0
worn,run,new,1,3.5,0
"""
BAD_CSV: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "empty": (lambda t: "", "line 1: the column state is missing; there are none"),
    "only a header": (lambda t: t.splitlines()[0], "has no transitions, only a header"),
    "no header": (lambda t: t.partition("\n")[2], "line 1: the column state is missing; there are new, run"),
    "no state": (swap("state,", "stat,"), "line 1: the column state is missing"),
    "no action": (swap("action", "act"), "line 1: the column action is missing"),
    "no next state": (swap("next_state", "to"), "line 1: the column next_state is missing"),
    "no probability": (swap("probability", "p"), "line 1: the column probability is missing"),
    "no reward": (swap("profit", "gain"), "line 1: the column profit is missing"),
    "no cost": (swap("energy", "heat"), "line 1: the column energy is missing"),
    "a column twice": (swap("energy", "profit,energy"), "line 1: the column profit is there 2 times"),
    "a field too few": (swap("1.5,3\nnew,run,worn", "1.5\nnew,run,worn"), "line 2: has 5 fields, the header has 6"),
    "a field too many": (swap("0,0", "0,0,0"), "line 4: has 7 fields, the header has 6"),
    "a semicolon": (lambda t: t.replace(",", ";"), "line 1: the separator is probably ';': save the file with commas"),
    "tabs": (lambda t: t.replace(",", "\t"), "line 1: the separator is probably '\\t'"),
    "decimal comma": (swap("0.7", '"0,7"'), "line 2: probability must be a number, got '0,7'"),
    "text as probability": (swap("0.3", "often"), "line 3: probability must be a number, got 'often'"),
    "empty probability": (swap("0.3", ""), "line 3: probability must be a number, got ''"),
    "NaN": (swap("0.3", "nan"), "line 3: probability must be finite"),
    "infinite reward": (swap("3.5", "inf"), "line 5: profit must be finite"),
    "text as cost": (swap("3.5,0", "3.5,low"), "line 5: energy must be a number, got 'low'"),
    "overflow": (swap("3.5", "1e999"), "line 5: profit must be finite"),
    "too large": (swap("3.5", "1e200"), "above 1e+152"),
    "negative": (swap("0.7", "-0.7"), "line 2: probability must be in [0, 1], got -0.7"),
    "above one": (swap("new,1,0", "new,1.5,0"), "line 4: probability must be in [0, 1], got 1.5"),
    "sum": (swap("0.3", "0.2"), "line 2: probability of state 'new', action 'run' sums to 0.9"),
    "no such next state": (swap("run,worn,0.3", "run,wron,0.3"), "line 3: next_state 'wron' has no rows of its own"),
    "empty state": (swap("worn,run,new", ",run,new"), "line 5: state is empty"),
    "empty action": (swap("new,stop", "new,"), "line 4: action is empty"),
    "empty next state": (swap("stop,new", "stop, "), "line 4: next_state is empty"),
    "not UTF-8": (lambda t: t.replace("stop", "stöp").encode("latin-1"), "line 4: text is not UTF-8"),
    "open quote": (swap("stop", '"stop'), "text is no CSV"),
    "infinite cost": (swap("3.5,0", "3.5,-inf"), "line 5: energy must be finite"),
    "two starts": (
        lambda t: t.replace("energy\n", "energy,initial\n").replace(",3\n", ",3,1\n").replace(",0\n", ",0,0\n"),
        "line 4: initial is 0.0, and 1.0 in a row above",
    ),
}

DRN = """@type: MDP
@value_type: double
@parameters

@reward_models
energy profit
@nr_states
2
@nr_choices
3
@model
state 0 [0, 0] init
\taction run [3, 1.5]
\t\t0 : 0.7
\t\t1 : 0.3
\taction stop [0, 0]
\t\t0 : 1
state 1 [0, 2]
\taction run [0, 1.5]
\t\t0 : 1
"""
BAD_DRN: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "empty": (lambda t: "", "line 0: @model is missing"),
    "no model": (lambda t: t.partition("@model")[0], "@model is missing"),
    "no states": (lambda t: t.partition("state 0")[0], "line 11: @model has no states"),
    "no type": (swap("@type: MDP\n", ""), "line 10: @type is missing before @model"),
    "CTMC": (swap("MDP", "CTMC"), "line 1: @type must be MDP or DTMC, got 'CTMC'"),
    "POMDP": (swap("MDP", "POMDP"), "line 1: @type must be MDP or DTMC, got 'POMDP'"),
    "intervals": (swap("double", "double-interval"), "line 2: @value_type must be numbers"),
    "parameters": (swap("@parameters\n", "@parameters\np q"), "@parameters has 'p'"),
    "count as text": (swap("\n2\n", "\ntwo\n"), "line 11: @nr_states must be a whole number, got 'two'"),
    "count too large": (swap("\n2\n", "\n3\n"), "@nr_states is 3, the file has 2 states"),
    "huge count": (swap("\n2\n", "\n99999999999\n"), "@nr_states must be in 0..99999999"),
    "a state left out": (swap("state 1", "state 2"), "line 18: state must be 1, the next one, got 2"),
    "a state twice": (swap("state 1", "state 0"), "line 18: state must be 1, the next one, got 0"),
    "state as text": (swap("state 1", "state one"), "line 18: state must be a whole number, got 'one'"),
    "state alone": (swap("state 1 [0, 2]", "state"), "line 18: state must be `state NUMBER [REWARDS] LABELS`"),
    "observation": (swap("state 1 [0, 2]", "state 1 [0, 2] {3}"), "line 18: state has '{3}'"),
    "rate": (swap("state 1 [0, 2]", "state 1 !4"), "line 18: state has '!4'"),
    "a reward too few": (swap("[3, 1.5]", "[3]"), "line 13: rewards of the action are 1, @reward_models has 2"),
    "a reward too many": (swap("[0, 2]", "[0, 2, 1]"), "line 18: rewards of the state are 3, @reward_models has 2"),
    "reward as text": (swap("[3, 1.5]", "[3, lots]"), "line 13: reward of the action must be a number, got 'lots'"),
    "infinite reward": (swap("[3, 1.5]", "[3, inf]"), "line 13: reward of the action must be finite"),
    "open bracket": (swap("run [3, 1.5]", "run [3, 1.5"), "line 13: action must be `action NAME [REWARDS]`"),
    "state without action": (swap("\taction run [0, 1.5]\n\t\t0 : 1\n", ""), "action is missing in state 1"),
    "action first": (swap("state 0 [0, 0] init\n", ""), "line 12: action stands before the first state"),
    "transition first": (swap("\taction run [3, 1.5]\n", ""), "line 13: transition stands before the first action"),
    "no colon": (swap("1 : 0.3", "1 0.3"), "line 15: transition must be `STATE : PROBABILITY`, got '1 0.3'"),
    "next state as text": (swap("1 : 0.3", "x : 0.3"), "line 15: next state must be a whole number, got 'x'"),
    "next state beyond": (swap("1 : 0.3", "7 : 0.3"), "line 15: next state must be in 0..1, got 7"),
    "probability as text": (swap("0.3", "p"), "line 15: probability must be a number, got 'p'"),
    "negative": (swap("0.3", "-0.3"), "line 15: probability must be in [0, 1], got -0.3"),
    "sum": (swap("0.3", "0.2"), "line 14: probability of state 0, action 'run' sums to 0.9"),
    "division by zero": (swap("0.3", "1/0"), "line 15: probability must be a number, got '1/0'"),
    "not UTF-8": (lambda t: t.replace("stop", "stöp").encode("latin-1"), "line 16: text is not UTF-8"),
    "no such reward": (swap("energy profit", "energy gain"), "reward: there is no 'profit'; the model has energy, gain"),
    "no such cost": (swap("energy profit", "heat profit"), "limits: there is no 'energy'; the model has heat, profit"),
}  # fmt: skip

TRA = "2 3 4\n0 0 0 0.7 run\n0 0 1 0.3 run\n0 1 0 1 stop\n1 0 0 1 run\n"
LAB = '0="init" 1="deadlock"\n0: 0\n'
SREW = '# Reward structure "profit"\n2 1\n1 2\n'
TREW = '# Reward structure "energy"\n2 3 2\n0 0 0 3\n0 0 1 3\n'
BAD_PRISM: dict[str, tuple[str, Callable[[str], str | bytes], str]] = {
    "empty": ("m.tra", lambda t: "", "line 0: header must be three numbers"),
    "Markov chain": ("m.tra", swap("2 3 4", "2 4"), "line 1: header must be three numbers"),
    "header as text": ("m.tra", swap("2 3 4", "two 3 4"), "line 1: number of states must be a whole number"),
    "no transitions": ("m.tra", lambda t: "2 0 0\n", "line 1: number of transitions is 0"),
    "huge": ("m.tra", swap("2 3 4", "99999999 3 4"), "line 1: number of states is 99999999, the file has 3 choices: too few"),
    "choices": ("m.tra", swap("2 3 4", "2 9 4"), "line 1: number of choices is 9, the file has 3"),
    "transitions": ("m.tra", swap("2 3 4", "2 3 5"), "line 1: number of transitions is 5, the file has 4"),
    "a word too few": ("m.tra", swap("1 0 0 1 run", "1 0 0"), "line 5: transition must be `STATE CHOICE NEXT PROBABILITY"),
    "state beyond": ("m.tra", swap("1 0 0 1 run", "5 0 0 1 run"), "line 5: state must be in 0..1, got 5"),
    "state as text": ("m.tra", swap("1 0 0 1 run", "s 0 0 1 run"), "line 5: state must be a whole number, got 's'"),
    "negative state": ("m.tra", swap("1 0 0 1 run", "-1 0 0 1 run"), "line 5: state must be a whole number, got '-1'"),
    "choice as text": ("m.tra", swap("1 0 0 1 run", "1 x 0 1 run"), "line 5: choice must be a whole number, got 'x'"),
    "next beyond": ("m.tra", swap("1 0 0 1 run", "1 0 2 1 run"), "line 5: next state must be in 0..1, got 2"),
    "probability as text": ("m.tra", swap("0.7", "much"), "line 2: probability must be a number, got 'much'"),
    "NaN": ("m.tra", swap("0.7", "nan"), "line 2: probability must be finite, got 'nan'"),
    "negative": ("m.tra", swap("0.7", "-0.7"), "line 2: probability must be in [0, 1], got -0.7"),
    "sum": ("m.tra", swap("0.7", "0.6"), "line 2: probability of state 0, action 'run' sums to 0.9"),
    "two labels": ("m.tra", swap("0.3 run", "0.3 walk"), "line 3: action is 'walk', and 'run' in a line above"),
    "header words": ("m1.srew", lambda t: t.replace("2 1", "2 1 1"), "line 2: header must be 2 numbers"),
    "not UTF-8": ("m.tra", lambda t: t.replace("stop", "stöp").encode("latin-1"), "line 4: text is not UTF-8"),
    "labels empty": ("m.lab", lambda t: "", "line 0: header must name the labels"),
    "labels without names": ("m.lab", swap('0="init" 1="deadlock"', "init"), "line 1: header must name the labels"),
    "label unknown": ("m.lab", swap("0: 0", "0: 7"), "line 2: label '7' is not in the header"),
    "label without colon": ("m.lab", swap("0: 0", "0 0"), "line 2: labels must be `STATE: LABEL …`, got '0 0'"),
    "label of no state": ("m.lab", swap("0: 0", "9: 0"), "line 2: state must be in 0..1, got 9"),
    "rewards empty": ("m1.srew", lambda t: "", "line 0: header is missing"),
    "rewards of another": ("m1.srew", swap("2 1", "3 1"), "line 2: number of states is 3, m.tra has 2"),
    "rewards counted": ("m1.srew", swap("2 1", "2 2"), "header: number of entries is 2, the file has 1"),
    "reward as text": ("m1.srew", swap("1 2", "1 x"), "reward must be a number, got 'x'"),
    "reward of no state": ("m1.srew", swap("\n1 2\n", "\n4 2\n"), "line 3: state must be in 0..1, got 4"),
    "reward words": ("m1.srew", swap("\n1 2\n", "\n1 2 3\n"), "line 3: entry must be `STATE REWARD`"),
    "reward header": ("m2.trew", swap("2 3 2", "2"), "line 2: header must be 3 numbers"),
    "reward of no transition": ("m2.trew", swap("0 0 1 3", "0 1 1 3"), "line 4: transition from state 0, choice 1 to 1"),
    "infinite reward": ("m2.trew", swap("0 0 1 3", "0 0 1 inf"), "line 4: reward must be finite"),
    "no such structure": ("m2.trew", swap("energy", "heat"), "limits: there is no 'energy'; the model has profit, heat"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_CSV)
def test_malformed_tables(name: str, tmp_path: Path) -> None:
    change, words = BAD_CSV[name]
    _write(tmp_path / "plant.csv", change(CSV))
    assert words in refusal(tmp_path / "plant.csv")


@pytest.mark.parametrize("name", BAD_DRN)
def test_malformed_drn(name: str, tmp_path: Path) -> None:
    change, words = BAD_DRN[name]
    _write(tmp_path / "plant.drn", change(DRN))
    assert words in refusal(tmp_path / "plant.drn")


@pytest.mark.parametrize("name", BAD_PRISM)
def test_malformed_prism(name: str, tmp_path: Path) -> None:
    file, change, words = BAD_PRISM[name]
    for path, text in {"m.tra": TRA, "m.lab": LAB, "m1.srew": SREW, "m2.trew": TREW}.items():
        _write(tmp_path / path, change(text) if path == file else text)
    said = refusal(tmp_path / "m.tra", file="m.tra" if "there is no" in words else file)
    assert words in said


def _write(path: Path, content: str | bytes) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def test_there_are_thirty_of_each() -> None:
    assert min(len(x) for x in (BAD_CSV, BAD_DRN, BAD_PRISM, BAD_UMB)) >= 30


# ---------------------------------------------------------------------------------------------------------------- UMB


def umb_files(folder: Path) -> dict[str, bytes]:
    path = folder / "good.drn"
    path.write_text(DRN)
    model = cl.load_model(path, gamma=0.9, reward="profit", limits={"energy": 4})
    named = cl.CMDP(
        model.P, model.r, cost=-model.g, limit=4, rho=[0.25, 0.75], gamma=0.9, names=["energy"],
        available=model.available, states=["new", "worn"], actions=model.actions,
    )  # fmt: skip
    cl.save_model(named, folder / "good.umb")
    with tarfile.open(folder / "good.umb") as tar:
        return {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]


def index(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, bytes]], None]:
    def apply(files: dict[str, bytes]) -> None:
        data = json.loads(files["index.json"])
        change(data)
        files["index.json"] = json.dumps(data).encode()

    return apply


def system(**values: Any) -> Callable[[dict[str, bytes]], None]:
    return index(
        lambda d: d["transition-system"].update({k.replace("N_", "#").replace("_", "-"): v for k, v in values.items()})
    )


def put(file: str, data: Any, kind: str = "<u8") -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.update({file: data if isinstance(data, bytes) else np.array(data, kind).tobytes()})


def without(file: str) -> Callable[[dict[str, bytes]], Any]:
    return lambda files: files.pop(file)


ENERGY = "annotations/rewards/energy/choices/values.bin"
BAD_UMB: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "no index": (without("index.json"), "index.json: is missing in the archive"),
    "index no JSON": (put("index.json", b'{\n"a": ]'), "index.json, line 2: is no JSON"),
    "index a list": (put("index.json", b"[]"), "index.json: must be an object"),
    "index with NaN": (put("index.json", b'{"format-version": NaN}'), "index.json: is no JSON"),
    "version": (index(lambda d: d.update({"format-version": 7})), "format-version must be 0 or 1, got 7"),
    "no system": (index(lambda d: d.pop("transition-system")), "transition-system must be an object"),
    "continuous time": (system(time="stochastic"), "time must be 'discrete', got 'stochastic'"),
    "a game": (system(N_players=2), "#players must be at most 1, got 2"),
    "observations": (system(N_observations=3), "#observations must be 0"),
    "no states": (system(N_states=0), "#states must be a whole number in 1..100000000, got 0"),
    "states as text": (system(N_states="2"), "#states must be a whole number in 1..100000000, got '2'"),
    "states as truth": (system(N_states=True), "#states must be a whole number"),
    "huge": (system(N_branches=10**15), "#branches must be a whole number"),
    "more states": (system(N_states=3), "state-to-choices.bin: has 24 bytes, the index asks for 32"),
    "more branches": (system(N_branches=5), "choice-to-branches.bin: must go from 0 to 5, goes from 0 to 4"),
    "no choices": (without("state-to-choices.bin"), "state-to-choices.bin: is missing in the archive"),
    "no targets": (without("branch-to-target.bin"), "branch-to-target.bin: is missing in the archive"),
    "no probabilities": (without("branch-to-probability.bin"), "branch-to-probability.bin: is missing in the archive"),
    "cut off": (put("branch-to-target.bin", b"\0" * 31), "branch-to-target.bin: has 31 bytes, the index asks for 32"),
    "target beyond": (put("branch-to-target.bin", [0, 1, 9, 0]), "branch-to-target.bin: entry 2 must be in 0..1, got 9"),
    "offsets from 1": (put("state-to-choices.bin", [1, 2, 3]), "state-to-choices.bin: must go from 0 to 3, goes from 1"),
    "offsets fall": (put("choice-to-branches.bin", [0, 3, 2, 4]), "choice-to-branches.bin: entry 2 must be above entry 1"),
    "a state without": (put("state-to-choices.bin", [0, 0, 3]), "state-to-choices.bin: entry 1 must be above entry 0"),
    "probability type": (
        system(branch_probability_type={"type": "double-interval"}),
        "branch-to-probability.bin: type must be double, int, uint or rational",
    ),
    "NaN": (put("branch-to-probability.bin", [0.7, np.nan, 1, 1], "<f8"), "branch-to-probability.bin: entry 1 must be finite"),
    "negative": (
        put("branch-to-probability.bin", [-0.7, 1.7, 1, 1], "<f8"),
        "branch-to-probability.bin, branch 0: probability must be in [0, 1], got -0.7",
    ),
    "sum": (
        put("branch-to-probability.bin", [0.7, 0.2, 1, 1], "<f8"),
        "branch 0: probability of state 'new', action 'run' sums to 0.9",
    ),
    "zero denominator": (
        lambda files: (
            system(branch_probability_type={"type": "rational"})(files),
            files.update({"branch-to-probability.bin": b"\1" + b"\0" * 63}),
        ),
        "branch-to-probability.bin: entry 0 has the denominator 0",
    ),
    "initial bits": (put("state-is-initial.bin", b""), "state-is-initial.bin: has 0 bytes for 2 bits"),
    "action beyond": (put("actions/choices/values.bin", [0, 9, 0], "<u4"), "actions/choices/values.bin: entry 1 must be"),
    "strings": (put("actions/choices/string-mapping.bin", [0, 3, 99]), "string-mapping.bin: entry 2 must be in 0..7"),
    "strings fall": (put("actions/choices/string-mapping.bin", [3, 0, 7]), "string-mapping.bin: must not decrease"),
    "strings not UTF-8": (put("actions/choices/strings.bin", b"r\xffnstop"), "actions/choices/strings.bin: is not UTF-8"),
    "annotations a list": (index(lambda d: d.update(annotations=[])), "annotations must be an object, got list"),
    "reward applies to": (
        index(lambda d: d["annotations"]["rewards"]["energy"].update({"applies-to": ["players"]})),
        "annotations/rewards/energy: applies-to must list some of states, choices, branches, got ['players']",
    ),
    "reward type": (
        index(lambda d: d["annotations"]["rewards"]["energy"].update(type="double")),
        "annotations/rewards/energy/choices/values.bin: type must be double",
    ),
    "reward missing": (without(ENERGY), f"{ENERGY}: is missing in the archive"),
    "reward too short": (put(ENERGY, [1.0], "<f8"), f"{ENERGY}: has 8 bytes, the index asks for 24"),
    "reward infinite": (put(ENERGY, [1.0, np.inf, 0], "<f8"), f"{ENERGY}: entry 1 must be finite"),
    "alias twice": (
        index(lambda d: d["annotations"]["rewards"]["energy"].update(alias="reward")),
        "annotations/rewards/energy: alias must be a name that no other has, got 'reward'",
    ),
    "names": (put("clearance.json", b'{"states": ["new"]}'), "clearance.json: states must be a list of 2 entries"),
    "names twice": (put("clearance.json", b'{"states": ["new", "new"]}'), "states has 'new' twice"),
    "start": (put("clearance.json", b'{"initial": [0.5, "x"]}'), "clearance.json: initial must be a list of 2 entries"),
    "start sums": (put("clearance.json", b'{"initial": [0.5, 0.25]}'), "rho sums to 0.75"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_UMB)
def test_malformed_umb(name: str, tmp_path: Path) -> None:
    change, words = BAD_UMB[name]
    files = umb_files(tmp_path)
    change(files)
    pack(tmp_path / "plant.umb", files)
    assert words in refusal(tmp_path / "plant.umb", reward="reward")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    good = umb_files(tmp_path)
    pack(tmp_path / "good.umb", good, "w:gz")
    whole = (tmp_path / "good.umb").read_bytes()
    for data in (b"", b"PK\3\4 no tar", whole[: len(whole) // 2], whole[:20], b"\0" * 700):
        (tmp_path / "plant.umb").write_bytes(data)
        assert "is no tar archive, or cut off" in refusal(tmp_path / "plant.umb") or data == b"\0" * 700


def test_sizes_are_checked_before_memory_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = umb_files(tmp_path) | {"padding.bin": bytes(10**6)}
    pack(tmp_path / "plant.umb", files, "w:gz")
    monkeypatch.setenv("CLEARANCE_MAX_MEMORY", "100kB")
    assert "unpacks to 1e+06 bytes, more than the limit of 1e+05" in refusal(tmp_path / "plant.umb")
    monkeypatch.delenv("CLEARANCE_MAX_MEMORY")
    monkeypatch.setattr(explicit_model, "free_memory", lambda: 4.0 * 8 * 3)
    for name, text in (("m.drn", DRN), ("m.csv", CSV), ("m.tra", TRA)):
        _write(tmp_path / name, text)
        assert "has 2 states and 2 different actions, too many" in refusal(tmp_path / name)


def test_nothing_is_written_where_an_archive_says(tmp_path: Path) -> None:
    files = umb_files(tmp_path) | {"../escaped.txt": b"x", "/tmp/escaped-clearance.txt": b"x"}
    folder = tmp_path / "inner"
    folder.mkdir()
    pack(folder / "plant.umb", files)
    cl.load_model(folder / "plant.umb", gamma=0.9, reward="reward")
    assert not (tmp_path / "escaped.txt").exists() and not Path("/tmp/escaped-clearance.txt").exists()


@pytest.mark.parametrize("suffix", [".csv", ".drn", ".umb", ".tra", ".npz"])
def test_files_that_are_not_there(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(cl.InputError, match="no such file"):
        cl.load_model(tmp_path / f"none{suffix}", gamma=None if suffix == ".npz" else 0.9)
    (tmp_path / f"folder{suffix}").mkdir()
    with pytest.raises(cl.InputError, match="cannot read"):
        cl.load_model(tmp_path / f"folder{suffix}", gamma=None if suffix == ".npz" else 0.9)


def test_what_the_user_says_is_checked(tmp_path: Path) -> None:
    _write(tmp_path / "m.drn", DRN)
    how: Any
    for how, words in (
        ({"gamma": None}, "gamma is missing"),
        ({"gamma": 1.0}, r"gamma must be in \(0, 1\)"),
        ({"reward": "gain"}, "reward: there is no 'gain'; the model has energy, profit"),
        ({"reward": None, "limits": None}, "reward is missing: say which one to maximise"),
        ({"limits": {"heat": 3}}, "limits: there is no 'heat'"),
        ({"limits": (3.0,)}, r"limits must go by name: give limits=\{name: number\}$"),
        ({"limits": {"energy": "low"}}, r"limits\['energy'\] must be one real number"),
        ({"b": {"heat": 3}}, "b: there is no 'heat'"),
        ({"initial": "old"}, r"initial: there is no state 'old'; states are 0..1"),
        ({"initial": 2}, "initial: there is no state 2"),
        ({"initial": {"0": 0.5}}, "rho sums to 0.5"),
    ):
        with pytest.raises(cl.InputError, match=words) as e:
            cl.load_model(tmp_path / "m.drn", **GIVEN | how)
        assert str(e.value).startswith(str(tmp_path / "m.drn"))
    cl.zoo.two_state().save(tmp_path / "m.npz")
    with pytest.raises(cl.InputError, match=r"reward: .*m\.npz has one reward only; leave it out"):
        cl.load_model(tmp_path / "m.npz", reward="profit")
    with pytest.raises(cl.InputError, match=r"m\.npz: limit: 'heat' is no constraint"):
        cl.load_model(tmp_path / "m.npz", limits={"heat": 1})
