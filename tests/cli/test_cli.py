"""The command line: its JSON, its exit status, its files, and that nothing it shows or meets ends in a traceback."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from runs import LISTENING, Bomb, bits

import clearance as cl
from clearance.cli import command_line, run_flags
from clearance.cli.command_line import main
from clearance.learning import loop
from clearance.runs.run_spec import RunSpec

# Keys of the design, where they apply.
CERTIFICATE = {"verdict", "J_r", "J_g", "b", "slack", "J_r_lower", "J_g_lower", "bound", "gap", "evidence", "message"}
SOLVED = CERTIFICATE | {"status", "lam", "slater", "kappa", "delta", "env_steps", "seconds", "run"}
OPTIMUM = {"status", "verdict", "J_r", "J_g", "b", "slack", "lam", "attained_margin", "bound", "gap", "message"}
RUN_FILES = {"manifest.json", "settings.json", "problem.npz", "margin.npz", "method.json", "trace/000001.npz",
             "checkpoint/000001.npz", "policy.npz", "certificate.json", "ledger.json", "lock"}  # fmt: skip


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
    status, said = cli.json("check altman-queue-discounted")
    assert status == 0 and said["status"] == "done" and said["verdict"] is None
    assert (said["states"], said["actions"], said["constraints"]) == (5, 16, 2)
    assert said["b"] == [0.0, 0.0] and said["slater"] > 0


def test_optimum(cli: Cli) -> None:
    status, said = cli.json("optimum two-state")
    assert status == 0 and said.keys() >= OPTIMUM and said["status"] == "optimal"
    assert said["J_r"] == pytest.approx(2 / 3) and said["lam"] == pytest.approx([1.0])
    assert said["gap"] == pytest.approx(said["bound"] - said["J_r"])


def test_the_written_optimum_is_certified(cli: Cli) -> None:
    assert cli.json("optimum altman-queue-discounted --out best.npz")[0] == 0
    status, said = cli.json("certify altman-queue-discounted best.npz")
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
    status, said = cli.json("solve bai2023 --evidence samples --budget 300")
    assert status == 4 and (said["status"], said["verdict"]) == ("done", "UNDECIDED")


def test_solve_from_samples(cli: Cli) -> None:
    status, said = cli.json("solve two-state --evidence samples --budget 3e5 --delta 0.05 --seed 1 --out run")
    assert status == 0 and (said["verdict"], said["evidence"], said["delta"]) == ("CERTIFIED", "samples", 0.05)
    assert said["env_steps"] <= 3e5 and said["attempts"] >= 1 and 0 < said["slater"] < 2 / 3
    certificate = json.loads(Path("run/certificate.json").read_text())
    assert certificate["episodes"] > 0 and "used as a simulator" in certificate["scope"]
    assert "estimated best reward within the limits: " in certificate["message"]
    status, exact = cli.json("certify two-state run/policy.npz")
    assert status == 0 and exact["slack"][0] >= 0
    assert cli.json("certify two-state run/policy.npz --evidence samples --budget 3e5")[1]["verdict"] == "CERTIFIED"


def test_a_margin_from_samples_is_called_a_lower_bound(cli: Cli) -> None:
    said = cli("solve two-state --evidence samples --budget 3e5 --delta 0.05 --seed 1")[1]
    assert "Slater margin, at least  0." in said
    assert "Slater margin, at least" not in cli("solve two-state --K 20")[1]


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
    status, said = cli.json("solve altman-queue-discounted --K 100 --out a/run")
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
        ("solve bai2023 --evidence samples --budget 300", 4, "UNDECIDED"),
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
    how = "saved in run: resume with: clearance solve --resume run"
    done = re.fullmatch(rf"clearance: interrupted after (\d+) of 100000000 iterations; {how}", err.splitlines()[-1])
    run = cl.run.load("run")
    assert done and (len(run.trace), run.status, run.k) == (int(done[1]), "interrupted", int(done[1])) and run.k >= 10


def test_interrupt_before_the_first_iterate(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_advance", interrupted)
    status, out, err = cli("solve two-state --json --out run")
    assert (status, json.loads(out)["status"]) == (130, "interrupted")
    assert err.splitlines()[-1] == "clearance: interrupted; nothing had been learned"
    assert not os.listdir()


# The problem of a run that says, by a file, that its first iterations are done.
TELLING = """
import clearance as cl
from clearance.runs import progress as watch
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
    with process("optimum two-state", stdout=subprocess.PIPE, env=env) as run:
        out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (0, "") and "price \\u03bb" in out


# ----------------------------------------------------------------------------------------------- what a run is, as data


def test_a_run_is_plain_data() -> None:
    """The same run from texts, from values, from the words of a command line, and from what a run folder stores."""
    texts = {
        "method": "cnpgpd",
        "K": "30",
        "kappa": ".1,.2",
        "seed": "3",
        "printed": "true",
        "limits": "heat=2,noise=1",
    }
    values = {"method": "cnpgpd", "K": 30, "kappa": (0.1, 0.2), "seed": np.int64(3), "printed": True}
    values["limits"] = {"heat": 2, "noise": 1.0}
    spec = RunSpec.from_flags("p", texts)
    assert spec == RunSpec.from_flags("p", values) == RunSpec.from_flags("p", json.loads(json.dumps(spec.flags())))
    assert RunSpec.from_flags("p", {"b": "-5,-3"}).words()[3:] == ["--b=-5.0,-3.0"], "no flag"
    words = spec.words()
    assert words[:3] == ["clearance", "solve", "p"] and "heat=2.0,noise=1.0" in words
    assert run_flags.read_spec(command_line._parser().parse_args(words[1:])) == spec
    assert spec.notes() == {"flags": spec.flags(), "command": words}
    assert spec.make_method(simulated=False) == cl.CNPGPD(K=30, kappa=(0.1, 0.2), direction=cl.SGD(printed=True))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"K": "1.5"}, "K: must be a whole number, got '1.5'"),
        ({"delta": 2}, "delta: must be in (0, 1), got 2"),
        ({"limits": "a=1,a=2"}, "limits: must be NUMBER,… or NAME=NUMBER,… with each name once"),
        ({"limits": "a=1,2"}, "limits: must be NUMBER,… or NAME=NUMBER,…"),
        ({"sampler": "dice"}, "sampler: must be one of critic, table, coin, exact, got 'dice'"),
        ({"colour": "red"}, "colour: is no setting of solve"),
        ({"printed": "maybe"}, "printed: must be true or false"),
        ({"seed": [None]}, "seed: must be numbers or texts"),
        ({"bounds": "1"}, "bounds: must be two numbers with a comma between them"),
    ],
)
def test_a_wrong_value_names_its_field(flags: dict[str, Any], says: str) -> None:
    with pytest.raises(cl.InputError) as e:
        RunSpec.from_flags("two-state", flags)
    assert str(e.value).startswith(says)


def test_every_setting_of_every_method_is_a_flag() -> None:
    from clearance.runs.method_table import METHODS

    solve = next(a for a in command_line._parser()._actions if a.dest == "command").choices["solve"]  # type: ignore[index]
    flags = {flag for action in solve._actions for flag in action.option_strings}
    for kind in METHODS.values():
        assert {f"--{f.name}" for f in dataclasses.fields(kind)} <= flags, kind
    text = " ".join(solve.format_help().split())
    for group in ("basic:", "method:", "simulator or imported model:", "run:", "cluster:", "examples:", "exit status:"):
        assert group in text
    assert "number of iterations (default: depends on the method)" in text


def test_one_name_is_one_algorithm() -> None:
    """What --method calls a method is the same class on every kind of problem."""
    for name, method in (("cnpgpd", cl.CNPGPD()), ("practical-cnpgpd", cl.PracticalCNPGPD())):
        assert RunSpec("p", method=name).make_method(simulated=True) == method
    assert RunSpec("p").make_method(simulated=True) == cl.PracticalCNPGPD()
    assert RunSpec("p").make_method(simulated=False) == cl.RegularisedCNPGPD()
    given = {"method": "practical-crpo", "kl": "0.1,0.01", "tolerance": "1", "eta1": 0.5}
    crpo = RunSpec.from_flags("p", given).make_method(simulated=True)
    assert crpo == cl.PracticalCRPO(kl=(0.1, 0.01), tolerance=1.0, eta1=0.5)
    for name in ("regularised", "crpo", "npgpd"):
        with pytest.raises(cl.InputError, match=f"--method {name} is for finite models: on a simulator use practical-"):
            RunSpec("p", method=name).make_method(simulated=True)
    with pytest.raises(cl.InputError, match="--method practical-crpo is for simulators: on a finite model use regular"):
        RunSpec("p", method="practical-crpo").make_method(simulated=False)


# ------------------------------------------------------------------------------------------- simulators, limits by name

POLE = """
import gymnasium


def costs(obs, action, after, info):
    return {"tilt": float(abs(after[2]) > 0.05), "drift": float(abs(after[0]) > 1)}


def rule(obs):
    return int(obs[2] > 0)
"""


def test_a_rule_on_an_environment_with_limits_by_name(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gymnasium")
    monkeypatch.delitem(sys.modules, "pole_costs", raising=False)
    Path("pole_costs.py").write_text(POLE)
    asked = "gym:CartPole-v1 --constraints pole_costs:costs --horizon 20 --bounds 0,1 --num_envs 4"
    status, said = cli.json(f"certify {asked} --limits drift=5,tilt=15 pole_costs:rule --budget 2e4")
    assert status == 0 and (said["verdict"], said["evidence"], said["b"]) == ("CERTIFIED", "samples", [-5.0, -15.0])
    status, said = cli.json(f"certify {asked} --limits drift=5,tilt=1 pole_costs:rule --budget 2e4")
    assert status == 4 and said["verdict"] == "VIOLATED" and said["slack"][1] < 0 < said["slack"][0]
    for wrong, says in (
        ("--limits tilt=15 pole_costs:rule --cluster ray", "--cluster: a rule is called in this process"),
        ("--limits tilt=a pole_costs:rule", "argument --limits: must be a number, got 'a'"),
        ("--limits 1,2 pole_costs:nothing", "POLICY pole_costs:nothing failed"),
    ):
        status, out, err = cli(f"certify {asked} {wrong}")
        assert (status, out) == (2, "") and says in err and len(err.splitlines()) == 1


# ------------------------------------------------------------------------------------------- a method of the user's own

OWN = """
from dataclasses import dataclass, field

import clearance as cl


@dataclass(frozen=True)
class Own(cl.CNPGPD):
    K: int = 60
    N: int = 5
    slowness: float = field(default=1.0, metadata={"help": "how slow it is"})
    mood: str = "calm"

    def step(self, key, sampler, state, lam_max):
        following, info = super().step(key, sampler, state, lam_max)
        return following._replace(theta=state.theta + (following.theta - state.theta) / self.slowness), info


class NoMethod:
    pass
"""


@pytest.fixture
def own(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    Path("own_method.py").write_text(OWN)
    monkeypatch.delitem(sys.modules, "own_method", raising=False)
    return cli


def test_a_method_of_ones_own_is_solved_resumed_and_reported(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = "--method own_method:Own --slowness 2 --mood odd --kappa 0.1"
    assert own.json(f"solve two-state {flags} --out whole")[0] in (0, 4)
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 4, KeyboardInterrupt))
        status, _, err = own(f"solve two-state {flags} --out run --checkpoint-every 5")
    again = f"clearance solve --method own_method:Own --resume run --allow-import {os.getcwd()}\n"
    assert status == 130 and err.endswith(again)
    sys.modules.pop("own_method")
    for again in ("", "--method cnpgpd"):
        status, out, err = own(f"solve --resume run {again}")
        assert (status, out) == (2, "") and "--method is missing: run is a run with a method of your own" in err
    assert "own_method" not in sys.modules, "a folder's word is not enough"
    status, _, err = own("solve --resume run --method own_method:Own --slowness 3 --allow-import .")
    assert status == 2 and "--slowness 3.0 is not as in the run in run, where it was 2.0" in err
    assert own.json("solve --resume run --method own_method:Own --allow-import .")[1]["status"] == "done"
    assert bits("run") == bits("whole")
    assert own("report run")[0] == 0 and "own_method:Own" in Path("run/report.html").read_text("utf-8")


def test_a_run_of_ones_own_method_begun_in_python_goes_on(own: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    import own_method  # type: ignore[import-not-found]

    cl.solve(cl.zoo.two_state(), own_method.Own(slowness=2.0), out="run")
    assert "--method is missing" in own("solve --resume run")[2]
    assert own.json("solve --resume run --method own_method:Own")[1]["status"] == "done"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("solve two-state --method own_method:Absent", "--method own_method:Absent failed: AttributeError"),
        ("solve two-state --method nowhere:Own", "--method nowhere:Own failed: ModuleNotFoundError"),
        ("solve two-state --method own_method:NoMethod", "must be a dataclass with methods init and step"),
        ("solve two-state --method own_method:Own --nu 1", "--nu is not for --method own_method:Own"),
        ("solve two-state --method cnpgpd --slowness 2", "unrecognized arguments: --slowness"),
        ("solve two-state --method own_method:Own --slowness x", "argument --slowness: must be a number, got 'x'"),
        ("compare two-state --methods own_method:NoMethod", "must be a dataclass with methods init and step"),
        ("compare two-state --methods crpo,ppo", "--methods: 'ppo' is none of regularised, cnpgpd"),
        ("compare two-state --methods crpo,crpo", "--methods: crpo is given twice"),
    ],
)
def test_a_method_that_is_none(own: Cli, argv: str, says: str) -> None:
    status, out, err = own(argv)
    assert (status, out) == (2, "") and says in err and len(err.splitlines()) == 1


def test_help_shows_the_settings_of_ones_own_method(own: Cli) -> None:
    with pytest.raises(SystemExit):
        main(["solve", "--method", "own_method:Own", "--help"])
    text = " ".join(own.capsys.readouterr().out.split())
    assert "how slow it is (default: 1)" in text


def test_compare_with_a_method_of_ones_own(own: Cli) -> None:
    small = "--seeds 2 --budget 2e3 --K 20"
    status, said = own.json(f"compare two-state --methods own_method:Own,pmdpd {small}")
    rows = {row["method"]: row for row in said["table"]}
    assert status == 0 and rows.keys() == {"own_method:Own", "pmdpd"}
    assert rows["own_method:Own"]["x"] is None and rows["pmdpd"]["x"] > 0, "it is not tuned"


def test_compare_from_python() -> None:
    """Names, classes and instances; a class of the user's own gets K and N of the budget, an instance runs as it is."""
    small: dict[str, Any] = {"seeds": 1, "budget": 2e3, "K": 20}

    @dataclasses.dataclass(frozen=True)
    class Slow(cl.CNPGPD):
        eta1: float = 0.01
        output: ClassVar[str] = "last"

    found = cl.compare({"two": cl.zoo.two_state()}, ["modelbased-lp", Slow, cl.CRPO(K=7, N=3)], **small)
    assert [r.method for r in found] == ["modelbased-lp", "Slow", "CRPO"] and {r.problem for r in found} == {"two"}
    assert [r.output for r in found] == ["average", "last", "average"]
    assert found[0].setting is not None and found[1].setting is found[2].setting is None
    assert found[1].env_steps == pytest.approx(2e3, rel=0.5)
    again = cl.compare(["two-state"], [Slow], **small)[0]
    assert np.array_equal(again.curve.last, found[1].curve.last)
    with pytest.raises(cl.InputError, match="methods: int is no method"):
        cl.compare(cl.zoo.two_state(), [3], **small)


# ---------------------------------------------------------------------------------------------------------- start-up


def loaded(code: str) -> set[str]:
    """The modules that a fresh process has loaded in the end."""
    code = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    return set(run.stderr.split())


@pytest.mark.parametrize("argv", [["--version"], ["--help"], ["sovle", "two-state"], []])
def test_what_needs_no_numbers_loads_none(argv: list[str]) -> None:
    code = f"from clearance.cli import main\ntry:\n    main({argv})\nexcept SystemExit:\n    pass"
    found = loaded(code)
    assert "clearance.cli.command_line" in found
    assert not {name.split(".")[0] for name in found} & {"numpy", "scipy", "numba", "rich", "jax", "gymnasium", "ray"}
    assert {name for name in found if name.startswith("clearance.cli.")} == {
        "clearance.cli.command_line",
        "clearance.cli.guide",
        "clearance.cli.interrupts",
        "clearance.cli.layout",
        "clearance.cli.tables",
    }


@pytest.mark.parametrize(
    "code",
    [
        "from clearance.cli import main\nmain('solve two-state --K 20 --N 5 --json --out run'.split())",
        "import clearance as cl\ncl.solve(cl.zoo.two_state(), cl.RegularisedCNPGPD(K=20, N=5)).certificate",
    ],
)
def test_a_finite_run_loads_no_simulator(cli: Cli, code: str) -> None:
    found = loaded(code)
    assert "clearance.runs.worlds.finite_world" in found
    light = {"clearance.simulator"} | {
        f"clearance.simulator.{name}" for name in ("simulator", "table_problem", "tail_costs")
    }
    assert {name for name in found if name.startswith("clearance.simulator")} <= light
    assert not {name.split(".")[0] for name in found} & {"jax", "equinox", "gymnasium", "ray"}
    assert not {name for name in found if name.startswith("clearance.cluster.ray")}
