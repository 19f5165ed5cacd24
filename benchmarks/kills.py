"""Kills and signals at random instants of every phase of a run, which is then resumed: does it come to the same bits?

    python benchmarks/kills.py                 # 400 of them, a tenth at least in each phase
    python benchmarks/kills.py --number 40
    python benchmarks/kills.py --start 200     # signals at random instants of start, imports and compiling instead

Every process is forked from one that has imported everything and computed nothing (--fresh: started by itself, which
takes three times as long). It reports the phase that it enters; the signal is sent at a random instant of the phase
that is aimed at, SIGKILL, SIGTERM, SIGHUP and SIGINT in turn. After three to six of them the run is brought to its end.
It counts as the same if the sha256 of every file of its trace, policy and certificate is that of the undisturbed run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import clearance as cl

PHASES = ("margin", "learning", "selection", "certificate", "finishing")
HUNG = 99
LONGEST = 120.0  # seconds: a process that takes longer hangs, and counts as wrong
SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

# The command line, which writes a line to file descriptor 3 when it enters a phase.
WATCHED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
def enters(owner, name, phase, after=None):
    function = getattr(owner, name)
    def call(*args, **kwargs):
        os.write(3, phase + b"\\n")
        try:
            return function(*args, **kwargs)
        finally:
            after and os.write(3, after + b"\\n")
    setattr(owner, name, call)
def watch():
    from clearance.certificates.candidate_search import CandidateSearch
    from clearance.runs import resume, run_writer, solve
    from clearance.runs.worlds.finite_world import FiniteWorld
    enters(FiniteWorld, "measure_margin", b"margin")
    enters(FiniteWorld, "certify", b"certificate", b"selection")
    enters(CandidateSearch, "_test", b"certificate", b"selection")
    enters(solve, "iterate", b"learning")
    enters(solve, "select", b"selection")
    enters(run_writer.RunWriter, "finish", b"finishing", b"end")
from clearance import cli
from clearance.cli import command_line
command = command_line.main
command_line.main = lambda argv=None: (watch(), command(argv))[1]
sys.exit(cli.main())
"""

MINE = """
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
    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, info | {"cost": float(abs(obs[2]) > 0.05)}

def pole():
    make = lambda: Pole(gymnasium.make("CartPole-v1"))
    return cl.gymnasium(make, limits=15.0, horizon=20, num_envs=8, bounds=(0.0, 1.0), name="pole")
"""
RUNS = {
    "finite, exact": "altman-queue-discounted --budget 5e4 --checkpoint-every 50",
    "finite, samples": "altman-queue-discounted --evidence samples --budget 3e5 --delta 0.05 --checkpoint-every 50",
    "Gymnasium": "mine:pole --allow-import . --K 4 --N 160 --budget 1e4 --checkpoint-every 1",
    "JAX": "mine:point --allow-import . --K 4 --N 400 --budget 3e4 --checkpoint-every 1",
}


ORDER = (*list(RUNS)[:2] * 4, *list(RUNS)[2:])  # runs on simulators take long to start


class Calm(NamedTuple):
    """An undisturbed run: its files, and how long each phase lasts."""

    bits: dict[str, str]
    seconds: dict[str, float]


class Forked:
    """A process that begins where this one stands, with everything imported."""

    ready = False

    def __init__(self, argv: list[str], work: Path, said: Any, marks: int) -> None:
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(marks, 3)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(said.fileno(), 2)
            os.chdir(work)
            sys.argv, status = ["clearance", *argv], 1
            try:
                exec(WATCHED, {})
            except SystemExit as e:
                status = int(e.code or 0)
            except BaseException:
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(status)

    @classmethod
    def prepare(cls, work: Path) -> None:
        """Import all that runs need, before the first fork; JAX reads as it is loaded where to keep its programs."""
        kept = {"JAX_COMPILATION_CACHE_DIR": str(work / "compiled"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        os.environ.update(kept)
        for name in ("cli.command_line", "cli.solve_command", "cli", "runs.solve", "runs.resume", "zoo"):
            importlib.import_module(f"clearance.{name}")
        for name in ("runs.worlds.finite_world", "runs.worlds.simulator_world", "learning.methods.practical_cnpgpd"):
            importlib.import_module(f"clearance.{name}")
        for name in ("gymnasium", "jax", "jax.numpy", "numba", "scipy.optimize"):
            importlib.import_module(name)
        cls.ready = True

    def poll(self) -> int | None:
        if self.status is None:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(code) if pid else None
        return self.status

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.002)
        assert self.status is not None
        return self.status

    def send_signal(self, sent: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sent)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Watched:
    """One process on a run folder, and the phases that it has entered."""

    def __init__(self, work: Path, folder: Path, flags: str, *, compiled: bool = True) -> None:
        here, there = os.pipe()
        argv = ["solve", *flags.split(), "--resume", str(folder), "--json"]
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115
        shell = ["bash", "-c", f'exec 3>&{there} "$@"', "bash", sys.executable, "-c", WATCHED, *argv]
        kept = {"JAX_COMPILATION_CACHE_DIR": str(work / "compiled"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        kept = (kept if compiled else {}) | {"PYTHONFAULTHANDLER": "1"}
        how: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": self.said, "cwd": work, "pass_fds": (there,)}
        fresh = not (Forked.ready and compiled)
        started = (
            subprocess.Popen(shell, env=os.environ | kept, **how) if fresh else Forked(argv, work, self.said, there)
        )
        self.process: subprocess.Popen[Any] | Forked = started
        os.close(there)
        self.hung, self.began = False, time.monotonic()
        self.timer = threading.Timer(LONGEST, self.give_up)
        self.timer.start()
        self.marks = os.fdopen(here)
        self.entered: list[tuple[str, float]] = []

    def give_up(self) -> None:
        self.hung = True
        self.process.kill()

    def enter(self, phase: str) -> bool:
        """Wait until it enters a phase; False if it ends before."""
        for line in self.marks:
            self.entered.append((line.strip(), time.monotonic()))
            if line.strip() == phase:
                return True
        return False

    def end(self) -> tuple[int, str]:
        """Wait for its end → the exit status, and standard error."""
        self.enter("")
        self.marks.close()
        status = self.process.wait()
        self.timer.cancel()
        self.said.seek(0)
        text = self.said.read()
        self.said.close()
        if self.hung:
            return HUNG, f"no end within {LONGEST:g} s"
        return status, "\n".join(line for line in text.splitlines() if "compiling" not in line)


def bits(folder: Path) -> dict[str, str]:
    found = cl.run.load(folder)
    assert found.status == "done" and not found.damaged, (found.status, found.damaged)
    return {name: e["sha256"] for name, e in found.manifest["files"].items() if not name.startswith("checkpoint/")}


def run_undisturbed(work: Path, kind: str) -> Calm:
    """Run twice: the second time everything is compiled, and its phases are timed."""
    entered: list[tuple[str, float]] = []
    for _ in range(2):
        shutil.rmtree(work / "calm", ignore_errors=True)
        run = Watched(work, work / "calm", RUNS[kind])
        status, said = run.end()
        assert status in (0, 4), said
        entered = run.entered
    seconds: dict[str, float] = defaultdict(float)
    for (phase, begin), (_, end) in pairwise(entered):
        seconds[phase] = max(seconds[phase], end - begin)
    return Calm(bits(work / "calm"), dict(seconds))


def disturb(work: Path, kind: str, calm: Calm, phase: str, sent: int, rng: random.Random) -> tuple[str, str]:
    """Send a signal at a random instant of a phase → the phase that it was in ("" if it had ended), what is wrong."""
    run = Watched(work, work / "run", RUNS[kind])
    if run.enter(phase):
        time.sleep(rng.uniform(0, calm.seconds[phase]))
    over = run.process.poll()
    run.process.send_signal(sent)
    status, said = run.end()
    if over is not None or status in (0, 4):
        return "", ""
    entered = [name for name, _ in run.entered]
    where = entered[-1] if entered and entered[-1] != "end" else "finishing" if entered else "start"
    if status == HUNG:
        return where, said
    return where, find_wrong(work / "run", sent, status, said)


def find_wrong(folder: Path, sent: int, status: int, said: str) -> str:
    """Return what is wrong with the end of a process, "" if nothing is."""
    if sent == signal.SIGKILL:
        return "" if status == -sent else f"status {status}"
    if status not in (128 + sent, -sent):  # the latter once all is written, as the interpreter ends
        return f"status {status}: {said[-300:]}"
    if len(said.splitlines()) > 1 or (status > 0 and "interrupted" not in said):
        return f"said {said[-300:]}"
    manifest = folder / "manifest.json"
    left = cl.run.load(folder).status if status > 0 and manifest.exists() else "interrupted"
    return "" if left in ("interrupted", "done") else f"left {left}"


def interrupt_starts(number: int, rng: random.Random) -> None:
    """Send SIGTERM, SIGHUP and SIGINT in turn at random instants before selection; nothing is compiled beforehand."""
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        (work / "mine.py").write_text(MINE)
        lasts = {kind: measure_start(work, kind) for kind in RUNS}
        for n in range(number):
            kind, sent = list(RUNS)[n % len(RUNS)], SENT[1 + n % 3]
            shutil.rmtree(work / "run", ignore_errors=True)
            run = Watched(work, work / "run", RUNS[kind], compiled=False)
            time.sleep(rng.uniform(0, lasts[kind]))
            run.process.send_signal(sent)
            status, said = run.end()
            where = run.entered[-1][0] if run.entered else "start"
            if status in (0, 4):
                where = "over"
            elif status == -signal.SIGINT and said.rstrip().endswith("KeyboardInterrupt"):
                where = "before the command has begun"  # Python's own start
            elif fault := said if status == HUNG else find_wrong(work / "run", sent, status, said):
                wrong.append(f"{kind}, {where}, {signal.Signals(sent).name}: {fault}")
            ends[kind][where] += 1
            print(f"{n}: {kind}, {where}, {signal.Signals(sent).name}: {status}", file=sys.stderr, flush=True)
    for kind, counts in ends.items():
        print(f"- {kind}: {counts.total()} signals: " + ", ".join(f"{k} {n}" for k, n in counts.most_common()))
    print(f"{len(wrong)} ends that were not as they should be" + "".join(f"\n- {line}" for line in wrong))


def measure_start(work: Path, kind: str) -> float:
    """Return the seconds from the start of an undisturbed run to its selection."""
    shutil.rmtree(work / "run", ignore_errors=True)
    run = Watched(work, work / "run", RUNS[kind], compiled=False)
    status, said = run.end()
    assert status in (0, 4), said
    return next(at for phase, at in run.entered if phase == "selection") - run.began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=400)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--seed", type=int, default=2023)
    args = parser.parse_args()
    if args.start:
        interrupt_starts(args.start, random.Random(args.seed))
        return
    rng, hits, wrong, same = random.Random(args.seed), Counter(), [], defaultdict(list)
    signals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        work = Path(place)
        (work / "mine.py").write_text(MINE)
        if not args.fresh:
            Forked.prepare(work)
        calm = {kind: run_undisturbed(work, kind) for kind in RUNS}
        for kind, run in calm.items():
            print(kind, {phase: round(t, 3) for phase, t in run.seconds.items()}, file=sys.stderr)
        while sum(hits.values()) < args.number or missing(hits, args.number):
            kind = ORDER[sum(map(len, same.values())) % len(ORDER)]
            for _ in range(rng.randint(3, 6)):
                wanted = [p for p in missing(hits, args.number) or PHASES if p in calm[kind].seconds]
                sent = SENT[sum(signals.values()) % len(SENT)]
                where, fault = disturb(work, kind, calm[kind], rng.choice(wanted or ["learning"]), sent, rng)
                print(f"{kind}, {where or 'over'}, {signal.Signals(sent).name}", file=sys.stderr, flush=True)
                hits.update([(kind, where)] if where else [])
                signals.update([signal.Signals(sent).name] if where else [])
                wrong += [f"{kind}, {where}, {signal.Signals(sent).name}: {fault}"] if fault else []
                if not where:  # the run is done
                    break
            status, said = Watched(work, work / "run", RUNS[kind]).end()
            assert status in (0, 4), said
            same[kind].append(bits(work / "run") == calm[kind].bits)
            shutil.rmtree(work / "run")
    show(hits, signals, same, wrong)


def missing(hits: Counter[Any], number: int) -> list[str]:
    """Return the phases with fewer than a tenth of the signals so far."""
    return [p for p in PHASES if sum(n for (_, where), n in hits.items() if where == p) < number / 10]


def show(hits: Counter[Any], signals: Counter[str], same: dict[str, list[bool]], wrong: list[str]) -> None:
    head = ("run", "start", *PHASES, "all", "runs with the bits of the undisturbed one")
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head))
    for kind, ends in same.items():
        counts = [hits[kind, phase] for phase in ("start", *PHASES)]
        print(f"| {kind} | " + " | ".join(map(str, counts)) + f" | {sum(counts)} | {sum(ends)} of {len(ends)} |")
    print("\n" + ", ".join(f"{name}: {n}" for name, n in sorted(signals.items())))
    print(f"{len(wrong)} ends that were not as they should be" + "".join(f"\n- {line}" for line in wrong))


if __name__ == "__main__":
    main()
