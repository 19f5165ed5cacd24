"""Convert methods, samplers and policy classes to plain data for the run folder, and back.

Only classes of clearance are rebuilt from data: their names are looked up in tables, never imported. To resume a run
with a user's own method, the method must be passed again.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from clearance.core.array_files import read_arrays
from clearance.core.atomic_files import save_npz
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath, Inside
from clearance.finite.cmdp import CMDP
from clearance.finite.softmax_policy import SoftmaxPolicy, softmax
from clearance.finite.two_layer_policy import Policy, TwoLayer

SCHEMA = "clearance/features/1"
ARRAYS = {
    "network": ("S", "A", "available", "x", "m", "seed"),
    "features": ("S", "A", "available", "data", "indices", "indptr", "shape", "tabular"),
}


def describe(x: Any, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a dataclass x as {"name": name of its class, field: value, …}; fields that are dataclasses are nested.

    leave_out  names of fields that are not stored
    """
    if not is_dataclass(x):
        raise InputError(f"{type(x).__name__} must be a dataclass: a run folder stores its fields")
    values = {f.name: getattr(x, f.name) for f in fields(x) if f.name not in leave_out}
    return {"name": type(x).__name__, **{n: describe(v) if is_dataclass(v) else v for n, v in values.items()}}


def restore(data: dict[str, Any], kinds: tuple[Any, ...], *first: Any) -> Any:
    """Rebuild a dataclass from the data that `describe` returned; JSON lists become tuples.

    kinds  the classes that may be rebuilt;  first: positional arguments of the class that `describe` left out
    """
    kind = {k.__name__: k for k in kinds}.get(data["name"])
    if kind is None:
        raise InputError(f"settings.json: {data['name']!r} is no class of clearance's: give it again")
    known = {f.name for f in fields(kind)}
    unknown = [name for name in data if name != "name" and name not in known]
    if unknown:
        raise InputError(f"settings.json: {data['name']} has no {unknown[0]}: was another version of clearance used?")
    return kind(*first, **{n: _value(v, kinds) for n, v in data.items() if n != "name"})


def _value(value: Any, kinds: tuple[Any, ...]) -> Any:
    if isinstance(value, dict):
        return restore(value, kinds)
    return tuple(_value(v, kinds) for v in value) if isinstance(value, list) else value


# -------------------------------------------------------------------------------------------------- the policy class


def kind_of_policy(policy: Policy, cmdp: CMDP) -> str:
    """Return the kind of a policy class: "tabular", "features" or "network".

    "tabular" means softmax over all available actions. It needs no file in the run folder; the other kinds do.
    """
    if isinstance(policy, TwoLayer):
        return "network"
    return "tabular" if policy.tabular and np.array_equal(np.isfinite(policy.bias), cmdp.available) else "features"


def save_policy_class(path: AnyPath, policy: Policy) -> None:
    arrays: dict[str, Any] = {"S": policy.S, "A": policy.A, "available": np.isfinite(policy.bias)}
    if isinstance(policy, TwoLayer):
        arrays |= {"x": policy.x, "m": policy.m, "seed": policy.seed}
    else:
        m = policy.matrix
        arrays |= {"data": m.data, "indices": m.indices, "indptr": m.indptr, "shape": np.array(m.shape)}
        arrays["tabular"] = policy.tabular
    save_npz(path, {"schema": np.array(SCHEMA), **arrays})


def load_policy_class(folder: Path, data: dict[str, Any], cmdp: CMDP) -> Policy:
    """Load the policy class of a run folder; `data` is its description in the settings."""
    if data["kind"] == "tabular":
        return softmax(cmdp.S, cmdp.A, cmdp.available)
    z = read_arrays(Inside(folder, "features.npz"), ARRAYS[data["kind"]])
    S, A = int(z["S"]), int(z["A"])
    if data["kind"] == "network":
        return TwoLayer(S, A, z["x"], int(z["m"]), int(z["seed"]), z["available"])
    matrix = sparse.csr_array((z["data"], z["indices"], z["indptr"]), shape=tuple(z["shape"]))
    return SoftmaxPolicy(S, A, matrix, bool(z["tabular"]), z["available"])


def as_json(data: Any) -> Any:
    """Return the data as it would be after writing and reading JSON: tuples become lists."""
    if isinstance(data, dict):
        return {name: as_json(value) for name, value in data.items()}
    return [as_json(value) for value in data] if isinstance(data, tuple | list) else data
