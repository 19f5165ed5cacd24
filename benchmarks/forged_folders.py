"""Open every forged run folder with `report`, `export` and `solve --resume`: what each of them got.

Finished runs, which resume shows but does not run again, and runs that were interrupted, which it brings to their end.

    PYTHONPATH=src:tests/support python benchmarks/forged_folders.py [--every N]

Each forgery is opened in a process of its own (forked after everything is imported), which says its exit status, what
it wrote to standard error and its peak of memory. Nothing outside may change, there is no traceback, and the peak stays
below twice that of the honest folder.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import resource
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from folders import solved, unfinish
from forgeries import all_forgeries

import clearance as cl
from clearance.cli.command_line import main as cli

SECONDS = 60
COMMANDS = ("report RUN", "export RUN --to RUN/t.csv", "solve --resume RUN --json")
Answer = tuple[int, str, int]


def opened(folder: Path, command: str) -> Answer:
    """Run a command in a process of its own; status −9 if it takes too long, −1 for a traceback."""
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_open, args=(there, folder, command))
    process.start()
    there.close()
    found: Answer = here.recv() if here.poll(SECONDS) else (-9, "no answer", 0)
    process.kill()
    process.join()
    return found


def _open(there: Any, folder: Path, command: str) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = cli([word.replace("RUN", str(folder)) for word in command.split()])
        except BaseException:
            status = -1
            traceback.print_exc(file=said)
    there.send((status, said.getvalue(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def study(home: Path, every: int) -> dict[str, Any]:
    """Forge a finished run and one that was interrupted, and open them with each command."""
    honest, other, outside = (home / name for name in ("honest", "other", "outside"))
    for seed, folder in enumerate((honest, other)):
        solved(cl.zoo.two_state(), folder, K=60, N=5, seed=seed)
    shutil.copytree(honest / "checkpoint", outside)
    (outside / "precious").write_text("precious")
    interrupted = unfinish(Path(shutil.copytree(honest, home / "interrupted")))
    return {kind.name: open_all(kind, other, outside, every) for kind in (honest, interrupted)}


def open_all(honest: Path, other: Path, outside: Path, every: int) -> dict[str, Any]:
    before, forged, wrong, seen = content(outside), honest.with_name("forged"), [], Counter()
    peak = {command: peak_of_honest(honest, forged, command) for command in COMMANDS}
    highest = dict(peak)
    for label, forge in islice(all_forgeries(honest, other, outside), 0, None, every):  # children inherit the memory
        seen["folders"] += 1
        for command in COMMANDS:
            shutil.copytree(honest, forged)
            forge(forged)
            status, said, memory = opened(forged, command)
            seen[f"status {status}"] += 1
            highest[command] = max(highest[command], memory)
            lines = [line for line in said.splitlines() if not line.startswith("clearance: warning: ")]
            bad = status not in (0, 2, 4) or len(lines) > 1 or memory > 2 * peak[command] or content(outside) != before
            if bad:
                wrong.append((label, command, status, said[-300:], memory))
            shutil.rmtree(forged)
    return {**seen, "peak MB": {c: [peak[c] // 1024, highest[c] // 1024] for c in COMMANDS}, "wrong": wrong}


def peak_of_honest(honest: Path, forged: Path, command: str) -> int:
    shutil.copytree(honest, forged)
    status, said, memory = opened(forged, command)
    assert status in (0, 4), said
    shutil.rmtree(forged)
    return memory


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="take every n-th forgery only")
    with tempfile.TemporaryDirectory() as home:
        print(json.dumps(study(Path(home), parser.parse_args().every), indent=1))
