"""Models in other formats: each importer against the same model from another source, and back."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import pack
from documents import blocks, lines_of
from same_models import assert_same
from scipy import sparse

import clearance as cl
from clearance.exchange.explicit_model import describe_cmdp
from clearance.exchange.model_files import WRITERS


def asked(model: cl.CMDP) -> dict[str, Any]:
    """What a file in a foreign format does not say."""
    limits = {n: -b for n, b, cost in zip(model.names, model.b, model.costs, strict=True) if cost}
    b = {n: b for n, b, cost in zip(model.names, model.b, model.costs, strict=True) if not cost}
    return {"gamma": model.gamma, "reward": "reward", "limits": limits, "b": b}


def machine() -> cl.CMDP:
    """Three states, a mask, names, a utility beside two costs, and probabilities that no decimal can write."""
    P = np.zeros((3, 3, 3))
    P[0, 0], P[0, 1], P[1, 0] = [2 / 3, 1 / 3, 0], [0, 0.1, 0.9], [1 / 7, 2 / 7, 4 / 7]
    P[1, 2], P[2, 1] = [1, 0, 0], [0, 0, 1]
    mask = P.any(axis=2)
    rng = np.random.default_rng(3)
    signals = rng.normal(size=(4, 3, 3)) * mask
    return cl.CMDP(
        P, signals[0], signals[1:2], [0.25], cost=signals[2:], limit=[1.5, 1 / 3], rho=[1, 0, 0], gamma=0.9,
        names=["sales", "energy", "noise"], available=mask, states=["new", "worn out", "é,\"x\""],
        actions=["run", "fix", "sell"],
    )  # fmt: skip


MODELS = {
    "machine": machine,
    "two-state": cl.zoo.two_state,
    "maintenance": cl.zoo.maintenance_discounted,
    "frozen-lake": cl.zoo.frozen_lake,
    "streaming": cl.zoo.streaming_discounted,
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_a_model_comes_back_to_the_bit(name: str, suffix: str, tmp_path: Path) -> None:
    model, path = MODELS[name](), tmp_path / f"model{suffix}"
    cl.save_model(model, path)
    assert_same(cl.load_model(path) if suffix == ".npz" else cl.load_model(path, **asked(model)), model)
    again = tmp_path / f"again{suffix}"
    cl.save_model(model, again)
    if suffix != ".npz":  # a zip has the time in it
        assert path.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".umb"])
def test_an_uneven_start_comes_back_to_the_bit(suffix: str, tmp_path: Path) -> None:
    rho = np.random.default_rng(0).dirichlet(np.ones(3))
    base = machine()
    model = cl.CMDP(base.P, base.r, rho=rho, gamma=0.9, available=base.available)
    cl.save_model(model, tmp_path / f"m{suffix}")
    assert_same(cl.load_model(tmp_path / f"m{suffix}", gamma=0.9), model)


def test_drn_refuses_what_it_has_no_place_for(tmp_path: Path) -> None:
    base, path = machine(), tmp_path / "m.drn"
    uneven = cl.CMDP(base.P, base.r, rho=[0.5, 0.3, 0.2], gamma=0.9, available=base.available)
    spaced = base.replace(names=["net sales", "energy", "noise"])
    twice = base.replace(names=["reward", "energy", "noise"])
    for model, words in ((uneven, "initial distribution"), (spaced, "'net sales'"), (twice, "'reward'")):
        with pytest.raises(cl.InputError, match=words):
            cl.save_model(model, path)
        assert not path.exists()
    with pytest.raises(cl.InputError, match=r"must end in one of \.npz, \.csv, \.drn, \.umb"):
        cl.save_model(base, tmp_path / "m.pkl")


# ------------------------------------------------------------------------------------------ the same model, five times

DRN = """// Exported by storm
// Original model type: MDP
@type: MDP
@value_type: double
@parameters

@reward_models
energy profit
@nr_states
3
@nr_choices
4
@model
state 0 [0, 0] init
//[s=0]
\taction go [3, 1.5]
\t\t0 : 0.7
\t\t1 : 0.3
\taction stop [0, 0]
\t\t2 : 1
state 1 [0, 2]
//[s=1]
\taction go [0, 1.5]
\t\t0 : 0.6666666667
\t\t2 : 0.3333333333
state 2 [0, 0] done
//[s=2]
\taction __NOLABEL__ [0, 0]
\t\t2 : 1
"""
TRA = """3 4 6
0 0 0 0.7 go
0 0 1 0.3 go
0 1 2 1 stop
1 0 0 0.6666666666666666 go
1 0 2 0.3333333333333333 go
2 0 2 1
"""
LAB = '0="init" 1="deadlock" 2="done"\n0: 0\n2: 2\n'
PROFIT_STATES = '# Reward structure "profit"\n# State rewards\n3 1\n1 2\n'
PROFIT_MOVES = '# Reward structure "profit"\n3 4 4\n0 0 0 1.5\n0 0 1 1.5\n1 0 0 1.5\n1 0 2 1.5\n'
ENERGY_MOVES = '# Reward structure "energy"\n3 4 2\n0 0 0 3\n0 0 1 3\n'
CSV = """state,action,next_state,probability,profit,energy,initial
s=0,go,s=0,0.7,1.5,3,1
s=0,go,s=1,0.3,1.5,3,1
s=0,stop,s=2,1,0,0,1
s=1,go,s=0,0.6666666666666666,3.5,0,0
s=1,go,s=2,0.3333333333333333,3.5,0,0
s=2,unlabelled,s=2,1,0,0,0
"""


def by_hand(states: list[str] | None) -> cl.CMDP:
    P = np.zeros((3, 3, 3))
    P[0, 0], P[0, 1], P[1, 0], P[2, 2] = [0.7, 0.3, 0], [0, 0, 1], [2 / 3, 0, 1 / 3], [0, 0, 1]
    r, energy = np.zeros((3, 3)), np.zeros((3, 3))
    r[:2, 0], energy[0, 0] = [1.5, 3.5], 3
    return cl.CMDP(
        P, r, cost=[energy], limit=4, gamma=0.9, rho=[1, 0, 0], names=["energy"], available=P.any(axis=2),
        states=states, actions=["go", "stop", "unlabelled"],
    )  # fmt: skip


def write_prism(folder: Path) -> Path:
    files = {"m.tra": TRA, "m.lab": LAB, "m1.srew": PROFIT_STATES, "m1.trew": PROFIT_MOVES, "m2.trew": ENERGY_MOVES}
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder / "m.tra"


STORM = Path(__file__).resolve().parents[1] / "data" / "storm"
HOW: dict[str, Any] = {"gamma": 0.9, "reward": "profit", "limits": {"energy": 4}}


def test_every_importer_reads_the_same_model(tmp_path: Path) -> None:
    named = by_hand(["s=0", "s=1", "s=2"])
    (tmp_path / "m.drn").write_text(DRN)
    (tmp_path / "m.csv").write_text(CSV)
    cl.save_model(named, tmp_path / "m.umb")
    assert_same(cl.load_model(tmp_path / "m.csv", **HOW), named, tolerance=1e-12)
    assert_same(cl.load_model(tmp_path / "m.umb", gamma=0.9, limits={"energy": 4}), named, tolerance=1e-12)
    assert_same(cl.load_model(write_prism(tmp_path), **HOW), by_hand(None), tolerance=1e-12)
    assert_same(cl.load_model(tmp_path / "m.drn", **HOW), named, tolerance=1e-9)  # Storm prints ten digits
    text = DRN.replace("0.6666666667", "2/3").replace("0.3333333333", "1/3").replace("double", "rational")
    (tmp_path / "m.drn").write_text(text)
    assert_same(cl.load_model(tmp_path / "m.drn", **HOW), named, tolerance=1e-12)

    moves = {
        ("s=0", "go"): {"s=0": 0.7, "s=1": 0.3},
        ("s=0", "stop"): {"s=2": 1},
        ("s=1", "go"): {"s=0": 2 / 3, "s=2": 1 / 3},
    }
    moves[("s=2", "unlabelled")] = {"s=2": 1}
    made = cl.model(
        states=["s=0", "s=1", "s=2"], actions=lambda s: [a for t, a in moves if t == s], initial="s=0", gamma=0.9,
        transitions=lambda s, a: moves[s, a], reward=lambda s, a: 1.5 * (a == "go") + 2 * (s == "s=1"),
        costs={"energy": lambda s, a: 3.0 * ((s, a) == ("s=0", "go"))}, limits={"energy": 4},
    )  # fmt: skip
    assert_same(made, named, tolerance=1e-12)


def test_files_that_storm_wrote() -> None:
    """UMB and DRN by Storm 2.0, built from machine.prism beside them."""
    named = by_hand(["s=0", "s=1", "s=2"])
    assert_same(cl.load_model(STORM / "machine.umb", **HOW), named, tolerance=1e-12)
    assert_same(cl.load_model(STORM / "machine.drn", **HOW), named, tolerance=1e-9)  # ten digits


def test_what_storm_builds_is_what_it_means() -> None:
    """PRISM's language, through stormpy where it is installed."""
    pytest.importorskip("stormpy")
    assert_same(cl.load_model(STORM / "machine.prism", **HOW), by_hand(["s=0", "s=1", "s=2"]), tolerance=1e-12)


def test_prism_source_without_stormpy_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "stormpy", None)
    (tmp_path / "m.prism").write_text("mdp\n")
    with pytest.raises(cl.MissingExtraError, match=r"stormpy is not installed: pip install '\.\[storm\]'"):
        cl.load_model(tmp_path / "m.prism", gamma=0.9)


def test_labels_become_actions(tmp_path: Path) -> None:
    """A label twice in a state, choices without labels, and choices that have only numbers."""
    twice = TRA.replace("0 1 2 1 stop", "0 1 2 1 go")
    (tmp_path / "m.tra").write_text(twice)
    (tmp_path / "m.srew").write_text("3 1\n1 2\n")
    found = cl.load_model(tmp_path / "m.tra", gamma=0.9)
    assert found.actions == ("go", "go#2", "unlabelled") and found.r[1].tolist() == [2, 0, 0]
    bare = "\n".join(" ".join(line.split()[:4]) for line in TRA.splitlines())
    (tmp_path / "m.tra").write_text(bare)
    assert cl.load_model(tmp_path / "m.tra", gamma=0.9).actions is None


def test_rewards_of_transitions_are_expectations(tmp_path: Path) -> None:
    (tmp_path / "m.tra").write_text(TRA)
    (tmp_path / "m.toll.trew").write_text("3 4 1\n0 0 1 10\n")
    toll = cl.load_model(tmp_path / "m.tra", gamma=0.9, reward="toll")
    assert toll.r[0, 0] == pytest.approx(3.0)
    assert toll.averaged is not None and np.argwhere(toll.averaged).tolist() == [[0, 0, 0]]
    lines = CSV.replace("s=0,go,s=1,0.3,1.5", "s=0,go,s=1,0.3,11.5")
    (tmp_path / "m.csv").write_text(lines)
    assert cl.load_model(tmp_path / "m.csv", **HOW).r[0, 0] == pytest.approx(0.7 * 1.5 + 0.3 * 11.5)


def test_umb_as_other_tools_write_it(tmp_path: Path) -> None:
    """Compressed, rational numbers, rewards of states and branches, no actions, bits in whole bytes, valuations."""
    third = [(2, 3), (1, 3), (1, 1)]
    rationals = b"".join(x.to_bytes(8, "little") for pair in third for x in pair)
    double = {"type": "double", "size": 64}
    rewards = {"r": {"alias": "gain", "applies-to": ["states", "branches"], "type": double}}
    counts = {"#states": 2, "#initial-states": 1, "#choices": 2, "#branches": 3, "#choice-actions": 0, "#players": 0}
    system = {"time": "discrete", **counts, "branch-probability-type": {"type": "rational"}}
    variables = [
        {"name": "x", "type": {"type": "int", "size": 3}, "offset": 1},
        {"name": "ok", "type": {"type": "bool", "size": 1}},
    ]
    valuations = {"states": {"unique": True, "classes": [{"variables": [*variables, {"padding": 4}]}]}}
    index = {"format-version": 0, "transition-system": system, "annotations": {"rewards": rewards}}
    files = {
        "index.json": json.dumps(index | {"valuations": valuations}).encode(),
        "state-to-choices.bin": np.array([0, 1, 2], "<u8").tobytes(),
        "choice-to-branches.bin": np.array([0, 2, 3], "<u8").tobytes(),
        "branch-to-target.bin": np.array([0, 1, 1], "<u8").tobytes(),
        "branch-to-probability.bin": rationals,
        "state-is-initial.bin": b"\x02",
        "annotations/rewards/r/states/values.bin": np.array([5.0, 0.0]).tobytes(),
        "annotations/rewards/r/branches/values.bin": np.array([3.0, 6.0, 1.0]).tobytes(),
        "valuations/states/valuations.bin": bytes([0b1111, 0b0010]),
    }
    for mode in ("w", "w:gz", "w:bz2", "w:xz"):
        pack(tmp_path / "m.umb", files, mode)
        found = cl.load_model(tmp_path / "m.umb", gamma=0.9)
        np.testing.assert_allclose(found.P[:, 0], [[2 / 3, 1 / 3], [0, 1]], atol=0)
        assert found.r[:, 0].tolist() == pytest.approx([5 + 4, 1]) and found.rho.tolist() == [0, 1]
        assert found.states == ("x=0,ok", "x=3,!ok")
        assert found.averaged is not None and found.averaged[0, :, 0].tolist() == [True, False]
    assert tarfile.is_tarfile(tmp_path / "m.umb")


# ---------------------------------------------------------------------------------------------- tables, names and files


class Frame:
    """What is used of a DataFrame."""

    def __init__(self, data: dict[str, list[Any]]) -> None:
        self.columns, self._data = list(data), data

    def __getitem__(self, name: str) -> list[Any]:
        return self._data[name]


def test_tables_from_frames_dicts_and_files_are_the_same(tmp_path: Path) -> None:
    head, *rows = (line.split(",") for line in CSV.splitlines())
    columns = {name: [row[n] if n < 3 else float(row[n]) for row in rows] for n, name in enumerate(head)}
    (tmp_path / "m.csv").write_text(CSV)
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    wanted = cl.from_table(tmp_path / "m.csv", **HOW)
    for table in (columns, Frame(columns), str(tmp_path / "bom.csv")):
        assert_same(cl.from_table(table, **HOW), wanted)
    pandas = pytest.importorskip("pandas")
    assert_same(cl.from_table(pandas.read_csv(tmp_path / "m.csv"), **HOW), wanted)


def test_numbers_keep_their_order_and_are_no_names() -> None:
    table = {"state": [2, 0, 1], "action": [0, 0, 0], "next_state": [0, 1, 2], "probability": [1.0] * 3}
    found = cl.from_table(table | {"reward": [20.0, 0.0, 10.0]}, gamma=0.5, initial=2)
    assert found.states is None and found.actions is None
    assert found.r[:, 0].tolist() == [0, 10, 20] and found.rho.tolist() == [0, 0, 1]


def test_a_next_state_without_rows_is_an_error_unless_it_is_terminal() -> None:
    table = {"state": ["a"], "action": ["go"], "next_state": ["end"], "probability": [1], "reward": [2]}
    with pytest.raises(cl.InputError, match="table, row 0: next_state 'end' has no rows of its own"):
        cl.from_table(table, gamma=0.9)
    found = cl.from_table(table, gamma=0.9, terminal=["end"])
    assert found.states == ("a", "end") and found.r.ravel().tolist() == [2, 0] and found.P[1, 0].tolist() == [0, 1]


def test_names_are_kept_in_files_and_no_digest_changes(tmp_path: Path) -> None:
    named = machine()
    named.save(tmp_path / "m.npz")
    assert cl.CMDP.load(tmp_path / "m.npz").states == named.states
    bare = cl.zoo.garnet(3, 2, 2)
    bare.save(tmp_path / "b.npz")
    assert not {"states", "actions"} & set(np.load(tmp_path / "b.npz").files) & {"states", "actions"}
    assert not {"states", "actions", "costs"} & named.arrays().keys()  # what the digest is made of
    assert named.tightened(0.1).states == named.states
    for wrong in (["a"], "abc", ["a", "a", "b"]):
        with pytest.raises(cl.InputError, match=r"^states "):
            cl.CMDP(named.P, named.r, gamma=0.9, available=named.available, states=wrong)


def test_costs_come_back_as_costs() -> None:
    model = machine()
    assert model.costs == (False, True, True)
    described = describe_cmdp(model)
    np.testing.assert_array_equal(described.rewards["energy"], -model.g[1])
    np.testing.assert_array_equal(described.rewards["sales"], model.g[0])


# ----------------------------------------------------------------------------------------------------- policies out


def test_policies_by_name(tmp_path: Path) -> None:
    model = machine()
    assert model.states
    pi = np.array([[0.25, 0.75, 0], [0, 0, 1], [0, 1, 0]])
    cl.save_policy(pi, tmp_path / "p.csv", model)
    lines = (tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["state,action,probability", "new,run,0.25", "new,fix,0.75"] and len(lines) == 5
    assert lines[4] == '"é,""x""",fix,1.0'
    mixture = cl.Mixture([0.5, 0.5], [pi, pi])
    cl.save_policy(mixture, tmp_path / "p.json", model)
    stored = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert stored["schema"] == "clearance/policy-table/1" and len(stored["components"]) == 2
    assert stored["components"][1] == {
        "weight": 0.5,
        "policy": {"new": {"run": 0.25, "fix": 0.75}, "worn out": {"sell": 1.0}, model.states[2]: {"fix": 1.0}},
    }
    cl.save_policy(mixture, tmp_path / "m.csv", model)
    assert (tmp_path / "m.csv").read_text(encoding="utf-8").splitlines()[1] == "0,0.5,new,run,0.25"
    cl.save_policy(np.array([0, 2, 1]), tmp_path / "p.npz", model)
    assert cl.Mixture.load(tmp_path / "p.npz").pi[0].argmax(1).tolist() == [0, 2, 1]
    cl.save_policy(cl.optimum(cl.zoo.two_state()), tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text().startswith("state,action,probability\n0,")


def test_a_policy_that_is_none_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    model = machine()
    for wrong, words in (
        (np.eye(3), "takes action 'fix' at state 'worn out', which has no such action"),
        (np.eye(2), "policy has shape"),
        (np.array([0, 5, 1]), r"actions are 0\.\.2"),
        (np.full((3, 3), 0.5), "sums to"),
    ):
        with pytest.raises(cl.InputError, match=words):
            cl.save_policy(wrong, tmp_path / "p.csv", model)
    with pytest.raises(cl.InputError, match=r"must end in one of \.npz, \.csv, \.json"):
        cl.save_policy(np.eye(3), tmp_path / "p.txt")
    assert not list(tmp_path.iterdir())


def test_sparse_models_come_back_too(tmp_path: Path) -> None:
    model = cl.zoo.maintenance_discounted(900)
    assert model.is_sparse and sparse.issparse(model.P)
    for suffix in (".csv", ".drn", ".umb"):
        cl.save_model(model, tmp_path / f"m{suffix}")
        found = cl.load_model(tmp_path / f"m{suffix}", **asked(model))
        assert found.is_sparse and abs(found.P - model.P).nnz == 0 and np.array_equal(found.h, model.h)


def test_the_page_is_as_short_as_it_says() -> None:
    """From a table of 2,000 states to a certified policy: at most ten lines of Python, two commands. They run in
    `test_blocks_run`.
    """
    page = Path(__file__).resolve().parents[2] / "docs" / "how_to" / "import_a_model.md"
    found = blocks(page.read_text(encoding="utf-8"))
    python = next(block.text for block in found if 'from_table("plant.csv"' in block.text)
    assert "save_policy" in python and len(python.splitlines()) <= 10
    shell = next(block for block in found if "optimum plant.csv" in block.text)
    assert len(lines_of(shell)) == 2


def test_the_start_of_a_table_is_in_every_row_of_a_state() -> None:
    table = {
        "state": ["a", "a", "b"],
        "action": ["x", "y", "x"],
        "next_state": ["b", "a", "a"],
        "probability": [1, 1, 1],
    }
    table |= {"reward": [1, 2, 3]}

    def start(column: Sequence[float], **how: Any) -> list[float]:
        return cl.from_table(table | {"initial": column}, gamma=0.9, **how).rho.tolist()

    assert start([0.25, 0.25, 0.75]) == [0.25, 0.75]
    assert start([9, 8, 7], initial="b") == [0, 1], "the argument stands in place of the column"
    assert start([0, 0, 0], limits={"initial": 5}) == [0.5, 0.5], "a cost of that name is no start"
    for wrong, words in (([1, 0, 0], "table, row 1: initial is 0.0, and 1.0 in a row above"),
                         ([0.5, 0.5, 1], "table: initial sums to 1.5 over the states, must be 1")):  # fmt: skip
        with pytest.raises(cl.InputError, match=words):
            start(wrong)


def test_drn_leaves_out_units_where_names_stay_apart(tmp_path: Path) -> None:
    base = cl.zoo.two_state()
    for names, limits in ((["heat [K]", "wear"], {"heat": 1, "wear": 1}), (["heat [K]", "heat"], None)):
        model = cl.CMDP(base.P, base.r, cost=np.stack([base.r, base.r]), limit=[1, 1], gamma=0.9, names=names)
        if limits is None:
            with pytest.raises(cl.InputError, match=r"DRN has no reward 'heat \[K\]' with spaces or brackets"):
                cl.save_model(model, tmp_path / "m.drn")
        else:
            cl.save_model(model, tmp_path / "m.drn")
            assert cl.load_model(tmp_path / "m.drn", gamma=0.9, limits=limits).names == ("heat", "wear")
