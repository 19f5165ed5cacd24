"""Run folders: whatever ends a run, it goes on to the same bits; whatever is damaged is named."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import errno
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from runs import KINDS, Bomb, begin, bits, cli, spoiled

import clearance as cl
from clearance.cli.command_line import main
from clearance.core import atomic_files
from clearance.learning import loop
from clearance.learning.methods.natural_step import NaturalSteps
from clearance.learning.recorder import Position
from clearance.learning.state import State
from clearance.runs import checkpoint, plain_data, run_reader, run_writer
from clearance.runs.method_table import METHODS, restore_method
from clearance.runs.run_folder import create_run
from clearance.runs.worlds.dispatch import world_of
from clearance.runs.worlds.finite_world import SAMPLERS
from clearance.runs.worlds.planned_search import PlannedSearch
from clearance.runs.worlds.world import Task
from tests.exact.test_episode_optimum import small_model

SRC = Path(cl.__file__).parent
METHODS_OF_MODELS = [kind for kind in METHODS.values() if not issubclass(kind, NaturalSteps)]
FINITE_SAMPLERS = (*SAMPLERS.values(), cl.Exact, cl.NetworkCritic)


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------------------- the same bits, always


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_again_and_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(kind, "whole")
    rng, advance, interrupts, out = random.Random(kind), loop._advance, 0, "run"
    most = 20 if "samples" in kind else 4 if "budget" in kind else 8  # the margin, which begins anew, takes some calls
    for _ in range(100):
        monkeypatch.setattr(loop, "_advance", Bomb(advance, rng.randint(2, most), KeyboardInterrupt))
        try:
            solution = cl.resume(out, checkpoint_every=20) if Path(out).exists() else begin(kind, out)
            interrupts += solution.status == "interrupted"
            if solution.status == "done":
                break
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts >= (1 if "samples" in kind else 2) and bits("run") == bits("whole")


@pytest.mark.parametrize("n", [2, 3, 4])
def test_an_interrupt_while_the_margin_is_measured(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the run; once, the game for the margin ended early instead, and the run came to other bits."""
    begin("samples", "whole")
    with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
        m.setattr(loop, "_advance", Bomb(loop._advance, n, KeyboardInterrupt))
        begin("samples", "run")
    assert not Path("run/margin.npz").exists()
    begin("samples", "run")
    assert bits("run") == bits("whole")


@pytest.mark.parametrize("method", METHODS_OF_MODELS, ids=lambda k: k.__name__)
def test_every_method_goes_on(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a method or its sampler carries is in the checkpoint."""
    small = {f.name for f in dataclasses.fields(method)} & {"K", "N"}
    KINDS["this method"] = {"method": method(**{name: {"K": 40, "N": 6}[name] for name in small})}
    begin("this method", "whole")
    unfinished("this method", "run", monkeypatch, 4)
    assert 0 < cl.run.load("run").k < 40
    cl.resume("run")
    assert bits("run") == bits("whole")


def test_a_network_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    KINDS["network"] = {"method": cl.CRPO(K=30, N=6), "policy": cl.two_layer(2, 2, 8)}
    begin("network", "whole")
    unfinished("network", "run", monkeypatch, 4)
    cl.resume("run")
    assert bits("run") == bits("whole") and cl.run.load("run").settings["policy"] == {"kind": "network"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_changes_nothing(kind: str) -> None:
    """With and without a folder, with many checkpoints and with few: the same trace, policy and certificate."""
    free, kept, seldom = begin(kind, None), begin(kind, "kept"), begin(kind, "seldom", checkpoint_every="1h")
    assert bits("kept") == bits("seldom") and seldom.certificate == free.certificate == kept.certificate
    for column in ("theta", "lam", "J_hat", "omega_norm", "steps", "J"):
        assert np.array_equal(getattr(free.trace, column), getattr(kept.trace, column))
    assert free.alternatives.keys() == kept.alternatives.keys() >= {"best", "mixture", "last"}
    for name, (policy, guarantee) in free.alternatives.items():
        other = kept.alternatives[name]
        assert np.array_equal(policy.pi, other.policy.pi) and np.array_equal(policy.weights, other.policy.weights)
        assert guarantee == other.guarantee
    free.save("saved")
    saved, found = cl.run.load("saved"), cl.run.load("kept")
    assert saved.certificate == found.certificate and np.array_equal(saved.trace.J, found.trace.J)


def test_an_exception_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    begin("exact", "whole")
    with monkeypatch.context() as m, pytest.raises(ZeroDivisionError):
        m.setattr(loop, "_advance", Bomb(loop._advance, 4, ZeroDivisionError("somebody's simulator")))
        begin("exact", "run", checkpoint_every="1h")
    found = cl.run.load("run")
    assert (found.status, found.manifest["message"]) == ("failed", "somebody's simulator") and found.k == 7
    cl.resume("run")
    assert bits("run") == bits("whole")


class Killed(BaseException):
    """Stands for kill -9: from now on nothing reaches the disk."""


@pytest.mark.parametrize("kind", ["exact", pytest.param("samples", marks=pytest.mark.slow)])
def test_every_instant_between_two_writes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dies at the n-th change of the disk, for every n, and is resumed: renames, removals and what is half-written."""
    begin(kind, "whole", checkpoint_every=40)
    n, replace, unlink, rename = 0, os.replace, os.unlink, os.rename
    while True:
        n += 1
        left = [n]

        def dying(function: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                left[0] -= 1
                if left[0] <= 0:
                    raise Killed
                return function(*args, **kwargs)

            return call

        with monkeypatch.context() as m:
            for name, function in (("replace", replace), ("unlink", unlink), ("rename", rename)):
                m.setattr(os, name, dying(function, left))
            m.setattr(run_writer.RunWriter, "_discard", dying(run_writer.RunWriter._discard, left))
            out = f"run{n}"
            with contextlib.suppress(Killed):
                begin(kind, out, checkpoint_every=40)
        if left[0] <= 0:
            cl.resume(out) if Path(out).exists() else begin(kind, out)
        assert bits(out) == bits("whole")
        if left[0] > 0:
            break
    assert n > 15


def solve_process(folder: str, flags: str, **how: Any) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "clearance", "solve", *flags.split(), "--resume", folder, "--json"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def killed_and_resumed(flags: str, kills: int, seed: int) -> None:
    """kill -9 at random instants, the same command again each time, until it ends by itself."""
    began = time.monotonic()
    process = solve_process("whole", flags)
    _, err = process.communicate(timeout=300)
    assert process.returncode in (0, 4), err
    lasts, rng = time.monotonic() - began, random.Random(seed)
    for _ in range(kills):
        process = solve_process("run", flags)
        try:
            process.communicate(timeout=rng.uniform(0.5, 1.0) * lasts)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    process = solve_process("run", flags)
    _, err = process.communicate(timeout=300)
    assert process.returncode in (0, 4), err
    assert bits("run") == bits("whole")


@pytest.mark.parametrize(
    "flags",
    [
        "two-state --K 1000 --N 20 --checkpoint-every 50",
        pytest.param("two-state --evidence samples --budget 4e5 --checkpoint-every 50", marks=pytest.mark.slow),
    ],
)
def test_kill_9_of_a_real_process(flags: str) -> None:
    killed_and_resumed(flags, kills=2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["bai2023 --method cnpgpd --policy bai2023 --K 2000 --N 50 --checkpoint-every 50",
                                   "altman-queue-discounted --evidence samples --budget 1e6 --checkpoint-every 50",
                                   ])  # fmt: skip
def test_kill_9_many_times(flags: str) -> None:
    killed_and_resumed(flags, kills=12, seed=2)


# -------------------------------------------------------------------------------------------------- damage is named


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut off":
        data = data[: len(data) // 2]
    elif how == "altered":
        data[len(data) // 2 :: 50] = (b ^ 1 for b in data[len(data) // 2 :: 50])
    path.write_bytes(data)
    if how == "missing":
        path.unlink()


def unfinished(kind: str, out: str, monkeypatch: pytest.MonkeyPatch, after: int = 9) -> None:
    """A run folder that was left in the middle, with two checkpoints."""
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, after, ZeroDivisionError))
        with pytest.raises(ZeroDivisionError):
            begin(kind, out)


@pytest.mark.parametrize("how", ["cut off", "altered", "missing"])
@pytest.mark.parametrize("name", ["newest", "both", "manifest.json", "margin.npz", "method.json"])
def test_a_damaged_file_is_named_and_the_last_good_checkpoint_is_used(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin("exact", "whole")
    unfinished("exact", "run", monkeypatch)
    checkpoints = sorted(Path("run/checkpoint").iterdir())
    assert len(checkpoints) == 2
    hit = {"newest": checkpoints[1:], "both": checkpoints}.get(name, [Path("run", name)])
    for path in hit:
        damage(path, how)
    if name != "manifest.json":
        assert set(cl.run.load("run").damaged) == {str(p.relative_to("run")) for p in hit}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cl.resume("run")
    # an older checkpoint is as good where the newer is gone; margin and method are made again
    quiet = (how == "missing" and name in ("newest", "both")) or name in ("margin.npz", "method.json")
    assert len(said) == (0 if quiet else len(hit))
    assert all(any(p.name in str(w.message) for w in said) for p in hit) or quiet
    assert bits("run") == bits("whole")


@pytest.mark.parametrize("how", ["cut off", "altered", "missing"])
def test_a_damaged_trace_is_named_and_made_again(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_writer, "ROWS", 32)
    begin("exact", "whole")
    unfinished("exact", "run", monkeypatch)
    damage(Path("run/trace/000001.npz"), how)
    with pytest.raises(cl.InputError, match=r"000001.npz: is (missing|cut off or altered)"):
        _ = cl.run.load("run").trace
    with pytest.warns(cl.DamagedRunWarning, match="trace/000001.npz: is missing, cut off or altered"):
        cl.resume("run")
    assert bits("run") == bits("whole")


@pytest.mark.parametrize("name", ["problem.npz", "settings.json", "features.npz"])
def test_what_cannot_be_made_again_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    two = cl.zoo.two_state()
    KINDS["features"] = {"method": cl.CNPGPD(K=100, N=10), "policy": cl.linear_softmax(np.eye(4).reshape(2, 2, 4))}
    begin("features", "whole")
    unfinished("features", "run", monkeypatch, 5)
    damage(Path("run", name), "altered")
    with pytest.raises(cl.InputError, match=f"{name}: is missing, cut off or altered"):
        cl.resume("run")
    if name == "problem.npz":  # but for the problem, if it is given again
        with pytest.raises(cl.InputError, match="is a run on another problem"):
            cl.resume("run", two.replace(b=[0.9]))
        with pytest.warns(cl.DamagedRunWarning, match=r"problem.npz.*written again from the problem given"):
            cl.resume("run", two)
        assert bits("run") == bits("whole")


def test_an_altered_certificate_is_not_believed() -> None:
    begin("exact", "run")
    path = Path("run/certificate.json")
    path.write_text(path.read_text().replace("CERTIFIED", "CERTIFIEd"))
    found = cl.run.load("run")
    with pytest.raises(cl.InputError, match=r"certificate.json: is cut off or altered, its sha256"):
        _ = found.certificate
    manifest = Path("run/manifest.json")
    manifest.write_text(manifest.read_text().replace(atomic_files.sha256(path), "0" * 64).replace('"done"', '"Done"'))
    with pytest.raises(cl.InputError, match=r"manifest.json: is altered"):
        cl.run.load("run")


def test_a_newer_schema_is_said_to_be_newer() -> None:
    begin("exact", "run")
    for name in ("manifest", "settings"):
        path = Path(f"run/{name}.json")
        path.write_text(path.read_text().replace(f"clearance/{name}/1", f"clearance/{name}/2"))
        with pytest.raises(cl.InputError, match=f"has schema clearance/{name}/2, this clearance reads .*/1: install"):
            atomic_files.load_json(path, run_reader.SCHEMAS[name])
    with pytest.raises(cl.InputError, match=r"has schema 'None', expected 'clearance/manifest/1'"):
        path.write_text("[]")
        atomic_files.load_json(path, run_reader.SCHEMAS["manifest"])


def test_every_file_carries_its_schema() -> None:
    KINDS["features"] = {"method": cl.CNPGPD(K=50, N=10), "policy": cl.linear_softmax(np.eye(4).reshape(2, 2, 4))}
    begin("features", "run")
    found = cl.run.load("run")
    assert len(found.manifest["files"]) == 11
    for name in (*found.manifest["files"], "manifest.json"):
        path = Path("run", name)
        schema = json.loads(path.read_text())["schema"] if name.endswith("json") else str(np.load(path)["schema"])
        kind = name.partition("/")[0].partition(".")[0]
        assert schema == f"clearance/{kind}/1"


EXECUTING = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}


def test_nothing_that_is_read_is_executed() -> None:
    """No pickle in the source, and none accepted in a run folder."""
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {n.partition(".")[0] for n in names} & {
                "pickle",
                "cloudpickle",
                "dill",
                "joblib",
                "shelve",
                "marshal",
            }
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant) and node.value.value is False, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
                owner = node.func.value
                loads_numpy = isinstance(owner, ast.Name) and owner.id == "np"
                assert not loads_numpy or any(k.arg == "allow_pickle" for k in node.keywords), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), path
    begin("exact", "run")
    name = sorted(Path("run/checkpoint").iterdir())[-1]
    with np.load(name) as z:
        arrays: dict[str, Any] = dict(z)
    arrays["a0"] = np.array([print], dtype=object)
    np.savez(name, **arrays)
    with pytest.raises(cl.InputError, match="it holds Python objects, which are never loaded"):
        checkpoint.load(name)


# ---------------------------------------------------------------------------------------------------------- faults


def checkpoints_listed(folder: str) -> list[str]:
    """Those that a reader may count on: in the manifest, which is written after them."""
    path = Path(folder, "manifest.json")
    return [n for n in json.loads(path.read_text())["files"] if n.startswith("checkpoint/")] if path.exists() else []


def test_two_processes_on_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    process = solve_process("run", "two-state --K 100000000 --N 10 --checkpoint-every 100")
    try:
        end = time.monotonic() + 60
        while not checkpoints_listed("run") and time.monotonic() < end:
            time.sleep(0.05)
        with pytest.raises(cl.InputError, match=rf"another process \(number {process.pid}\) is writing this run"):
            cl.resume("run")
        with pytest.raises(cl.InputError, match="exists and is not an empty folder"):
            begin("exact", "run")
        watched = cl.run.load("run")  # but anybody may read
        assert watched.status == "running" and len(watched.trace) >= 100
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    monkeypatch.setattr(loop, "_advance", Bomb(loop._advance, 3, KeyboardInterrupt))
    assert cl.resume("run").status == "interrupted"  # the lock went with its process


def test_a_reader_who_is_slower_than_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the manifest and the trace, the run goes on and takes away the checkpoints that the manifest lists."""
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 3, KeyboardInterrupt))
        begin("exact", "run", checkpoint_every=20)
    watched, listed = cl.run.load("run"), checkpoints_listed("run")
    cl.resume("run", checkpoint_every=20)
    assert listed and not any(Path("run", name).exists() for name in listed)
    assert len(watched.trace) > watched.k
    for name in checkpoints_listed("run"):
        Path("run", name).unlink()
    with pytest.raises(cl.InputError, match="is missing"):  # but nobody is at work here
        _ = cl.run.load("run").trace


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # other tests of this process may have loaded JAX
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk() -> None:
    """Files may not grow beyond 40 kB: the trace does not fit. Then they may."""
    flags = "two-state --K 800 --N 10 --checkpoint-every 50"
    free = solve_process("whole", flags)
    free.communicate(timeout=120)
    limit = 40_000
    full = solve_process("run", flags, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    out, err = full.communicate(timeout=120)
    assert (full.returncode, json.loads(out)["status"]) == (2, "error") and len(err.splitlines()) == 1
    assert "cannot write: File too large; when it can, resume with: clearance solve --resume run" in err
    found = cl.run.load("run")
    assert found.status == "failed" and found.damaged == () and 0 < found.k < 800
    assert not list(Path("run").rglob("*.partial"))
    again = solve_process("run", flags)
    again.communicate(timeout=120)
    assert bits("run") == bits("whole")


def test_a_folder_that_comes_to_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What was made goes; an empty folder that was there stays, and can be resumed into."""
    cl.zoo.two_state().replace(b=np.array([2.0])).save("m.npz")
    os.mkdir("empty")
    for out in ("empty", "a/b", "new"):
        assert cli(f"solve m.npz --evidence samples --budget 3e5 --out {out}", capsys)[0] == 3
    assert sorted(os.listdir()) == ["empty", "m.npz"] and os.listdir("empty") == []
    assert cli("solve two-state --K 5 --resume empty", capsys)[0] in (0, 4)
    assert cl.run.load("empty").status == "done"


def test_a_killed_run_that_turns_out_infeasible(capsys: pytest.CaptureFixture[str]) -> None:
    """Killed while the margin was measured: --resume alone says the verdict."""
    cmdp = cl.zoo.two_state().replace(b=np.array([2.0]))
    world, sampler = world_of(cmdp), cl.Critic(cmdp, cl.softmax(2, 2))
    task = Task(world, sampler, world.default_method(), "samples", 3e5, 0.01, 0)
    create_run("run", task, run_writer.Every()).lock.close()
    status, out, _ = cli("solve --resume run", capsys)
    assert status == 3 and "INFEASIBLE" in out


def test_no_space_at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", Bomb(os.fsync, 3, OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(cl.InputError, match="cannot write: No space left on device"):
        begin("exact", "a/b/run")
    assert os.listdir() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished("exact", "run", monkeypatch)
    for path in (Path("run"), *Path("run").rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
    with pytest.raises(cl.InputError, match="run: cannot write: Permission denied"):
        cl.resume("run")
    assert len(cl.run.load("run").trace) > 0


@pytest.mark.parametrize("clock", [lambda n: -n, lambda n: 0.0, lambda n: 1e9 * (n % 2), lambda n: float(n)])
def test_a_clock_that_goes_wrong(clock: Callable[[int], float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Backwards, standing still, to and fro: the result is the same, and no chunk grows beyond bounds."""
    begin("exact, Algorithm 1", "whole", checkpoint_every="30s")
    ticks, largest, advance = iter(range(10**9)), [0], loop._advance

    def watched(*args: Any) -> Any:
        largest[0] = max(largest[0], args[4])
        return advance(*args)

    with monkeypatch.context() as m:
        for name in ("perf_counter", "monotonic", "time"):
            m.setattr(time, name, lambda: clock(next(ticks)))
        m.setattr(loop, "LARGEST", 400)
        m.setattr(loop, "_advance", watched)
        solution = begin("exact, Algorithm 1", "run", checkpoint_every="30s")
    assert bits("run") == bits("whole") and solution.seconds >= 0 and largest[0] <= 100


@pytest.mark.parametrize("name", ["theta", "lam"])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 37, 64])
def test_numbers_that_are_no_longer_finite(name: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run stops at the last finite state, saves it, and says what to change; a resume meets the same."""
    monkeypatch.setattr(loop, "_advance", spoiled(at, name))
    says = f"theta or lam is no longer finite at iteration {at}: lower eta1, eta2 or alpha"
    with pytest.raises(cl.SolverError, match=says):
        begin("exact, Algorithm 1", "run", checkpoint_every="1h")
    if at == 1:
        assert not Path("run").exists(), "there is nothing to go on from"
        return
    found = cl.run.load("run")
    assert (found.status, found.manifest["message"], found.k, len(found.trace)) == ("failed", says, at - 1, at - 1)
    assert np.isfinite(found.trace.theta).all() and np.isfinite(found.trace.lam).all()
    with pytest.raises(cl.SolverError, match=says):
        cl.resume("run")
    assert cl.run.load("run").k == at - 1


def test_a_step_that_overflows() -> None:
    """Without any trick: steps of 1e308."""
    cmdp = cl.zoo.two_state()
    sampler = cl.Exact(cmdp, cl.softmax(2, 2))
    method = cl.CNPGPD(K=500, eta1=1e308, direction=cl.Tabular(), kappa=0.1)
    with pytest.raises(cl.SolverError, match=r"no longer finite at iteration \d+: lower eta1"):
        cl.solve(cmdp, method, sampler=sampler, out="run")
    assert np.isfinite(cl.run.load("run").trace.theta).all()


# ------------------------------------------------------------------------------------------------ which θ are kept


def test_which_iterates_are_kept() -> None:
    """All of the first M, every second up to 2M, every fourth up to 4M: a pure function of k, the same in any parts."""
    from clearance.learning.trace import kept_iterates

    all_of_it = kept_iterates(0, 10**5, (2**26,))  # M = 256
    assert all_of_it[:256].tolist() == list(range(256))
    for begin_, end, stride in ((256, 512, 2), (512, 1024, 4), (1024, 2048, 8), (65536, 10**5, 512)):
        inside = all_of_it[(all_of_it >= begin_) & (all_of_it < end)]
        assert inside.tolist() == list(range(begin_, end, stride))
    cuts = [0, 1, 255, 300, 1023, 5000, 10**5]
    parts = [kept_iterates(a, b, (2**26,)) for a, b in itertools.pairwise(cuts)]
    assert np.array_equal(np.concatenate(parts), all_of_it)
    assert len(kept_iterates(0, 8192, (8192,))) == 8192 and len(kept_iterates(0, 10**6, (4,))) < 40_000


def test_a_long_run_is_thinned_alike_in_memory_and_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    from clearance.learning import trace

    monkeypatch.setattr(trace, "WHOLE", 16)
    monkeypatch.setattr(trace, "FEWEST", 16)
    monkeypatch.setattr(run_writer, "ROWS", 50)
    free, kept = begin("exact, Algorithm 1", None), begin("exact, Algorithm 1", "run")
    t = free.trace
    assert len(t) == len(t.J) == 300 and len(t.theta) == len(t.kept) < 60
    assert np.array_equal(t.theta, kept.trace.theta) and free.certificate == kept.certificate
    assert np.array_equal(cl.run.load("run").trace.theta, t.theta) and len(os.listdir("run/trace")) == 6


def test_the_mixture_of_a_thinned_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each θ that is kept stands for the iterates up to the next one."""
    from clearance.learning import trace

    whole = begin("exact, Algorithm 1", None)
    monkeypatch.setattr(trace, "WHOLE", 16)
    monkeypatch.setattr(trace, "FEWEST", 16)
    thin = begin("exact, Algorithm 1", None)
    t = thin.trace
    assert thin.mixture.weights == pytest.approx(np.diff([*t.kept, 300]) / 300)
    assert np.array_equal(t.theta, whole.trace.theta[t.kept])
    assert t.rows_of(np.array([0, 17, 18, 299])).tolist() == [0, 16, 17, len(t.kept) - 1]
    assert np.array_equal(thin.average.pi, whole.average.pi), "the averaged occupancy is of all iterates"


# --------------------------------------------------------------------------------------- checkpoints and settings


class Inner(NamedTuple):
    x: Any
    y: Any


def test_a_checkpoint_gives_back_what_it_was_given() -> None:
    memory = Inner(
        np.arange(6.0).reshape(2, 3), (None, True, 3, 2**70, -np.inf, "text", [np.float32(0.1), np.uint64(2**63)])
    )
    state = State(np.array([0.1, np.nextafter(0, 1)]), np.zeros(0), 7, memory)
    at = Position(state, None, 12, float("nan"))
    checkpoint.save(Path("c.npz"), {"at": at, "tail": None}, {"f": {"sha256": "0", "bytes": 1}}, "id")
    found = checkpoint.load(Path("c.npz"))
    template = Position(State(np.zeros(2), np.zeros(0), 0, Inner(None, None)), None)
    back = found.rebuilt(template, "at")
    assert isinstance(back, Position) and isinstance(back.state, State) and isinstance(back.state.sampler_memory, Inner)
    assert np.array_equal(back.state.theta, state.theta) and np.array_equal(back.state.sampler_memory.x, memory.x)
    assert (
        repr(back.state.sampler_memory.y) == repr(memory.y) and np.isnan(back.each) and found.files["f"]["bytes"] == 1
    )
    assert type(found.rebuilt(None, "at")) is tuple, "no type is ever named by a file"
    with pytest.raises(cl.InputError, match="a set cannot be saved in a checkpoint"):
        checkpoint.save(Path("d.npz"), {"at": {1, 2}}, {}, "id")


def test_arrays_of_jax_come_back_as_such() -> None:
    jnp = pytest.importorskip("jax.numpy")
    checkpoint.save(Path("c.npz"), {"at": (jnp.arange(3), np.arange(3))}, {}, "id")
    back = checkpoint.load(Path("c.npz")).rebuilt((jnp.zeros(3), np.zeros(3, int)), "at")
    assert type(back[0]) is type(jnp.zeros(3)) and type(back[1]) is np.ndarray and back[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", METHODS.values(), ids=lambda k: k.__name__)
def test_methods_survive_as_data(kind: Any) -> None:
    method = kind()
    again = restore_method(json.loads(json.dumps(plain_data.describe(method), default=atomic_files.plain)))
    assert again == method and type(again) is kind


@pytest.mark.parametrize("kind", FINITE_SAMPLERS, ids=lambda k: k.__name__)
def test_samplers_survive_as_data(kind: Any) -> None:
    cmdp = cl.zoo.two_state()
    policy = cl.softmax(2, 2)
    given = kind(cmdp, policy, 8) if kind is cl.NetworkCritic else kind(cmdp, policy)
    data = json.loads(json.dumps(plain_data.describe(given, leave_out=("cmdp", "policy"))))
    again: Any = world_of(cmdp).restore_sampler(data, policy)
    assert type(again) is kind and again.cmdp is cmdp and plain_data.describe(again, ("cmdp", "policy")) == data


def test_names_of_kinds_are_looked_up_not_imported() -> None:
    for name in ("os.system", "Task", "CMDP", ""):
        with pytest.raises(cl.InputError, match="is no method of clearance's: give its class"):
            restore_method({"name": name})
        with pytest.raises(cl.InputError, match="is no class of clearance's"):
            restore_method({"name": "CNPGPD", "direction": {"name": name}})
        with pytest.raises(cl.InputError, match="is no class of clearance's"):
            world_of(cl.zoo.two_state()).restore_sampler({"name": name}, cl.softmax(2, 2))
    with pytest.raises(cl.InputError, match="CNPGPD has no kapa"):
        restore_method({"name": "CNPGPD", "kapa": 1})


@pytest.mark.parametrize("name", [n for n in cl.zoo.MODELS if n not in ("taxi",)])
def test_a_problem_is_the_same_after_the_disk(name: str) -> None:
    """To the bit: a resumed run reads it from its folder."""
    cmdp = cl.zoo.MODELS[name]()
    cmdp.save("m.npz")
    found, loaded, other = (
        world_of(model).describe().identity for model in (cmdp, cl.CMDP.load("m.npz"), cmdp.replace(b=cmdp.b + 1.0))
    )
    assert loaded == found and (other != found) == (cmdp.I > 0)


# -------------------------------------------------------------------------------------------------- the command line


def test_resume_at_the_command_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--method cnpgpd --K 300 --N 10 --kappa 0.1,0.2 --alpha 0.07 --seed 3"
    assert cli(f"solve altman-queue-discounted {flags} --out whole --json", capsys)[0] in (0, 4)
    monkeypatch.setattr(loop, "_advance", Bomb(loop._advance, 5, KeyboardInterrupt))
    status, out, err = cli(f"solve altman-queue-discounted {flags} --out run --json", capsys)
    assert status == 130 and json.loads(out)["status"] == "interrupted"
    assert err.endswith("saved in run: resume with: clearance solve --resume run\n")
    for wrong, says in (
        ("--seed 4", "--seed 4 is not as in the run in run, where it was 3"),
        ("--seed 0", "--seed 0 is not as in the run in run, where it was 3"),
        ("--evidence samples", "--evidence samples is not as in the run in run, where it was exact"),
        ("--eta1 1", "--eta1 1.0 is not as in the run in run, where it was not given"),
        ("--out other", "--out other and --resume run are two folders"),
    ):
        status, out, err = cli(f"solve altman-queue-discounted --resume run {wrong}", capsys)
        assert (status, out) == (2, "") and says in err and len(err.splitlines()) == 1
    status, out, err = cli("solve two-state --resume run", capsys)
    assert status == 2 and "is a run on another problem" in err
    again = (
        f"solve altman-queue-discounted {flags} --delta 0.01 --policy tabular --resume run --checkpoint-every 7 --json"
    )
    assert cli(again, capsys)[0] in (0, 4)
    assert bits("run").keys() == bits("whole").keys()
    assert {n: h for n, h in bits("run").items() if n != "settings.json"} == {
        n: h for n, h in bits("whole").items() if n != "settings.json"
    }
    asked = cl.run.load("run").settings
    assert asked["flags"] == {"method": "cnpgpd", "K": 300, "N": 10, "kappa": [0.1, 0.2], "alpha": 0.07, "seed": 3}
    assert asked["command"][:3] == ["clearance", "solve", "altman-queue-discounted"] and "0.1,0.2" in asked["command"]


def test_resume_alone_is_enough(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also from samples, where an interrupted run has nothing to show yet; and again when it is done."""
    flags = "two-state --evidence samples --budget 1e5 --delta 0.1"
    whole = json.loads(cli(f"solve {flags} --resume whole --json", capsys)[1])
    with monkeypatch.context() as m:
        m.setattr(PlannedSearch, "run", Bomb(PlannedSearch.run, 1, KeyboardInterrupt))
        status, out, err = cli(f"solve {flags} --out run --json", capsys)
    assert (status, json.loads(out)["status"]) == (130, "interrupted")
    assert err == "clearance: interrupted; saved in run: resume with: clearance solve --resume run\n"
    assert cl.run.load("run").status == "interrupted"
    for _ in range(2):
        status, out, err = cli("solve --resume run --json", capsys)
        said = json.loads(out)
        assert {k: v for k, v in said.items() if k not in ("seconds", "run")} == {
            k: v for k, v in whole.items() if k not in ("seconds", "run")
        }
        assert bits("run") == bits("whole")


def test_runs_with_limits_on_single_episodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_model(0).save("wear.npz")
    flags = "wear.npz --limit P(wear>4)<=0.15 --K 60 --N 10"
    assert cli(f"solve {flags} --out whole --json", capsys)[0] in (0, 4)
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 5, KeyboardInterrupt))
        assert cli(f"solve {flags} --out run --json", capsys)[0] == 130
    status, _, err = cli("solve wear.npz --limit P(wear>3)<=0.15 --resume run", capsys)
    assert status == 2 and "is not as in the run in run, where it was P(wear>4.0)<=0.15" in err
    for how in ("--resume run", f"{flags} --resume run"):
        assert cli(f"solve {how} --json", capsys)[0] in (0, 4)
        assert bits("run") == bits("whole")
    assert cli("certify --check run", capsys)[0] in (0, 4)
    assert cli("report run", capsys)[0] == 0
    assert "step costs c(s, a) in one episode" in Path("run/report.html").read_text()
    assert cli(f"solve {flags} --evidence samples --budget 1e4 --out sampled --json", capsys)[0] in (0, 4)


def test_a_run_begun_in_python_takes_no_flags(capsys: pytest.CaptureFixture[str]) -> None:
    begin("exact", "run")
    status, _, err = cli("solve --resume run --seed 5", capsys)
    assert status == 2 and "was begun in Python: give --resume alone" in err
    assert cli("solve --resume run --json", capsys)[0] in (0, 4)
    begin("exact", None).save("saved")
    assert "without checkpoints; solve again with out=" in cli("solve --resume saved", capsys)[2]


@pytest.mark.parametrize("text", ["0", "-1", "0s", "5d", "s", "", "1.5", "nan", "nans", "infs", "1e3"])
def test_how_often_is_a_time_or_a_count(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["solve", "two-state", "--checkpoint-every", text])
    assert status == 2 and "--checkpoint-every: must be a time as 30s" in capsys.readouterr().err
