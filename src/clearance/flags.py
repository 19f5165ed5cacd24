"""What the flags of the command line may be: numbers that are finite and in range, places that can be written."""

from __future__ import annotations

import math
import os
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from clearance.errors import InputError


def whole(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a whole number, got {text!r}") from None
    if not -(2**63) <= value < 2**63:  # what the compiled kernels count with
        raise ArgumentTypeError(f"must be below 2**63 in size, got {text}")
    return value


def count(most: int, least: int = 1) -> Callable[[str], int]:
    """Whole numbers from `least` to `most`."""

    def read(text: str) -> int:
        value = whole(text)
        if not least <= value <= most:
            raise ArgumentTypeError(f"must be in {least}..{most}, got {text}")
        return value

    return read


def real(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"must be a number, got {text!r}") from None
    if not math.isfinite(value):
        raise ArgumentTypeError(f"must be finite, got {text!r}")
    return value


def non_negative(text: str) -> float:
    value = real(text)
    if value < 0:
        raise ArgumentTypeError(f"must be ≥ 0, got {text}")
    return value


def margin(text: str) -> float | tuple[float, ...] | str:
    """κ: auto, one number, or one for each constraint with commas between them."""
    if text == "auto":
        return text
    first, *others = (non_negative(part) for part in text.split(","))
    return (first, *others) if others else first


def one_or_pair(text: str) -> float | tuple[float, float]:
    """One number, or two with a comma between them."""
    numbers = [real(part) for part in text.split(",")]
    if len(numbers) > 2:
        raise ArgumentTypeError(f"must be one number, or two with a comma between them, got {text!r}")
    return numbers[0] if len(numbers) == 1 else (numbers[0], numbers[1])


def pair(text: str) -> tuple[float, float]:
    """Two numbers with a comma between them."""
    numbers = one_or_pair(text)
    if not isinstance(numbers, tuple):
        raise ArgumentTypeError(f"must be two numbers with a comma between them, got {text!r}")
    return numbers


def reals(text: str) -> list[float]:
    """Numbers with commas between them."""
    return [real(part) for part in text.split(",")]


def probability(text: str) -> float:
    value = real(text)
    if not 0 < value < 1:
        raise ArgumentTypeError(f"must be in (0, 1), got {text}")
    return value


def steps(text: str) -> float:
    """A number of environment steps; 1e7 is easier to read than 10000000."""
    value = real(text)
    if value < 1:
        raise ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def every(text: str) -> str:
    """How often: a time, or a number of iterations."""
    from clearance.store import Every

    try:
        Every.of(text)
    except InputError:
        raise ArgumentTypeError(f"must be a time as 30s, 5m or 2h, or a number of iterations, got {text!r}") from None
    return text


def cluster(text: str) -> str:
    """Who does the work: local, ray, or where a Ray cluster answers."""
    from clearance.keeper import host_and_port

    try:
        _ = text in ("local", "ray") or host_and_port(text)
    except InputError as e:
        raise ArgumentTypeError(str(e).removeprefix("cluster ")) from None
    return text


def add_cluster(p: ArgumentParser, *, workers: bool = False) -> None:
    if workers:
        p.add_argument("--workers", type=count(100_000), help="of a simulator or certificate on Ray (all of its cores)")
    p.add_argument(
        "--cluster",
        type=cluster,
        metavar="ray|ADDRESS",
        help="run on Ray: one on this machine (ray), or the cluster at HOST:PORT or ray://HOST:PORT (threads)",
    )


def place(text: str) -> str:
    """A path; an empty one would be taken for none."""
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
    if suffixes and not out.endswith(suffixes):
        raise InputError(f"{flag} {out}: must end in one of {', '.join(suffixes)}")
    _check_writable(out, flag)
    if os.path.isdir(out):
        raise InputError(f"{flag} {out}: is a folder; give the name of a file")
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
