"""Runs that are short, for the tests of run folders: of every kind, begun, and made to fail where a test wants it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.cli.command_line import main
from clearance.learning import loop
from clearance.learning.state import State

# The command line in a process of its own. A shell starts background jobs with Ctrl-C ignored, nohup ignores SIGHUP:
# children inherit both.
LISTENING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
from clearance.cli import main
sys.exit(main())
"""
# Every kind of run: exact and samples, both methods, with a budget (which decides where a run ends) and without.
KINDS: dict[str, dict[str, Any]] = {
    "exact": {"method": cl.RegularisedCNPGPD(K=120, N=30)},
    "exact, Algorithm 1": {"method": cl.CNPGPD(K=300, N=10)},
    "exact, Algorithm 1, a budget": {"method": cl.CNPGPD(K=300, N=10), "budget": 2e4},
    "exact, a budget": {"budget": 2e4},
    "exact, without noise": {"method": cl.CNPGPD(K=100, direction=cl.Tabular()), "sampler": "exact"},
    "exact, J not recorded": {"method": cl.CNPGPD(K=100, N=10), "exact_J": False},
    "samples": {"evidence": "samples", "budget": 1e5, "delta": 0.1},
    "samples, Algorithm 1": {"evidence": "samples", "budget": 1e5, "delta": 0.1, "method": cl.CNPGPD(K=200, N=5)},
}


def begin(kind: str, out: str | Path | None, **more: Any) -> cl.Solution:
    cmdp = cl.zoo.two_state()
    how: dict[str, Any] = {"checkpoint_every": 20, "seed": 5} | KINDS[kind] | more
    if how.get("sampler") == "exact":
        how["sampler"] = cl.Exact(cmdp, cl.softmax(cmdp.S, cmdp.A, cmdp.available))
    return cl.solve(cmdp, out=out, **how)


def bits(folder: str | Path) -> dict[str, str]:
    """sha256 of everything that a run found; all of it must be as the manifest has it."""
    found = cl.run.load(folder)
    assert found.damaged == () and found.status == "done"
    return {name: e["sha256"] for name, e in found.manifest["files"].items() if not name.startswith("checkpoint/")}


class Bomb:
    """A function that raises at its n-th call."""

    def __init__(self, function: Callable[..., Any], n: int, error: type[BaseException] | BaseException) -> None:
        self.function, self.left, self.error = function, n, error

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.function(*args, **kwargs)


def cli(argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(argv.split())
    said = capsys.readouterr()
    return status, said.out, said.err


def spoiled(at: int, name: str) -> Callable[..., Any]:
    """Iterations as they are, but θ or λ is no longer finite after `at` of them."""
    advance = loop._advance

    def call(sampler: Any, method: Any, key: Any, state: State, n: int, lam_max: float) -> Any:
        after, part = advance(sampler, method, key, state, n, lam_max)
        rows = np.array(getattr(part, name))
        rows[max(at - state.k, 0) :] = np.nan
        if after.k >= at:
            after = after._replace(**{name: np.full_like(getattr(after, name), np.inf)})
        return after, dataclasses.replace(part, **{name: rows})

    return call


def events(folder: str) -> dict[str, dict[int, float]]:
    """tag → {step: value} of all TensorBoard event files: records of length, its check, data, its check."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[attr-defined]

    found: dict[str, dict[int, float]] = {}
    for path in sorted(Path(folder).iterdir()):
        data = path.read_bytes()
        while data:
            n = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + n])
            data = data[16 + n :]
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    return found
