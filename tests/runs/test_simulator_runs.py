"""Run folders of runs on simulators: to the same bits whatever ends them, and nothing of theirs is ever executed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import learners
import numpy as np
import pytest
from folders import seal
from learners import KINDS, Pole, learn, point, pole
from runs import Bomb, bits, cli, spoiled

import clearance as cl
from clearance.certificates.candidate_search import CandidateSearch
from clearance.learning import loop
from clearance.learning.methods.natural_step import NaturalSteps
from clearance.learning.natural_direction import Natural
from clearance.runs import run_writer
from clearance.runs.method_table import METHODS
from clearance.runs.run_folder import create_run, open_again
from clearance.runs.worlds.dispatch import world_of
from clearance.runs.worlds.simulator_world import SimulatorWorld
from clearance.runs.worlds.world import Task
from clearance.simulator.policies.network_mixture import NetworkMixture


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Pole, "breaks", 0)
    return tmp_path


class Whole(dict[str, Path]):
    """An undisturbed run of every kind, made when it is first asked for."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __missing__(self, kind: str) -> Path:
        learn(KINDS[kind](), self.place / kind)
        self[kind] = self.place / kind
        return self[kind]


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A run folder as it is before the first iteration, left by its process."""
    world = world_of(pole())
    task = Task(world, learners.small(world.problem), world.default_method(), "samples", 6e3, 0.1, 5)
    create_run(tmp_path / "run", task, run_writer.Every()).lock.close()
    return Path("run")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def unfinished(simulator: Any, monkeypatch: pytest.MonkeyPatch, after: int = 6, **more: Any) -> None:
    """A run folder that was left in the middle, with two checkpoints."""
    with monkeypatch.context() as m, pytest.raises(ZeroDivisionError):
        m.setattr(loop, "_advance", Bomb(loop._advance, after, ZeroDivisionError))
        learn(simulator, "run", **more)


# ------------------------------------------------------------------------------------------- the same bits, always


@pytest.mark.parametrize("kind", [pytest.param("JAX", marks=pytest.mark.slow), "Gymnasium"])
def test_interrupted_again_and_again(kind: str, whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """In learning, and in the choice; with a folder and without; and made again when it is done."""
    free, expected = learn(KINDS[kind](), None), bits(whole[kind])
    advance, choose, rng, interrupts = loop._advance, CandidateSearch.run, random.Random(kind), 0
    for n in range(10):
        monkeypatch.setattr(loop, "_advance", Bomb(advance, rng.randint(3, 5), KeyboardInterrupt))
        monkeypatch.setattr(CandidateSearch, "run", Bomb(choose, 1, KeyboardInterrupt) if n < 3 else choose)
        try:
            made = KINDS[kind]()
            cl.resume("run", made, checkpoint_every=2) if Path("run").exists() else learn(made, "run")
            break
        except KeyboardInterrupt:
            interrupts += 1
            found = cl.run.load("run")
            assert found.status == "interrupted" and isinstance(found.policy, NetworkMixture) and found.policy.M == 1
    assert interrupts >= 3 and bits("run") == expected
    found = cl.run.load("run")
    for column in ("theta", "lam", "J_hat", "omega_norm", "steps"):
        assert np.array_equal(getattr(free.trace, column), getattr(found.trace, column))
    assert isinstance(found.policy, NetworkMixture) and np.array_equal(found.policy.theta, free.policy.theta)
    assert found.manifest["env_steps"] == free.env_steps <= 2e4 and found.problem.names == free.statement.names
    free.save("saved")
    saved = cl.run.load("saved")
    assert saved.certificate == found.certificate and np.array_equal(saved.trace.theta, found.trace.theta)


def test_the_other_method_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a method carries is in the checkpoint, and its settings come back from data."""
    own = {kind.__name__ for kind in NaturalSteps.__subclasses__()}
    assert own | {"CNPGPD"} <= {kind.__name__ for kind in METHODS.values()}
    crpo = cl.PracticalCRPO(K=6, N=120, direction=Natural(iterations=4), tolerance=0.5)
    learn(pole(), "whole", method=crpo)
    unfinished(pole(), monkeypatch, 4, method=crpo)
    cl.resume("run", pole())
    assert bits("run") == bits("whole") and cl.run.load("run").settings["method"]["name"] == "PracticalCRPO"


def test_a_done_run_is_tested_again_only_if_its_certificate_is_lost(
    whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if that is interrupted: to the same bits, in the share that its search had."""
    shutil.copytree(whole["Gymnasium"], "run")
    with monkeypatch.context() as m:
        m.setattr(CandidateSearch, "run", Bomb(CandidateSearch.run, 1, KeyboardInterrupt))
        assert cl.resume("run", pole()).recalled
        Path("run/certificate.json").unlink()
        with pytest.raises(KeyboardInterrupt):
            cl.resume("run", pole())
    assert not cl.resume("run", pole()).recalled
    assert bits("run") == bits(whole["Gymnasium"])


def killed(kind: str, kills: int, seed: int, whole: Whole) -> None:
    """kill -9 at random instants of a process at work, the same again each time; then to the end."""
    expected, rng = bits(whole[kind]), random.Random(seed)
    argv = [sys.executable, learners.__file__, kind, "run"]
    env = os.environ | {"PYTHONPATH": str(Path(cl.__file__).parents[1])}
    for _ in range(kills):
        process, before = subprocess.Popen(argv, stderr=subprocess.PIPE, env=env), newest()
        while process.poll() is None and newest() == before:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.5))
        assert process.poll() in (None, 0), process.communicate()
        process.send_signal(signal.SIGKILL)
        process.communicate()
    cl.resume("run", KINDS[kind]())
    assert bits("run") == expected


def newest() -> set[str]:
    """The checkpoints, and the policy."""
    return {path.name for name in ("checkpoint/*.npz", "policy.npz") for path in Path("run").glob(name)}


def test_kill_9(whole: Whole) -> None:
    killed("Gymnasium", 1, 1, whole)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_kill_9_many_times(kind: str, whole: Whole) -> None:
    killed(kind, 5, 2, whole)


def test_an_environment_that_breaks(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last checkpoint and what was learned until then are there; with one that is repaired the run continues."""
    expected = bits(whole["Gymnasium"])
    for at, phase in ((800, "learning"), (2600, "choice")):
        monkeypatch.setattr(Pole, "steps", 0)
        monkeypatch.setattr(Pole, "breaks", at)
        with pytest.raises(cl.EnvironmentFault, match=r"pole, lane .*a bearing is worn out") as e:
            learn(pole(), phase, checkpoint_every="1h")
        found, learned = cl.run.load(phase), e.value.learned
        assert (found.status, found.manifest["phase"]) == ("failed", phase) and found.damaged == ()
        assert found.manifest["message"] == str(e.value) and found.k == len(found.trace) > 0
        assert isinstance(found.policy, NetworkMixture) and np.array_equal(found.policy.theta, learned.theta)
        assert found.certificate is None
        monkeypatch.setattr(Pole, "breaks", 0)
        cl.resume(phase, pole())
        assert bits(phase) == expected


def test_one_that_is_never_twice_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said once at the beginning, noted, and said again when it goes on."""
    with (
        pytest.warns(
            UserWarning, match=r"pole is not deterministic given its seed \(the observation differs at step 0"
        ),
        monkeypatch.context() as m,
        pytest.raises(KeyboardInterrupt),
    ):
        m.setattr(loop, "_advance", Bomb(loop._advance, 3, KeyboardInterrupt))
        learn(pole(moody=True), "run")
    assert cl.run.load("run").settings["deterministic"] is False
    with pytest.warns(UserWarning, match="the result will differ from that of an uninterrupted run"):
        cl.resume("run", pole(moody=True))
    assert cl.run.load("run").status == "done" and cl.run.load("run").damaged == ()


def test_numbers_that_are_no_longer_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_advance", spoiled(4, "theta"))
    with pytest.raises(cl.SolverError, match="no longer finite at iteration 4"):
        learn(pole(), "run", checkpoint_every="1h")
    found = cl.run.load("run")
    assert (found.status, found.k, len(found.trace)) == ("failed", 3, 3) and np.isfinite(found.trace.theta).all()
    assert isinstance(found.policy, NetworkMixture) and np.isfinite(found.policy.theta).all()


# ---------------------------------------------------------------------------------------- what does not fit is refused


def test_another_problem_is_refused(begun: Path) -> None:
    for other in (pole(limit=14.0), pole(horizon=21), pole(name="slant"), point(), cl.zoo.two_state()):
        with pytest.raises(cl.InputError, match="is a run on another problem; give that one or choose"):
            cl.resume(begun, other)
    with pytest.raises(cl.InputError, match="is a run on a simulator, whose code is not in the folder: give it again"):
        cl.resume(begun)
    with pytest.raises(cl.InputError, match="must be a CMDP or a simulator, got str"):
        cl.resume(begun, "pole")  # type: ignore[call-overload]
    cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=5, N=3), out="finite")
    with pytest.raises(cl.InputError, match="is a run on another problem; give that one, or none,"):
        cl.resume("finite", pole())
    assert cl.run.load(begun).damaged == () and cl.run.load("finite").status == "done"


@pytest.mark.parametrize("name", ["newest", "problem.json"])
def test_a_damaged_file_is_named(name: str, whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished(pole(), monkeypatch)
    checkpoints = sorted(Path("run/checkpoint").iterdir())
    path = checkpoints[1] if name == "newest" else Path("run", name)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.warns(cl.DamagedRunWarning, match=path.name):
        cl.resume("run", pole())
    assert bits("run") == bits(whole["Gymnasium"])


def test_settings_that_cannot_be_made_again(begun: Path) -> None:
    path = begun / "settings.json"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(cl.InputError, match=r"settings\.json: is missing, cut off or altered"):
        cl.resume("run", pole())


def test_one_writer_at_a_time(begun: Path) -> None:
    held = open_again(begun, run_writer.Every(), world_of(pole()).describe())
    try:
        with pytest.raises(cl.InputError, match=rf"another process \(number {os.getpid()}\) is writing this run"):
            cl.resume(begun, pole())
        assert cl.run.load(begun).status == "running"
    finally:
        held.lock.close()


def test_every_file_carries_its_schema(whole: Whole) -> None:
    found = cl.run.load(whole["Gymnasium"])
    assert {"problem.json", "policy.npz", "trace/000001.npz", "certificate.json"} <= found.manifest["files"].keys()
    for name in (*found.manifest["files"], "manifest.json"):
        path = whole["Gymnasium"] / name
        schema = json.loads(path.read_text())["schema"] if name.endswith("json") else str(np.load(path)["schema"])
        assert schema == f"clearance/{name.partition('/')[0].partition('.')[0]}/1"


FORGED = {
    "problem.json": [("gamma", 2.0), ("b", "x"), ("bounds", {"low": [0]}), ("horizon", "many"), ("names", 3)],
    "settings.json": [
        ("method", {"name": "os.system"}),
        ("method", {"name": "Natural"}),
        ("sampler", {"name": "PracticalCNPGPD"}),
        ("sampler", {"name": "Practical", "simulator": 1}),
        ("policy", {"kind": "design"}),
        ("policy", {"kind": "design", "seed": 0, "obs_shape": [4], "action": {"kind": "x"}, "design": {"hidden": []}}),
        ("deterministic", "perhaps"),
    ],
}


@pytest.mark.parametrize(("name", "key", "value"), [(f, k, v) for f, kinds in FORGED.items() for k, v in kinds])
def test_forged_files(name: str, key: str, value: Any, begun: Path) -> None:
    """Their hashes fit, and all the same they are refused in one line."""
    path = begun / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    seal(begun)
    with pytest.raises(cl.InputError, match=rf"{name.replace('.', '[.]')}: |policy: ") as e:
        _ = cl.run.load(begun).problem
        cl.resume(begun, pole())
    assert "\n" not in str(e.value)


def test_a_reward_without_bounds_has_none_in_its_certificate(whole: Whole) -> None:
    """JSON has no word for infinity; but what is CERTIFIED has all the numbers that it rests on."""
    found = cl.run.load(whole["Gymnasium"]).certificate
    assert found is not None and found.J_lower[0] == -np.inf and found.J_upper[0] == np.inf
    data = json.loads((whole["Gymnasium"] / "certificate.json").read_text())
    assert data["J_lower"][0] is None and data["J_r_lower"] is None
    from clearance.runs import schema as stored

    forged = data | {"verdict": "CERTIFIED", "J_lower": [None, None], "J_g_lower": [None]}
    with pytest.raises(cl.InputError, match="J_lower must be a list of 2 finite numbers"):
        stored.parse_certificate(Path("c.json"), forged)
    assert stored.parse_certificate(Path("c.json"), forged | {"verdict": "UNDECIDED"}).J_lower == [-np.inf, -np.inf]


# -------------------------------------------------------------------------------------------------- the command line


def mine(name: str = "mine") -> None:
    """A module of the user's, in the working folder."""
    Path(f"{name}.py").write_text(
        "from learners import Pole, pole\n\n"
        "def make():\n    return Pole()\n\n"
        "def problem():\n    return pole()\n\n"
        "def cost(obs, action, after, info):\n    return info['cost']\n"
    )
    sys.modules.pop(name, None)


def test_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Interrupted, refused where it says something else, resumed; events, table and report of it."""
    mine()
    monkeypatch.setattr(SimulatorWorld, "_own_sampler", learners.small_of)
    flags = "--limits 15 --horizon 20 --bounds 0,1 --constraints mine:cost --K 8 --N 120 --budget 6e3"
    assert cli(f"solve mine:make {flags} --seed 5 --out whole --json", capsys)[0] in (0, 4)
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 5, KeyboardInterrupt))
        status, out, err = cli(f"solve mine:make {flags} --seed 5 --resume run --tensorboard events --json", capsys)
    again = "clearance solve mine:make --budget 6000.0 --seed 5 --K 8 --N 120 --limits 15.0 --horizon 20 "
    assert (status, json.loads(out)["status"]) == (130, "interrupted") and err.startswith(
        f"clearance: interrupted; saved in run: resume with: {again}"
    )
    for wrong, says in (
        ("--resume run", "PROBLEM is missing: run is a run on a simulator, whose code is not in it: clearance solve"),
        ("mine:make --resume run", "--constraints is missing: run is a run on a simulator"),
        ("mine:make --constraints mine:cost --resume run --seed 4", "--seed 4 is not as in the run in run"),
        ("mine:make --constraints mine:cost --resume run --limits 14", "--limits [14.0] is not as in the run in run"),
    ):  # fmt: skip
        status, out, err = cli(f"solve {wrong}", capsys)
        assert (status, out) == (2, "") and says in err and len(err.splitlines()) == 1, err
    words = "solve mine:make --constraints mine:cost --resume run --tensorboard events --json"
    status, out, _ = cli(words, capsys)
    assert status in (0, 4) and json.loads(out)["status"] == "done"
    assert bits("run") == bits("whole")
    trace = cl.run.load("run").trace
    assert cli("export run --to t.csv", capsys)[0] == 0
    rows = Path("t.csv").read_text().splitlines()
    assert len(rows) == 1 + len(trace) and rows[0] == "k,lam.cost,J_hat.reward,J_hat.cost,omega_norm,steps,counts"
    assert [float(r.split(",")[3]) for r in rows[1:]] == trace.J_hat[:, 1].tolist()
    if pytest.importorskip("tensorboardX"):
        from runs import events

        assert events("events")["slack_hat/cost"] == pytest.approx(dict(enumerate(trace.J_hat[:, 1] + 15.0)), rel=1e-5)
    assert cli("report run --json", capsys)[0] == 0
    page = Path("run/report.html").read_text("utf-8")
    assert "--constraints mine:cost" in page and "over the first 20 steps of an episode" in page


def test_code_is_never_named_by_a_folder(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A command, flags or an id that somebody has written into a run folder: nothing of it is imported."""
    Path("evil.py").write_text("open('executed', 'w').close()\n\ndef make():\n    raise SystemExit\n")
    path = begun / "settings.json"
    for problem in ("evil:make", "gym:evil:Env-v0", "\x1b[2Jgym:evil"):
        data = {"command": ["clearance", "solve", problem], "flags": {"constraints": "evil:make"}}
        path.write_text(json.dumps(json.loads(path.read_text()) | data))
        seal(begun)
        status, out, err = cli("solve --resume run", capsys)
        assert (status, out) == (2, "") and "PROBLEM is missing" in err and len(err.splitlines()) == 1
        assert err.rstrip().isprintable() and cl.run.load(begun).settings["flags"]
    assert not Path("executed").exists() and "evil" not in sys.modules


def test_a_simulator_of_the_zoo_needs_no_name(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """--resume alone: its name is looked up among ours."""
    from clearance import zoo

    monkeypatch.setitem(zoo.SIMULATORS, "crpo-cartpole", pole)
    monkeypatch.setattr(SimulatorWorld, "_own_sampler", learners.small_of)
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 3, KeyboardInterrupt))
        status, _, err = cli("solve crpo-cartpole --K 4 --N 120 --budget 5e3 --out run", capsys)
    assert status == 130 and "clearance solve crpo-cartpole --budget 5000.0 --K 4 --N 120 --resume run" in err
    assert cli("solve --resume run --json", capsys)[0] in (0, 4)
    assert cl.run.load("run").status == "done"


def test_a_fault_at_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line that says what broke, where what was learned is, and how to go on."""
    mine()
    monkeypatch.setattr(SimulatorWorld, "_own_sampler", learners.small_of)
    monkeypatch.setattr(Pole, "steps", 0)
    monkeypatch.setattr(Pole, "breaks", 800)
    status, out, err = cli("solve mine:problem --K 8 --N 120 --budget 6e3 --out run", capsys)
    assert (status, out) == (2, "") and len(err.splitlines()) == 1 and "RuntimeError: a bearing is worn out" in err
    again = f"clearance solve mine:problem --budget 6000.0 --K 8 --N 120 --resume run --allow-import {os.getcwd()}"
    go_on = f"resume with: {again}\n"
    assert err.endswith(f"what was learned until then is in run/policy.npz, not certified; once it is fixed, {go_on}")
    assert NetworkMixture.load("run/policy.npz").M == 1 and cl.run.load("run").status == "failed"


def test_a_run_begun_in_python_goes_on_at_the_command_line(whole: Whole, capsys: Any) -> None:
    mine()
    shutil.copytree(whole["Gymnasium"], "run")
    assert "PROBLEM is missing" in cli("solve --resume run", capsys)[2]
    assert "was begun in Python" in cli("solve mine:problem --resume run --seed 5 --allow-import .", capsys)[2]
    assert cli("solve mine:problem --resume run --json --allow-import .", capsys)[0] in (0, 4)
    assert bits("run") == bits(whole["Gymnasium"])
