"""For the person watching: the bar, TensorBoard, and the trace as a table."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from runs import Bomb, begin, cli, events

import clearance as cl
from clearance.learning import loop


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tensorboard_has_the_curves(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Every event read back: tags, steps and values of the trace; what a lost attempt had shown is taken back."""
    pytest.importorskip("tensorboardX")
    flags = "solve two-state --method cnpgpd --K 90 --N 10 --tensorboard events --json"
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 4, KeyboardInterrupt))
        assert cli(f"{flags} --out run", capsys)[0] == 130
    assert cli(f"{flags} --resume run", capsys)[0] in (0, 4)
    t, b = cl.run.load("run").trace, cl.zoo.two_state().b
    found = events("events")
    assert found["J_hat/reward"] == pytest.approx(dict(enumerate(t.J_hat[:, 0])), rel=1e-6)
    assert found["slack/utility"] == pytest.approx(dict(enumerate(t.J[:, 1] - b[0])), rel=1e-5, abs=1e-6)
    assert found["lam/utility"] == pytest.approx(dict(enumerate(t.lam[:, 0])), rel=1e-6)
    assert {"J/reward", "slack_hat/utility", "omega_norm", "steps"} <= found.keys()


def test_a_missing_extra_is_said_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin("exact", "run")
    for name in ("tensorboardX", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    status, _, err = cli("solve two-state --tensorboard events --out new", capsys)
    assert status == 2 and "tensorboardX is not installed: pip install '.[report]'" in err
    status, _, err = cli("export run --to t.parquet", capsys)
    assert status == 2 and "pyarrow is not installed: pip install '.[parquet]'" in err
    assert os.listdir() == ["run"]


def test_the_exported_trace_has_the_same_bits(capsys: pytest.CaptureFixture[str]) -> None:
    two = cl.zoo.two_state()
    names = ['a,"b"\nc']
    cmdp = cl.CMDP(two.P, two.r, two.g, two.b, rho=two.rho, gamma=0.5, names=names)
    cl.solve(cmdp, cl.CNPGPD(K=70, N=5), out="run")
    t = cl.run.load("run").trace
    assert json.loads(cli("export run --to t.csv --json", capsys)[1])["rows"] == 70
    with open("t.csv", newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert [int(r["k"]) for r in rows] == list(range(70))
    assert [float(r[r'lam.a,"b"\nc']) for r in rows] == t.lam[:, 0].tolist()
    assert [float(r["J.reward"]) for r in rows] == t.J[:, 0].tolist()
    assert [int(r["steps"]) for r in rows] == t.steps.tolist()
    parquet = pytest.importorskip("pyarrow.parquet")
    assert cli("export run --to t.parquet", capsys)[0] == 0
    table = parquet.read_table("t.parquet").to_pydict()
    assert list(table) == list(rows[0]) and table["J_hat.reward"] == t.J_hat[:, 0].tolist()


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("export run --to t.xlsx", "--to t.xlsx: must end in one of .csv, .parquet"),
        ("export . --to t.csv", "manifest.json: no such file"),
        ("export none --to t.csv", "none: is no run folder"),
        ("export run --to no/t.csv", "there is no folder no; make it first"),
        ("export run", "--to"),
    ],
)
def test_an_export_that_cannot_be(argv: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    begin("exact", "run")
    status, out, err = cli(argv, capsys)
    assert (status, out) == (2, "") and says in err and len(err.splitlines()) == 1


def test_what_the_person_watching_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    from clearance.runs import progress

    said = progress.describe_progress(np.array([1.5, 0.2, -0.3]), np.array([0.0, -0.1]), np.array([0.5, 2.0]), 12345.0)
    assert said == "1.23e+04 steps/s  J_r 1.5  smallest slack -0.2  λ 0.5 2"
    assert progress.describe_progress(np.array([1.0]), np.zeros(0), np.zeros(0), 0.0) == "J_r 1"
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    rate, last = progress.Rate(), 0.0
    for _ in range(100):
        now[0] += 0.2
        last = rate.after(200)
    assert last == pytest.approx(1000)
    now[0] -= 1000
    assert 0 < rate.after(200) < 1e4, "a clock that goes back"


def test_the_bar_on_a_terminal_and_silence_elsewhere() -> None:
    """In a pseudo-terminal the bar shows iterations, steps/s, J_r, the smallest slack, λ; into a pipe nothing goes."""
    argv = [sys.executable, "-m", "clearance", "solve", "two-state", "--method", "cnpgpd", "--K", "40000", "--N", "20"]
    piped = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert piped.returncode in (0, 4) and piped.stderr == ""
    ours, theirs = os.openpty()
    env = os.environ | {"COLUMNS": "200", "TERM": "xterm"}
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=theirs, env=env) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                seen += part
    os.close(ours)
    text = seen.decode()
    assert process.returncode in (0, 4)
    for what in ("iterations", "/40000", "steps/s", "J_r", "smallest slack", "λ", "left"):
        assert what in text
