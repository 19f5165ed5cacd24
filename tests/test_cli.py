"""The command line: its JSON, its exit status, its files, and that nothing it shows or meets ends in a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import LISTENING

import clearance as cl
from clearance import loop
from clearance.cli import main

# Keys of the design, where they apply.
CERTIFICATE = {"verdict", "J_r", "J_g", "b", "slack", "J_r_lower", "J_g_lower", "bound", "gap", "evidence", "message"}
SOLVED = CERTIFICATE | {"status", "lam", "slater", "kappa", "delta", "env_steps", "seconds", "run"}
OPTIMUM = {"status", "verdict", "J_r", "J_g", "b", "slack", "lam", "slater", "bound", "gap", "message"}
RUN_FILES = {"manifest.json", "settings.json", "problem.npz", "margin.npz", "method.json", "trace/000001.npz",
             "checkpoint/000001.npz", "policy.npz", "certificate.json", "lock"}  # fmt: skip


class Cli:
    """Calls of the command line in this process, from a working directory of their own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, argv: str) -> tuple[int, str, str]:
        status = main(argv.split())
        said = self.capsys.readouterr()
        return status, said.out, said.err

    def json(self, argv: str) -> tuple[int, dict[str, Any]]:
        status, out, _ = self(f"{argv} --json")
        assert out.endswith("\n") and out.count("\n") == 1, "one JSON object and nothing else"
        return status, json.loads(out, parse_constant=pytest.fail)  # NaN and Infinity are no JSON


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(capsys)


def infeasible(path: str = "infeasible.npz") -> str:
    cl.zoo.two_state().replace(b=np.array([2.0])).save(path)
    return path


# -------------------------------------------------------------------------------------------------------- the commands


def test_check(cli: Cli) -> None:
    status, said = cli.json("check altman-queue")
    assert status == 0 and said["status"] == "done" and said["verdict"] is None
    assert (said["states"], said["actions"], said["constraints"]) == (5, 16, 2)
    assert said["b"] == [0.0, 0.0] and said["slater"] > 0


def test_optimum(cli: Cli) -> None:
    status, said = cli.json("optimum two-state")
    assert status == 0 and said.keys() >= OPTIMUM and said["status"] == "optimal"
    assert said["J_r"] == pytest.approx(2 / 3) and said["lam"] == pytest.approx([1.0])
    assert said["gap"] == pytest.approx(said["bound"] - said["J_r"])


def test_the_written_optimum_is_certified(cli: Cli) -> None:
    assert cli.json("optimum altman-queue --out best.npz")[0] == 0
    status, said = cli.json("certify altman-queue best.npz")
    assert status == 0 and said.keys() >= CERTIFICATE and said["verdict"] == "CERTIFIED"
    assert said["evidence"] == "exact" and said["gap"] == pytest.approx(0, abs=1e-6)


def test_certify_tells_a_broken_limit(cli: Cli) -> None:
    np.savez("risky.npz", pi=np.array([[1.0, 0.0], [1.0, 0.0]]))
    status, said = cli.json("certify two-state risky.npz")
    assert status == 4 and said["verdict"] == "VIOLATED" and "utility by 0.667" in said["message"]


def test_solve(cli: Cli) -> None:
    status, said = cli.json("solve two-state --K 300 --kappa 0.2")
    assert status == 0 and said.keys() >= SOLVED
    assert (said["status"], said["verdict"], said["kappa"], said["run"]) == ("done", "CERTIFIED", 0.2, None)
    assert said["env_steps"] > 300 and said["slack"][0] > 0


def test_solve_too_short_to_be_certified(cli: Cli) -> None:
    status, said = cli.json("solve bai2023 --evidence samples --budget 4000")
    assert status == 4 and (said["status"], said["verdict"]) == ("done", "UNDECIDED")


def test_solve_from_samples(cli: Cli) -> None:
    status, said = cli.json("solve two-state --evidence samples --budget 3e5 --delta 0.05 --seed 1 --out run")
    assert status == 0 and (said["verdict"], said["evidence"], said["delta"]) == ("CERTIFIED", "samples", 0.05)
    assert said["env_steps"] <= 3e5 and said["attempts"] >= 1 and 0 < said["slater"] < 2 / 3
    certificate = json.loads(Path("run/certificate.json").read_text())
    assert certificate["episodes"] > 0 and "this simulator" in certificate["scope"]
    status, exact = cli.json("certify two-state run/policy.npz")
    assert status == 0 and exact["slack"][0] >= 0
    assert cli.json("certify two-state run/policy.npz --evidence samples --budget 3e5")[1]["verdict"] == "CERTIFIED"


def test_certify_a_rule(cli: Cli) -> None:
    Path("rules_of_two.py").write_text("def safe(s):\n    return 1\n\ndef risky(s):\n    return 0\n")
    assert cli.json("certify two-state rules_of_two:safe --budget 20000")[1]["verdict"] == "CERTIFIED"
    status, said = cli.json("certify two-state rules_of_two:risky --budget 20000")
    assert status == 4 and said["verdict"] == "VIOLATED" and said["evidence"] == "samples"


def test_the_same_seed_gives_the_same_answer(cli: Cli) -> None:
    one, same, other = (
        cli.json(f"solve bai2023 --method cnpgpd --K 300 --seed {seed}")[1]["J_r"] for seed in (1, 1, 2)
    )
    assert one == same != other


@pytest.mark.parametrize(
    "flags",
    [
        "--sampler exact",
        "--method cnpgpd --sampler exact",
        "--method cnpgpd --sampler coin",
        "--method cnpgpd --sampler critic",
        "--method cnpgpd --direction least-squares --ridge 0.1",
        "--method cnpgpd --printed",
        "--N 20 --nu 0.1 --tau 0.2,0.01 --eta2 5 --kappa_first 0.3",
    ],
)
def test_solve_in_every_way(cli: Cli, flags: str) -> None:
    status, said = cli.json(f"solve two-state --K 30 --kappa 0.1 {flags}")
    assert status in (0, 4) and said["verdict"] in ("CERTIFIED", "VIOLATED")
    assert (said["env_steps"] == 0) == ("exact" in flags)


@pytest.mark.filterwarnings("default::clearance.ConservatismWarning")
def test_a_warning_is_one_line_beside_the_json(cli: Cli) -> None:
    status, out, err = cli("solve two-state --K 20 --kappa 5 --lam_max 10 --json")
    assert status in (0, 4) and json.loads(out)["kappa"] == 5.0
    assert "clearance: warning: kappa = 5 is not below the Slater margin 0.666667" in err and ".py:" not in err


def test_plan(cli: Cli) -> None:
    status, said = cli.json("plan bai2023 --epsilon 0.1 --policy bai2023")
    assert status == 0 and said["slater"] == pytest.approx(0.0411263785) and said["alpha"] == pytest.approx(1 / 8)
    assert said["objective_bound"] is None, "infinite: no JSON number"


@pytest.mark.parametrize("command", ["solve", "optimum", "check", "plan --epsilon 1"])
def test_infeasible(cli: Cli, command: str) -> None:
    status, said = cli.json(f"{command} {infeasible()}")
    assert status == 3 and (said["status"], said["verdict"]) == ("infeasible", "INFEASIBLE")
    assert said["slater"] == pytest.approx(-1 / 3) and "no policy meets the limit" in said["message"]


def test_infeasible_writes_no_run(cli: Cli) -> None:
    assert cli.json(f"solve {infeasible()} --out run")[0] == 3
    assert not Path("run").exists()


@pytest.mark.filterwarnings("ignore::clearance.ConservatismWarning")
def test_reproduce(cli: Cli) -> None:
    status, said = cli.json("reproduce bai2023 --seeds 1 --K 50 --out out/figures")
    assert status == 0 and said["status"] == "done" and len(said["table"]) == 5
    assert sorted(os.listdir("out/figures")) == ["curves.csv", "objective.png", "table.csv", "violation.png"]
    assert all(Path(f).stat().st_size > 100 for f in said["files"])
    assert said["table"][0]["± J_r"] is None, "one seed has no standard error"


# ------------------------------------------------------------------------------------------------------ the run folder


def test_solve_writes_the_run_folder_and_certify_agrees(cli: Cli) -> None:
    status, said = cli.json("solve altman-queue --K 100 --out a/run")
    run = Path("a/run")
    assert said["run"] == "a/run"
    assert {str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()} == RUN_FILES
    again, verdict = cli.json("certify a/run/problem.npz a/run/policy.npz")
    assert again == status and all(verdict[k] == said[k] for k in ("verdict", "J_r", "J_g", "slack", "bound"))
    assert json.loads((run / "certificate.json").read_text())["verdict"] == said["verdict"]
    method = json.loads((run / "method.json").read_text())
    assert (method["method"]["K"], method["seed"], method["evidence"]) == (100, 0, "exact")
    assert cl.run.load(run).status == "done"


def test_every_written_array_is_plain(cli: Cli) -> None:
    cli.json("solve two-state --K 10 --out run")
    files = sorted(Path("run").rglob("*.npz"))
    for path in files:
        with np.load(path, allow_pickle=False) as z:
            assert all(z[k].dtype.kind in "biufU" for k in z.files)
        with zipfile.ZipFile(path) as z:
            assert z.testzip() is None
    assert len(files) == 5 and len(cl.Trace.load("run/trace/000001.npz")) == 10


# --------------------------------------------------------------------------------------------- factories, and the page


def test_factory_from_the_current_directory(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it prints does not get into the JSON, and the path of modules is left as it was."""
    monkeypatch.delitem(sys.modules, "my_factory", raising=False)
    code = "import clearance\nprint('hello')\ndef make():\n    print('making')\n    return clearance.zoo.two_state()\n"
    Path("my_factory.py").write_text(code)
    path = list(sys.path)
    status, said = cli.json("optimum my_factory:make")
    assert status == 0 and said["J_r"] == pytest.approx(2 / 3)
    assert sys.path == path


@pytest.mark.parametrize(
    ("argv", "status", "says"),
    [
        ("solve two-state --K 300 --kappa 0.2", 0, "CERTIFIED"),
        ("solve bai2023 --evidence samples --budget 4000", 4, "UNDECIDED"),
        ("check infeasible.npz", 3, "INFEASIBLE"),
        ("optimum frozen-lake", 0, "holes"),
        ("plan two-state --epsilon 0.1", 0, "Theorem 1"),
        ("solve unconstrained.npz --K 5", 0, "CERTIFIED"),
    ],
)
def test_people_see_the_verdict(cli: Cli, argv: str, status: int, says: str) -> None:
    infeasible()
    free = cl.zoo.two_state()
    cl.CMDP(free.P, free.r, gamma=0.5).save("unconstrained.npz")
    got, out, _ = cli(argv)
    assert got == status and says in out


@pytest.mark.parametrize(
    "name", ["[red]x[/red]", "[/bold]", "\x1b[31mred", "a\nb\r\tc", "\u202eevil", ":smile:", "\\[x]", ""]
)
def test_names_are_shown_as_text(cli: Cli, name: str) -> None:
    """Neither markup nor control characters of a file reach the terminal."""
    two = cl.zoo.two_state()
    cl.CMDP(two.P, two.r, two.g, 1.0, rho=two.rho, gamma=0.5, names=[name]).save("m.npz")
    np.savez("risky.npz", pi=np.array([[1.0, 0.0], [1.0, 0.0]]))
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    for argv in ("optimum m.npz", "certify m.npz risky.npz"):
        _, out, err = cli(argv)
        assert shown in out and err == ""
        assert all(line.isprintable() for line in out.split("\n"))
    assert name in cli.json("certify m.npz risky.npz")[1]["message"], "programs get it as it is"


def test_version_and_help(cli: Cli) -> None:
    for argv, says in (("--version", f"clearance {cl.__version__}"), ("--help", "solve"), ("solve --help", "--kappa")):
        with pytest.raises(SystemExit) as e:
            main(argv.split())
        assert e.value.code == 0 and says in cli.capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------- interruptions


def test_interrupt_ends_with_130_and_a_saved_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    advance, calls = loop._advance, []

    def interrupted(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 11:
            raise KeyboardInterrupt
        return advance(*args)

    monkeypatch.setattr(loop, "_advance", interrupted)
    status, out, err = cli("solve two-state --K 100000000 --kappa 0.2 --json --out run")
    said = json.loads(out)
    assert status == 130 and said["status"] == "interrupted" and said["verdict"] == "CERTIFIED"
    # how many iterations ten calls make depends on the machine
    how = "saved in run: go on with: clearance solve --resume run"
    done = re.fullmatch(rf"clearance: interrupted after (\d+) of 100000000 iterations; {how}", err.splitlines()[-1])
    run = cl.run.load("run")
    assert done and (len(run.trace), run.status, run.k) == (int(done[1]), "interrupted", int(done[1])) and run.k >= 10


def test_interrupt_before_the_first_iterate(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_advance", interrupted)
    status, out, err = cli("solve two-state --json --out run")
    assert (status, out) == (130, "") and err.splitlines()[-1] == "clearance: interrupted"
    assert not os.listdir()


# The problem of a run that says, by a file, that its first iterations are done.
TELLING = """
import clearance as cl
from clearance import watch
update = watch.Progress.update
def telling(self, *what):
    open("started", "w").close()
    update(self, *what)
watch.Progress.update = telling
make = cl.zoo.two_state
"""


def test_ctrl_c_of_a_real_process(cli: Cli) -> None:
    cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=1))  # so that the kernels are compiled by now
    Path("telling.py").write_text(TELLING)
    argv = [sys.executable, "-c", LISTENING, "solve", "telling:make", "--K", "100000000", "--json", "--out", "run"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(Path("started"), process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130 and json.loads(out)["status"] == "interrupted"
    assert err.startswith("clearance: interrupted after ") and len(err.splitlines()) == 1
    again, said = cli.json("certify run/problem.npz run/policy.npz")
    assert again in (0, 4) and said["verdict"] == json.loads(out)["verdict"]


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)


# -------------------------------------------------------------------------------------------------- streams that break


def process(argv: str, **how: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "clearance", *argv.split()], stderr=subprocess.PIPE, text=True, **how
    )


@pytest.mark.parametrize(
    ("argv", "status"), [("certify two-state risky.npz", 4), ("check two-state --json", 0), ("--help", 0)]
)
def test_a_reader_that_has_left_changes_no_exit_status(cli: Cli, argv: str, status: int) -> None:
    np.savez("risky.npz", pi=np.array([[1.0, 0.0], [1.0, 0.0]]))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        with process(argv, stdout=writer) as run:
            _, err = run.communicate(timeout=60)
    finally:
        os.close(writer)
    assert (run.returncode, err) == (status, "")


def test_no_standard_output_at_all(cli: Cli) -> None:
    shell = ["sh", "-c", '"$0" -m clearance check two-state >&-', sys.executable]
    run = subprocess.run(shell, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device")
def test_a_full_disk_behind_standard_output(cli: Cli) -> None:
    with open("/dev/full", "w") as full, process("check two-state --json", stdout=full) as run:
        _, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (2, "clearance: standard output: cannot write: No space left on device\n")


def test_a_terminal_without_greek(cli: Cli) -> None:
    env = os.environ | {"PYTHONIOENCODING": "ascii"}
    with process(f"check {infeasible()}", stdout=subprocess.PIPE, env=env) as run:
        out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (3, "") and "max_\\u03c0" in out
