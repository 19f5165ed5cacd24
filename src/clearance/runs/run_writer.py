"""Write a run folder: atomically, with hashes, by one process at a time (docs/reference/run_folder.md).

A run is resumed from the newest intact checkpoint. A checkpoint is valid once its file is complete. All files that a
checkpoint needs are written before it. So a run may be killed at any instant.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import warnings
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clearance import __version__
from clearance.certificates.certificate import Certificate
from clearance.certificates.ledger import Ledger
from clearance.core.atomic_files import digest, fingerprint, save_json, without_non_finite
from clearance.core.errors import InputError
from clearance.core.folder_lock import Lock
from clearance.core.inside_folder import Inside, exists_inside, remove
from clearance.learning.recorder import Position
from clearance.learning.state import State
from clearance.learning.trace import StoredTrace, Trace, count_iterations
from clearance.runs import checkpoint, schema
from clearance.runs.field_values import seconds_of
from clearance.runs.run_reader import SCHEMAS, intact, load
from clearance.runs.worlds.world import Margin, World

# A trace file has ROWS iterations, or fewer if their θ would have more than NUMBERS numbers together.
ROWS, NUMBERS = 4096, 2**20
STAY = 2  # number of checkpoints that are kept


class DamagedRunWarning(UserWarning):
    """A warning that a file of a run folder is damaged; the run continues from intact files."""


class Every(NamedTuple):
    """An interval between checkpoints: a number of seconds, or a number of iterations."""

    seconds: float = np.inf
    iterations: float = np.inf

    @classmethod
    def of(cls, text: str | int) -> Every:
        """Parse an interval: "30s", "5m" and "2h" are times, "1000" is a number of iterations.

        >>> Every.of("5m").seconds, Every.of(1000).iterations
        (300.0, 1000)
        """
        seconds = seconds_of(str(text))
        if seconds is not None:
            return cls(seconds=seconds)
        with contextlib.suppress(ValueError):
            if int(text) > 0:
                return cls(iterations=int(text))
        raise InputError(f"checkpoint_every must be a time as 30s, 5m or 2h, or a number of iterations, got {text!r}")


class Tail(NamedTuple):
    """The iterations from index `begin` on, which are in memory because no trace file holds them yet.

    parts  the traces of these iterations;  at: the state of the learning loop after the last of them
    """

    begin: int
    parts: tuple[Trace, ...]
    at: Position


@dataclass(eq=False)
class RunWriter:
    """A run folder to which this process writes.

    The learning loop uses the writer as its `clearance.learning.recorder.Recorder`.
    """

    folder: Path
    every: Every
    lock: Lock
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    seconds: float = 0.0
    K: int | None = None
    phase: str = "margin"
    made: Path | None = None  # the topmost created folder, or the run folder if it replaced an empty one
    replaced: bool = False
    run: str = ""  # the id of the run

    def __post_init__(self) -> None:
        self._tail: Tail | None = None
        self.saved = self._number = self._before = 0  # saved iterations; checkpoints; environment steps before learning
        self._began, self._last = time.monotonic(), time.monotonic()
        self.status, self.ledger, self.env_steps = "running", Ledger(), 0  # env_steps: those of a finished run

    # ------------------------------------------------------------------------------------ margin and settings

    def read_margin(self, world: World) -> Any:
        """Return the Slater margin that is stored in the folder; None if it has not been measured yet."""
        with schema.blame_file(self.path("margin.npz")):
            return world.read_margin(self.path("margin.npz")) if self.is_good("margin.npz") else None

    def decide(self, margin: Margin | None, method: dict[str, Any], K: int) -> None:
        """Write the Slater margin, if one was measured, and the method with its final settings.

        The final settings are K iterations, N samples per iteration, the margin κ, and the upper bound Λ of λ.

        Raise InputError if the folder of a resumed run holds other settings.
        """
        self.K, self._before, self.phase = K, 0 if margin is None else margin.steps, "learning"
        data = {"schema": SCHEMAS["method"], **method}
        if self.is_good("method.json") and digest(load(self.folder).method) != digest(data):
            raise InputError(f"{self.folder / 'method.json'}: K, N, kappa or lam_max would be decided otherwise now: "
                             "was another version of clearance used?")  # fmt: skip
        if margin is not None:
            self.write("margin.npz", margin.save)
        self.write_json("method.json", data)
        self.write_manifest("running")

    # ------------------------------------------------------------------------------------ the record of the loop

    @property
    def at(self) -> Position:
        assert self._tail is not None
        return self._tail.at

    @property
    def learned(self) -> State | None:
        """The state after the last iteration; None if no iteration was made."""
        return self.at.state if self._tail is not None and self.at.state.k else None

    @property
    def room(self) -> float:
        return self.every.iterations - (self.at.state.k - self.saved)

    def begin(self, first: Position) -> Position:
        """Return the state of the learning loop at the newest intact checkpoint, or `first` if there is none."""
        self._tail = Tail(0, (), first)
        for name in self._checkpoints()[::-1]:
            try:
                with schema.blame_file(self.path(name)):
                    self._restore(name, first)
                break
            except InputError as e:
                warnings.warn(f"{e}; the run continues from before it", DamagedRunWarning, stacklevel=2)
                remove(self.path(name))
                self.files.pop(name, None)
        else:
            self.files, self.saved = _without(self.files, "trace/"), 0
        for name in [n for n in self.files if n.startswith("checkpoint/") and not exists_inside(self.path(n))]:
            del self.files[name]
        self._last = time.monotonic()
        return self.at

    def _restore(self, name: str, first: Position) -> None:
        found = checkpoint.load(path := self.path(name), self.run)
        traces = {name: entry for name, entry in found.files.items() if name.startswith("trace/")}
        for part in (part for part, entry in traces.items() if not intact(self.path(part), entry)):
            raise InputError(f"{self.folder / part}: is missing, cut off or altered")
        at, tail = found.rebuilt(first, "at"), checkpoint.tail_of(found)
        begin = at.state.k - (0 if tail is None else len(tail))
        same = [x.shape for x in at.state[:2]] == [x.shape for x in first.state[:2]]  # θ and λ
        if not same or begin != sum(count_iterations(self.path(part), self.run) for part in traces):
            raise InputError(f"{path}: does not fit the run, or its trace")
        self.files = _without(self.files, "trace/") | traces
        self.enter(name)
        self._tail = Tail(begin, () if tail is None else (tail,), at)
        self._number, self.saved = int(path.stem), at.state.k

    def add(self, part: Trace, at: Position) -> None:
        assert self._tail is not None
        self._tail = Tail(self._tail.begin, (*self._tail.parts, part), at)  # at once: Ctrl-C leaves all or nothing
        if sum(len(p) for p in self._tail.parts) >= self._rows():
            self._write_trace(whole=False)
        waited = time.monotonic() - self._last
        if at.state.k - self.saved >= self.every.iterations or not 0 <= waited < self.every.seconds:
            self.save()

    def _rows(self) -> int:
        return int(np.clip(NUMBERS // max(np.size(self.at.state.theta), 1), 1, ROWS))

    def _write_trace(self, *, whole: bool) -> None:
        """Write the iterations that fill whole trace files; if `whole` is true, also the last, incomplete file."""
        assert self._tail is not None
        begin, parts, at = self._tail
        trace, rows = (Trace.joined(list(parts)) if parts else None), self._rows()
        while trace is not None and len(trace) and (whole or len(trace) >= rows):
            name = f"trace/{begin // rows + 1:06d}.npz"
            part = trace[:rows]
            self.write(name, lambda path, part=part, begin=begin: part.thinned(begin).save(path, begin, self.run))
            begin, trace = begin + len(part), trace[rows:]
        self._tail = Tail(begin, (trace,) if trace is not None and len(trace) else (), at)

    def save(self) -> None:
        """Write a checkpoint if iterations were added since the last one."""
        if self._tail is None or self.at.state.k == self.saved:
            return
        self._write_trace(whole=False)
        self._checkpoint()

    def end(self) -> None:
        """Write the rest of the trace and a last checkpoint after the last iteration."""
        assert self._tail is not None
        self.phase = "choice"
        if self._tail.parts or self.at.state.k != self.saved:
            self._write_trace(whole=True)
            self._checkpoint()

    def _checkpoint(self) -> None:
        assert self._tail is not None
        _, parts, at = self._tail
        joined = Trace.joined(list(parts)) if parts else None
        tail = None if joined is None else {f.name: getattr(joined, f.name) for f in fields(Trace)}
        name = f"checkpoint/{self._number + 1:06d}.npz"
        rests_on = _without(self.files, "checkpoint/")
        old = [other for other in self._checkpoints() if other != name]
        self.write(name, lambda path: checkpoint.save(path, {"at": at, "tail": tail}, rests_on, self.run))
        self._number, self.saved, self._last = self._number + 1, at.state.k, time.monotonic()
        gone = old[: len(old) + 1 - STAY]
        for other in gone:
            self.files.pop(other, None)
        self.write_manifest("running")
        for other in gone:
            remove(self.path(other))

    def _checkpoints(self) -> list[str]:
        return checkpoint.names(self.folder, self.lock.handle)

    def trace(self) -> Trace:
        """Return the trace of all iterations, those on disk and those still in memory."""
        assert self._tail is not None
        paths = [Inside(self.folder, n) for n in sorted(self.files) if n.startswith("trace/")]  # not by the handle
        begin, parts, at = self._tail
        return StoredTrace(paths, Trace.joined(list(parts)).thinned(begin) if parts else None, at.state.k)

    # ------------------------------------------------------------------------------------ the end

    def finish(self, policy: Any, certificate: Certificate, status: str, env_steps: int) -> None:
        """Write policy and certificate, and then the manifest with the final status."""
        self.write("policy.npz", lambda path: policy.save(path, certificate))
        self.write_json(
            "certificate.json", {"schema": SCHEMAS["certificate"], **without_non_finite(certificate.asdict())}
        )
        self.phase = "done" if status == "done" else self.phase
        self.write_manifest(status, env_steps=env_steps)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: object) -> None:
        try:
            if error is not None and not self.worth_keeping:
                self._discard()
            elif error is not None and self.status != "done":
                stopped = isinstance(error, KeyboardInterrupt)
                with contextlib.suppress(InputError):  # a full disk: the last checkpoint is there all the same
                    self.write_manifest("interrupted" if stopped else "failed", message="" if stopped else str(error))
        finally:
            self.lock.close()

    @property
    def worth_keeping(self) -> bool:
        """Whether to keep the folder after an error.

        The folder is kept if it existed before this process, if a resume would save time, or if a test was opened.
        """
        return self.made is None or self.saved > 0 or self._before > 0 or len(self.ledger.shares) > 0

    def _discard(self) -> None:
        assert self.made is not None
        shutil.rmtree(self.made, ignore_errors=True)
        if self.replaced:
            self.made.mkdir()

    # ------------------------------------------------------------------------------------ files

    def path(self, name: str) -> Inside:
        return Inside(self.folder, name, self.lock.handle)

    def is_good(self, name: str) -> bool:
        return name in self.files and intact(self.path(name), self.files[name])

    def write_json(self, name: str, data: dict[str, Any]) -> None:
        self.write(name, lambda path: save_json(path, data))

    def write(self, name: str, save: Any) -> None:
        save(self.path(name))
        self.enter(name)

    def enter(self, name: str) -> None:
        """Put the current size and hash of a file into the manifest in memory; `write_manifest` writes it to disk."""
        self.files[name] = fingerprint(self.path(name))

    def write_manifest(self, status: str, *, env_steps: int | None = None, message: str = "") -> None:
        steps = self._before + (self.at.steps if self._tail is not None else 0)
        data = {
            "schema": SCHEMAS["manifest"],
            "status": status,
            "phase": self.phase,
            "k": self.saved,
            "K": self.K,
            "env_steps": steps if env_steps is None else env_steps,
            "seconds": round(self.seconds + max(time.monotonic() - self._began, 0.0), 3),
            "message": message,
            "version": __version__,
            "run": self.run,
            "files": self.files,
        }
        save_json(self.path("manifest.json"), data | {"sha256": digest(data)})
        self.status = status


def _without(files: dict[str, dict[str, Any]], folder: str) -> dict[str, dict[str, Any]]:
    return {name: entry for name, entry in files.items() if not name.startswith(folder)}
