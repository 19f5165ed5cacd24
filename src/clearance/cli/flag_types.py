"""Argument types for argparse, made from the parsers of `field_values`, and checks of output paths."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clearance.core.errors import InputError


def flag(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return the parser `parse` as an argparse type: its InputError becomes an error that argparse reports."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except InputError as e:
            raise ArgumentTypeError(str(e)) from None

    return read


def count(most: int, least: int = 1) -> Callable[[str], int]:
    """Return an argparse type that accepts whole numbers from `least` to `most`."""
    from clearance.runs.field_values import whole_between

    return flag(whole_between(least, most))


def every(text: str) -> str:
    """Check that a text is a checkpoint interval (a time or a number of iterations), and return the text."""
    from clearance.runs.run_writer import Every

    try:
        Every.of(text)
    except InputError:
        raise ArgumentTypeError(f"must be a time as 30s, 5m or 2h, or a number of iterations, got {text!r}") from None
    return text


def cluster(text: str) -> str:
    """Check that a text is "local", "ray" or the address of a Ray cluster, and return the text."""
    from clearance.cluster.ray_process import parse_address

    try:
        _ = text in ("local", "ray") or parse_address(text)
    except InputError as e:
        raise ArgumentTypeError(str(e).removeprefix("cluster ")) from None
    return text


def add_cluster(p: ArgumentParser | Any, *, workers: bool = False) -> None:
    if workers:
        p.add_argument("--workers", type=count(100_000), help="number of Ray workers (default: all cores)")
    p.add_argument(
        "--cluster",
        type=cluster,
        metavar="ray|ADDRESS",
        help="run on a Ray cluster: start one for this command (ray), or join the one at HOST:PORT or ray://HOST:PORT "
        "(default: threads on this machine)",
    )


def place(text: str) -> str:
    """Return a path unchanged; raise ArgumentTypeError if it is empty."""
    if not text:
        raise ArgumentTypeError("must be a path, got an empty text")
    return text


# Places are checked before the work, so that hours of it are not lost at the end.


def check_new_folder(out: str) -> None:
    check_folder(out)
    if os.path.isdir(out) and os.listdir(out):
        raise InputError(f"--out {out}: exists and is not an empty folder; choose another, or --resume it")


def check_folder(out: str) -> None:
    _check_writable(out)
    if os.path.lexists(out) and not os.path.isdir(out):
        raise InputError(f"--out {out}: exists and is not a folder; choose another")


def check_file(out: str, problem: str, suffixes: tuple[str, ...] = (), flag: str = "--out") -> None:
    if os.path.isdir(out):
        raise InputError(f"{flag} {out}: is a folder; give the name of a file")
    if suffixes and not out.endswith(suffixes):
        raise InputError(f"{flag} {out}: must end in one of {', '.join(suffixes)}")
    _check_writable(out, flag)
    if not os.path.isdir(os.path.dirname(out) or "."):
        raise InputError(f"{flag} {out}: there is no folder {os.path.dirname(out)}; make it first")
    if os.path.exists(out) and os.path.exists(problem) and os.path.samefile(out, problem):
        raise InputError(f"{flag} {out}: is the model itself; choose another")


def _check_writable(out: str, flag: str = "--out") -> None:
    try:
        os.lstat(out)
    except FileNotFoundError:
        pass
    except OSError as e:  # a parent that is a file, a name that is too long, a folder that may not be searched
        raise InputError(f"{flag} {out}: cannot write: {e.strerror or e}") from None
    nearest = next((p for p in (Path(out), *Path(out).parents) if os.path.exists(p)), Path())
    if not os.access(nearest, os.W_OK):
        raise InputError(f"{flag} {out}: cannot write: no permission in {nearest}")
