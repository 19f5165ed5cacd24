"""Limits on the probability to enter states, from the shell."""

from __future__ import annotations

import json

import pytest

import clearance as cl
from clearance.cli import main

HOLES = ["row 1, column 1", "row 1, column 3", "row 2, column 3", "row 3, column 0"]


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    status = main(["optimum", "frozen-lake", "--criterion", "total", *words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_probability_is_limited_as_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    lake = cl.zoo.frozen_lake().replace(criterion="total", limit=1.0)
    model = cl.limit_reach(lake, HOLES, at_most=0.25)
    status, found = answer(capsys, "--limit", "holes=1", "--reach", f"{';'.join(HOLES)}<=0.25")
    assert status == 0 and found["verdict"] == "CERTIFIED" and found["names"] == ["holes", "reach"]
    assert found["J_r"] == pytest.approx(cl.optimum(model).J_r, abs=1e-9)
    status, found = answer(capsys, "--limit", "holes=1", "--reach", "row 3, column 3>=0.7")
    assert status == 0 and found["limits"][1]["sense"] == ">=" and found["limits"][1]["at_worst"] >= 0.7


def test_never_and_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gymnasium")
    status, found = answer(capsys, "--limit", "holes=1", "--never", "5")
    assert status == 0 and found["verdict"] == "CERTIFIED" and "no run can have never" in found["message"]
    for flag, text, words in (
        ("--reach", "row 1, column 1", "--reach must be STATES<=P or STATES>=P"),
        ("--reach", "nowhere<=0.1", "'nowhere' is no state"),
        ("--reach", "5<=1.5", "a probability is between 0 and 1"),
        ("--never", "nowhere", "'nowhere' is no state"),
    ):
        assert main(["optimum", "frozen-lake", "--criterion", "total", flag, text]) == 2
        assert words in capsys.readouterr().err
    assert main(["optimum", "frozen-lake", "--never", "5"]) == 2
    assert "--criterion total, or --horizon H" in capsys.readouterr().err
