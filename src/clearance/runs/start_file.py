"""Read and write start.npz, the point at which learning began if the user gave `init`.

A resumed run begins at the same point.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from clearance.certificates.certificate import Certificate
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.learning.recorder import Position
from clearance.learning.sampler import Sampler
from clearance.learning.state import State
from clearance.runs import checkpoint
from clearance.runs.run_reader import RunFolder
from clearance.runs.worlds.world import Start

START = "start.npz"
STORED = ("theta", "lam", "memory", "candidates", "steps")
BY_RULE = "the rule "  # how the origin of an imitated rule begins


def save_start(path: AnyPath, start: Start) -> None:
    """Write the start of a run to a file; a rule is left out, because it is code."""
    checkpoint.save(path, {name: getattr(start, name) for name in STORED}, {}, "")


def read_start(path: AnyPath, sampler: Sampler, origin: str, rule: Callable[[Any], Any] | None) -> Start:
    """Read the start of a run from a file.

    origin  the description of where the start comes from;  rule: the rule that the run began from, which must be given
            again because it is code; None if the run did not begin from a rule
    """
    if (rule is None) == origin.startswith(BY_RULE):
        what = "began without a rule: leave out init" if rule is not None else f"began from {origin}: give init=rule"
        raise InputError(f"{path}: this run {what}")
    found, theta, memory = checkpoint.load(path), sampler.policy.init(), sampler.begin()
    like = {"theta": theta, "lam": np.zeros(sampler.statement.I), "memory": memory, "candidates": theta[None][:0]}
    parts: dict[str, Any] = {name: found.rebuilt(like.get(name), name) for name in STORED}
    start = Start(**parts, origin=origin, rule=rule)
    for name in like:
        if name != "candidates" and not same_shapes(getattr(start, name), like[name]):
            raise InputError(f"{path}: {name} does not fit the run; solve again in another folder")
    return start


def same_shapes(found: Any, like: Any) -> bool:
    """Return whether `found` has the same structure, shapes and types as `like`.

    Both are nested tuples of arrays and numbers.
    """
    if isinstance(like, tuple | list):
        fits = isinstance(found, tuple | list) and len(found) == len(like)
        return fits and all(same_shapes(a, b) for a, b in zip(found, like, strict=True))
    if like is None or found is None:
        return like is found
    return np.shape(found) == np.shape(like) and getattr(found, "dtype", None) == getattr(like, "dtype", None)


def last_state(run: RunFolder, sampler: Sampler) -> State | None:
    """Return the state after the last iteration that is stored in a run folder; None if there is no checkpoint.

    `sampler` provides the types for the sampler's memory, which is part of the state.
    """
    names = sorted(name for name in run.manifest["files"] if name.startswith("checkpoint/"))
    if not names:
        return None
    like = Position(State(np.zeros(0), np.zeros(0), 0, sampler.begin()), None)
    return checkpoint.load(run.path(names[-1]), run.manifest.get("run")).rebuilt(like, "at").state


def describe_run(run: RunFolder) -> str:
    """Return a phrase that names this run, for the certificate of a later run that begins from it."""
    return f"run {run.manifest.get('run') or 'of version 0.1'}{describe_verdict(run.certificate)}"


def describe_verdict(certificate: Certificate | None) -> str:
    return "" if certificate is None else f", {certificate.verdict} there with J_r = {certificate.J_r:.6g}"
