"""A small slice of benchmarks/fuzz.py: no input ends in a traceback, a hang or a wrong answer."""

from __future__ import annotations

import os
from pathlib import Path

import fuzz
import pytest

KINDS = ["model bytes", "model arrays", "policy bytes", "verdicts", "optimum", "run folder", "command lines"]
FEW = [60, 40, 40, 40, 20, 40, 60]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> list[fuzz.Kind]:
    folder, here = tmp_path_factory.mktemp("fuzz"), os.getcwd()
    os.chdir(folder)
    found = fuzz.kinds()
    os.chdir(here)
    return found


@pytest.mark.parametrize("n", range(len(KINDS)), ids=KINDS)
@pytest.mark.filterwarnings("default")  # as at the command line; NumPy's warnings are looked for in its output
def test_a_slice(kinds: list[fuzz.Kind], n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(kinds) == len(KINDS)
    monkeypatch.chdir(tmp_path)
    fuzz.prepare()
    kinds[n].run(FEW[n], number=1)
    assert kinds[n].seen.total() >= FEW[n] // 2


def test_a_traceback_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What notices nothing would pass everything."""
    with monkeypatch.context() as m:
        m.setattr(fuzz.cl.CMDP, "load", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fuzz.call(["check", "m.npz"])
    with monkeypatch.context() as m:
        m.setattr("clearance.cli.command_line.main", lambda argv: 1)
        with pytest.raises(AssertionError):
            fuzz.call(["check", "m.npz"])


def test_a_wrong_verdict_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    two = fuzz.cl.zoo.two_state()
    case = ({"P": two.P, "r": two.r, "g": two.g, "b": two.b, "gamma": two.gamma}, {"pi": [[0.0, 1.0], [0.0, 1.0]]})
    assert fuzz.policy_arrays(case).status in (0, 4)  # type: ignore[arg-type]
    monkeypatch.setattr("clearance.exact.policy_bounds.verdict_of", lambda lower, upper, b: "CERTIFIED")
    broken = [{"pi": [[1.0, 0.0], [1.0, 0.0]]}, {"pi": [[0.0, 1.0], [0.0, 1.0]]}]
    with pytest.raises(AssertionError):
        for policy in broken:
            fuzz.policy_arrays((case[0], policy))  # type: ignore[arg-type]
