"""Fuzzing: does any input end in a traceback, a hang, or a wrong answer?

    python benchmarks/fuzz.py                # 102,500 inputs, about half an hour on two cores
    python benchmarks/fuzz.py --share 0.01   # a hundredth of each kind
    python benchmarks/fuzz.py --write        # and put the table into docs/research/fuzzing.md

Every input goes through the command line's own `main`, in this process. An exit status other than 0, 2, 3 and 4, more
than one line for an error, output that is no JSON where JSON was asked for, a verdict that does not fit the status, a
warning from NumPy, more than ten seconds of its own: each of these ends its kind with the smallest input that
Hypothesis finds. Verdicts on small models are checked in rational arithmetic.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fuzz_inputs as inputs
import numpy as np
from fuzz_checks import Outcome, call, exact_J, kept, mixture_J, pure_policies
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import clearance as cl
from clearance.cli import command_line as cli
from clearance.core.atomic_files import digest, sha256

PAGE = Path(__file__).resolve().parents[1] / "docs" / "research" / "fuzzing.md"
MEMORY = 8 * 2**30


# --------------------------------------------------------------------------------------------------- kinds of inputs


@dataclass
class Kind:
    """A kind of input: how it is drawn, what is done with it, how many of it, and what came of them."""

    name: str
    drawn: st.SearchStrategy[Any]
    tried: Callable[[Any], Outcome]
    inputs: int
    seen: Counter[int] = field(default_factory=Counter)
    defects: int = 0

    def run(self, n: int, number: int) -> None:
        @seed(number)
        @settings(max_examples=n, deadline=None, database=None, suppress_health_check=list(HealthCheck),  # type: ignore[arg-type]
                  phases=[Phase.generate, Phase.shrink])  # fmt: skip
        @given(self.drawn)
        def every(value: Any) -> None:
            self.seen[self.tried(value).status] += 1

        every()


def model_bytes(data: bytes) -> Outcome:
    Path("m.npz").write_bytes(data)
    return call(["check", "m.npz", "--json"])


def model_arrays(case: tuple[inputs.Arrays, str]) -> Outcome:
    Path("m.npz").write_bytes(inputs.npz(case[0]))
    return call([*case[1].split(), "--json"])


def policy_bytes(data: bytes) -> Outcome:
    Path("q.npz").write_bytes(data)
    return call(["certify", "two-state", "q.npz", "--json"])


def policy_arrays(case: tuple[inputs.Arrays, inputs.Arrays]) -> Outcome:
    """Any model with any policy: a verdict must be true of the numbers as they were read."""
    Path("m.npz").write_bytes(inputs.npz(case[0]))
    Path("q.npz").write_bytes(inputs.npz(case[1]))
    found = call(["certify", "m.npz", "q.npz", "--json"])
    if found.status != 2:
        cmdp = cl.CMDP.load("m.npz")
        assert (found.answer["verdict"], kept(cmdp, mixture_J(cmdp, cl.Mixture.load("q.npz")))) in TRUE, found
    return found


TRUE = [("CERTIFIED", True), ("VIOLATED", False), ("UNDECIDED", True), ("UNDECIDED", False)]


def right_answers(model: inputs.Arrays) -> Outcome:
    """The optimum of a small model against all its deterministic policies."""
    Path("m.npz").write_bytes(inputs.npz(model))
    Path("out.npz").unlink(missing_ok=True)
    found = call(["optimum", "m.npz", "--out", "out.npz", "--json"])
    assert found.status in (0, 3, 4) or "gamma" in found.err or "solver" in found.err, found
    if found.status == 2:
        return found
    cmdp, said = cl.CMDP.load("m.npz"), found.answer
    J = [exact_J(cmdp, pi) for pi in pure_policies(cmdp)]
    if said["verdict"] == "INFEASIBLE":
        assert not any(kept(cmdp, x) for x in J), found
    else:
        assert said["verdict"] != "CERTIFIED" or kept(cmdp, mixture_J(cmdp, cl.Mixture.load("out.npz"))), found
        assert all(x[0] <= Fraction(said["bound"]) for x in J if kept(cmdp, x)), found
    return found


def run_files(case: tuple[str, bytes, bool, str]) -> Outcome:
    """One file of a run folder replaced; with a manifest that fits (someone has taken trouble), or not."""
    name, data, sealed, command = case
    shutil.rmtree("spoiled", ignore_errors=True)
    shutil.copytree("run", "spoiled")
    Path("spoiled", name).write_bytes(data)
    if sealed:
        _seal(name, data)
    Path("t.csv").unlink(missing_ok=True)
    return call([*command.split(), "--json"])


def _seal(name: str, data: bytes) -> None:
    """A manifest whose hashes fit the file; of an edited manifest, its own hash."""
    manifest = json.loads(Path("run/manifest.json").read_text())
    if name == "manifest.json":
        with contextlib.suppress(ValueError, RecursionError):
            manifest = json.loads(data)
    else:
        manifest["files"][name] = {"sha256": sha256(Path("spoiled", name)), "bytes": len(data)}
    if isinstance(manifest, dict):
        manifest.pop("sha256", None)
        manifest["sha256"] = digest(manifest)
    Path("spoiled/manifest.json").write_text(json.dumps(manifest))


ON_RUNS = ["report spoiled --no-price", "export spoiled --to t.csv", "solve --resume spoiled"]


def command_line(argv: list[str]) -> Outcome:
    found = call(argv)
    for name in ("out.npz", "out.png", "out.csv", "out.html", "new", "x", "1", "2"):
        _remove(Path(name))
    return found


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)


def kinds() -> list[Kind]:
    """All kinds; what they edit is made first, in the working folder."""
    prepare()
    model, policy = Path("m.npz").read_bytes(), Path("p.npz").read_bytes()
    asked = st.sampled_from(["check m.npz", "optimum m.npz", "frontier m.npz --points 3", "plan m.npz --epsilon .5",
                             "solve m.npz --K 2 --N 2", "certify m.npz p.npz"])  # fmt: skip
    broken = inputs.spoiled(inputs.models())
    return [
        Kind("model files, bytes", _bytes(model), model_bytes, 33_000),
        Kind("model files, arrays", st.tuples(st.one_of(broken, inputs.models()), asked), model_arrays, 5_000),
        Kind("policy files, bytes", _bytes(policy), policy_bytes, 35_000),
        Kind("policy and model, any verdict true", inputs.pairs(), policy_arrays, 4_000),
        Kind("optimum, true against all pure policies", inputs.models(), right_answers, 1_500),
        Kind("files of a run folder", _run_files(), run_files, 4_000),
        Kind("command lines", inputs.command_lines(), command_line, 20_000),
    ]  # fmt: skip


def prepare() -> None:
    """A working folder with a model, policies and a run; and all that is compiled, compiled."""
    model = cl.zoo.two_state()
    model.save("m.npz")
    cl.zoo.grid_obstacles(size=4).save("sparse.npz")
    cl.Mixture.single(np.full((2, 2), 0.5)).save("p.npz")
    Path("folder").mkdir(exist_ok=True)
    shutil.rmtree("run", ignore_errors=True)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        for more in ([], ["--method", "cnpgpd"], ["--evidence", "samples", "--budget", "20000"]):
            cli.main(["solve", "two-state", "--K", "5", "--N", "3", *more])
        cli.main(["solve", "two-state", "--K", "5", "--N", "3", "--out", "run"])
        cli.main(["optimum", "sparse.npz"])


def _bytes(whole: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(inputs.mutated_bytes.map(lambda e: inputs.edited(whole, e)), st.binary(max_size=200))


@st.composite
def _run_files(draw: Any) -> tuple[str, bytes, bool, str]:
    names = sorted(str(p.relative_to("run")) for p in Path("run").rglob("*") if p.suffix in (".json", ".npz"))
    name = draw(st.sampled_from(names))
    whole = Path("run", name).read_bytes()
    data = draw(inputs.spoiled_json(json.loads(whole)) if name.endswith(".json") else _bytes(whole))
    return name, data, draw(st.booleans()), draw(st.sampled_from(ON_RUNS))


# ---------------------------------------------------------------------------------------------------------- the table


def table(found: list[Kind], seconds: float) -> str:
    rows = ["| kind of input | inputs | refused (2) | answered (0) | infeasible (3) | not certified (4) | defects |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    total: Counter[int] = Counter()
    for kind in found:
        total += kind.seen
        rows.append(_row(kind.name, kind.seen, kind.defects))
    rows.append(_row("**all**", total, sum(kind.defects for kind in found)))
    made = f"Python {platform.python_version()}, NumPy {np.__version__}, clearance {cl.__version__}"
    return "\n".join(rows) + f"\n\n{made}; {seconds / 60:.0f} minutes on a busy machine, seed {SEED}.\n"


def _row(name: str, seen: Counter[int], defects: int) -> str:
    return f"| {name} | {seen.total():,} | {seen[2]:,} | {seen[0]:,} | {seen[3]:,} | {seen[4]:,} | {defects} |"


SEED = 2023


def tried(n: int, share: float, number: int) -> tuple[Counter[int], int]:
    """Kind n in this process, in a folder of its own: what came of its inputs, and whether one was a defect."""
    cli._parser = functools.cache(cli._parser)  # to build it takes longer than to refuse a file
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        kind = kinds()[n]
        try:
            kind.run(max(1, int(share * kind.inputs)), number)
        except BaseException:  # ends this kind, with the smallest inputs that fail; the others go on
            traceback.print_exc()
            kind.defects = 1
        os.chdir("/")
    print(_row(kind.name, kind.seen, kind.defects), file=sys.stderr, flush=True)
    return kind.seen, kind.defects


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--share", type=float, default=1.0)
    p.add_argument("--kinds", type=int, nargs="*", help="only the kinds of these numbers")
    p.add_argument("--seed", type=int, default=SEED)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--write", action="store_true")
    args = p.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = kinds()
    chosen = range(len(found)) if args.kinds is None else args.kinds
    with ProcessPoolExecutor(args.processes, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting = {n: pool.submit(tried, n, args.share, args.seed) for n in chosen}
        for n, result in waiting.items():
            found[n].seen, found[n].defects = result.result()
    text = table(found, time.perf_counter() - began)
    print(text)
    if args.write:
        before, mark, after = PAGE.read_text("utf-8").partition("<!-- table -->\n")
        PAGE.write_text(before + mark + text + "<!-- end -->" + after.partition("<!-- end -->")[2], "utf-8")
    sys.exit(any(kind.defects for kind in found))


if __name__ == "__main__":
    main()
