"""Policies that are written by the names of states and actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clearance.core.errors import InputError
from clearance.core.text import suggest
from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture


def policy_by_names(policy: Any, cmdp: CMDP) -> Mixture | None:
    """Return the policy if it is given by names, else None.

    policy  {state: action}, {state: {action: probability}}, or a list with one action name for each state

    >>> model = CMDP(P=np.ones((1, 2, 1)), r=[[1.0, 0.0]], gamma=0.5, states=["up"], actions=["run", "wait"])
    >>> policy_by_names({"up": {"run": 0.25, "wait": 0.75}}, model).pi.tolist()
    [[[0.25, 0.75]]]
    """
    if isinstance(policy, Mapping):
        return Mixture.single(_table(policy, cmdp))
    if isinstance(policy, list | tuple) and policy and all(isinstance(name, str) for name in policy):
        return Mixture.of_actions([_find("action", name, cmdp.actions, cmdp.A) for name in policy], cmdp.S, cmdp.A)
    return None


def _table(policy: Mapping[Any, Any], cmdp: CMDP) -> Any:
    pi, seen = np.zeros((cmdp.S, cmdp.A)), np.zeros(cmdp.S, bool)
    for state, choice in policy.items():
        s = _find("state", state, cmdp.states, cmdp.S)
        seen[s] = True
        for action, p in (choice if isinstance(choice, Mapping) else {choice: 1.0}).items():
            pi[s, _find("action", action, cmdp.actions, cmdp.A)] = p
    if not seen.all():
        s = int(np.argmin(seen))
        missing = s if cmdp.states is None else repr(cmdp.states[s])
        raise InputError(f"policy has no action for state {missing}; give one for each of {cmdp.S} states")
    return pi


def _find(kind: str, name: Any, names: Sequence[str] | None, n: int) -> int:
    """Return the index of the state or action `name`, which is given by its name or by its index.

    kind   "state" or "action", for messages
    names  all names in their order; None stands for "0", "1", …, "n−1"
    """
    if isinstance(name, int | np.integer) and 0 <= name < n:
        return int(name)
    known = names or tuple(map(str, range(n)))
    if str(name) not in known:
        raise InputError(f"policy: {str(name)[:40]!r} is no {kind} of this model{suggest(str(name), known)}")
    return known.index(str(name))
