"""Beginning a run folder, and going on with one: `resume`."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from clearance import __version__, checkpoint, run, settings, stored
from clearance.errors import InputError
from clearance.files import flush_folder
from clearance.lock import lock
from clearance.network import Policy
from clearance.problem import CMDP
from clearance.run import SCHEMAS
from clearance.settings import About
from clearance.store import DamagedRunWarning, Every, Store

if TYPE_CHECKING:
    from clearance.loop import Progress
    from clearance.margin import Margin
    from clearance.simulator.problem import Simulator
    from clearance.simulator.solution import SimulatorSolution
    from clearance.solution import Solution
    from clearance.solving import Task


@overload
def resume(
    folder: str | Path,
    cmdp: CMDP | None = None,
    *,
    checkpoint_every: str | int = "30s",
    progress: Progress | None = None,
) -> Solution: ...


@overload
def resume(
    folder: str | Path, cmdp: Simulator, *, checkpoint_every: str | int = "30s", progress: Progress | None = None
) -> SimulatorSolution: ...


def resume(
    folder: str | Path,
    cmdp: Any = None,
    *,
    checkpoint_every: str | int = "30s",
    progress: Progress | None = None,
) -> Any:
    """Go on with a run that was interrupted, failed or was killed: the same trace, policy and certificate, bit for bit,
    as without the interruption (on the same machine, with the same versions).

    cmdp  the problem; it must be the one of the run. A finite model is in the folder, and may be left out; a simulator
          is code, and must be given. One that is not deterministic given its seed goes on, but not to the same bits
    """
    from clearance import solving

    store = reopened(Path(folder), Every.of(checkpoint_every), None if cmdp is None else settings.about(cmdp))
    with store:
        asked = run.read_settings(store.folder)
        if asked["sampler"] is None:
            raise InputError(f"{store.folder}: was saved after its run, without checkpoints; solve again with out=")
        if not settings.on_simulator(asked):
            return solving.perform(_task(store.folder, cmdp, asked), progress, store)
        from clearance.simulator import folder as simulated

        simulator: Any = cmdp
        return simulated.resumed(store, simulator, asked, progress)


def _task(folder: Path, cmdp: CMDP | None, asked: dict[str, Any]) -> Task:
    """What the run was asked for."""
    cmdp = CMDP.load(folder / "problem.npz") if cmdp is None else cmdp
    with stored.reading(folder / "settings.json"):
        return _described_task(folder, cmdp, asked)


def _described_task(folder: Path, cmdp: CMDP, asked: dict[str, Any]) -> Task:
    from clearance.solving import Task

    policy = settings.policy_of(folder, asked["policy"], cmdp)
    sampler = settings.sampler_of(asked["sampler"], cmdp, policy)
    how = {name: asked[name] for name in ("evidence", "budget", "delta", "seed", "exact_J")}
    return Task(sampler, settings.method_of(asked["method"]), **how)


# --------------------------------------------------------------------------------------------------------- beginning


def created(out: str | Path, task: Task, every: Every, asked: dict[str, Any] | None = None) -> Store:
    """A new run folder: problem and settings are in it from the first instant that it has its name."""
    how = {name: getattr(task, name) for name in ("evidence", "budget", "delta", "seed", "exact_J")}
    method = None if task.method is None else settings.described(task.method)
    sampler = settings.described(task.sampler, leave_out=("cmdp", "policy"))
    data = {"method": method, "sampler": sampler, **how, "flags": None, "command": None, **(asked or {})}
    return _new(out, task.sampler.cmdp, task.sampler.policy, data, every)


def write_solution(solution: Solution, out: str | Path) -> None:
    """The run folder of a run that was not written while it went on: there is no checkpoint in it."""
    method, evidence = settings.described(solution.method), solution.evidence
    how = {"evidence": evidence, "budget": None, "delta": solution.delta, "seed": solution.seed, "exact_J": None}
    data = {"method": method, "sampler": None, **how, "flags": None, "command": None}
    slater = solution.slater if np.isfinite(solution.slater) else None
    ran = {"method": method, "lam_max": solution.lam_max, "slater": slater, "seed": solution.seed, "evidence": evidence}
    with _new(out, solution.cmdp, solution.policy_class, data, Every()) as store:
        write_done(store, solution, solution.margin, ran)


def write_done(store: Store, solution: Any, margin: Margin | None, ran: dict[str, Any]) -> None:
    """All of a run that has come to its end."""
    store.decided(margin, ran, solution.method.K or 0)
    store.write("trace/000001.npz", solution.trace.save)
    store.saved, store.seconds = len(solution.trace), solution.seconds
    store.finish(solution.policy, solution.certificate, solution.status, solution.env_steps)


def _new(out: str | Path, cmdp: CMDP, policy: Policy, data: dict[str, Any], every: Every) -> Store:
    kind = settings.kind_of(policy, cmdp)
    files = {} if kind == "tabular" else {"features.npz": lambda path: settings.save_class(path, policy)}
    return new(Path(out), settings.about(cmdp), {**data, "policy": {"kind": kind}}, every, files)


def new(out: Path, about: About, data: dict[str, Any], every: Every, files: dict[str, Any] | None = None) -> Store:
    """A new run folder with problem and settings, and with further files, each with what writes it."""
    folder = out.absolute()
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{out}: exists and is not an empty folder; choose another --out, or --resume it")
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    made = next((p for p in (*folder.parents[::-1], folder) if not p.exists()), None)
    try:
        partial.mkdir(parents=True)
        store = Store(partial, every, lock(partial), made=made or folder, replaced=made is None)
        _describe(store, about, data, files or {})
        partial.rename(folder)
        flush_folder(folder.parent)
    except BaseException as e:
        shutil.rmtree(partial if made in (None, folder) else made, ignore_errors=True)
        if isinstance(e, OSError):
            raise InputError(f"{out}: cannot write: {e.strerror or e}") from None
        raise
    store.folder = folder
    return store


def _describe(store: Store, about: About, data: dict[str, Any], files: dict[str, Any]) -> None:
    """Problem and settings."""
    for name, save in {about.file: about.save, **files}.items():
        store.write(name, save)
    store.write_json("settings.json", {"schema": SCHEMAS["settings"], **data, "problem": about.identity})
    store.write_manifest("running")


# ---------------------------------------------------------------------------------------------------------- going on


def reopened(folder: Path, every: Every, about: About | None = None) -> Store:
    """A run folder to go on with; refuses another problem, and what cannot be made good."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such run folder to resume")
    folder = folder.absolute()
    held = lock(folder)
    try:
        manifest = _manifest_of(folder)
        store = Store(folder, every, held, dict(manifest["files"]), float(manifest["seconds"]), manifest["K"])
        store.saved, store.phase = manifest["k"], manifest["phase"]
        _check(store, about)
        if manifest["version"] != __version__:
            text = f"{folder}: was begun with clearance {manifest['version']}, this is {__version__}"
            warnings.warn(f"{text}: the result may differ from an uninterrupted run", UserWarning, stacklevel=3)
        if manifest["status"] != "done":  # what an interrupted run had found so far will be replaced
            for name in ("policy.npz", "certificate.json"):
                store.files.pop(name, None)
        store.write_manifest("running")
        return store
    except BaseException:
        os.close(held)
        raise


def _check(store: Store, about: About | None) -> None:
    """Settings and problem are as they were written, and the problem given is the same."""
    for name in ("settings.json", "features.npz"):
        if name in store.files and not store.is_good(name):
            raise InputError(f"{store.folder / name}: is missing, cut off or altered: begin anew, in another folder")
    asked = run.read_settings(store.folder)
    simulator = settings.on_simulator(asked)
    if about is not None and about.identity != asked["problem"]:
        other = "that one" if simulator else "that one, or none,"
        raise InputError(f"{store.folder}: is a run on another problem; give {other} or choose another --out")
    if about is None and simulator:
        raise InputError(f"{store.folder}: is a run on a simulator, whose code is not in the folder: give it again")
    name = "problem.json" if simulator else "problem.npz"
    if store.is_good(name):
        return
    what = f"{store.folder / name}: is missing, cut off or altered"
    if about is None:
        raise InputError(f"{what}: give the problem again, or begin anew in another folder")
    warnings.warn(f"{what}: written again from the problem given", DamagedRunWarning, stacklevel=4)
    store.write(name, about.save)


def _manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest; where it is damaged, what the newest good checkpoint knows of the files."""
    try:
        return run.read_manifest(folder / "manifest.json")
    except InputError as e:
        for path in sorted((folder / "checkpoint").glob("*.npz"), reverse=True):
            with contextlib.suppress(InputError):
                files = checkpoint.load(path).files
                warnings.warn(f"{e}; {path.name} has what is needed", DamagedRunWarning, stacklevel=4)
                unknown = {"k": 0, "K": None, "phase": "margin", "seconds": 0.0, "status": "running"}
                return unknown | {"files": files, "version": __version__}
        raise
