"""Create a run folder, and open an existing one to continue its run."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import warnings
from pathlib import Path
from typing import Any

from clearance import __version__
from clearance.certificates.ledger import Ledger
from clearance.core.atomic_files import flush_folder
from clearance.core.errors import InputError
from clearance.core.folder_lock import lock_folder
from clearance.core.inside_folder import Inside, refuse_strange
from clearance.runs import checkpoint, run_reader
from clearance.runs.ledger_file import NAME as LEDGER
from clearance.runs.ledger_file import read_ledger, write_ledger
from clearance.runs.plain_data import describe
from clearance.runs.run_reader import SCHEMAS
from clearance.runs.run_writer import DamagedRunWarning, Every, RunWriter
from clearance.runs.start_file import START, save_start
from clearance.runs.worlds.world import ProblemDescription, Start, Task, World

SETTINGS = ("evidence", "budget", "delta", "seed", "exact_J", "single")  # fields of a task, stored in settings.json


def create_run(out: str | Path, task: Task, every: Every, notes: dict[str, Any] | None = None) -> RunWriter:
    """Create a run folder with problem and settings, and return its writer.

    The folder gets its final name only after problem and settings are written. `notes` are stored with the settings.
    """
    same, why = task.world.repeats()
    if same is False:
        warnings.warn(
            f"{why}: the run can be resumed, but not bit-identical to an uninterrupted one", UserWarning, stacklevel=4
        )
    settings = {name: getattr(task, name) for name in SETTINGS}
    data = {"method": describe(task.method), "sampler": task.world.describe_sampler(task.sampler), **settings}
    data |= {"deterministic": same, "init": None if task.start is None else task.start.origin}
    return _create(out, task.world, task.sampler.policy, data | (notes or {}), every, task.start)


def write_finished(solution: Any, out: str | Path) -> None:
    """Write a finished run to a new run folder; the folder has no checkpoints and cannot be resumed."""
    settings = {"evidence": solution.evidence, "delta": solution.delta, "seed": solution.seed}
    data = {"method": describe(solution.method), "sampler": None, **settings, "deterministic": None}
    facts = {"lam_max": _finite(solution.lam_max), "slater": _finite(solution.slater), "seed": solution.seed}
    ran = {"method": describe(solution.method), **facts, "evidence": solution.evidence}
    with _create(out, solution.world, solution.policy_class, data, Every()) as writer:
        if solution.evidence == "samples":
            tests = [(attempt.subject, attempt.evidence) for attempt in solution.attempts]
            writer.ledger.close_search(writer.ledger.open_search(solution.delta, repeats=False), tests)
        writer.decide(solution.margin, ran, solution.method.K or 0)
        writer.write("trace/000001.npz", lambda path: solution.trace.save(path, run=writer.run))
        writer.saved, writer.seconds = len(solution.trace), solution.seconds
        writer.finish(solution.policy, solution.certificate, solution.status, solution.env_steps)


def _finite(x: float | None) -> float | None:
    return None if x is None or abs(x) == float("inf") else x


def _create(
    out: str | Path, world: World, policy: Any, data: dict[str, Any], every: Every, start: Start | None = None
) -> RunWriter:
    described = world.describe_policy(policy)
    files = described.files | ({} if start is None else {START: lambda path: save_start(path, start)})
    absent = dict.fromkeys(("budget", "exact_J", "single", "flags", "command"))
    return new_folder(Path(out), world.describe(), absent | data | {"policy": described.data}, every, files)


def new_folder(
    out: Path, about: ProblemDescription, data: dict[str, Any], every: Every, files: dict[str, Any] | None = None
) -> RunWriter:
    """Create a run folder `out` with the problem `about` and the settings `data`; return its writer.

    every  how often checkpoints are written;  files: further files {name: function that writes the file}
    """
    folder = out.absolute()
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{out}: exists and is not an empty folder; choose another --out, or --resume it")
    partial = folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.partial")
    made = next((p for p in (*folder.parents[::-1], folder) if not p.exists()), None)
    try:
        partial.mkdir(parents=True)
        writer = RunWriter(partial, every, lock_folder(partial), made=made or folder, replaced=made is None)
        _describe(writer, about, data, files or {})
        partial.rename(folder)
        flush_folder(folder.parent)
    except BaseException as e:
        shutil.rmtree(partial if made in (None, folder) else made, ignore_errors=True)
        if isinstance(e, OSError):
            raise InputError(f"{out}: cannot write: {e.strerror or e}") from None
        raise
    writer.folder = folder
    return writer


def _describe(writer: RunWriter, about: ProblemDescription, data: dict[str, Any], files: dict[str, Any]) -> None:
    """Write the files of a new run: problem, further files, settings and an empty ledger. Also set the id of the run.

    about  the problem;  files: {name: function that writes the file};  data: the settings
    """
    for name, save in {about.file: about.save, **files}.items():
        writer.write(name, save)
    settings = {"schema": SCHEMAS["settings"], **data, "problem": about.identity}
    writer.write_json("settings.json", settings)
    writer.run = run_reader.run_id(settings, writer.files)
    attach_ledger(writer, Ledger())
    writer.ledger.keep()


def attach_ledger(writer: RunWriter, ledger: Ledger) -> None:
    """Give the writer a ledger. Whenever a test is opened or closed, the ledger is stored, and then the manifest."""

    def keep() -> None:
        writer.write(LEDGER, lambda path: write_ledger(path, ledger))
        writer.write_manifest("running")

    writer.ledger, ledger.keep = ledger, keep


def open_again(folder: Path, every: Every, about: ProblemDescription | None = None) -> RunWriter:
    """Open a run folder to continue its run, and return its writer.

    Raise InputError if a damaged file cannot be repaired.

    about  the problem that the user gave again, if any; a problem that differs from that of the run is refused
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such run folder to resume")
    refuse_other_version(folder)
    folder = folder.absolute()
    refuse_strange(folder, ("checkpoint", "trace"))
    held = lock_folder(folder)
    try:
        manifest = _manifest_of(folder)
        writer = RunWriter(folder, every, held, dict(manifest["files"]), float(manifest["seconds"]), manifest["K"])
        writer.saved, writer.phase = manifest["k"], manifest["phase"]
        _check(writer, about, manifest["run"])
        if manifest["version"] != __version__:
            text = f"{folder}: was begun with clearance {manifest['version']}, this is {__version__}"
            warnings.warn(f"{text}: the result may differ from an uninterrupted run", UserWarning, stacklevel=3)
        attach_ledger(writer, read_ledger(writer.path(LEDGER), manifest["files"].get(LEDGER)))
        writer.enter(LEDGER)  # after a kill the manifest may list the ledger before this one
        if manifest["status"] == "done":
            writer.status, writer.env_steps = "done", manifest["env_steps"]
            if writer.files != manifest["files"]:
                writer.write_manifest("done", env_steps=writer.env_steps)
            return writer
        for name in ("policy.npz", "certificate.json"):  # results of an interrupted run will be replaced
            writer.files.pop(name, None)
        writer.write_manifest("running")
        return writer
    except BaseException:
        held.close()
        raise


def refuse_other_version(folder: Path) -> None:
    """Raise InputError if a run was begun with another minor version of clearance.

    This is checked before the folder is changed. Random streams, checkpoints and decisions may differ between minor
    versions. So a run made by two versions could not be reproduced by either of them, and a finished run would lose its
    certificate.
    """
    try:
        manifest = run_reader.read_manifest(Inside(folder, "manifest.json"))
    except InputError:
        return  # damaged: its own error comes when the folder is opened
    minor, ours = (".".join(version.split(".")[:2]) for version in (manifest["version"], __version__))
    if minor == ours:
        return
    begun = f"{folder}: was begun with clearance {minor}"
    if manifest["status"] == "done":
        raise InputError(f"{begun} and is finished; clearance {ours} reads it, but does not resume it")
    raise InputError(
        f"{begun} and cannot be continued by clearance {ours}: solve again in another folder; "
        "what was learned so far stays readable"
    )


def _check(writer: RunWriter, about: ProblemDescription | None, run: str) -> None:
    """Check settings, policy class and start file against their hashes, and the run id against `run` in the manifest.

    `about` is the problem that the user gave, or None. It must be the problem of the run; a damaged problem file is
    then written again. Raise InputError if a check fails.
    """
    for name in ("settings.json", "features.npz", START):
        if name in writer.files and not writer.is_good(name):
            raise InputError(f"{writer.folder / name}: is missing, cut off or altered: start again, in another folder")
    asked = run_reader.read_settings(writer.folder)
    writer.run = run_reader.run_id(asked, writer.files)
    if run != writer.run:
        path = writer.folder / "settings.json"
        raise InputError(f"{path}: belongs to another run than the other files: solve again, in another folder")
    simulator = asked["policy"]["kind"] in ("design", "table")
    if about is not None and about.identity != asked["problem"]:
        other = "that one" if simulator else "that one, or none,"
        raise InputError(f"{writer.folder}: is a run on another problem; give {other} or choose another --out")
    if about is None and simulator:
        raise InputError(f"{writer.folder}: is a run on a simulator, whose code is not in the folder: give it again")
    name = "problem.json" if simulator else "problem.npz"
    if writer.is_good(name):
        return
    what = f"{writer.folder / name}: is missing, cut off or altered"
    if about is None:
        raise InputError(f"{what}: give the problem again, or start again in another folder")
    warnings.warn(f"{what}: written again from the problem given", DamagedRunWarning, stacklevel=4)
    writer.write(name, about.save)


def _manifest_of(folder: Path) -> dict[str, Any]:
    """Return the manifest of a run folder; if it is damaged, rebuild it from the newest intact checkpoint."""
    try:
        return run_reader.read_manifest(Inside(folder, "manifest.json"))
    except InputError as e:
        damage = str(e).removesuffix(f"; {run_reader.REMEDY}")
        for name in checkpoint.names(folder)[::-1]:
            with contextlib.suppress(InputError):
                found = checkpoint.load(Inside(folder, name))
                found.files.pop(LEDGER, None)  # it may have changed since; it holds a sha256 of itself
                warnings.warn(f"{damage}; {name} has what is needed", DamagedRunWarning, stacklevel=4)
                unknown = {"k": 0, "K": None, "phase": "margin", "seconds": 0.0, "status": "running"}
                return unknown | {"files": found.files, "version": __version__, "run": found.run}
        raise InputError(f"{damage}; no checkpoint has what is needed: solve again, in another folder") from None
