"""Limits on chances and tails on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearance.cli.command_line import main
from clearance.core.tail_limits import Chance, CVaR
from clearance.runs.field_values import join_limits, parse_limits, to_text
from tests.exact.test_episode_optimum import small_model


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
    assert main(["optimum", path, "--limit", "P(heat>4)<=0.15"]) == 2
    assert "heat" in capsys.readouterr().err
