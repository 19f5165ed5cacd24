"""Write policies with the names of states and actions, as a table (.csv) or JSON, or as plain arrays (.npz).

`load_policy` and `certify` read these files (`core.policy_tables`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from clearance.certificates.certificate import Certificate
from clearance.certificates.certificate_fields import certificate_text
from clearance.core.atomic_files import save_json
from clearance.core.csv_files import write_csv
from clearance.core.errors import InputError
from clearance.core.policy_tables import SCHEMA
from clearance.core.text import suggest
from clearance.exact.exact_certificate import certify_exactly
from clearance.exact.optimum import Optimum
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.finite.named_policy import policy_by_names

SUFFIXES = (".npz", ".csv", ".json")


def save_policy(
    policy: Any, path: str | Path, model: CMDP | None = None, *, certificate: Certificate | None = None
) -> None:
    """Write a policy of a finite model with the names of its states and actions, or with their indices.

    policy   probabilities [S, A], an action for each state [S] or by name {state: action}, a Mixture, an Optimum or a
             Solution
    path     .csv, .json or .npz; the columns of .csv are state, action and probability, for a mixture also component
             and weight, and with a horizon also time
    model    the model, for the names; default: that of a Solution
    certificate  the certificate of the policy, which .json and .npz files store without its proof. By default it is
                 that of a Solution; for an Optimum it is computed if the model is given

    Actions with probability 0 are left out of .csv and .json. Raise InputError for an Optimum whose status is
    "infeasible": its policy breaks the limits.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: must end in one of {', '.join(SUFFIXES)}")
    if isinstance(policy, Optimum) and policy.status == "infeasible":
        words = "no policy meets the limits, and this one breaks them (status infeasible)"
        raise InputError(f"{path} was not written: {words}; to write it all the same, give its .policy")
    problem = getattr(policy, "problem", None)
    model = problem if model is None and isinstance(problem, CMDP) else model
    mixture = read_policy(policy, model)
    if suffix == ".csv":
        return _write_csv(path, mixture, model)
    if certificate is None:
        certificate = _certificate_of(policy, mixture, model)
    if suffix == ".npz":
        mixture.save(path, certificate, model)
    else:
        _write_json(path, mixture, model, certificate)


def _certificate_of(policy: Any, mixture: Mixture, model: CMDP | None) -> Certificate | None:
    if isinstance(policy, Optimum):
        return None if model is None else certify_exactly(model, mixture, policy)
    return getattr(policy, "certificate", None)


def read_policy(policy: Any, model: CMDP | None) -> Mixture:
    """Return a policy (table, Mixture, Optimum, Solution or path) as a mixture; with `model`, check that it fits."""
    policy = getattr(policy, "policy", policy)
    if isinstance(policy, str | Path):
        policy = Mixture.load(policy, model)
    if not isinstance(policy, Mixture):
        named = None if model is None else policy_by_names(policy, model)
        if named is not None:
            policy = named
        elif model is not None and np.ndim(policy) == 1:
            policy = Mixture.of_actions(policy, model.S, model.A)
        else:
            policy = Mixture.single(policy)
    if model is not None:
        policy.check(model)
    return policy


def actions_at(
    model: CMDP, policy: Any, state: str | int, *, t: int = 0, component: int | None = None
) -> dict[Any, float]:
    """Return {action: probability} for the actions that a policy takes in a state.

    The keys are the names of the actions or, if they have no names, their indices.

    policy     as for `save_policy`, or the path of a file
    state      the name or the index of the state
    t          the step, if the model has a horizon
    component  the index of the policy in a mixture, from 0

    >>> import clearance as cl
    >>> model = cl.zoo.two_state()
    >>> cl.actions_at(model, [0, 1], 1)
    {'safe': 1.0}
    """
    mixture = read_policy(policy, model)
    if component is None and mixture.M > 1:
        raise InputError(f"this policy is a mixture of {mixture.M}: give component=0 to {mixture.M - 1}")
    table = mixture.tables(model)[component or 0]
    if model.horizon is not None:
        if not 0 <= t < model.horizon:
            raise InputError(f"t must be a step of the horizon, 0 to {model.horizon - 1}, got {t!r}")
        table = table[t]
    p = table[find_state(model, state)]
    names = model.actions or range(model.A)
    return {names[a]: float(p[a]) for a in np.flatnonzero(p).tolist()}


def find_state(model: CMDP, state: str | int) -> int:
    """Return the index of a state, given by its name or number; raise InputError if the model has no such state."""
    if isinstance(state, str):
        known = model.states or tuple(map(str, range(model.S)))
        if state not in known:
            raise InputError(f"{state[:40]!r} is no state of this model{suggest(state, known)}")
        return known.index(state)
    if not 0 <= state < model.S:
        raise InputError(f"state must be a name, or a number in 0..{model.S - 1}, got {state!r}")
    return int(state)


def _rows(mixture: Mixture, model: CMDP | None) -> Iterator[tuple[int, int | None, str, str, float]]:
    """Yield (component, time, state, action, probability); time is None if the policy does not depend on the time."""
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


def _write_json(path: str | Path, mixture: Mixture, model: CMDP | None, certificate: Certificate | None) -> None:
    """Write a policy as JSON: a list `components`, each with its weight and its policy {state: {action: probability}}.

    One component is drawn per episode. With a horizon, a policy is {time: {state: {action: probability}}}.
    """
    components: list[dict[str, Any]] = [{"weight": float(w), "policy": {}} for w in mixture.weights]
    for m, t, state, action, p in _rows(mixture, model):
        table = components[m]["policy"] if t is None else components[m]["policy"].setdefault(str(t), {})
        table.setdefault(state, {})[action] = p
    said = None if certificate is None else json.loads(certificate_text(certificate))
    save_json(path, {"schema": SCHEMA, "components": components, "certificate": said})
