"""The folder of a sweep over a grid of settings.

It contains the grid (`grid.json`), hashes of the grid's models (`problems.json`), and one run folder for each point.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearance.core.atomic_files import load_json, save_json
from clearance.core.errors import InputError
from clearance.core.folder_lock import lock_folder
from clearance.core.inside_folder import Inside, exists_inside, refuse_strange
from clearance.finite.cmdp import CMDP
from clearance.runs.worlds.dispatch import world_of
from clearance.studies.sweep_grid import Grid

SCHEMA, PROBLEMS = "clearance/grid/1", "clearance/problems/1"


@contextlib.contextmanager
def opened(out: Path, asked: Grid | None, cmdp: CMDP | None = None) -> Iterator[tuple[Grid, str]]:
    """Yield the grid of the folder `out`, and a token that identifies the folder; it stays locked in the `with` block.

    If the folder has a grid already, that grid is used, and `asked` must agree with it. If not, the folder is made for
    the grid `asked`, and the model `cmdp`, if given, is stored in it.
    """
    if not (out / "grid.json").exists():
        if asked is None:
            raise InputError(f"{out}: there is no grid to resume; give PROBLEM and --grid")
        _ = asked.problems
        _begin(out, asked, cmdp)
    refuse_strange(out)
    held = lock_folder(out)
    try:
        data = load_json(Inside(out, "grid.json"), SCHEMA)
        found = _read(out, data)
        _check_given_again(out, found, asked)
        yield found, str(data["token"])
    finally:
        held.close()


def _check_given_again(out: Path, stored: Grid, asked: Grid | None) -> None:
    """Raise InputError if the grid `asked`, given to resume, differs from the grid `stored` in the folder.

    Also raise it if user code in the stored grid is not named again: code is never imported just because a folder names
    it.
    """
    differs = None if asked is None else asked.differs_from(stored)
    if differs is not None:
        raise InputError(f"{out}: holds another grid ({differs} differs); give that one, or choose another folder")
    for name, text in stored.code():
        if asked is None or text not in asked.values(name):
            flag = {"problem": "PROBLEM"}.get(name, f"--{name}")
            again = f"--grid {name}=…" if name in stored.axes else text if name == "problem" else f"{flag} {text}"
            raise InputError(f"{flag} {text} is code that the grid in {out} names: name it again to resume: {again}")


def _begin(out: Path, asked: Grid, cmdp: CMDP | None) -> None:
    if os.path.lexists(out) and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not an empty folder; choose another")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InputError(f"{out}: cannot write: {e.strerror or e}") from None
    if cmdp is not None:
        cmdp.save(Inside(out, "problem.npz"))
    save_json(Inside(out, "grid.json"), {"schema": SCHEMA, "token": secrets.token_hex(16), **asked.asdict()})


def _read(out: Path, data: dict[str, Any]) -> Grid:
    axes, fixed, token = (data.get(name) for name in ("axes", "fixed", "token"))
    if isinstance(axes, dict) and isinstance(fixed, dict) and isinstance(token, str):
        lists = all(isinstance(v, list) and all(isinstance(x, str) for x in v) for v in axes.values())
        if lists and all(isinstance(v, str) for v in fixed.values()):
            return Grid({name: tuple(values) for name, values in axes.items()}, fixed)
    raise InputError(
        f"{out / 'grid.json'}: is altered: axes, fixed and token must be texts; start again in another folder"
    )


def must_be_the_same(out: Path, problems: dict[str, CMDP]) -> None:
    """Raise InputError if a model differs from the model with which the grid was started.

    A difference means that a file was changed. `problems` holds the models by key.
    """
    now = {text: world_of(cmdp).describe().identity for text, cmdp in problems.items()}
    path = Inside(out, "problems.json")
    if not exists_inside(path):
        save_json(path, {"schema": PROBLEMS, "sha256": now})
    before = load_json(path, PROBLEMS).get("sha256")
    changed = [text for text in now if not isinstance(before, dict) or before.get(text) != now[text]]
    if changed:
        raise InputError(f"{changed[0]}: is not the model that the grid in {out} was begun with: begin another grid")
