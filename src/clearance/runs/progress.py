"""Show the progress of a run: a progress bar in the terminal, and event files for TensorBoard."""

from __future__ import annotations

import argparse
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearance.core.errors import InputError, MissingExtraError
from clearance.core.text import distinct

if TYPE_CHECKING:
    from clearance.learning.state import State
    from clearance.learning.trace import Trace

LONGEST_TAG = 100  # characters of a name
POINTS = 100  # largest number of events for one chunk of iterations, so that a long run does not fill the disk


@contextmanager
def drawing() -> Iterator[None]:
    """Ignore OSError in the `with` block, since a closed terminal must not end the run.

    If a KeyboardInterrupt caused the OSError, KeyboardInterrupt is raised instead.
    """
    try:
        yield
    except OSError as e:
        cause: BaseException | None = e
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            cause = cause.__context__


class Progress:
    """A progress bar on standard error, drawn by the package rich; off with --json, or if there is no terminal.

    args  the parsed command line;  total: number of units;  what: the word in front of the bar
    b     the limits [I], needed to show the smallest slack
    """

    def __init__(self, args: argparse.Namespace, total: int, what: str = "iterations", b: Sequence[float] = ()) -> None:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        self.bar = progress.Progress(
            progress.TextColumn(what),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[note]}", markup=False),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=console,
            disable=args.json or not console.is_terminal,
        )
        self.task = self.bar.add_task(what, total=total or None, note="")
        self.b, self.rate, self.last = np.asarray(b, float), Rate(), 0

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        with drawing():
            self.bar.stop()

    def update(self, part: Trace, state: State, total: int) -> None:
        """Advance the bar by the iterations in `part`, out of `total`, and show reward, smallest slack and λ.

        `state` is the state of learning after these iterations.
        """
        if self.last != state.k - len(part):  # resumed: earlier iterations must not count for the speed
            with drawing():
                self.bar.reset(self.task, completed=state.k - len(part), total=total)
        self.last = state.k
        note = describe_progress(part.J_hat.mean(0), self.b, state.lam, self.rate.after(int(part.steps.sum())))
        with drawing():
            self.bar.update(self.task, completed=state.k, total=total, note=note)

    def advance_to(self, done: int, total: int) -> None:
        with drawing():
            self.bar.update(self.task, completed=done)

    def reach(self, done: int, total: int) -> None:
        """Set the bar to `done` of `total` units."""
        with drawing():
            self.bar.update(self.task, completed=done, total=total)


class Rate:
    """A counter of steps per second, averaged over the last few seconds with exponential decay."""

    def __init__(self) -> None:
        self.steps, self.seconds, self.last = 0.0, 0.0, time.monotonic()

    def after(self, steps: int) -> float:
        """Count `steps` more steps and return the new rate per second.

        If the clock was set back since the last call, the time between the calls counts as 0.
        """
        elapsed = max(time.monotonic() - self.last, 0.0)
        self.last += elapsed
        fade = math.exp(-elapsed / 5)
        self.steps, self.seconds = fade * self.steps + steps, fade * self.seconds + elapsed
        return self.steps / max(self.seconds, 1e-9)


def describe_progress(J_hat: Any, b: Any, lam: Any, rate: float) -> str:
    """Return one line with steps per second, estimated reward, smallest estimated slack, and the multipliers λ."""
    parts = [f"{rate:.3g} steps/s"] if rate > 0 else []
    parts.append(f"J_r {J_hat[0]:.4g}")
    if len(b):
        parts.append(f"smallest slack {np.min(J_hat[1:] - b):+.3g}")
    if len(lam):
        parts.append("λ " + " ".join(f"{x:.3g}" for x in lam[:4]) + (" …" if len(lam) > 4 else ""))
    return "  ".join(parts)


class Board:
    """A writer of TensorBoard files with curves of estimated values, slacks, λ, the norm of the update, and steps."""

    def __init__(self, folder: str | Path, names: Sequence[str], b: Sequence[float]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboardX", "report") from None
        self.make, self.folder, self.writer = SummaryWriter, Path(folder), None
        self.names, self.b = clean_tags(names), np.asarray(b, float)

    def __enter__(self) -> Board:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise InputError(f"tensorboard {self.folder}: cannot write: {e.strerror or e}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()

    def update(self, part: Trace, state: State, total: int) -> None:
        """Write the iterations in `part`, which end at `state`; `total` is not used.

        After a resume, TensorBoard drops the events of repeated iterations (`purge_step`).
        """
        begin = state.k - len(part)
        if self.writer is None:
            own = f".{os.getpid()}.{begin}"  # else two files of one second have the same name
            self.writer = self.make(str(self.folder), purge_step=begin or None, filename_suffix=own)
        for i in np.unique(np.linspace(0, len(part) - 1, min(len(part), POINTS)).astype(int)):
            for tag, value in scalars(part, int(i), self.names, self.b).items():
                self.writer.add_scalar(tag, value, begin + int(i))


@contextmanager
def watchers(asked: Any, progress: Callable[..., None] | None, folder: str | Path | None) -> Iterator[Any]:
    """Yield one callback that calls `progress` and writes TensorBoard files to `folder`.

    Without a folder, yield `progress` itself, which may be None.

    asked  an object with the names and the limits b of the constraints
    """
    if folder is None:
        yield progress
        return
    with Board(folder, asked.names, asked.b) as board:
        yield board.update if progress is None else all_of(progress, board.update)


def clean_tags(names: Sequence[str]) -> list[str]:
    """Return the names as distinct TensorBoard tags, with letters, digits, dots and dashes only.

    >>> clean_tags(["wait", "=a/b", "?a/b"])
    ['wait', '_a_b', '_a_b_2']
    """
    return distinct(re.sub(r"[^-\w.]", "_", name)[:LONGEST_TAG] for name in names)


def scalars(part: Trace, i: int, names: Sequence[str], b: Any) -> dict[str, float]:
    """Return the points {tag: value} of all TensorBoard curves at iteration i of the trace `part`.

    names, b  the tags and the limits of the constraints
    """
    found = {"J_hat/reward": part.J_hat[i, 0], "omega_norm": part.omega_norm[i], "steps": part.steps[i]}
    if len(part.J):
        found["J/reward"] = part.J[i, 0]
    for c, name in enumerate(names):
        found[f"slack_hat/{name}"] = part.J_hat[i, 1 + c] - b[c]
        found[f"lam/{name}"] = part.lam[i, c]
        if len(part.J):
            found[f"slack/{name}"] = part.J[i, 1 + c] - b[c]
    return {tag: float(value) for tag, value in found.items()}


def all_of(*watchers: Callable[..., None]) -> Callable[..., None]:
    """Return one callback that calls all `watchers` with the arguments that it gets."""

    def update(*what: Any) -> None:
        for watcher in watchers:
            watcher(*what)

    return update
