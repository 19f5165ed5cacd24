"""What goes wrong, done to real runs: bad input, kill -9, full disks, wrong clocks, two writers, overflow, long runs.

    python benchmarks/reliability.py            # all studies, about ten minutes on two cores
    python benchmarks/reliability.py --quick    # a tenth of the kills, a tenth of the long run
    python benchmarks/reliability.py --write    # and put the tables into docs/research/reliability.md

Small file systems are mounted where that is allowed (root on Linux); elsewhere the size of files is limited instead.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import clearance as cl
from clearance.cli.command_line import main as command_line

ROOT = Path(__file__).resolve().parents[1]
PAGE, NOTES = ROOT / "docs" / "research" / "reliability.md", "## Notes"
TITLE = "# Reliability: faults, and how a run responds"
# Exact evidence and samples, both methods, with a budget and without; many checkpoints.
RUNS = (
    "two-state --K 200 --N 200 --checkpoint-every 10",
    "bai2023 --policy bai2023 --method cnpgpd --K 1000 --N 50 --checkpoint-every 50",
    "altman-queue-discounted --budget 5e4 --checkpoint-every 50",
    "altman-queue-discounted --evidence samples --budget 1e6 --delta 0.05 --checkpoint-every 100",
    "two-state --evidence samples --method cnpgpd --K 1000 --N 20 --budget 5e5 --checkpoint-every 50",
)


def begin(folder: Path, flags: str, **how: Any) -> subprocess.Popen[str]:
    """The command that begins a run, or goes on with it."""
    argv = [sys.executable, "-m", "clearance", "solve", *flags.split(), "--resume", str(folder), "--json"]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def finish(folder: Path, flags: str, **how: Any) -> str:
    """The run to its end; what it says."""
    process = begin(folder, flags, **how)
    out, err = process.communicate(timeout=600)
    assert process.returncode in (0, 4), (flags, err)
    return out


def bits(folder: Path) -> dict[str, str]:
    """sha256 of trace, policy, certificate, margin, method, problem and settings of a run that is done."""
    found = cl.run.load(folder)
    assert found.status == "done" and not found.damaged, (found.status, found.damaged)
    return {name: e["sha256"] for name, e in found.manifest["files"].items() if not name.startswith("checkpoint/")}


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(str(x) for x in line) + " |" for line in lines)


# --------------------------------------------------------------------------------------------------------- the studies


def bad_input(work: Path, quick: bool) -> str:
    """The study runs every bad input of tests/cli/test_bad_input.py. Each one must end with exit status 2,
    print one line that names the place of the error, and leave no file behind.
    """
    tests = _module(ROOT / "tests" / "cli" / "test_bad_input.py")
    groups = {"model files": tests.MODEL_FILES, "policy files": tests.POLICY_FILES, "flags": tests.flag_kinds()}
    groups["commands, places and factories"] = tests.COMMANDS
    rows = [(name, len(kinds), sum(_refused(tests, k, work) for k in kinds.values())) for name, kinds in groups.items()]
    library = sum(_refused_by_library(call, message, work) for call, message in tests.LIBRARY.values())
    rows.append(("arguments of the library", len(tests.LIBRARY), library))
    rows.append(("all", sum(r[1] for r in rows), sum(r[2] for r in rows)))
    return table(("kinds of bad input", "tried", "rejected with one correct line, nothing left behind"), rows)


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _inside(work: Path) -> Iterator[None]:
    """In an empty folder, with Python's own leftovers out of the way."""
    before, sys.dont_write_bytecode = os.getcwd(), True
    sys.modules.pop("mine", None)
    os.chdir(tempfile.mkdtemp(dir=work))
    try:
        yield
    finally:
        os.chdir(before)


def _refused(tests: Any, kind: Any, work: Path) -> bool:
    out, err = io.StringIO(), io.StringIO()
    with _inside(work):
        kind.files()
        before = tests.listing()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command_line(tests.argv_of(kind))
        one_line = len(err.getvalue().splitlines()) == 1 and all(text in err.getvalue() for text in kind.says)
        return status == 2 and not out.getvalue() and one_line and tests.listing() == before


def _refused_by_library(call: Callable[[], object], message: str, work: Path) -> bool:
    with _inside(work):
        try:
            call()
        except cl.InputError as e:
            return message in str(e) and "\n" not in str(e)
    return False


def kills(work: Path, quick: bool) -> str:
    """The study kills processes that are at work with kill -9 at random instants. After each kill, the study
    gives the same command again, until the run ends by itself. The table counts the kills by what the process was
    doing at the time.
    """
    wanted, rng, hits, same, begun = (12 if quick else 120), random.Random(2023), Counter(), 0, 0
    whole, lasts = {}, {}
    for flags in RUNS:
        with contextlib.redirect_stdout(io.StringIO()):  # in this process, so that its forks find all loaded
            command_line(["solve", *flags.split(), "--out", str(work / "warm"), "--json"])
        started = time.monotonic()
        ended(forked(work / f"whole{len(whole)}", flags))
        lasts[flags], whole[flags] = time.monotonic() - started, bits(work / f"whole{len(whole)}")
        shutil.rmtree(work / "warm")
    while sum(hits.values()) < wanted:
        flags, folder, begun = RUNS[begun % len(RUNS)], work / f"run{begun}", begun + 1
        for _ in range(rng.randint(2, 6)):
            child = forked(folder, flags)
            time.sleep(rng.uniform(0, 0.9) * lasts[flags])
            if os.waitpid(child, os.WNOHANG) == (0, 0):
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                hits[_phase(folder)] += 1
        ended(forked(folder, flags))
        same += bits(folder) == whole[flags]
        shutil.rmtree(folder)
    rows = [(phase, n) for phase, n in sorted(hits.items())]
    rows.append(("all", sum(hits.values())))
    end = f"{begun} runs were killed and resumed until they ended. {same} of them have the trace, policy and "
    return f"{table(('killed while', 'kills'), rows)}\n\n{end}certificate of an undisturbed run, bit for bit."


MINE = """
import math, os
import gymnasium, jax, jax.numpy as jnp
import clearance as cl

def point():
    def step(key, x, action):
        x = x + 0.2 * (action - 0.5) + 0.05 * jax.random.normal(key)
        return x, jnp.stack([x, (x > 0.5).astype(x.dtype)]), jnp.abs(x) > 3
    asked = {"gamma": 1.0, "horizon": 20, "limits": [8.0], "bounds": ([-4.0, 0.0], [4.0, 1.0]), "name": "point"}
    reset = lambda key: 0.5 * jax.random.normal(key)
    return cl.environment(reset, step, lambda x: x[None], action=cl.Discrete(2), **asked)

class Pole(gymnasium.Wrapper):
    steps = 0
    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        Pole.steps += 1
        fault = os.path.exists("raises") or os.path.exists("gives NaN")
        if fault and Pole.steps > 10_000:
            if os.path.exists("raises"):
                raise RuntimeError("a bearing is worn out")
            reward = math.nan
        return obs, reward, terminated, truncated, info | {"cost": float(abs(obs[2]) > 0.05)}

def pole():
    make = lambda: Pole(gymnasium.make("CartPole-v1"))
    return cl.gymnasium(make, limits=40.0, horizon=100, num_envs=8, bounds=(0.0, 1.0), name="pole")
"""
ON_SIMULATORS = {
    "JAX": "mine:point --K 40 --N 2000 --budget 1.6e5 --checkpoint-every 2",
    "Gymnasium": "mine:pole --K 30 --N 800 --budget 4.8e4 --checkpoint-every 2",
}


def simulators(work: Path, quick: bool) -> str:
    """The study does the same to runs on simulators: kill -9 at random instants, then the same command again until
    the run ends by itself.
    """
    (work / "mine.py").write_text(MINE)
    kept = {"JAX_COMPILATION_CACHE_DIR": str(work / "compiled"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    how = {"cwd": work, "env": os.environ | kept}
    wanted, rng, rows = (4 if quick else 40), random.Random(2023), []
    hits: dict[str, Counter[str]] = {kind: Counter() for kind in ON_SIMULATORS}
    ends: dict[str, list[bool]] = {kind: [] for kind in ON_SIMULATORS}
    whole = {kind: _undisturbed(work / f"whole {kind}", flags, how) for kind, flags in ON_SIMULATORS.items()}
    while sum(sum(c.values()) for c in hits.values()) < wanted:
        for kind, flags in ON_SIMULATORS.items():
            folder = work / "run"
            for _ in range(rng.randint(3, 6)):
                hits[kind].update(_killed(folder, flags, how, rng.uniform(0, 0.9) * whole[kind][1]))
            finish(folder, flags, **how)
            ends[kind].append(bits(folder) == whole[kind][0])
            shutil.rmtree(folder)
    for kind, seen in hits.items():
        where = ", ".join(f"{phase}: {n}" for phase, n in sorted(seen.items()))
        rows.append((kind, sum(seen.values()), where, f"{sum(ends[kind])} of {len(ends[kind])}"))
    killed = table(("simulator", "kills", "killed while", "bit-identical to an undisturbed run"), rows)
    faults = [_mended(work, fault, how, whole["Gymnasium"][0]) for fault in ("raises", "gives NaN")]
    heads = ("fault of the environment", "message (exit status 2)", "iterations saved", "resumed after the fix")
    note = (
        "Each run starts in a new process, because JAX must not be forked. The process is killed only after it has "
        "opened\nthe run folder."
    )
    return f"{killed}\n\n{note}\n\n{table(heads, faults)}"


def _undisturbed(folder: Path, flags: str, how: dict[str, Any]) -> tuple[dict[str, str], float]:
    """Its bits, and how long it works once all is compiled."""
    finish(folder, flags, **how)
    found = bits(folder)
    shutil.rmtree(folder)
    process = begin(folder, flags, **how)
    while not (folder / "manifest.json").exists():
        time.sleep(0.02)
    started = time.monotonic()
    process.communicate()
    assert bits(folder) == found
    return found, time.monotonic() - started


def _killed(folder: Path, flags: str, how: dict[str, Any], after: float) -> list[str]:
    """Kill a process so long after it has opened the run; the phase that it was in, nothing if it had ended."""
    stamp = lambda: (folder / "manifest.json").stat().st_mtime_ns if (folder / "manifest.json").exists() else 0  # noqa: E731
    before, process = stamp(), begin(folder, flags, **how)
    while process.poll() is None and stamp() == before:
        time.sleep(0.02)
    time.sleep(after)
    over = process.poll()
    process.kill()
    _, err = process.communicate()
    assert over in (None, 0, 4), err
    return [] if over is not None else [_phase(folder)]


def _mended(work: Path, fault: str, how: dict[str, Any], whole: dict[str, str]) -> tuple[str, str, int, str]:
    """An environment that does this in the middle of learning."""
    (work / fault).touch()
    says, k = _fails(work / "run", ON_SIMULATORS["Gymnasium"], **how)
    assert cl.run.load(work / "run").policy is not None
    (work / fault).unlink()
    finish(work / "run", ON_SIMULATORS["Gymnasium"], **how)
    same = "the same bits" if bits(work / "run") == whole else "OTHER BITS"
    shutil.rmtree(work / "run")
    return fault, says, k, same


def forked(folder: Path, flags: str) -> int:
    """A process that begins a run, or goes on with it, with nothing left to import: a fork of this one."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            status = command_line(["solve", *flags.split(), "--resume", str(folder), "--json"])
        finally:
            os._exit(status)
    return child


def ended(child: int) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 4), status


def _phase(folder: Path) -> str:
    if not folder.exists():
        return "starting, before there is a folder"
    found = cl.run.load(folder)
    assert not found.damaged, found.damaged
    names = {"margin": "measuring the margin", "learning": "learning", "choice": "choosing and certifying"}
    return names.get(found.manifest["phase"], "finished, and started again")


@contextlib.contextmanager
def small_disk(work: Path, size: str) -> Iterator[Path | None]:
    """A file system of this size, or None where it may not be mounted."""
    place = work / "disk"
    place.mkdir(exist_ok=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], capture_output=True)
    try:
        yield place if mounted.returncode == 0 else None
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", place], check=True)


def disks(work: Path, quick: bool) -> str:
    """The study writes runs to a full disk, to a read-only disk, and under a limit on the size of files."""
    flags, rows = RUNS[1], []
    finish(work / "undisturbed", flags)
    whole = bits(work / "undisturbed")
    for size in ("60k", "120k", "160k"):
        with small_disk(work, size) as disk:
            if disk is not None:
                says, k = _fails(disk / "run", flags)
                shutil.copytree(disk / "run", work / "moved") if (disk / "run").exists() else None
                rows.append((f"a full disk of {size}B", says, k, _goes_on(work / "moved", flags, whole)))
    for size in (30_000, 100_000):
        limit = (resource.RLIMIT_FSIZE, (size, size))
        says, k = _fails(work / "moved", flags, preexec_fn=lambda limit=limit: resource.setrlimit(*limit))
        rows.append((f"files of at most {size // 1000} kB", says, k, _goes_on(work / "moved", flags, whole)))
    with small_disk(work, "10m") as disk:
        if disk is not None:
            process = begin(disk / "run", RUNS[0])
            while not (disk / "run" / "checkpoint").exists():
                time.sleep(0.02)
            process.kill()
            process.communicate()
            k = cl.run.load(disk / "run").k
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            says, _ = _fails(disk / "run", RUNS[0])
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            finish(disk / "run", RUNS[0])
            finish(work / "other", RUNS[0])
            same = "the same bits" if bits(disk / "run") == bits(work / "other") else "OTHER BITS"
            rows.append(("a read-only folder", says, k, same))
    return table(("fault", "message (exit status 2)", "iterations saved", "resumed after the fault"), rows)


def _fails(folder: Path, flags: str, **how: Any) -> tuple[str, int]:
    process = begin(folder, flags, **how)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2 and len(err.splitlines()) == 1, (process.returncode, err)
    k = cl.run.load(folder).k if folder.exists() else 0
    return err.strip().removeprefix("clearance: ").replace(str(folder.parent) + "/", ""), k


def _goes_on(folder: Path, flags: str, whole: dict[str, str]) -> str:
    finish(folder, flags)
    found = bits(folder)
    shutil.rmtree(folder)
    return "the same bits" if found == whole else "OTHER BITS"


def writers(work: Path, quick: bool) -> str:
    """A second process tries twenty times to write to the folder of a running process. Then the first process is
    killed.
    """
    flags = "two-state --K 100000000 --N 10 --checkpoint-every 1000"
    first = begin(work / "run", flags)
    while not (work / "run" / "checkpoint").exists():
        time.sleep(0.05)
    refused, n = 0, 5 if quick else 20
    for _ in range(n):
        try:
            cl.resume(work / "run")
        except cl.InputError as e:
            refused += f"another process (number {first.pid}) is writing this run" in str(e)
    readable = cl.run.load(work / "run").status == "running"
    first.kill()
    first.communicate()
    second = begin(work / "run", flags)
    time.sleep(3)
    free = second.poll() is None
    second.kill()
    second.communicate()
    rows = [("second writers", n, f"{refused} refused, with the number of the first process"),
            ("readers meanwhile", 1, "can read" if readable else "CANNOT READ"),
            ("writer after the first was killed", 1, "resumes the run" if free else "CANNOT")]  # fmt: skip
    return table(("two processes on one folder", "tried", "what happens"), rows)


def clocks(work: Path, quick: bool) -> str:
    """The study solves a problem while the system clock goes back, stands still, or jumps back and forth."""
    kinds: dict[str, Callable[[int], float]] = {
        "goes back by a second whenever it is read": lambda n: -float(n),
        "stands still": lambda n: 0.0,
        "jumps back and forth by thirty years": lambda n: 1e9 * (n % 2),
        "runs far too fast": lambda n: 1e3 * n,
    }
    methods = {"Algorithm 1": cl.CNPGPD(K=3000, N=20), "the default": cl.RegularisedCNPGPD(K=300, N=50)}
    rows = []
    for name, clock in kinds.items():
        for method_name, method in methods.items():
            cl.solve(cl.zoo.bai2023(), method, out=work / "right")
            ticks = iter(range(10**12))
            tick = lambda clock=clock, ticks=ticks: clock(next(ticks))  # noqa: E731
            with mock.patch.multiple(time, perf_counter=tick, monotonic=tick, time=tick):
                seconds = cl.solve(cl.zoo.bai2023(), method, out=work / "wrong").seconds
            same = bits(work / "right") == bits(work / "wrong") and seconds >= 0
            rows.append((name, method_name, "the same bits" if same else "OTHER BITS"))
            for folder in ("right", "wrong"):
                shutil.rmtree(work / folder)
    return table(("the clock", "method", "trace, policy and certificate"), rows)


def overflow(work: Path, quick: bool) -> str:
    """The study chooses settings with which the parameters overflow."""
    rows = []
    for flags in ("two-state --method cnpgpd --sampler exact --eta1 1e308 --kappa 0.1",
                  "altman-queue-discounted --method cnpgpd --sampler exact --eta1 1e307 --kappa 0",
                  "two-state --method cnpgpd --eta1 1e308 --kappa 0.1"):  # fmt: skip
        says, k = _fails(work / "run", flags)
        finite = not k or bool(np.isfinite(cl.run.load(work / "run").trace.theta).all())
        rows.append((f"`{flags}`", says.replace(str(work) + "/", ""), k, "yes" if finite else "NO"))
        shutil.rmtree(work / "run", ignore_errors=True)
    return table(("settings", "message (exit status 2)", "iterations saved", "saved parameters finite"), rows)


LONG = """
import os, resource, sys
import clearance as cl
size = lambda: int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
at = {}
def look(part, state, K):
    at[state.k] = size()
s = cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=int(sys.argv[1]), N=2, kappa=0.05), out=sys.argv[2], progress=look)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(__import__("json").dumps([at, peak, s.certificate.verdict, s.seconds]))
"""


def memory(work: Path, quick: bool) -> str:
    """The table shows the resident memory of a process during a run of 10⁶ iterations."""
    K = 10**5 if quick else 10**6
    argv = [sys.executable, "-c", LONG, str(K), str(work / "run")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    at, peak, verdict, seconds = json.loads(done.stdout)
    ks = sorted(int(k) for k in at)
    marks = [next(k for k in ks if k >= share * K) for share in (1e-3, 0.01, 0.1, 0.25, 0.5, 0.75, 1.0)]
    rows = [(f"{k:,}", f"{at[str(k)]:.0f}") for k in marks]
    rows.append(("peak, including the choice of the policy and the certificate", f"{peak:.0f}"))
    stored = sum(p.stat().st_size for p in (work / "run").rglob("*") if p.is_file()) / 2**20
    text = f"The run is {verdict} after {seconds:.0f} s. Its folder has {stored:.0f} MB."
    return f"{table(('iterations done', 'resident memory, MB'), rows)}\n\n{text}"


STUDIES: dict[str, Callable[[Path, bool], str]] = {
    "Bad input": bad_input,
    "Killed at random instants": kills,
    "Killed at random instants, on simulators": simulators,
    "Disks": disks,
    "Two processes": writers,
    "Clocks": clocks,
    "Numbers that are no longer finite": overflow,
    "Long runs": memory,
}


def introduction(study: Callable[[Path, bool], str]) -> str:
    """Return the docstring of a study as one paragraph."""
    return textwrap.fill(" ".join((study.__doc__ or "").split()), 124)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", choices=list(STUDIES), action="append")
    args = parser.parse_args()
    found = {}
    for name in args.only or STUDIES:
        with tempfile.TemporaryDirectory() as work:
            found[name] = f"{introduction(STUDIES[name])}\n\n{STUDIES[name](Path(work), args.quick)}"
        print(f"## {name}\n\n{found[name]}\n", flush=True)
    if args.write:
        old = PAGE.read_text() if PAGE.exists() else NOTES + "\n"
        kept = {name: old.split(f"## {name}\n\n")[1].split("\n\n## ")[0] for name in STUDIES if f"## {name}\n" in old}
        found = {name: (kept | found)[name] for name in STUDIES if name in kept | found}
        where = f"Python {platform.python_version()}, NumPy {np.__version__}, clearance {cl.__version__}."
        top = f"{TITLE}\n\n    python benchmarks/reliability.py --write"
        head = f'{top}\n\n{where} "The same bits" means bit-identical files.\n\n'
        body = "\n\n".join(f"## {name}\n\n{text}" for name, text in found.items())
        PAGE.write_text(f"{head}{body}\n\n{old[old.index(NOTES) :]}")


if __name__ == "__main__":
    main()
