"""Read a run folder: its problem, settings, trace, policy and certificate. Nothing in it is ever executed.

    run = clearance.runs.run_reader.load("RUN")
    run.status, run.problem, run.settings, run.method, run.trace, run.policy, run.certificate

docs/reference/run_folder.md describes every file. A file that is cut off or altered does not match its sha256 in the
manifest, and is named in the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearance.certificates.certificate import Certificate
from clearance.core.atomic_files import digest, fingerprint, load_json
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath, Inside, exists_inside
from clearance.core.statement import PROBLEM, Statement, restore_statement
from clearance.core.text import visible
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.learning.trace import Trace
from clearance.runs import checkpoint, schema

if TYPE_CHECKING:
    from clearance.simulator.policies.network_mixture import NetworkMixture
    from clearance.simulator.policies.rule_mixture import RuleMixture

SCHEMAS = {name: f"clearance/{name}/1" for name in ("manifest", "settings", "method", "certificate", "ledger")}
# The settings that identify a run: two runs that agree in them give bit-identical results and have the same id.
IDENTITY = ("method", "sampler", "policy", "evidence", "budget", "delta", "seed", "exact_J", "single", "problem")


@dataclass(frozen=True, eq=False, repr=False)
class RunFolder:
    """A run folder, opened read-only. Each part is read and checked against the manifest when it is first used.

    status    "running" (or killed), "interrupted", "failed" or "done"
    damaged   the names of the files that are missing, cut off or altered
    """

    folder: Path
    manifest: dict[str, Any]

    def __repr__(self) -> str:
        return f"<RunFolder: {visible(str(self.folder))}, {self.status}, {self.k:,} iterations>"

    @property
    def status(self) -> str:
        return self.manifest["status"]

    @property
    def k(self) -> int:
        """The number of iterations at the last checkpoint."""
        return self.manifest["k"]

    @cached_property
    def damaged(self) -> tuple[str, ...]:
        return tuple(name for name, entry in self.manifest["files"].items() if not intact(self.path(name), entry))

    @property
    def on_simulator(self) -> bool:
        """Whether the problem is a simulator; then the folder stores its limits, γ and shapes, but not its code."""
        return self.has("problem.json")

    @cached_property
    def problem(self) -> CMDP | Statement:
        """The finite model; for a simulator its statement, i.e. limits, γ, horizon and names."""
        if self.on_simulator:
            return read_statement(self._good("problem.json"))
        return CMDP.load(self._good("problem.npz"))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that `solve` was called with."""
        path, run = self._good("settings.json"), self.manifest.get("run")
        settings = read_settings(self.folder)
        if run not in (None, run_id(settings, self.manifest["files"])):
            raise InputError(f"{path}: belongs to another run than manifest.json; {schema.REMEDY}")
        return settings

    @cached_property
    def method(self) -> dict[str, Any] | None:
        """The method with its final settings; None if these are not decided yet.

        They include K iterations, N samples per iteration, the margin κ, and the upper bound Λ of λ.
        """
        return load_json(self._good("method.json"), SCHEMAS["method"]) if self.has("method.json") else None

    @cached_property
    def trace(self) -> Trace:
        """The trace of the iterations up to the last checkpoint; in long runs it has θ of some iterations only."""
        manifest = self.manifest
        with schema.blame_file(self.folder / "trace"):
            while True:
                try:
                    return self._trace(manifest["files"])
                except InputError:
                    old, manifest = manifest, read_manifest(self.path("manifest.json"))
                    if manifest["files"] == old["files"]:
                        raise
                    # otherwise the process of the run has removed files that the old manifest lists: read them again

    def _trace(self, files: dict[str, Any]) -> Trace:
        listed = sorted(files)
        newest = [name for name in listed if name.startswith("checkpoint/")][-1:]
        run = self.manifest.get("run")
        # A checkpoint lists the trace files that precede its own iterations (its tail).
        found = checkpoint.load(self._good(newest[0], files), run) if newest else None
        names = [name for name in sorted(listed if found is None else found.files) if name.startswith("trace/")]
        parts = [Trace.load(self._good(name, files), run) for name in names]
        tail = None if found is None else checkpoint.tail_of(found)
        parts += [] if tail is None else [tail.thinned(sum(len(p) for p in parts))]
        if not parts:
            raise InputError(f"{self.folder}: no iteration was saved yet; continue it with clearance solve --resume")
        return Trace.joined(parts)

    @cached_property
    def policy(self) -> Mixture | NetworkMixture | RuleMixture | None:
        """The policy of the run, or None if there is none yet.

        Nothing is guaranteed about it before the run is done.
        """
        if not self.has("policy.npz"):
            return None
        if self.on_simulator and self.settings["policy"]["kind"] != "table":
            from clearance.simulator.policies.rule_mixture import load_mixture  # needs JAX, the rest does not

            return load_mixture(self._good("policy.npz"))
        return Mixture.load(self._good("policy.npz"), self.problem if isinstance(self.problem, CMDP) else None)

    @cached_property
    def certificate(self) -> Certificate | None:
        if not self.has("certificate.json"):
            return None
        data = load_json(self._good("certificate.json"), SCHEMAS["certificate"])
        return schema.parse_certificate(self.path("certificate.json"), data)

    def has(self, name: str) -> bool:
        return name in self.manifest["files"]

    def path(self, name: str) -> Inside:
        return Inside(self.folder, name)

    def _good(self, name: str, files: dict[str, Any] | None = None) -> Inside:
        """Return the path of a file in the folder; raise InputError if it is missing or does not match its hash.

        files  size and sha256 of the files by name; default: those in the manifest
        """
        path = self.path(name)
        entry = (self.manifest["files"] if files is None else files).get(name)
        if entry is None or not exists_inside(path):
            raise InputError(f"{path}: is missing; {REMEDY}")
        if not intact(path, entry):
            raise InputError(f"{path}: is cut off or altered, its sha256 is not that in manifest.json; {REMEDY}")
        return path


REMEDY = "clearance solve --resume makes it again"


def load(folder: str | Path) -> RunFolder:
    """Open a run folder read-only; its run may be in progress, interrupted or done."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: is no run folder; give one written by clearance solve --out")
    return RunFolder(folder, read_manifest(Inside(folder, "manifest.json")))


def read_statement(path: AnyPath) -> Statement:
    """Read the statement of a simulator: limits, γ, horizon and the names of its constraints."""
    data = load_json(path, PROBLEM)
    try:
        with schema.blame_file(path):
            return restore_statement(data)
    except InputError as e:
        text = str(e)
        raise InputError(text if text.startswith(f"{path}: ") else f"{path}: {text}; {schema.REMEDY}") from None


def read_settings(folder: Path) -> dict[str, Any]:
    path = Inside(folder, "settings.json")
    return schema.parse_settings(path, load_json(path, SCHEMAS["settings"]))


def read_manifest(path: AnyPath) -> dict[str, Any]:
    data = load_json(path, SCHEMAS["manifest"])
    if data.pop("sha256", None) != digest(data):
        raise InputError(f"{path}: is altered, its sha256 is not that of its content; {REMEDY}")
    return schema.parse_manifest(path, data)


def run_id(settings: dict[str, Any], files: dict[str, Any]) -> str:
    """Return the id of a run: a digest of its settings, its policy class and, if it has one, its start file."""
    named = {name: settings.get(name) for name in IDENTITY}  # version 0.1 has no `single`
    begun = {name: files[name]["sha256"] for name in ("start.npz",) if name in files}  # of runs with `init` only
    return digest(named | {"features": files.get("features.npz", {}).get("sha256")} | begun)[:32]


def intact(path: AnyPath, entry: dict[str, Any]) -> bool:
    """Return whether a file exists and has the size and sha256 in `entry`, its entry in the manifest."""
    try:
        return fingerprint(path) == {"sha256": entry["sha256"], "bytes": entry["bytes"]}
    except (OSError, InputError):
        return False
