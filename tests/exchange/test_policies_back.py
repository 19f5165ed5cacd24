"""Policies that were written by name are read back: to certify them, and to act with them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.cli import main

SUFFIXES = (".csv", ".json", ".npz")


def machine(**how: Any) -> cl.CMDP:
    """Three states; names that a spreadsheet would take for formulas."""
    P = np.zeros((3, 2, 3))
    P[0, 0], P[1, 0], P[2, 0] = [0.6, 0.4, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]
    P[:, 1, 0] = 1.0
    cost = [[0.0, 0.0], [0.1, 0.0], [1.0, 0.5]]
    names: Any = {"names": ["wear"], "states": ["new", "=worn", "b, c"], "actions": ["run", "-fix"]}
    r, how = [[2.0, -1.0], [1.5, -1.0], [1.0, -4.0]], how or {"gamma": 0.9, "limit": 0.5}
    return cl.CMDP(P, r, cost=[cost], rho=[1.0, 0.0, 0.0], **how, **names)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("how", [{"gamma": 0.9, "limit": 0.5}, {"horizon": 4, "limit": 0.2}])
def test_a_policy_comes_back_to_the_bit(suffix: str, how: dict[str, Any], tmp_path: Path) -> None:
    model, path = machine(**how), tmp_path / f"best{suffix}"
    best = cl.optimum(model)
    cl.save_policy(best, path, model)
    assert np.array_equal(cl.Mixture.load(path, model).pi[0], best.policy)
    found = cl.certify(model, path)
    assert found.verdict == "CERTIFIED" and found.J_r == cl.certify(model, best).J_r
    assert cl.actions_at(model, path, "=worn") == cl.actions_at(model, best, 1)


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_mixtures_and_numbers_come_back_too(suffix: str, tmp_path: Path) -> None:
    model, path = cl.zoo.ding2023(), tmp_path / f"mix{suffix}"
    pi = np.random.default_rng(0).dirichlet(np.ones(model.A), (2, model.S))
    mixture = cl.Mixture([0.25, 0.75], pi)
    cl.save_policy(mixture, path, model)
    again = cl.Mixture.load(path, model)
    assert np.array_equal(again.pi, mixture.pi) and np.array_equal(again.weights, mixture.weights)
    policy = cl.load_policy(path, seed=0)
    with pytest.raises(cl.InputError, match="mixture of 2: call reset"):
        policy.act(0)
    policy.reset()
    assert isinstance(policy.act(0), int) and isinstance(next(iter(policy.actions_at(0))), int)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_policies_act_by_the_names_of_states(suffix: str, tmp_path: Path) -> None:
    model, path = machine(), tmp_path / f"best{suffix}"
    cl.save_policy(cl.Mixture.of_actions([0, 1, 1], 3, 2), path, model)
    policy = cl.load_policy(path)
    assert policy.act("new") == "run" and policy.act("b, c") == "-fix"
    assert list(policy.act(["new", "=worn"])) == ["run", "-fix"]
    assert policy.actions_at("=worn") == {"-fix": 1.0}
    number = r"the number of a state, 0 \.\. 2, got \[3\]" if suffix == ".npz" else "give the name of a state, or load"
    for wrong, words in (("neww", "'neww' is no state of this policy; did you mean new"), (3, number)):
        with pytest.raises(cl.InputError, match=words):
            policy.act(wrong)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_most_likely_action_is_another_policy_in_every_format(suffix: str, tmp_path: Path) -> None:
    model, path = machine(), tmp_path / f"best{suffix}"
    cl.save_policy(cl.optimum(model), path, model)
    policy = cl.load_policy(path)
    with pytest.warns(cl.NotCertifiedWarning, match="always taking the most likely one is not covered") as said:
        policy.act("new", deterministic=True)
        policy.act("new", deterministic=True)
    assert len(said) == 1


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_numbers_are_never_those_of_another_order(suffix: str, tmp_path: Path) -> None:
    """The first action of the file is the second one of the model: a number would stand for another action."""
    model, path = machine(), tmp_path / f"best{suffix}"
    cl.save_policy(cl.Mixture.of_actions([1, 0, 0], 3, 2), path, model)
    policy = cl.load_policy(path)
    assert policy.act("new") == "-fix"
    with pytest.raises(cl.InputError, match="give the path of its file"):
        cl.certify(model, policy)
    for asked in (policy.act, policy.actions_at):
        with pytest.raises(cl.InputError, match="give the name of a state"):
            asked(0)


def test_a_policy_of_a_horizon_counts_its_steps(tmp_path: Path) -> None:
    model = machine(horizon=3, limit=5.0)
    cl.save_policy(np.eye(2)[[[0, 0, 0], [1, 1, 1], [0, 0, 0]]], tmp_path / "h.csv", model)
    policy = cl.load_policy(tmp_path / "h.csv")
    assert [policy.act("new") for _ in range(3)] == ["run", "-fix", "run"]
    with pytest.raises(cl.InputError, match="over after 3 steps"):
        policy.act("new")
    policy.reset()
    assert policy.act("new") == "run" and policy.act("new", t=1) == "-fix"
    assert policy.actions_at("new", 1) == {"-fix": 1.0} == cl.actions_at(model, tmp_path / "h.csv", "new", t=1)


def test_the_certificate_travels(tmp_path: Path) -> None:
    model = machine()
    best = cl.optimum(model)
    for suffix in (".json", ".npz"):
        cl.save_policy(best, tmp_path / f"p{suffix}", model)
        found = cl.load_policy(tmp_path / f"p{suffix}").certificate
        assert found is not None and found.verdict == "CERTIFIED" and found.J_r == best.J_r
    broken = cl.certify(model, np.eye(2)[[0, 0, 0]])
    cl.save_policy(np.eye(2)[[0, 0, 0]], tmp_path / "p.json", model, certificate=broken)
    with pytest.warns(cl.NotCertifiedWarning, match="VIOLATED") as said:
        cl.load_policy(tmp_path / "p.json")
    assert said[0].filename == __file__, "the warning points to the line that loads the policy"


def test_a_run_folder_knows_the_names(tmp_path: Path) -> None:
    solution = cl.solve(machine(), cl.CNPGPD(K=20, kappa=0.0), out=tmp_path / "run")
    policy = cl.load_policy(tmp_path / "run")
    policy.reset()
    assert policy.act("new") in ("run", "-fix")
    assert cl.certify(machine(), tmp_path / "run").J_r == solution.certificate.J_r


def test_the_command_line_writes_says_so_and_certifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine().save(tmp_path / "m.npz")
    for suffix in (".csv", ".json"):
        out = str(tmp_path / f"best{suffix}")
        assert main(["optimum", str(tmp_path / "m.npz"), "--out", out]) == 0
        assert capsys.readouterr().out.rstrip().endswith(f"best{suffix}")
        assert main(["certify", str(tmp_path / "m.npz"), out]) == 0
        assert "CERTIFIED" in capsys.readouterr().out
    assert main(["optimum", str(tmp_path / "m.npz"), "--out", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["out"] == out


CSV = "state,action,probability\nnew,run,1\n'=worn,run,0.5\n'=worn,'-fix,0.5\n\"b, c\",'-fix,1\n"
BAD_CSV = {
    "empty": ("", "line 1: the column state must be there once; there are none"),
    "only a header": ("state,action,probability\n", "has no rows"),
    "no probability": (CSV.replace("probability", "p"), "the column probability must be there once"),
    "twice": (CSV.replace("state,", "state,state,"), "the column state must be there once"),
    "fields": (CSV.replace("new,run,1", "new,run"), "line 2: has 2 fields, the header has 3"),
    "unknown state": (CSV.replace("new,", "neww,"), "line 2: 'neww' is no state of this model; did you mean new"),
    "unknown action": (CSV.replace("run,0.5", "rnu,0.5"), "line 3: 'rnu' is no action of this model"),
    "state missing": (CSV.replace("new,run,1\n", ""), "probability of state 'new' is missing: it has no rows"),
    "pair twice": (CSV + "new,run,1\n", "line 6: action 'run' of state 'new' is there twice"),
    "sum": (CSV.replace("run,0.5", "run,0.4"), "probability of state '=worn' sums to 0.9, must be 1"),
    "text": (CSV.replace("run,0.5", "run,half"), "line 3: probability must be a number in [0, 1], got 'half'"),
    "negative": (CSV.replace("run,0.5", "run,-0.5"), "line 3: probability must be a number in [0, 1]"),
    "NaN": (CSV.replace("run,0.5", "run,nan"), "line 3: probability must be a number in [0, 1], got 'nan'"),
    "above one": (CSV.replace("run,1", "run,1.5"), "line 2: probability must be a number in [0, 1]"),
    "empty state": (CSV.replace("new,run", ",run"), "line 2: state is empty"),
    "empty action": (CSV.replace("new,run", "new,"), "line 2: action is empty"),
    "semicolons": (CSV.replace(",", ";"), "the separator is probably ';': save the file with commas"),
    "open quote": (CSV.replace("new", '"new'), "text is no CSV"),
    "time as text": ("time," + CSV.replace("\n", "\nnow,").removesuffix("now,"), "line 2: time must be a whole number"),
    "time with a gap": ("time," + CSV.replace("\n", "\n1,").removesuffix("1,"), "must be 0, 1, … without gaps"),
    "no weight": ("component," + CSV.replace("\n", "\n1,").removesuffix("1,") + "0,new,run,1\n", "weight is missing"),
}


@pytest.mark.parametrize("name", BAD_CSV)
def test_malformed_tables_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    text, words = BAD_CSV[name]
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(cl.InputError) as e:
        cl.certify(machine(), tmp_path / "p.csv")
    assert words in str(e.value) and "p.csv" in str(e.value) and "\n" not in str(e.value)


def good() -> dict[str, Any]:
    table = {"new": {"run": 1.0}, "=worn": {"run": 0.5, "-fix": 0.5}, "b, c": {"-fix": 1.0}}
    return {"schema": "clearance/policy-table/1", "components": [{"weight": 1.0, "policy": table}]}


BAD_JSON: dict[str, tuple[Any, str]] = {
    "no object": ([], "schema"),
    "no schema": ({"components": []}, "schema"),
    "no components": ({"schema": "clearance/policy-table/1"}, "components must be a list"),
    "empty": (good() | {"components": []}, "has no rows"),
    "a number": (good() | {"components": [3]}, "component 0: policy must be an object"),
    "no weight": (good() | {"components": [{"policy": {"new": {"run": 1}}}]}, "weight must be a number in [0, 1]"),
    "weights": (good() | {"components": [good()["components"][0] | {"weight": 0.5}]}, "weights sum to 0.5"),
    "a list": (good() | {"components": [{"weight": 1, "policy": {"new": ["run"]}}]}, "state 'new' must be an object"),
    "true": (good() | {"components": [{"weight": 1, "policy": {"new": {"run": True}}}]}, "must be a number in [0, 1]"),
    "unknown": (good() | {"components": [{"weight": 1, "policy": {"old": {"run": 1}}}]}, "'old' is no state"),
    "certificate": (good() | {"certificate": 3}, "certificate must be an object"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_malformed_json_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    data, words = BAD_JSON[name]
    (tmp_path / "p.json").write_text(json.dumps(data))
    with pytest.raises(cl.InputError) as e:
        cl.certify(machine(), tmp_path / "p.json")
    assert words in str(e.value) and "p.json" in str(e.value) and "\n" not in str(e.value)


def test_a_table_that_would_not_fit_is_not_allocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "p.csv").write_text("state,action,probability\n0,99999999,1\n")
    monkeypatch.setenv("CLEARANCE_MAX_MEMORY", "1MB")
    with pytest.raises(cl.InputError, match="does not fit into memory"):
        cl.load_policy(tmp_path / "p.csv")


@pytest.mark.parametrize("policy", [
    {"b, c": "-fix", "new": "run", "=worn": {"run": 0.25, "-fix": 0.75}},
    {2: 1, 0: 0, 1: {0: 0.25, "-fix": 0.75}},
])  # fmt: skip
def test_a_policy_may_be_given_by_names(policy: Any, tmp_path: Path) -> None:
    model, table = machine(), [[1.0, 0.0], [0.25, 0.75], [0.0, 1.0]]
    assert cl.certify(model, policy).J_r == cl.certify(model, table).J_r
    cl.save_policy(policy, tmp_path / "p.csv", model)
    assert cl.certify(model, tmp_path / "p.csv").J_r == cl.certify(model, table).J_r
    assert cl.actions_at(model, policy, "=worn") == {"run": 0.25, "-fix": 0.75}
    assert cl.certify(model, ["run", "-fix", "-fix"]).J_r == cl.certify(model, [0, 1, 1]).J_r


@pytest.mark.parametrize("policy, words", [
    ({"new": "run", "=worn": "run"}, "policy has no action for state 'b, c'; give one for each of 3 states"),
    ({"neww": "run"}, "policy: 'neww' is no state of this model; did you mean new?"),
    ({"new": "rnu"}, "policy: 'rnu' is no action of this model"),
    ({0: 0, 1: 0, 2: {0: 0.5}}, "sums to 0.5"),
    (["run", "run"], "policy must be one action for each of 3 states"),
])  # fmt: skip
def test_names_that_do_not_fit_are_refused(policy: Any, words: str) -> None:
    for asked in (lambda: cl.certify(machine(), policy), lambda: cl.actions_at(machine(), policy, 0)):
        with pytest.raises(cl.InputError, match=re.escape(words)):
            asked()


def test_models_and_policies_are_told_apart(tmp_path: Path) -> None:
    model = machine()
    cl.save_model(model, tmp_path / "m.csv")
    cl.save_policy(cl.optimum(model), tmp_path / "p.csv", model)
    with pytest.raises(cl.InputError, match="it is a model and no policy"):
        cl.certify(model, tmp_path / "m.csv")
    with pytest.raises(cl.InputError, match="it is a policy and no model"):
        cl.from_table(tmp_path / "p.csv", gamma=0.9)
    for verb in (cl.optimum, cl.solve):
        with pytest.raises(cl.InputError, match="got str: load it first: load_model"):
            verb(str(tmp_path / "m.csv"))  # type: ignore[call-overload]


def test_names_are_written_where_they_are_known(tmp_path: Path) -> None:
    model = machine()
    cl.save_policy(cl.solve(model, cl.CNPGPD(K=5, N=1)), tmp_path / "s.csv")
    assert "new,run," in (tmp_path / "s.csv").read_text()
    cl.save_policy(cl.optimum(model), tmp_path / "o.csv")  # an Optimum does not know them
    with pytest.raises(cl.InputError, match=r"'0' is no state .* save it again with the model as third argument"):
        cl.certify(model, tmp_path / "o.csv")


def test_an_infeasible_optimum_is_not_written(tmp_path: Path) -> None:
    model = machine().replace(limit=-1.0)
    best = cl.optimum(model)
    with pytest.raises(cl.InputError, match=r"o.csv was not written: no policy meets the limits.*give its \.policy"):
        cl.save_policy(best, tmp_path / "o.csv", model)
    assert best.status == "infeasible" and not (tmp_path / "o.csv").exists()
    cl.save_policy(best.policy, tmp_path / "o.csv", model)


def test_missing_actions_are_named() -> None:
    table = {"state": ["up", "down"], "action": ["run", "wait"], "next_state": ["down", "up"], "probability": [1, 1]}
    model = cl.from_table(table | {"reward": [1, 0]}, gamma=0.9)
    with pytest.raises(cl.InputError, match="takes action 'run' at state 'down', which has no such action"):
        cl.certify(model, ["run", "run"])
    with pytest.raises(cl.InputError, match=r"gave action 0 at state 1 \(down\), which has no such action"):
        cl.certify(model, lambda state: 0)


def test_the_right_keyword_is_named() -> None:
    model, wrong = machine(), dict[str, Any](limits={"wear": 1.0})
    with pytest.raises(TypeError, match=r"^CMDP\(\) has no argument limits=…: give limit=… in its place$"):
        cl.CMDP(model.P, model.r, gamma=0.9, **wrong)
    with pytest.raises(TypeError, match=r"replace\(\) has no argument limits=…: give limit=…"):
        model.replace(**wrong)
    for verb in (cl.from_table, cl.load_model):
        with pytest.raises(TypeError, match=r"has no argument limit=…: give limits=…"):
            verb("m.csv", gamma=0.9, limit={"wear": 1.0})  # type: ignore[call-arg]
