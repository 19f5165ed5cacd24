"""Write policies with the names of states and actions, as table (.csv) or JSON, or as plain arrays (.npz)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clearance.core.atomic_files import save_json
from clearance.core.csv_files import write_csv
from clearance.core.errors import InputError
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture

SUFFIXES = (".npz", ".csv", ".json")


def save_policy(policy: Any, path: str | Path, model: CMDP | None = None) -> None:
    """Write a policy of a finite model with the names of its states and actions, or with their numbers.

    policy   probabilities [S, A], an action for each state [S], a Mixture, an Optimum or a Solution
    path     .csv with the columns state, action, probability (of a mixture also component and weight, with a
             horizon also time), .json, or .npz

    Actions with probability 0 are left out of .csv and .json.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: must end in one of {', '.join(SUFFIXES)}")
    mixture = read_policy(policy, model)
    if suffix == ".npz":
        mixture.save(path)
    elif suffix == ".csv":
        _write_csv(path, mixture, model)
    else:
        _write_json(path, mixture, model)


def read_policy(policy: Any, model: CMDP | None) -> Mixture:
    """Return the policy as a mixture, checked against the model if that is given."""
    policy = getattr(policy, "policy", policy)
    if not isinstance(policy, Mixture):
        if model is not None and np.ndim(policy) == 1:
            policy = Mixture.of_actions(policy, model.S, model.A)
        else:
            policy = Mixture.single(policy)
    if model is not None:
        policy.check(model)
    return policy


def _rows(mixture: Mixture, model: CMDP | None) -> Iterator[tuple[int, int | None, str, str, float]]:
    """Yield (component, time, state, action, probability); time is None if the policy does not depend on it."""
    S, A = mixture.pi.shape[-2:]
    states = model.states if model is not None and model.states else [str(s) for s in range(S)]
    actions = model.actions if model is not None and model.actions else [str(a) for a in range(A)]
    for at in np.argwhere(mixture.pi > 0).tolist():
        m, *time, s, a = at
        yield m, time[0] if time else None, states[s], actions[a], float(mixture.pi[tuple(at)])


def _write_csv(path: str | Path, mixture: Mixture, model: CMDP | None) -> None:
    several, timed = mixture.M > 1, mixture.pi.ndim == 4
    heads = [*(("component", "weight") if several else ()), *(("time",) if timed else ())]
    rows = (
        [*([m, float(mixture.weights[m])] if several else ()), *([t] if timed else ()), *row]
        for m, t, *row in _rows(mixture, model)
    )
    write_csv(path, [*heads, "state", "action", "probability"], rows)


def _write_json(path: str | Path, mixture: Mixture, model: CMDP | None) -> None:
    """Write a list `components`, each with its weight and its policy {state: {action: probability}}.

    One component is drawn per episode. With a horizon, a policy is {time: {state: {action: probability}}}.
    """
    components: list[dict[str, Any]] = [{"weight": float(w), "policy": {}} for w in mixture.weights]
    for m, t, state, action, p in _rows(mixture, model):
        table = components[m]["policy"] if t is None else components[m]["policy"].setdefault(str(t), {})
        table.setdefault(state, {})[action] = p
    save_json(path, {"schema": "clearance/policy-table/1", "components": components})
