"""Costs that users wrote as costs come back as costs: tables, JSON in both forms, frontier, diagnosis, files."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.cli import main


def machine(limit: float = 1.5) -> cl.CMDP:
    """One state; to run earns 1 and wears 1 a step, and at least .2 of output is asked for as a utility."""
    P, r = [[[1.0], [1.0]]], [[1.0, 0.0]]
    return cl.CMDP(P, r, g=[r], b=0.2, cost=[r], limit=limit, gamma=0.5, names=["output", "wear"])


@pytest.fixture
def saved(tmp_path: Path) -> str:
    machine().save(tmp_path / "machine.npz")
    return str(tmp_path / "machine.npz")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, dict[str, Any]]:
    """What people see, and what programs read."""
    main(words)
    table = capsys.readouterr().out
    main([*words, "--json"])
    return table, json.loads(capsys.readouterr().out)


def test_a_file_keeps_which_constraints_are_costs(saved: str) -> None:
    assert cl.CMDP.load(saved).costs == (False, True)


@pytest.mark.parametrize("command", [["optimum"], ["solve", "--K", "50"], ["check"]])
def test_answers_have_both_forms(capsys: pytest.CaptureFixture[str], saved: str, command: list[str]) -> None:
    table, data = said(capsys, command[0], saved, *command[1:])
    assert "≤ 1.5" in table and "≥ 0.2" in table and "-1.5" not in table
    output, wear = data["limits"]
    assert (output["kind"], output["sense"], output["limit"]) == ("utility", ">=", 0.2)
    assert (wear["kind"], wear["sense"], wear["limit"]) == ("cost", "<=", 1.5) and data["b"] == [0.2, -1.5]
    if command[0] != "check":
        assert wear["value"] == -data["J_g"][1] > 0 and wear["slack"] == data["slack"][1] >= 0
        assert wear["price"] == data["lam"][1] and wear["value"] <= wear["at_worst"] <= wear["limit"]


def test_diagnosis_relaxes_a_cost_upwards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    machine(limit=0.1).save(tmp_path / "tight.npz")
    for command in ("optimum", "check", "solve"):
        table, data = said(capsys, command, str(tmp_path / "tight.npz"))
        assert "lower b" not in table and "relax every limit by 0.05" in " ".join(table.split())
        output, wear = data["limits"]
        assert wear["relaxed_alone"] == pytest.approx(0.2) and output["relaxed_alone"] == pytest.approx(0.1)
        assert "≤ 0.2" in table


def test_frontier_of_a_cost(capsys: pytest.CaptureFixture[str], saved: str, tmp_path: Path) -> None:
    out = tmp_path / "curve.csv"
    words = ["frontier", saved, "--constraint", "wear", "--points", "3", "--learned", "1", "--out", str(out)]
    table, data = said(capsys, *words)
    assert (
        "upper limit of wear" in table
        and "limit ≤" in table
        and "wear ≤ 1.5" in table
        and "lowering this limit" in " ".join(table.split())
    )
    assert data["kind"] == "cost" and data["limit"] == [-x for x in data["b"]] and data["own"]["limit"] == 1.5
    assert data["learned"][0]["values"] == [data["learned"][0]["J_g"][0], -data["learned"][0]["J_g"][1]]
    assert data["learned"][0]["limit"] == -data["learned"][0]["b"] > 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert all(float(row["limit"]) == -float(row["b"]) >= 0 for row in rows) and len(rows) == 5


def test_frontier_of_a_utility_and_of_kappa_keep_their_sign(capsys: pytest.CaptureFixture[str], saved: str) -> None:
    for more in (["--constraint", "output"], ["--over", "kappa"]):
        _, data = said(capsys, "frontier", saved, "--points", "3", *more)
        assert data["limit"] == data["b"] and data["kind"] in ("utility", None)


def test_one_name_for_one_number(capsys: pytest.CaptureFixture[str]) -> None:
    """On 625 states `optimum` stops looking for room early: what it found is not called the Slater margin."""
    model = cl.zoo.grid_obstacles()
    best = cl.optimum(model)
    slater = cl.slater_margin(model)[0]
    assert 0 < best.attained_margin < 0.9 * slater
    main(["check", "grid-obstacles", "--json"])
    assert json.loads(capsys.readouterr().out)["slater"] == pytest.approx(slater)
    main(["optimum", "grid-obstacles", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert "slater" not in data and data["attained_margin"] == best.attained_margin
    assert np.isfinite(data["attained_margin"])
