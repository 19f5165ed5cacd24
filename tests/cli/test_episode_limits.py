"""Limits on chances and tails on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearance.cli.command_line import main
from clearance.core.tail_limits import Chance, CVaR
from clearance.runs.field_values import join_limits, parse_limits, to_text
from tests.exact.test_episode_optimum import BIKES, small_model


def test_limits_are_read_and_written_alike():
    limits = {"wear": [4.0, Chance(4, 0.15), CVaR(0.9, 6, 2.5)], "heat": 3.0}
    assert parse_limits(to_text("limits", limits)) == limits
    with pytest.raises(Exception, match="once for each name"):
        join_limits(limits, {"wear": 5.0})


def test_commands_take_models_with_limits_on_single_episodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = str(tmp_path / "model.npz")
    small_model(0).save(path)
    assert main(["optimum", path, "--limit", "P(wear>4)<=0.15", "--limit", "wear=4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "CERTIFIED" and [x["name"] for x in found["limits"]] == ["P(wear > 4)", "wear"]
    assert main(["optimum", path, "--limit", "CVaR0.7(wear)<=6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["limits"][0]["name"].startswith("CVaR0.7(wear) − ")
    assert main(["optimum", path, "--limit", "CVaR0.7(wear)<=6 at 6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "no run can have wear > 6" in found["message"]
    assert "CVaR0.7(wear) is about the sum of the model's step costs c(s, a) in one episode" in found["message"]
    assert main(["optimum", path, "--limit", "P(heat>4)<=0.15"]) == 2
    assert "heat" in capsys.readouterr().err


def test_a_table_whose_costs_depend_on_chance_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    table, model = tmp_path / "bikes.csv", str(tmp_path / "model.npz")
    rows = zip(*BIKES.values(), strict=True)
    table.write_text("\n".join(",".join(map(str, row)) for row in (BIKES, *rows)))
    how = ["--horizon", "2", "--initial", "0 bikes"]
    assert main(["export", str(table), *how, "--limit", "lost sales=9", "--to", model]) == 0
    for command in (["optimum", str(table), *how], ["optimum", model], ["solve", model, "--K", "5"]):
        capsys.readouterr()
        assert main([*command, "--limit", "P(lost sales>3)<=0.05"]) == 2
        assert capsys.readouterr().err.endswith(
            "P(lost sales > 3): the cost of '0 bikes', 'wait' depends on what happens next, and the model keeps only "
            "its mean: put what happened into the state first\n"
        )
