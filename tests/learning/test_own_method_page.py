"""The page "Write your own method": its example runs in solve, resume, sweep, compare and report, as the page says."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import blocks

import clearance as cl
from clearance.cli import main

PAGE = (Path(__file__).resolve().parents[2] / "docs/how_to/write_a_method.md").read_text(encoding="utf-8")
FOUND = blocks(PAGE)
CODE = next(block.text for block in FOUND if block.marks == ["python"])
COMMANDS = [line for block in FOUND if block.marks == ["text"] for line in block.text.splitlines()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pid.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pid", raising=False)
    return tmp_path


def test_it_is_short() -> None:
    """The class without blank lines: 25 lines."""
    lines = CODE[CODE.index("@dataclass") :].splitlines()
    assert len([line for line in lines if line.strip()]) <= 25


def test_every_command_of_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert {words.split()[1] for words in COMMANDS} == {"solve", "sweep", "compare", "report"}
    for words in COMMANDS:
        assert main(shlex.split(words)[1:]) == 0, words
        capsys.readouterr()
    stored = cl.run.load("run")
    assert stored.certificate is not None and stored.certificate.verdict == "CERTIFIED"
    best = cl.optimum(cl.zoo.maintenance_discounted())
    assert stored.certificate.J_r >= 0.9999 * best.J_r


def test_it_is_resumed_bit_by_bit(folder: Path) -> None:
    """Interrupted after 40 iterations and resumed, the run ends where an uninterrupted one does."""
    from pid import PIDLagrangian  # type: ignore[import-not-found]

    model, method = cl.zoo.maintenance_discounted(), PIDLagrangian(K=90, N=20)

    def stop(part: Any, state: Any, K: int) -> None:
        if state.k >= 40:
            raise KeyboardInterrupt

    cut = cl.solve(model, method, seed=3, out="cut", progress=stop)
    assert cut.status == "interrupted" and len(cut.trace) < 90
    resumed = cl.resume("cut", method=PIDLagrangian)
    whole = cl.solve(model, method, seed=3)
    assert resumed.status == "done" and len(resumed.trace) == 90
    assert resumed.trace.theta.tobytes() == whole.trace.theta.tobytes()
    assert resumed.trace.lam.tobytes() == whole.trace.lam.tobytes()


def test_its_settings_are_flags(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split("solve two-state --method pid:PIDLagrangian --kd 0 --K 50 --N 5 --json")) in (0, 4)
    assert json.loads(capsys.readouterr().out)["status"] == "done"
    with pytest.raises(SystemExit):
        main(shlex.split("solve --method pid:PIDLagrangian --help"))
    assert "gain of a growing violation" in capsys.readouterr().out
