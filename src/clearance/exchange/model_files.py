"""Load models from files and save them; the suffix of the file determines the format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clearance.core.errors import InputError
from clearance.core.keywords import not_called
from clearance.core.statement import read_lower_limits
from clearance.exchange.drn_format import read_drn, write_drn
from clearance.exchange.explicit_model import ExplicitModel, build_cmdp, check_criterion, read_start
from clearance.exchange.prism_format import read_prism
from clearance.exchange.prism_source import read_prism_source
from clearance.exchange.table_format import from_table, write_table
from clearance.exchange.umb_format import read_umb, write_umb
from clearance.finite.cmdp import CMDP

# Formats with several named rewards.
READERS: Mapping[str, Callable[[str | Path], ExplicitModel]] = {
    ".drn": read_drn,
    ".umb": read_umb,
    ".tra": read_prism,
    ".prism": read_prism_source,
    ".nm": read_prism_source,
}
WRITERS: Mapping[str, Callable[[CMDP, str | Path], None]] = {
    ".npz": CMDP.save,
    ".csv": write_table,
    ".drn": write_drn,
    ".umb": write_umb,
}
BESIDE_TRA = (".lab", ".srew", ".trew", ".sta")
IMPORTED = (".csv", *READERS)  # these need a criterion, and have no limits


@not_called("limit", "limits")
def load_model(
    path: str | Path,
    *,
    gamma: float | None = None,
    criterion: str | None = None,
    horizon: int | None = None,
    reward: str | None = None,
    limits: Mapping[str, float] | None = None,
    b: Mapping[str, float] | None = None,
    initial: Any = None,
) -> CMDP:
    """Load the model in a file: .npz, .csv, .drn (Storm), .umb, .tra (PRISM), or .prism and .nm with stormpy.

    gamma, criterion, horizon  the criterion, as in `CMDP`
    reward   the name of the reward to maximise; with a minus before it ("-time"), it is minimised
    limits   upper limits of costs by name
    b        lower limits of utilities by name
    initial  the state to start in, or {state: probability}; default: as in the file

    An .npz file contains criterion, limits and start already; arguments that are given replace them. Its reward is
    fixed.
    """
    suffix = Path(path).suffix.lower()
    how = {"gamma": gamma, "criterion": criterion, "horizon": horizon}
    how |= {"reward": reward, "limits": limits, "b": b, "initial": initial}
    if suffix in READERS:
        if Path(path).exists():  # report missing arguments before errors in the file
            check_criterion(str(path), gamma, criterion, horizon)
        return build_cmdp(READERS[suffix](path), **how)
    if suffix == ".csv":
        return from_table(path, **how)
    if suffix in BESIDE_TRA:
        raise InputError(f"{path}: is read with its .tra file; give that one")
    if suffix != ".npz" and any(value is not None for value in how.values()):
        raise InputError(f"{path}: must end in one of .npz, {', '.join(IMPORTED)}")
    return restate_model(CMDP.load(path), str(path), **how)


def _check_limits_fit(model: CMDP, other: CMDP) -> None:
    """Raise InputError if limits on sums would become limits on long-run means, or the reverse.

    A limit of 3 on a sum does not mean the same as a limit of 3 on a mean.
    """
    if "average" in {model.kind, other.kind} and model.kind != other.kind and model.b.any():
        one, two = ("a sum", "long-run means per step") if other.kind == "average" else ("a long-run mean", "sums")
        stated = ", ".join(model.limits_in_words)
        raise InputError(f"limits: {stated} is stated for {one}; give limits for {two}, too")


def restate_model(
    model: CMDP,
    source: str,
    *,
    gamma: float | None = None,
    criterion: str | None = None,
    horizon: int | None = None,
    reward: str | None = None,
    limits: Any = None,
    b: Any = None,
    initial: Any = None,
) -> CMDP:
    """Return the model with another criterion, other limits or another start; error messages name the file `source`.

    limits   upper limits of the costs, by name or in order
    b        lower limits of the utilities, by name or in order
    initial  a state, by name or index, or {state: probability}
    reward   must be None, since a model has only one reward
    """
    if reward is not None:
        raise InputError(f"reward: {source} has one reward only; leave it out")
    try:
        if limits is not None:
            model = model.replace(limit=limits)
        if b is not None:
            model = model.replace(b=read_lower_limits(b, model.b, model.costs, model.names))
        rho = None if initial is None else read_start(model, initial)
        found = model.replace(gamma=gamma, criterion=criterion, horizon=horizon, rho=rho)
        if limits is None and b is None:
            _check_limits_fit(model, found)
        return found
    except InputError as e:
        raise InputError(f"{source}: {e}") from None


def save_model(model: CMDP, path: str | Path) -> None:
    """Write a model as .npz (complete), or as .csv, .drn or .umb (without discount factor and limits)."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise InputError(f"{path}: must end in one of {', '.join(WRITERS)}")
    WRITERS[suffix](model, path)
