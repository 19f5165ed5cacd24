"""Real Ray, real processes: several nodes on this machine, and workers and whole nodes that are killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest
from rays import add_node, belongs, kill_worker_of, wait_for, worker_of
from runs import LISTENING, bits, cli

import clearance as cl
from clearance.cluster import ray_calls
from clearance.cluster import ray_executor as clusters
from clearance.cluster.executor import should_stop
from clearance.cluster.ray_calls import Received
from clearance.cluster.ray_process import parse_address

pytest.importorskip("ray")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------------------------------------------ a Ray of our own


OWN = """
import os, subprocess, sys, jax
jax.numpy.ones(3).sum()                              # Ray must be started without a fork of this process
import clearance as cl
with cl.Ray() as ray:
    assert cl.run_all(abs, range(-3, 3), executor=ray) == [3, 2, 1, 0, 1, 2]
    print(subprocess.run(["ss", "-ltnp"], capture_output=True, text=True).stdout, len(os.environ["RAY_AUTH_TOKEN"]))
assert "RAY_AUTH_TOKEN" not in os.environ
ray = cl.Ray()
ray.connected()
print("KEEPER", ray._keeper.process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.slow  # before there is a cluster for the others: it would join that one
def test_a_ray_of_our_own(tmp_path: Path) -> None:
    """On the loopback interface alone, for those who know its token, nothing in the home folder; it ends with us."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-W", "error", "-c", OWN], env=env, capture_output=True, text=True)
    listening = [line.split()[3] for line in done.stdout.splitlines() if "raylet" in line or "gcs_server" in line]
    assert len(listening) >= 3 and all("127.0.0.1" in place for place in listening), done
    assert not (tmp_path / ".ray").exists() and "\n 64\n" in done.stdout
    keeper = int(done.stdout.split("KEEPER")[1])
    wait_for(lambda: not Path(f"/proc/{keeper}").exists() or " Z " in Path(f"/proc/{keeper}/stat").read_text())


# ------------------------------------------------------------------------------------------------ the executor


def test_the_same_results_in_the_same_order(pair: Any) -> None:
    """Jobs end in any order; results, and what is told of their progress, do not show it."""
    _, ray = pair

    def slow_first(x: int) -> tuple[int, bytes]:
        time.sleep(0.3 if x == 0 else 0.0)
        A = np.random.default_rng(x).normal(size=(150, 150))
        return x, np.linalg.solve(A, A @ A).tobytes()  # BLAS changes its last bits with the number of its threads

    seen: list[tuple[int, int]] = []
    there = cl.run_all(slow_first, range(12), executor=ray, progress=lambda *n: seen.append(n))
    assert there == cl.run_all(slow_first, range(12), threads=2)
    assert seen == [(i, 12) for i in range(1, 13)]


def test_errors_and_warnings_come_back_as_they_were(pair: Any) -> None:
    _, ray = pair

    def fails(x: int) -> None:
        warnings.warn("kappa is large", cl.ConservatismWarning, stacklevel=1)
        raise cl.InfeasibleError("no policy meets the limits", -2.0)

    with pytest.warns(cl.ConservatismWarning, match="kappa is large"), pytest.raises(cl.InfeasibleError) as e:
        cl.run_all(fails, [1], executor=ray)
    assert (str(e.value), e.value.slater) == ("no policy meets the limits", -2.0)


@pytest.mark.parametrize(
    "error",
    [cl.EnvironmentFault("Cart", 1, 3, "no", np.nan), cl.InfeasibleError("none", -1.0), cl.MissingExtraError("a", "b")],
)
def test_errors_survive_the_way(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and repr(vars(again)) == repr(vars(error))


def test_a_worker_of_another_version_is_refused() -> None:
    found = clusters.call_quietly("0.0.0", 1, abs, -1)
    with pytest.raises(cl.InputError, match=r"a worker has clearance .* this is 0\.0\.0: install the same"):
        found.result()
    assert clusters.call_quietly(cl.__version__, 1, abs, -1) == Received(1, None)


def test_a_job_that_kills_its_worker_is_given_up(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ray = pair
    monkeypatch.setattr(clusters, "LIVES", 2)
    monkeypatch.setattr(ray_calls, "LIVES", 2)
    here = Path.cwd()

    def deadly(x: int) -> int:
        if x == 1:
            (here / f"{time.time_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    with pytest.raises(cl.SolverError, match="the worker of this job died, 2 times in all"):
        cl.run_all(deadly, range(3), executor=ray)
    assert len(list(here.iterdir())) == 2


def test_what_cannot_be_sent_is_said(pair: Any) -> None:
    lock = threading.Lock()
    with pytest.raises(cl.InputError, match="cannot be sent to other processes"):
        cl.run_all(lambda x: lock, [1], executor=pair[1])


@pytest.mark.parametrize("text", ["", "ray://", "host", "host:x", "ray://host:99999", ":1"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(cl.InputError, match="cluster must be"):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("ray://head:10001") == ("head", 10001) and parse_address("[::1]:6379") == ("::1", 6379)


def test_local_jobs_hear_that_they_should_stop() -> None:
    begun = threading.Event()

    def patient(x: int) -> int:
        begun.set()
        wait_for(should_stop)
        return x

    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cl.run_all(lambda x: patient(x) if x else wait_for(begun.is_set), range(9), threads=2, progress=interrupt)
    assert not should_stop()


# ------------------------------------------------------------------------------------------------ the command line


def test_without_the_extra(tmp_path: Path) -> None:
    """Everything else works, and --cluster says what to install."""
    (tmp_path / "ray.py").write_text("raise ImportError('no ray')")
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    argv = [sys.executable, "-m", "clearance", "frontier", "two-state", "--points", "3"]
    done = subprocess.run([*argv, "--cluster", "ray"], env=env, capture_output=True, text=True)
    needed = "clearance: ray is not installed: pip install '.[cluster]' in a clone of clearance\n"
    assert (done.returncode, done.stderr) == (2, needed)
    assert subprocess.run(argv, env=env, capture_output=True).returncode == 0


def test_nobody_answers(pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "clearance", *["frontier", "two-state", "--cluster", "127.0.0.1:9"]],
                          capture_output=True, text=True)  # fmt: skip
    said = "clearance: cluster 127.0.0.1:9: cannot be joined: [Errno 111] Connection refused: is Ray running there?\n"
    assert (done.returncode, done.stderr) == (2, said)
    status, _, err = cli("frontier two-state --cluster 127.0.0.1:9", capsys)
    assert status == 2 and f"has joined {pair[0].address} already" in err
    status, _, err = cli("frontier two-state --cluster nowhere", capsys)
    assert status == 2 and "argument --cluster: must be local, ray, ray://HOST:PORT or HOST:PORT" in err


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param("frontier altman-queue-discounted --points 9 --learned 2", marks=pytest.mark.slow),
        "frontier two-state --points 7",
        pytest.param("compare two-state --methods cnpgpd --seeds 2 --budget 2e3 --K 20", marks=pytest.mark.slow),
    ],
)
def test_commands_give_the_same_answer(argv: str, pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(more: str) -> Any:
        status, out, _ = cli(f"{argv} --json {more}", capsys)
        assert status == 0
        data = json.loads(out)
        for row in data.get("table", []):
            row.pop("seconds")
        return data

    assert answer(f"--cluster {pair[0].address}") == answer("")


@pytest.mark.slow
def test_reproduce_gives_the_same_study(pair: Any) -> None:
    from clearance.studies.reproduce import SETTINGS, run_bai2023

    how: dict[str, Any] = {"seeds": 2, "K": 30, "N": 5, "settings": SETTINGS[:2]}
    there, here = run_bai2023(**how, executor=pair[1]), run_bai2023(**how)
    for a, b in zip(there.runs, here.runs, strict=True):
        assert np.array_equal(a.J, b.J) and np.array_equal(a.lam, b.lam)


# ------------------------------------------------------------------------------------------------ grids


GRID: dict[str, Any] = {"seed": range(3), "kappa": [0, 0.01]}
SET: dict[str, Any] = {"method": "cnpgpd", "K": 400, "N": 20}


def found_in(out: str, points: int = 6) -> dict[str, Any]:
    """Everything that a grid has found, bit by bit."""
    rows = json.loads(Path(out, "table.json").read_text())["rows"]
    assert [row["point"] for row in rows] == list(range(points)) and all(row["status"] == "done" for row in rows)
    return {row["folder"]: (row["J_r"], row["verdict"], bits(Path(out, row["folder"]))) for row in rows}


def sweep_in_background(**how: Any) -> tuple[threading.Thread, list[Any]]:
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(cl.sweep(**how)))
    thread.start()
    return thread, ended


def test_a_grid_on_a_cluster_is_the_grid_here(pair: Any) -> None:
    there = cl.sweep("two-state", GRID, out="there", executor=pair[1], **SET)
    here = cl.sweep("two-state", GRID, out="here", **SET)
    assert found_in("there") == found_in("here") and there.finished and here.finished
    assert here.rows[3]["seed"] == "1" and here.rows[3]["kappa"] == "0.01"
    assert cl.run.load("here/003").settings["command"][:3] == ["clearance", "solve", "two-state"]


def test_a_grid_whose_folder_workers_cannot_see(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run folders travel through the object store, and are written here; with the token of another grid, so that
    nodes on this machine see none of ours.
    """
    from clearance.studies import sweep as sweeping

    cl.sweep("two-state", GRID, out="here", **SET)
    make = sweeping.Work
    monkeypatch.setattr(sweeping, "Work", lambda home, token, *rest: make(home, "another", *rest))
    cl.sweep("two-state", GRID, out="there", executor=pair[1], **SET)
    assert found_in("there") == found_in("here")
    assert not (Path("there/000/lock").exists())  # no process has written there; only whole folders were


LONG: dict[str, Any] = {"method": "cnpgpd", "K": 12_000, "N": 40, "checkpoint_every": 200}
POINTS = 7


def at_work(out: str) -> list[Path]:
    """The folders of points that are at work and have a checkpoint."""
    begun = [p.parent for p in sorted(Path(out).glob("*/lock")) if list(p.parent.glob("checkpoint/*.npz"))]
    return [folder for folder in begun if not (folder / "policy.npz").exists()]


@pytest.mark.slow
def test_kill_9_of_workers_and_of_a_node_during_a_grid(pair: Any) -> None:
    """Points at work are repeated elsewhere, from their own checkpoints: the same bits as undisturbed."""
    (nodes, ray), grid = pair, {"seed": range(POINTS)}
    doomed = add_node(nodes)
    thread, ended = sweep_in_background(problem="two-state", grid=grid, out="grid", executor=ray, **LONG)
    hit = wait_for(lambda: at_work("grid"))[0]
    kill_worker_of(hit)
    assert not (hit / "policy.npz").exists() and cl.run.load(hit).k < 12_000
    wait_for(lambda: [f for f in at_work("grid") if belongs(worker_of(f), doomed)])
    nodes.remove_node(doomed, allow_graceful=False)
    thread.join(timeout=100)
    assert ended and ended[0].finished
    cl.sweep("two-state", grid, out="calm", **LONG)
    assert found_in("grid", POINTS) == found_in("calm", POINTS)


@pytest.mark.slow
def test_an_interrupted_grid_goes_on(pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C on a cluster; then here: what was finished is not touched, what was begun goes on from its checkpoint."""
    lengths = "1000,300000,300001"  # the first is done when the signal comes, the others have far to go
    argv = f"two-state --grid K={lengths} --method cnpgpd --N 40 --checkpoint-every 200"
    command = [sys.executable, "-c", LISTENING, "sweep", *argv.split(), "--out", "grid", "--json"]
    with subprocess.Popen([*command, "--cluster", pair[0].address], stdout=PIPE, stderr=PIPE) as process:
        try:
            wait_for(lambda: Path("grid/000/certificate.json").exists() and at_work("grid"))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130 and out == b"", (out, err)
    assert b"resume with: clearance sweep --resume grid" in err
    runs = {p.parent.name: cl.run.load(p.parent) for p in sorted(Path("grid").glob("*/manifest.json"))}
    done, told = Path("grid/000/manifest.json"), {name: (r.status, r.k) for name, r in runs.items()}
    assert told.pop("000") == ("done", 1000) and told
    assert all(status == "interrupted" and 0 < k < 300_000 for status, k in told.values()), told
    before = done.stat().st_mtime_ns
    status, out, _ = cli("sweep --resume grid --json", capsys)
    assert status == 0 and json.loads(out)["certified"] == 3
    assert done.stat().st_mtime_ns == before
    cl.sweep("two-state", {"K": lengths.split(",")}, out="calm", method="cnpgpd", N=40, checkpoint_every=200)
    assert found_in("grid", 3) == found_in("calm", 3)
