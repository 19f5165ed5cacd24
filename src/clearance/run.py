"""The run folder, read: what a run was asked, what it did, and what it found. Nothing in it is ever executed.

    run = clearance.run.load("RUN")
    run.status, run.problem, run.settings, run.method, run.trace, run.policy, run.certificate

docs/run_folder.md describes every file. Whatever is cut off or altered is recognised by its sha256 and named.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearance.certificate import Certificate
from clearance.errors import InputError
from clearance.files import load_npz
from clearance.mixture import Mixture
from clearance.problem import CMDP
from clearance.trace import Trace

VERSION = 1


def schema(name: str) -> str:
    """The schema that a file of this name carries."""
    return f"clearance/{name}/{VERSION}"


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A run folder, read-only; each part is read, and checked against the manifest, when it is asked for.

    status    "running" (or killed), "interrupted", "failed" or "done"
    damaged   the files that are missing, cut off or altered
    """

    folder: Path
    manifest: dict[str, Any]

    @property
    def status(self) -> str:
        return self.manifest["status"]

    @property
    def k(self) -> int:
        """Iterations done at the last checkpoint."""
        return self.manifest["k"]

    @cached_property
    def damaged(self) -> tuple[str, ...]:
        return tuple(name for name, entry in self.manifest["files"].items() if not intact(self.folder / name, entry))

    @cached_property
    def problem(self) -> CMDP:
        return CMDP.load(self._good("problem.npz"))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What was asked for."""
        return read_json(self._good("settings.json"), "settings")

    @cached_property
    def method(self) -> dict[str, Any] | None:
        """What was run: K, N, κ and Λ decided; None before the margin is known."""
        return read_json(self._good("method.json"), "method") if self.has("method.json") else None

    @cached_property
    def trace(self) -> Trace:
        """The iterations done at the last checkpoint; θ of those that are kept, `trace.kept`."""
        names = sorted(n for n in self.manifest["files"] if n.startswith("trace/"))
        parts = [read_trace(self._good(name)) for name in names]
        tail = self._tail(sum(len(p) for p in parts))
        parts += [] if tail is None else [tail]
        if not parts:
            raise InputError(f"{self.folder}: no iteration was done yet: go on with clearance solve --resume")
        return Trace.joined(parts)

    def _tail(self, begin: int) -> Trace | None:
        """The iterations since the last file of the trace: the newest checkpoint has them."""
        from clearance.checkpoint import tail_of

        names = sorted(n for n in self.manifest["files"] if n.startswith("checkpoint/"))
        return tail_of(self._good(names[-1]), begin) if names else None

    @cached_property
    def policy(self) -> Mixture | None:
        return Mixture.load(self._good("policy.npz")) if self.has("policy.npz") else None

    @cached_property
    def certificate(self) -> Certificate | None:
        if not self.has("certificate.json"):
            return None
        data = read_json(self._good("certificate.json"), "certificate")
        return Certificate(**{f.name: data[f.name] for f in fields(Certificate) if f.name in data})

    def has(self, name: str) -> bool:
        return name in self.manifest["files"]

    def _good(self, name: str) -> Path:
        """The path of a file that is as it was written."""
        path = self.folder / name
        entry = self.manifest["files"].get(name)
        if entry is None or not path.exists():
            raise InputError(f"{path}: is missing; {REMEDY}")
        if not intact(path, entry):
            raise InputError(f"{path}: is cut off or altered, its sha256 is not that in manifest.json; {REMEDY}")
        return path


REMEDY = "clearance solve --resume makes it again"


def load(folder: str | Path) -> RunFolder:
    """Open a run folder, read-only: one that a process is writing, that was interrupted, or that is done."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: is no run folder; give one written by clearance solve --out")
    return RunFolder(folder, read_manifest(folder / "manifest.json"))


def read_manifest(path: Path) -> dict[str, Any]:
    data = read_json(path, "manifest")
    if data.pop("sha256", None) != digest_of(data):
        raise InputError(f"{path}: is altered, its sha256 is not that of its content; {REMEDY}")
    return data


def digest_of(data: dict[str, Any]) -> str:
    """sha256 of JSON data, keys sorted, no spaces."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def sha256(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def intact(path: Path, entry: dict[str, Any]) -> bool:
    """Whether a file is there as the manifest has it."""
    try:
        return path.stat().st_size == entry["bytes"] and sha256(path) == entry["sha256"]
    except OSError:
        return False


def read_json(path: Path, name: str) -> dict[str, Any]:
    """A JSON object of the schema `name`, or one line that says what it is instead."""
    try:
        data = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; is this a run folder?") from None
    except OSError as e:
        raise InputError(f"{path}: cannot read: {e.strerror or e}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is no JSON, or cut off; {REMEDY}") from None
    check_schema(path, data.get("schema") if isinstance(data, dict) else None, name)
    return data


def check_schema(path: Path, found: object, name: str) -> None:
    if found == schema(name):
        return
    kind, _, version = str(found).rpartition("/")
    if kind == f"clearance/{name}" and version.isdigit() and int(version) > VERSION:
        raise InputError(f"{path}: has schema {found}, this clearance reads {schema(name)}: install a newer one")
    raise InputError(f"{path}: has schema {found!r}, expected {schema(name)!r}")


def read_trace(path: Path) -> Trace:
    """One file of the trace."""
    arrays = load_npz(path)
    check_schema(path, str(arrays.get("schema")), "trace")
    names = [f.name for f in fields(Trace)]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise InputError(f"{path}: {missing[0]} is missing; {REMEDY}")
    return Trace(**{name: np.asarray(arrays[name]) for name in names})
