"""What a run was asked for, as plain data, and back: methods, samplers, policy classes.

Only the kinds that clearance has itself are rebuilt from data; their names are looked up among the members of the
unions `Method`, `Direction` and `Sampler`, never imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from scipy import sparse

from clearance.direction import Direction
from clearance.errors import InputError
from clearance.files import digest, load_npz, save_json, save_npz
from clearance.methods import Method
from clearance.network import Policy, TwoLayer
from clearance.policy import SoftmaxPolicy, softmax
from clearance.problem import CMDP
from clearance.sample import Sampler
from clearance.simulator.problem import PROBLEM
from clearance.simulator.problem import describe as statement
from clearance.simulator.spaces import describe as space

SCHEMA = "clearance/features/1"


def described(x: Any, leave_out: tuple[str, ...] = ()) -> dict[str, Any]:
    """A dataclass as {"name": its kind, field: value, …}; fields that are dataclasses in the same way."""
    values = {f.name: getattr(x, f.name) for f in fields(x) if f.name not in leave_out}
    return {"name": type(x).__name__, **{n: described(v) if is_dataclass(v) else v for n, v in values.items()}}


def method_of(data: dict[str, Any] | None) -> Method | None:
    return made_method(data, get_args(Method), get_args(Direction))


def made_method(data: dict[str, Any] | None, methods: tuple[Any, ...], parts: tuple[Any, ...]) -> Any:
    """One of the methods, which may have parts that are dataclasses too; None for the default."""
    method = None if data is None else made(data, (*methods, *parts))
    if method is not None and not isinstance(method, methods):
        raise InputError(f"settings.json: {type(method).__name__} is no method: give it again")
    return method


def made(data: dict[str, Any], kinds: tuple[Any, ...], *first: Any) -> Any:
    """The dataclass that `described` was given; lists were tuples."""
    kind = {k.__name__: k for k in kinds}.get(data["name"])
    if kind is None:
        raise InputError(f"settings.json: {data['name']!r} is no kind that clearance can make: give it again")
    known = {f.name for f in fields(kind)}
    unknown = [name for name in data if name != "name" and name not in known]
    if unknown:
        raise InputError(f"settings.json: {data['name']} has no {unknown[0]}: was another version of clearance used?")
    return kind(*first, **{n: _value(v, kinds) for n, v in data.items() if n != "name"})


def _value(value: Any, kinds: tuple[Any, ...]) -> Any:
    if isinstance(value, dict):
        return made(value, kinds)
    return tuple(_value(v, kinds) for v in value) if isinstance(value, list) else value


def sampler_of(data: dict[str, Any], cmdp: CMDP, policy: Policy) -> Sampler:
    return made(data, get_args(Sampler), cmdp, policy)


def identity(problem: CMDP) -> str:
    """sha256 of what a problem is, however it was stored."""
    return digest("CMDP", problem.arrays())


def on_simulator(asked: dict[str, Any]) -> bool:
    """Whether these settings are of a run on a simulator."""
    return asked["policy"]["kind"] == "design"


class About(NamedTuple):
    """The problem of a run, as its folder has it: its sha256, the name of its file, and what writes that."""

    identity: str
    file: str
    save: Callable[[Path], None]


def about(problem: Any) -> About:
    """Of a finite model all of it; of a simulator what is asked of it, and its shapes."""
    if isinstance(problem, CMDP):
        return About(identity(problem), "problem.npz", problem.save)
    if not hasattr(problem, "statement"):
        raise InputError(f"the problem must be a CMDP or a simulator, got {type(problem).__name__}")
    data = described_problem(problem)
    return About(digest(data), "problem.json", lambda path: save_json(path, data))


def described_problem(simulator: Any) -> dict[str, Any]:
    """problem.json: the statement, and all that the bits of a run depend on beside the simulator's code."""
    shapes = {"observation": list(simulator.obs_shape), "action": space(simulator.action), "lanes": simulator.n}
    return {"schema": PROBLEM, **statement(simulator.statement), **shapes}


# -------------------------------------------------------------------------------------------------- the policy class


def kind_of(policy: Policy, cmdp: CMDP) -> str:
    """ "tabular" for the softmax over all actions, which needs no file; "features" or "network"."""
    if isinstance(policy, TwoLayer):
        return "network"
    return "tabular" if policy.tabular and np.array_equal(np.isfinite(policy.bias), cmdp.available) else "features"


def save_class(path: Path, policy: Policy) -> None:
    arrays: dict[str, Any] = {"S": policy.S, "A": policy.A, "available": np.isfinite(policy.bias)}
    if isinstance(policy, TwoLayer):
        arrays |= {"x": policy.x, "m": policy.m, "seed": policy.seed}
    else:
        m = policy.matrix
        arrays |= {"data": m.data, "indices": m.indices, "indptr": m.indptr, "shape": np.array(m.shape)}
        arrays["tabular"] = policy.tabular
    save_npz(path, {"schema": np.array(SCHEMA), **arrays})


def policy_of(folder: Path, data: dict[str, Any], cmdp: CMDP) -> Policy:
    """The policy class of a run folder."""
    if data["kind"] == "tabular":
        return softmax(cmdp.S, cmdp.A, cmdp.available)
    z = load_npz(folder / "features.npz")
    S, A = int(z["S"]), int(z["A"])
    if data["kind"] == "network":
        return TwoLayer(S, A, z["x"], int(z["m"]), int(z["seed"]), z["available"])
    matrix = sparse.csr_array((z["data"], z["indices"], z["indptr"]), shape=tuple(z["shape"]))
    return SoftmaxPolicy(S, A, matrix, bool(z["tabular"]), z["available"])
