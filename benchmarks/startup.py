"""Start-up: CPU seconds of the commands that calculate nothing, and of compiling what a first run needs.

    python benchmarks/startup.py                  medians of five runs (about five minutes)
    python benchmarks/startup.py --runs 3         of three

Every run is a process of its own. The compile figures start from an empty cache: they are the CPU seconds that numba
spends in compiling, functions inside functions counted once, beside those of the whole call of `solve`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = {"--version": ["--version"], "--help": ["--help"], "a mistyped command": ["slove", "two_state"]}
SOLVES = {
    "solve(two_state())": "cl.solve(cl.zoo.two_state())",
    "solve(two_state(), evidence='samples')": "cl.solve(cl.zoo.two_state(), evidence='samples')",
    "solve(two_state(), CNPGPD())": "cl.solve(cl.zoo.two_state(), cl.CNPGPD())",
}
WANTED_COMMAND, WANTED_COMPILE = 0.3, 6.0
MEASURE = """
import json, sys, time
import clearance as cl
from numba.core import event

class Timer(event.Listener):
    depth, began, seconds, kernels = 0, 0.0, 0.0, 0
    def on_start(self, event):
        if self.depth == 0:
            self.began = time.process_time()
        self.depth += 1
        self.kernels += 1
    def on_end(self, event):
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.process_time() - self.began

timer = Timer()
event.register("numba:compile", timer)
began = time.process_time()
{solve}
print(json.dumps([timer.seconds, time.process_time() - began, timer.kernels]))
"""


def command_seconds(arguments: list[str]) -> float:
    """Return the CPU seconds, user and system, of one call of the command line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "clearance", *arguments], capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def solve_seconds(solve: str, cache: Path) -> tuple[float, float, int]:
    """Return the CPU seconds of compiling and of the whole call, and how many functions were compiled."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "TMPDIR": str(cache)}
    argv = [sys.executable, "-c", MEASURE.replace("{solve}", solve)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
    compiling, whole, kernels = json.loads(done.stdout.splitlines()[-1])
    return compiling, whole, kernels


def measure_commands(runs: int) -> None:
    print("| command | CPU seconds, median | wanted |\n|---|---|---|")
    for name, arguments in COMMANDS.items():
        command_seconds(arguments)  # bytecode and disk caches
        seconds = statistics.median(command_seconds(arguments) for _ in range(runs))
        print(f"| `clearance` {name} | {seconds:.2f} | ≤ {WANTED_COMMAND} |", flush=True)


def measure_solves(runs: int) -> None:
    print("\n| first run on an empty cache | compiling, CPU s | functions | whole, CPU s | second run | wanted |")
    print("|---|---|---|---|---|---|")
    for name, solve in SOLVES.items():
        first, second = [], []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as cache:
                first.append(solve_seconds(solve, Path(cache)))
                second.append(solve_seconds(solve, Path(cache)))
        compiling, whole, kernels = (statistics.median(column) for column in zip(*first, strict=True))
        again = statistics.median(row[1] for row in second)
        assert not any(row[2] for row in second), "the second run found no cache"
        row = f"| `{name}` | {compiling:.1f} | {kernels:.0f} | {whole:.1f} | {again:.1f} | ≤ {WANTED_COMPILE:.0f} |"
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default: 5)")
    runs = parser.parse_args().runs
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}\n")
    measure_commands(runs)
    measure_solves(runs)


if __name__ == "__main__":
    main()
