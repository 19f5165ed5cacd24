"""Code that something stored names: it runs only if the user names it again, and from folders that the user allows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import cli

import clearance as cl
from clearance.cli.command_line import main
from clearance.core.import_path import ImportRule, import_rule, rule_of, search

CODE = """
from pathlib import Path
Path({mark!r}).write_text("ran")
import clearance as cl
from clearance.learning.methods.cnpgpd import CNPGPD as Method
def make():
    return cl.zoo.two_state()
"""


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with hostile modules, beside it and inside a grid; the file that tells that one of them ran."""
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "ran"
    for place in ("evil_beside.py", "grid/evil_inside.py", "elsewhere/evil_allowed.py"):
        Path(place).parent.mkdir(exist_ok=True)
        Path(place).write_text(CODE.format(mark=str(mark)))
    yield_names = ("evil_beside", "grid", "grid.evil_inside", "evil_allowed", "evil_inside")
    for name in yield_names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return mark


HOSTILE = [
    {"problem": "grid.evil_inside:make"},
    {"problem": "evil_beside:make"},
    {"problem": "gym:evil_beside:Env-v0"},
    {"problem": "two-state", "method": "grid.evil_inside:Method"},
    {"problem": "crpo-cartpole", "constraints": "evil_beside:make"},
]


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("evil_") or name.partition(".")[0] == "grid"]:
        del sys.modules[name]


@pytest.mark.parametrize("fixed", HOSTILE, ids=str)
@pytest.mark.parametrize("as_axis", [False, True])
def test_a_stored_grid_runs_nothing(
    fixed: dict[str, str], as_axis: bool, mark: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    axes = {"seed": ["0", "1"]}
    if as_axis:
        name = list(fixed)[-1]
        axes |= {name: [fixed[name]]}
        fixed = {n: v for n, v in fixed.items() if n != name}
    data = {"schema": "clearance/grid/1", "token": "t", "axes": axes, "fixed": fixed | {"K": "20", "N": "5"}}
    Path("grid/grid.json").write_text(json.dumps(data))
    for place in ("grid", "."):
        os.chdir(mark.parent / ("grid" if place == "." else ""))
        status, out, err = cli(f"sweep --resume {place}", capsys)
        assert (status, out) == (2, "") and "is code that the grid in" in err and err.count("\n") == 1
    with pytest.raises(cl.InputError, match="is code that the grid in"):
        cl.sweep(out=mark.parent / "grid")
    assert not mark.exists()


@pytest.mark.parametrize("fixed", HOSTILE, ids=str)
def test_a_grid_in_a_file_runs_nothing(fixed: dict[str, str], mark: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f'{name} = "{text}"' for name, text in fixed.items()]
    Path("g.toml").write_text("\n".join([*lines, "K = 20", "N = 5", "[grid]", "seed = [0, 1]"]))
    for more in ("", " --allow-import elsewhere"):
        status, out, err = cli(f"sweep g.toml --out g{more}", capsys)
        assert (status, out) == (2, "") and "is code that a file names" in err and err.count("\n") == 1
    assert not mark.exists() and not Path("g").exists()


@pytest.mark.parametrize("text", ["os:abort", "subprocess:run", "clearance.zoo:two_state", "evil_beside:make"])
def test_a_file_names_no_installed_code_either(text: str, mark: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("g.toml").write_text(f'problem = "{text}"\n[grid]\nseed = [0, 1]\n')
    status, _, err = cli("sweep g.toml --out g --allow-import elsewhere", capsys)
    assert status == 2 and "is code that a file names" in err and not mark.exists()


def test_what_the_command_line_allows_runs(mark: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("g.toml").write_text('problem = "evil_allowed:make"\nmethod = "cnpgpd"\nK = 20\nN = 5\n[grid]\nseed = [0]\n')
    assert cli("sweep g.toml --out g --allow-import=elsewhere", capsys)[0] in (0, 4) and mark.exists()
    mark.unlink()
    forget()
    assert "is code that the grid in" in cli("sweep --resume g --allow-import elsewhere", capsys)[2]
    status, _, err = cli("sweep evil_allowed:make --resume g", capsys)
    assert status == 2 and "--allow-import PATH" in err and not mark.exists()
    assert cli("sweep evil_allowed:make --resume g --allow-import elsewhere", capsys)[0] in (0, 4) and mark.exists()


def test_a_run_is_resumed_with_the_code_that_began_it(mark: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fresh command line searches the current folder, as the user who types a name means; a resumed one does not."""
    begin = "solve evil_beside:make --method cnpgpd --K 20 --N 5"
    assert cli(f"{begin} --out run", capsys)[0] in (0, 4) and mark.exists()
    mark.unlink()
    forget()
    status, _, err = cli(f"{begin} --resume run", capsys)
    assert status == 2 and "--allow-import ." in err and not mark.exists()
    status, _, err = cli("solve evil_allowed:make --resume run --allow-import elsewhere", capsys)
    assert status == 2 and "PROBLEM evil_allowed:make is not as in the run in run, where it was evil_beside:make" in err
    assert not mark.exists()
    assert cli("solve --resume run", capsys)[0] in (0, 4), "the model itself is in the folder"
    assert cli(f"{begin} --resume run --allow-import .", capsys)[0] in (0, 4) and mark.exists()


@pytest.mark.slow
def test_the_current_folder_that_python_itself_adds(mark: Path) -> None:
    """`python -m clearance` puts the current folder on the path; what is stored must not profit from it."""
    source = str(Path(cl.__file__).parents[1])
    env = dict(os.environ, PYTHONPATH=source, OMP_NUM_THREADS="1")
    words = [sys.executable, "-m", "clearance", "sweep", "--method", "evil_beside:Method", "--resume", "grid"]
    found = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert found.returncode == 2 and "ModuleNotFoundError" in found.stderr and not mark.exists()


def test_the_rule_of_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = os.path.realpath(tmp_path)
    assert rule_of(["sweep", "g.toml", "--allow-import", "a", "--allow-import=b"]) == (
        (f"{here}/a", f"{here}/b"),
        False,
    )
    assert rule_of(["solve", "--resume=run"]) == ((), False) and rule_of([]) == ImportRule()
    monkeypatch.setattr(sys, "path", ["", here, "/usr/lib/x"])
    with search(ImportRule((f"{here}/a",), here=False)):
        assert sys.path == [f"{here}/a", "/usr/lib/x"] and not import_rule().here
        sys.path.append("/opt/own")
    assert sys.path == ["", here, "/usr/lib/x", "/opt/own"] and import_rule().here
    with search(ImportRule((here,), here=False)):
        assert here in sys.path, "named by --allow-import"


@pytest.mark.parametrize("argv", ["--version", "solve --help", "optimum two-state", "optimum two-state --json"])
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_standard_output_is_named_when_it_is_full(
    argv: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for buffering in (-1, 1):
        with open("/dev/full", "w", buffering) as full, monkeypatch.context() as m:
            m.setattr(sys, "stdout", full)
            assert main(argv.split()) == 2
        assert capsys.readouterr().err == "clearance: standard output: cannot write: No space left on device\n"
