"""Imported models on the command line: one answer whatever the format, and one line for what is wrong."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from runs import cli

import clearance as cl

HOW = "--gamma 0.95 --limit breakdowns=0.2"


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cl.CMDP:
    """A model with names, as plant.csv, .drn, .umb, .npz and .tra."""
    monkeypatch.chdir(tmp_path)
    base = cl.zoo.maintenance()
    model = cl.CMDP(
        base.P, base.r, cost=-base.g, limit=0.2, rho=base.rho, gamma=0.95, names=["breakdowns"],
        states=[*(f"worn-{i}" for i in range(10)), "broken"], actions=["run", "replace"],
    )  # fmt: skip
    for suffix in (".csv", ".drn", ".umb", ".npz"):
        cl.save_model(model, f"plant{suffix}")
    _write_prism(model)
    return model


def _write_other_files(model: cl.CMDP) -> None:
    """Write files that are no models, and a table that has one row too many."""
    Path("ten.py").write_text("TEN = 10")
    run = np.eye(model.A)[np.zeros(model.S, int)]
    for suffix in ("csv", "json", "npz"):
        cl.save_policy(run, f"best.{suffix}", model)
    Path("twice.csv").write_text(
        "state,action,next_state,probability,reward\n" + "a,go,a,0.5,1\na,go,b,0.5,1\n" * 2 + "b,go,a,1,0\n"
    )


def _write_prism(model: cl.CMDP) -> None:
    assert model.actions
    s, a, t = np.nonzero(model.P)
    rows = [f"{i} {j} {k} {float(model.P[i, j, k])!r} {model.actions[j]}" for i, j, k in zip(s, a, t, strict=True)]
    Path("plant.tra").write_text("\n".join([f"{model.S} {model.S * model.A} {len(rows)}", *rows]))
    Path("plant.lab").write_text('0="init"\n0: 0\n')
    for name, x in (("reward", model.r), ("breakdowns", -model.g[0])):
        lines = [f"{i} {j} {k} {float(x[i, j])!r}" for i, j, k in zip(s, a, t, strict=True)]
        Path(f"plant.{name}.trew").write_text("\n".join([f"{model.S} {model.S * model.A} {len(rows)}", *lines]))


def test_the_actions_of_one_state(
    plant: cl.CMDP, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(words: str) -> list[dict[str, object]]:
        return json.loads(cli(f"{words} --json", capsys)[1])["policy"]

    (row,) = rows("optimum plant.npz --state broken --out best.csv")
    assert {row["action"]: row["probability"]} == cl.actions_at(plant, cl.optimum(plant), "broken")
    assert rows("certify plant.npz best.csv --state broken") == rows("optimum plant.npz --state 10") == [row]
    assert {row["state"] for row in rows("solve plant.npz --K 5 --state worn-0")} == {"worn-0"}
    status, out, _ = cli("optimum plant.npz --state broken", capsys)
    assert status == 0 and re.search(r"^broken +run +1$", out, re.MULTILINE) and "randomises" not in out
    for verb in ("optimum plant.npz", "certify plant.npz best.csv", "solve plant.npz"):
        assert cli(f"{verb} --state brokn", capsys)[2] == (
            "clearance: --state: 'brokn' is no state of this model; did you mean broken?\n"
        )
    assert cli("solve plant.npz --K 5 --out run", capsys)[0] in (0, 4)
    monkeypatch.setattr("clearance.cli.solve_command.resume", None)  # never called: the name is checked before
    said = cli("solve --resume run --state brokn", capsys)
    assert said[0] == 2 and "--state: 'brokn' is no state of this model; did you mean broken?" in said[2]
    assert "--state is for finite models" in cli("solve crpo-cartpole --state 1", capsys)[2]


@pytest.mark.parametrize("suffix", ["csv", "drn", "umb", "tra"])
def test_the_optimum_does_not_depend_on_the_format(
    plant: cl.CMDP, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = cli(f"optimum plant.{suffix} {HOW} --reward reward --out best.csv --json", capsys)
    found = json.loads(out)
    assert (
        status == 0
        and found["verdict"] == "CERTIFIED"
        and found["names"] == ["breakdowns"]
        and found["costs"] == [True]
    )
    assert found["J_r"] == pytest.approx(cl.optimum(plant).J_r, abs=1e-9)
    with open("best.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["state"] == ("0" if suffix == "tra" else "worn-0") and rows[0]["action"] == "run"
    total = {row["state"]: 0.0 for row in rows}
    for row in rows:
        total[row["state"]] += float(row["probability"])
    assert len(total) == plant.S and all(abs(p - 1) < 1e-9 for p in total.values())


def test_people_read_costs_as_costs(plant: cl.CMDP, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = cli(f"optimum plant.umb {HOW}", capsys)
    assert status == 0 and "≤ 0.2" in out


def test_limits_may_be_given_one_by_one(plant: cl.CMDP, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [
        json.loads(cli(f"check plant.csv --gamma 0.95 --reward breakdowns {limits} --json", capsys)[1])["b"]
        for limits in ("--limit reward=9 --limit breakdowns=0.2", "--limits reward=9,breakdowns=0.2")
    ]
    assert answers[0] == answers[1] == [-9, -0.2]


@pytest.mark.parametrize(
    "command, words",
    [
        ("optimum plant.umb", "plant.umb: gamma is missing"),
        ("optimum plant.umb --gamma 0.9 --reward gain", "plant.umb: reward: there is no 'gain'"),
        ("optimum plant.umb --gamma 0.9 --limit energy=4", "plant.umb: limits: there is no 'energy'"),
        (
            "optimum plant.umb --gamma 0.9 --limit 4",
            "plant.umb: limits must go by name: give --limit NAME=NUMBER for each",
        ),
        ("optimum plant.csv --gamma 0.9 --limits 4,5", "for each; the columns are reward, breakdowns"),
        ("optimum plant.csv --gamma 0.9 --b 4", "plant.csv: b must go by name: give --b NAME=NUMBER for each"),
        ("optimum plant.csv --limits 4,5", "plant.csv: gamma is missing: give --gamma below 1"),
        ("optimum plant.csv --reward gain", "plant.csv: gamma is missing"),
        ("optimum plant.drn --reward gain", "plant.drn: gamma is missing"),
        ("optimum plant.csv --gamma 0.9 --limit breakdown=1", "is missing; there are state, action, next_state, proba"),
        ("optimum plant.csv --gamma 0.9 --limit breakdown=1", "did you mean breakdowns?"),
        ("optimum plant.csv --gamma 0.9 --limit breakdowns<=1", "write --limit breakdowns=1 for an upper limit, got"),
        ("optimum plant.csv --gamma 0.9 --limit breakdowns≥1", "write --b breakdowns=1 for a lower limit, got"),
        ("optimum plant.csv --gamma 0.9 --limit breakdowns:1", "write --limit breakdowns=1 for an upper limit, got"),
        ("optimum plant.csv --gamma 0.9 --limit breakdowns", "must be NUMBER,… or NAME=NUMBER,… with each name once"),
        ("optimum plant.csv --gamma 0.9 --limit P(breakdowns>1)<0.1", "must be P(NAME>C)<=P or CVaR0.9(NAME)<=C"),
        ("optimum plant.umb --gamma 0.9 --initial worn-99", "plant.umb: initial: there is no state 'worn-99'"),
        ("optimum plant.umb --gamma 0.9 --limit breakdowns=1 --limit breakdowns=2", "must be given once for each name"),
        ("optimum none.drn --gamma 0.9", "none.drn: no such file"),
        ("optimum plant.lab", "plant.lab: is read with its .tra file; give that one"),
        ("check ten.py", "ten.py: unknown kind of file; a model file ends in .npz, .csv,"),
        ("check ten.py", "a function in it that makes the model is named ten:FUNCTION"),
        ("check best.json --gamma 0.9", "best.json: unknown kind of file"),
        ("check plant", "PROBLEM 'plant' is not a model file"),
        ("check plant", "; did you mean plant.csv, plant.drn, plant.npz, plant.tra or plant.umb?"),
        ("certify best.csv plant.csv", "best.csv, line 1: has no next_state, it is a policy and no model"),
        ("certify best.npz plant.npz", "best.npz: holds a policy (pi), it is no model"),
        ("frontier plant.npz --at 0.1,0.2", "optimum plant.npz --limit breakdowns=0.1"),
        ("optimum plant.csv --gamma 0.9 --reward profit", "; exported files call it reward"),
        ("optimum plant.npz --initial worn-O", "plant.npz: initial: there is no state 'worn-O'; states are worn-0, "),
        ("optimum plant.npz --initial brokne", "did you mean broken?"),
        ("check twice.csv --gamma 0.9", "; line 4 has the next state of line 2, and repeated rows are added up"),
        ("optimum two-state --reward profit", "reward: two-state has one reward only"),
        ("optimum plant.npz --limit heat=1", "plant.npz: limit: 'heat' is no constraint; there are: breakdowns"),
        ("optimum plant.npz --limit 1,2", "plant.npz: limit has 2 entries for 1 costs"),
        ("optimum plant.npz --limit breakdowns=many", "argument --limit: must be a number, got 'many'"),
        ("optimum plant.npz --b breakdowns=1", "plant.npz: b: 'breakdowns' is a cost; give its upper limit (limit)"),
        ("optimum plant.npz --b 1", "plant.npz: b has 1 entries for 0 utilities"),
        ("optimum plant.npz --gamma 1", "plant.npz: gamma must be in (0, 1), got 1"),
        ("optimum plant.npz --initial worn-99", "plant.npz: initial: there is no state 'worn-99'"),
        ("frontier two-state --limit heat=1", "two-state: limit: 'heat' is no constraint"),
        ("plan two-state --epsilon 0.1 --gamma 2", "two-state: gamma must be in (0, 1), got 2"),
        ("check two-state --num_envs 5", "--num_envs is for environments; two-state is a model"),
        ("check plant.csv --gamma 0.9 --num_envs 5", "--num_envs is for environments; plant.csv is a model"),
        ("solve gym:CartPole-v1 --initial 3", "--initial is for imported models"),
        ("compare plant.csv", "plant.csv: gamma is missing"),
        ("sweep plant.csv --grid seed=0:2 --out s", "gamma is missing"),
        ("optimum plant.npz --out best.txt", "--out best.txt: must end in one of .npz, .csv, .json"),
        ("export plant.npz --to plant.pkl", "--to plant.pkl: must end in one of .npz, .csv, .drn, .umb"),
        ("export plant.npz --to plant.npz", "is the model itself"),
        ("export plant.npz --to policy.csv --what policy", "plant.npz is no run folder"),
        ("export plant.umb --to p.npz", "plant.umb: gamma is missing"),
    ],
)
def test_one_line_and_status_2(plant: cl.CMDP, command: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    _write_other_files(plant)
    before = sorted(Path().iterdir())
    status, out, err = cli(command, capsys)
    assert status == 2 and not out and words in err and err.count("\n") == 1, err
    assert sorted(Path().iterdir()) == before


def test_export_between_formats(plant: cl.CMDP, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(f"export plant.csv {HOW} --to a.umb", capsys)[0] == 0
    assert cli(f"export a.umb {HOW} --to b.drn", capsys)[0] == 0
    assert cli(f"export b.drn {HOW} --to c.npz", capsys)[0] == 0
    found = cl.CMDP.load("c.npz")
    assert np.array_equal(found.P, plant.P) and np.array_equal(found.h, plant.h) and found.costs == (True,)
    assert found.states == plant.states and found.actions == plant.actions and found.b.tolist() == [-0.2]


def test_a_sweep_from_a_table(plant: cl.CMDP, capsys: pytest.CaptureFixture[str]) -> None:
    """The file says neither discount nor limits; the flags do, and an axis may."""
    words = "sweep plant.csv --gamma 0.9 --grid limits=breakdowns=0.5;breakdowns=1 --K 20 --N 2 --out s --json"
    assert cli(words, capsys)[0] in (0, 4)
    runs = [cl.CMDP.load(file) for file in sorted(Path("s").glob("*/problem.npz"))]
    assert [model.b.tolist() for model in runs] == [[-0.5], [-1.0]] and runs[0].states == plant.states


def test_a_run_from_a_table_to_its_policy(plant: cl.CMDP, capsys: pytest.CaptureFixture[str]) -> None:
    """solve, resume with and without the table, and the policy by name."""
    assert cli(f"solve plant.csv {HOW} --K 50 --N 5 --out run --json", capsys)[0] in (0, 4)
    assert cli("solve --resume run --json", capsys)[0] in (0, 4)
    assert cli("solve plant.csv --resume run --json", capsys)[0] in (0, 4)
    assert "where it was" in cli("solve plant.csv --gamma 0.9 --resume run", capsys)[2]
    assert cli("export run --to policy.csv", capsys)[0] == 0
    head, first, *_ = Path("policy.csv").read_text().splitlines()
    assert head.endswith("state,action,probability") and "worn-0" in first
    assert cli("export run --to best.json --what policy", capsys)[0] == 0
    assert "worn-0" in json.loads(Path("best.json").read_text())["components"][0]["policy"]
    assert cli("export run --to model.umb", capsys)[0] == 0
    status, said, _ = cli("export run --to plant_policy.csv", capsys)
    assert status == 0 and Path("plant_policy.csv").read_text().startswith("k,")
    assert "Written: the trace; for the policy: --what policy." in said
    for words in ("trace.csv", "t.csv --what trace"):  # asked for
        assert "--what" not in cli(f"export run --to {words}", capsys)[1]
    assert cl.load_model("model.umb", gamma=0.95).states == plant.states


# ------------------------------------------------------------------------------------------------------- what if?


def test_what_if_from_the_shell(plant: cl.CMDP, capsys: pytest.CaptureFixture[str]) -> None:
    """Limits, discount and start in place of those of an .npz model, in every command that takes one."""
    other = plant.replace(limit={"breakdowns": 0.1}, gamma=0.9, rho=np.eye(plant.S)[1])
    best = cl.optimum(other)
    asked = "--limit breakdowns=0.1 --gamma 0.9 --initial worn-1"
    found = json.loads(cli(f"optimum plant.npz {asked} --out p.npz --json", capsys)[1])
    assert found["J_r"] == pytest.approx(best.J_r, abs=1e-9) and found["b"] == [-0.1]
    assert found["limits"][0]["limit"] == 0.1
    assert json.loads(cli(f"check plant.npz {asked} --json", capsys)[1])["b"] == [-0.1]
    sure = json.loads(cli(f"certify plant.npz p.npz {asked} --json", capsys)[1])
    assert sure["verdict"] == "CERTIFIED" and sure["J_r"] == pytest.approx(best.J_r, abs=1e-9)
    curve = json.loads(cli(f"frontier plant.npz {asked} --points 3 --json", capsys)[1])
    assert curve["own"]["limit"] == 0.1 and curve["own"]["J_r"] == pytest.approx(best.J_r, abs=1e-6)
    assert cli(f"export plant.npz {asked} --to other.npz", capsys)[0] == 0
    again = cl.CMDP.load("other.npz")
    assert again.gamma == 0.9 and again.b.tolist() == [-0.1] and np.array_equal(again.rho, other.rho)
    assert np.array_equal(again.P, plant.P) and again.states == plant.states


def test_what_if_in_runs(plant: cl.CMDP, capsys: pytest.CaptureFixture[str]) -> None:
    """A run keeps what was asked, and is resumed with or without it; so does every point of a sweep."""
    asked = "--limit breakdowns=0.1 --gamma 0.9"
    assert cli(f"solve plant.npz {asked} --K 50 --N 5 --out run --json", capsys)[0] in (0, 4)
    assert cl.CMDP.load("run/problem.npz").b.tolist() == [-0.1]
    assert cli("solve plant.npz --resume run --json", capsys)[0] in (0, 4)
    assert "where it was" in cli("solve plant.npz --gamma 0.8 --resume run", capsys)[2]
    grid = "sweep plant.npz --grid gamma=0.8,0.9 --limit breakdowns=0.1 --K 20 --N 2 --out s --json"
    assert cli(grid, capsys)[0] in (0, 4)
    stored = [cl.CMDP.load(file) for file in sorted(Path("s").glob("*/problem.npz"))]
    assert sorted(m.gamma for m in stored) == [0.8, 0.9] and {m.b.item() for m in stored} == {-0.1}
    table = json.loads(cli(f"compare plant.npz {asked} --methods npgpd --seeds 1 --K 10 --json", capsys)[1])["table"]
    assert len(table) == 1


def test_what_if_of_zoo_models_and_factories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free = json.loads(cli("optimum two-state --b=-100 --json", capsys)[1])
    strict = json.loads(cli("optimum two-state --json", capsys)[1])
    assert free["b"] == [-100] and free["J_r"] > strict["J_r"]
    found = json.loads(cli("optimum clearance.zoo.small:two_state --b=-100 --json", capsys)[1])
    assert found["J_r"] == free["J_r"]


def test_a_reward_with_a_minus_is_minimised(plant: cl.CMDP, capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("plant.csv", "plant.umb", "plant.drn"):
        how = "--gamma 0.95 --reward=-breakdowns"
        found = json.loads(cli(f"optimum {file} {how} --json", capsys)[1])
        least = cl.optimum(cl.load_model(file, gamma=0.95, reward="-breakdowns"))
        assert found["J_r"] == pytest.approx(least.J_r) and -1e-9 <= -found["J_r"] < 0.2


# ---------------------------------------------------------------------------------------------------------- units


def test_units_stand_behind_the_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A unit is part of the name, in brackets; it may be left out where a name is given."""
    file = tmp_path / "shop.csv"
    file.write_text("state,action,next_state,probability,profit [EUR],energy [kWh]\na,fast,a,1,3,2\na,slow,a,1,1,0\n")
    how = "--gamma 0.9 --reward profit --limit energy=5"
    status, out, _ = cli(f"optimum {file} {how} --out {tmp_path}/p.csv", capsys)
    assert status == 0 and "energy [kWh]" in out
    said = json.loads(cli(f"optimum {file} {how} --json", capsys)[1])["limits"][0]
    assert said["name"] == "energy [kWh]" and said["unit"] == "kWh" and said["limit"] == 5
    model = cl.load_model(file, gamma=0.9, reward="profit", limits={"energy": 5})
    assert "energy: 5 ≤ 5 kWh (slack" in str(cl.certify(model, cl.optimum(model)))
    assert "energy ≤ 5 kWh" in repr(model) and model.names == ("energy [kWh]",)
    assert "energy ≤ 4 kWh" in repr(model.replace(limit={"energy": 4}))
    for suffix in (".csv", ".umb", ".npz"):
        cl.save_model(model, tmp_path / f"m{suffix}")
        again = cl.load_model(tmp_path / f"m{suffix}", gamma=0.9, limits={"energy": 5})
        assert again.names == model.names and np.array_equal(again.h, model.h)
    assert cl.frontier(model, "energy", points=2).name == "energy [kWh]"
    with pytest.raises(cl.InputError, match="'heat' is no constraint"):
        model.replace(limit={"heat": 4})


def test_missing_actions_do_not_count_as_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every step of this model costs at least 3 and earns at least 2; action `b` exists in state `y` only."""
    text = "state,action,next_state,probability,reward,energy\nx,a,y,1,2,3\ny,a,x,1,4,5\ny,b,x,1,6,7\n"
    (tmp_path / "m.csv").write_text(text)
    status, out, _ = cli(f"check {tmp_path / 'm.csv'} --gamma 0.9 --limit energy=50 --json", capsys)
    found = json.loads(out)
    assert status == 0 and found["r_range"] == [2, 6] and found["g_range"] == [[-7, -3]]


def test_files_without_limits_say_how_to_give_and_to_store_them(
    plant: cl.CMDP, capsys: pytest.CaptureFixture[str]
) -> None:
    store = "clearance export plant.csv --to plant.npz with"
    for command, words in (
        ("check", "the model is well formed; it has no limits."),
        ("optimum", "there are no limits,"),
    ):
        status, out, _ = cli(f"{command} plant.csv --gamma 0.95", capsys)
        out = " ".join(out.split())
        assert status == 0 and words in out and "every limit" not in out and store in out
        assert "stores none: add --limit NAME=NUMBER for each cost in every command" in out
    shown = {file: " ".join(cli(f"check {file} {HOW}", capsys)[1].split()) for file in ("plant.csv", "plant.npz")}
    assert f"repeat these flags in every command, or store them once: {store} the same" in shown["plant.csv"]
    assert "every command" not in shown["plant.npz"]


def test_certify_judges_the_policy_where_no_policy_is_good_enough(
    plant: cl.CMDP, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli(f"optimum plant.csv {HOW} --out best.csv", capsys)[0] == 0
    status, out, _ = cli("certify plant.csv best.csv --gamma 0.95 --limit breakdowns=-1 --limit reward=-99", capsys)
    out = " ".join(out.split())
    assert status == 4 and "VIOLATED: limits broken: breakdowns by 1.2, reward by " in out
    assert "; no policy meets the limits: see clearance check." in out
