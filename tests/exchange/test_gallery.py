"""The gallery: every example runs from its data file to a policy file that is certified when it is read again."""

from __future__ import annotations

import csv
import os
import runpy
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.cli import main

GALLERY = Path(__file__).resolve().parents[2] / "examples/gallery"
EXAMPLES = sorted(GALLERY.glob("*.py"))


def read_policy(file: Path, model: cl.CMDP) -> np.ndarray:
    """Probabilities [S, A] from a CSV by the names of states and actions."""
    states, actions = model.states or tuple(map(str, range(model.S))), model.actions or tuple(map(str, range(model.A)))
    pi = np.zeros((model.S, model.A))
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
        pi[states.index(row["state"]), actions.index(row["action"])] = float(row["probability"])
    return pi


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda p: p.stem)
def test_from_the_data_file_to_the_policy_file(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    found: dict[str, Any] = runpy.run_path(str(script), run_name="__main__")
    import matplotlib.pyplot as plt

    plt.close("all")
    model, best = found["model"], found["best"]
    assert capsys.readouterr().out.startswith("CERTIFIED: every limit is met, proven")
    assert sorted(os.listdir(tmp_path)) == [f"{script.stem}.csv", f"{script.stem}.png"]
    again = cl.certify(model, read_policy(tmp_path / f"{script.stem}.csv", model))
    assert again.verdict == "CERTIFIED" and again.J_r == pytest.approx(best.J_r, rel=1e-9)
    assert best.lam.max() > 0, "the limit binds, or the example would show nothing"
    assert (GALLERY.parents[1] / f"docs/figures/gallery/{script.stem}.png").exists()


def test_there_are_five() -> None:
    assert [p.stem for p in EXAMPLES] == ["energy_storage", "inventory", "maintenance", "robot", "server_queue"]


def test_the_pump_from_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of docs/tutorials/gallery.md."""
    page = (GALLERY.parents[1] / "docs/tutorials/gallery.md").read_text(encoding="utf-8")
    command = next(line for line in page.splitlines() if line.startswith("clearance optimum"))
    monkeypatch.chdir(tmp_path)
    words = command.replace("examples/gallery", str(GALLERY))
    assert main(shlex.split(words)[1:]) == 0
    rows = list(csv.DictReader(Path("policy.csv").read_text(encoding="utf-8").splitlines()))
    assert {row["state"] for row in rows} == {"as new", "worn", "leaking", "failing", "broken"}
