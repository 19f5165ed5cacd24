"""Solve every point of a grid into its own run folder, on any executor, and write a table of the results.

A point is finished if its run folder has the status `done`. Rows of the table are read from the run folders, so nothing
is lost or counted twice, even if workers fail and jobs are repeated. An unfinished point resumes from its checkpoint.

Workers that can see the grid's folder (they recognise it by a token) write to it. For other workers, the run folder is
sent through the object store and written by this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from clearance.cluster.executor import Executor, Local, should_stop
from clearance.core.atomic_files import flush_folder, load_json
from clearance.core.errors import InfeasibleError, InputError, SolverError
from clearance.core.folder_lock import BusyError
from clearance.core.import_path import ImportRule, import_rule, search
from clearance.core.inside_folder import Inside
from clearance.core.text import visible
from clearance.finite.cmdp import CMDP
from clearance.runs import run_reader
from clearance.runs.method_settings import method_class
from clearance.runs.problem_text import is_imported, load_model_or_none, restate
from clearance.runs.resume import resume
from clearance.runs.run_spec import RunSpec
from clearance.runs.solve import solve
from clearance.studies import sweep_table
from clearance.studies.sweep_folder import SCHEMA, must_be_the_same, opened
from clearance.studies.sweep_grid import Grid, Point

FINAL = ("done", "infeasible", "undecided")  # statuses of the rows that a resume keeps
WAIT = 120.0  # seconds to wait until a worker that was given up releases its folder
SELDOM = 1.0  # seconds between two writings of the table


@dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """The result of a sweep. `rows` has one row for each point that has ended; the run folders are in `folder`.

    rows  point, folder, the values on the axes, status (done, infeasible, undecided or failed), verdict, J_r, J_g,
          slack, gap, env_steps, seconds, message
    """

    folder: Path
    grid: Grid
    rows: list[dict[str, Any]]

    def __repr__(self) -> str:
        certified = sum(row.get("verdict") == "CERTIFIED" for row in self.rows)
        done = f"{len(self.rows):,} of {len(self.grid):,} points done, {certified:,} CERTIFIED"
        return f"<Sweep: {visible(str(self.folder))}, {done}>"

    @property
    def finished(self) -> bool:
        return len(self.rows) == len(self.grid) and all(row["status"] in FINAL for row in self.rows)


def sweep(
    problem: CMDP | str | None = None,
    grid: Mapping[str, Iterable[Any]] | None = None,
    *,
    out: str | Path,
    executor: Executor | None = None,
    checkpoint_every: str | int = "30s",
    progress: Callable[[int, int], None] | None = None,
    **settings: Any,
) -> Sweep:
    """Solve every point of a grid, each in its own run folder in `out`, and write `table.csv` and `table.json` there.

    problem   a model, or a text as on the command line: a zoo name, a file, gym:ENV_ID, module:factory
    grid      the axes {name: values}; a name is "problem" or a flag of `clearance solve`
    settings  flags that are the same at every point: method="cnpgpd", K=500
    executor  where the points are solved: threads of this process (default), or `clearance.Ray(…)`
    progress  a callback progress(points done, points in all);  checkpoint_every: as in `solve`

    A call with `out` alone resumes an earlier sweep: finished points are not computed again. If the grid names user
    code (a factory, constraints, your own method), the call must name this code again.
    """
    out = Path(out).absolute()
    asked = None if problem is None and grid is None and not settings else _asked(problem, grid or {}, settings, out)
    cmdp = problem if isinstance(problem, CMDP) else None
    return perform(out, asked, executor or Local(), str(checkpoint_every), progress, cmdp)


def perform(
    out: Path,
    asked: Grid | None,
    executor: Executor,
    every: str,
    progress: Callable[[int, int], None] | None,
    cmdp: CMDP | None = None,
) -> Sweep:
    """Run the grid `asked`, or resume the grid stored in the folder `out`; return all results.

    every  how often each run writes a checkpoint;  cmdp: the model of the grid, if it was given as an object
    """
    out = out.absolute()
    if asked is not None and cmdp is None and not (out / "grid.json").exists():
        _checked(asked)  # a grid with wrong settings is refused before anything is written
    with opened(out, asked, cmdp) as (found, token):
        points, problems = _checked(found)
        must_be_the_same(out, problems)
        return _run(Work(str(out), token, problems, every, import_rule()), found, points, executor, progress)


def _asked(problem: CMDP | str | None, grid: Mapping[str, Any], settings: dict[str, Any], out: Path) -> Grid:
    text = str(out / "problem.npz") if isinstance(problem, CMDP) else problem
    return Grid.of(grid, ({} if text is None else {"problem": text}) | settings)


def _checked(grid: Grid) -> tuple[list[Point], dict[str, CMDP]]:
    """Check the settings of all points of a grid; return the points, and the finite models by key (`_model_key`)."""
    found = {text: load_model_or_none(text) for text in grid.problems if not is_imported(text)}
    models, points = {text: cmdp for text, cmdp in found.items() if cmdp is not None}, grid.points()
    for point in points:
        try:
            spec = point.spec
        except InputError as e:
            raise InputError(f"grid {e}") from None
        key = _model_key(spec)
        if key not in models and is_imported(key):
            models[key] = spec.load_problem()
        elif spec.problem in models:
            restate(models[spec.problem], spec.problem, spec.environment)
        spec.make_method(simulated=key not in models)
    return points, models


def _model_key(spec: RunSpec) -> str:
    """Return a key for the model of a point: the text of the problem.

    For an imported file the key also contains the flags for limits and criterion, since the file has none.
    """
    text = spec.problem or ""
    return f"{json.dumps(dict(spec.environment), sort_keys=True, default=str)} {text}" if is_imported(text) else text


# ------------------------------------------------------------------------------------------------ the work


class Found(NamedTuple):
    """The result that a worker reports for a point of the grid: its status, a message, and the files of its run folder.

    The files are None if the worker has written them to the grid's folder itself.
    """

    status: str
    message: str = ""
    files: dict[str, bytes] | None = None


@dataclass(frozen=True)
class Work:
    """A callable object that solves one point of a grid of runs, on any worker.

    home      the folder of the grid;  token: identifies this folder;  problems: the finite models by key
    every     how often a run writes a checkpoint;  imports: folders from which user code may be imported
    """

    home: str
    token: str
    problems: dict[str, CMDP]
    every: str
    imports: ImportRule

    def __call__(self, point: Point) -> Found:
        with search(self.imports):
            return self._found(point)

    def _found(self, point: Point) -> Found:
        try:
            if self.is_shared:
                return self._solved(point, Path(self.home) / point.name)
            with tempfile.TemporaryDirectory() as place:
                found = self._solved(point, Path(place) / point.name)
                return found._replace(files=_files(Path(place) / point.name))
        except InfeasibleError as e:
            return Found("infeasible" if e.proven else "undecided", str(e))
        except KeyboardInterrupt:
            return Found("interrupted")
        except (InputError, SolverError) as e:
            return Found("failed", str(e))
        except Exception as e:  # a point that fails must not end the other points
            return Found("failed", f"{type(e).__name__}: {e}")

    @property
    def is_shared(self) -> bool:
        with contextlib.suppress(InputError):
            return load_json(Inside(Path(self.home), "grid.json"), SCHEMA).get("token") == self.token
        return False

    def _solved(self, point: Point, folder: Path) -> Found:
        """Start or resume a point of the grid in its folder, and return the result.

        If the folder is still locked by another worker, which was considered dead, wait until the lock is released.
        """
        deadline = time.monotonic() + WAIT
        while True:
            try:
                return self._perform(point, folder)
            except BusyError:
                if time.monotonic() > deadline or should_stop():
                    raise
                time.sleep(0.2)

    def _perform(self, point: Point, folder: Path) -> Found:
        if is_done(folder):
            return Found("done")
        solution = _solve_or_resume(point.spec, self.problems, folder, self.every)
        return Found(solution.status)


def _solve_or_resume(spec: RunSpec, models: dict[str, CMDP], folder: Path, every: str) -> Any:
    """Solve a point of the grid in its folder, or resume it if it was started before; return the solution.

    spec  the flags of the point;  models: the finite models by key;  every: how often a checkpoint is written
    """
    key = _model_key(spec)
    model = models.get(key)
    if model is None or is_imported(key):
        problem: Any = model or spec.load_problem()
    else:
        problem = restate(model, key, spec.environment)
    how: dict[str, Any] = {"checkpoint_every": every, "progress": _stop}
    try:
        if os.path.exists(folder / "settings.json"):
            text = dict(spec.code()).get("method")
            return resume(folder, problem, method=None if text is None else method_class(text), **how)
        return solve(problem, **spec.solve_arguments(problem), out=folder, **how)
    finally:
        if model is None and hasattr(problem, "close"):
            problem.close()


def _stop(*_: object) -> None:
    """Raise KeyboardInterrupt if the sweep should stop.

    The run calls this between iterations, saves its state and ends.
    """
    if should_stop():
        raise KeyboardInterrupt


def is_done(folder: Path) -> bool:
    with contextlib.suppress(InputError):
        return run_reader.load(folder).status == "done"
    return False


def _files(folder: Path) -> dict[str, bytes]:
    """Return {path: content} for all files in a run folder except its lock."""
    paths = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "lock"]
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}


# ------------------------------------------------------------------------------------------------ the results


def _run(
    work: Work, grid: Grid, points: list[Point], executor: Executor, progress: Callable[[int, int], None] | None
) -> Sweep:
    out = Path(work.home)
    rows = sweep_table.kept(out, points, FINAL)
    left, last = [p for p in points if p.number not in rows], 0.0
    told = progress or (lambda *_: None)
    told(len(rows), len(points))
    try:
        with contextlib.closing(executor.stream(work, left)) as outcomes:
            for i, outcome in outcomes:
                found = _settled(out, left[i], outcome)
                if found.status == "interrupted":
                    raise KeyboardInterrupt
                rows[left[i].number] = sweep_table.row(out, left[i], found.status, found.message)
                told(len(rows), len(points))
                if time.monotonic() - last > SELDOM:
                    sweep_table.write(out, grid, rows)
                    last = time.monotonic()
    finally:
        sweep_table.write(out, grid, rows)
    return Sweep(out, grid, [rows[p.number] for p in points if p.number in rows])


def _settled(out: Path, point: Point, outcome: Any) -> Found:
    """Return the result of a point of the grid from the `outcome` of its job.

    If the worker has sent the files of the run folder, write them to the folder of the point.
    """
    try:
        found: Found = outcome.result()
    except SolverError as e:  # its workers died
        return Found("failed", str(e))
    if found.files is not None:
        _written(out / point.name, found.files)
    return found


def _written(folder: Path, files: dict[str, bytes]) -> None:
    """Write a run folder that was received from a worker, atomically.

    An earlier folder of the same point is replaced.
    """
    partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
    try:
        for name, data in files.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        flush_folder(folder.parent)
    except OSError as e:
        shutil.rmtree(partial, ignore_errors=True)
        raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None
