"""Limit the probability of ever entering some states, or of reaching a goal, by an undiscounted constraint.

Only the first entry counts. If no run can leave the set, it is entered at most once, so the probability equals the
expected number of entries. Otherwise a flag is added to the state, [not yet entered | entered], which doubles the
number of states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import check_model
from clearance.finite.cmdp import CMDP
from clearance.finite.support_graph import Mask, pair_graph

ENTERED = "{} (entered {})"  # the name of a state after the set was entered


def limit_reach(
    cmdp: CMDP,
    states: Any,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
    name: str = "reach",
) -> CMDP:
    """Return the model with one more constraint: on the probability of ever entering, or starting in, given states.

    cmdp      a model with criterion="total", or with a horizon and no discount; then only the first H steps count
    states    the given states, as indices, names, or a mask [S]
    at_most   an upper limit of the probability (shown as a cost). The limit 0 means never; it is proven from the
              possible transitions alone
    at_least  a lower limit of the probability, instead of `at_most`, for states that are a goal
    name      name of the new constraint

    If runs can leave the given states, the number of states doubles: state S + s is state s after one of them was
    entered. Policies of the new model then have a row for each of the 2S states.

    >>> P = np.zeros((3, 2, 3)); P[0, 0, 1] = P[0, 1, 2] = P[1, :, 1] = P[2, :, 2] = 1
    >>> limit_reach(CMDP(P, [[1.0, 0], [0, 0], [0, 0]], rho=[1, 0, 0], criterion="total"), [1], at_most=0.25).b
    array([-0.25])
    """
    check_model(cmdp)
    if cmdp.gamma != 1 or cmdp.kind == "average":
        raise InputError("limit_reach needs undiscounted sums: state the model with criterion='total', or horizon=H")
    if (at_most is None) == (at_least is None):
        raise InputError("limit_reach needs one of at_most and at_least")
    limit = at_most if at_least is None else at_least
    if not 0 <= float(limit or 0.0) <= 1:
        raise InputError(f"a probability is between 0 and 1, got {limit!r}")
    goal = _read_states(cmdp, states)
    model = cmdp if _is_absorbing(cmdp, goal) else _with_flag(cmdp, goal, name)
    enters = _entering(cmdp, goal)
    if model is not cmdp:
        enters = np.concatenate([enters, np.zeros_like(enters)])
    sign = -1.0 if at_least is None else 1.0
    inside = float(cmdp.rho[goal].sum())  # a run that starts in the set has entered it
    h = np.concatenate([model.h, sign * enters[None]])
    b = np.append(model.b, sign * (float(limit or 0.0) - inside))
    found = model.replace(h=h, b=b, names=[*model.names, name])
    object.__setattr__(found, "costs", (*cmdp.costs, at_least is None))
    averaged = np.zeros(cmdp.h.shape, bool) if cmdp.averaged is None else cmdp.averaged
    averaged = np.concatenate([averaged] * (model.S // cmdp.S), axis=1)  # after the set was entered as before
    return found.with_averaged(np.concatenate([averaged, ((enters > 0) & (enters < 1))[None]]))  # entering is chance


def _read_states(cmdp: CMDP, states: Any) -> Mask:
    given = np.asarray(states)
    if given.dtype.kind == "b" and given.shape == (cmdp.S,):
        return given
    found = np.zeros(cmdp.S, bool)
    for state in np.atleast_1d(given).tolist() if not isinstance(states, str) else [states]:
        found[_number_of(cmdp, state)] = True
    if not found.any():
        raise InputError("states is empty: name at least one")
    return found


def _number_of(cmdp: CMDP, state: Any) -> int:
    if isinstance(state, str) and cmdp.states is not None and state in cmdp.states:
        return cmdp.states.index(state)
    if isinstance(state, int) and not isinstance(state, bool) and 0 <= state < cmdp.S:
        return state
    raise InputError(f"states: {state!r} is no state; there are {cmdp.S}" + (", by name" if cmdp.states else ""))


def _is_absorbing(cmdp: CMDP, goal: Mask) -> bool:
    """Return whether no transition leaves the states in `goal` [S]."""
    _, s, s_next = pair_graph(cmdp)
    return not np.any(goal[s] & ~goal[s_next])


def _entering(cmdp: CMDP, goal: Mask) -> Array:
    """Return the probability [S, A] of entering the states in `goal` in the next step; 0 if the state is in `goal`.

    Rows of P are divided by their sums.
    """
    rows = cmdp.rows
    into = np.asarray(rows @ goal.astype(float)).reshape(cmdp.S, cmdp.A)
    total = np.asarray(rows.sum(axis=1)).reshape(cmdp.S, cmdp.A)
    share = np.where(_surely(cmdp, goal), 1.0, into / np.where(total > 0, total, 1.0))
    return np.where(goal[:, None] | ~cmdp.available, 0.0, share)


def _surely(cmdp: CMDP, goal: Mask) -> Mask:
    """Return a mask [S, A] of the available pairs that lead to a state in `goal` [S] with certainty."""
    pair, _, s_next = pair_graph(cmdp)
    found = cmdp.available.ravel().copy()
    found[pair[~goal[s_next]]] = False
    return found.reshape(cmdp.S, cmdp.A)


def _with_flag(cmdp: CMDP, goal: Mask, name: str) -> CMDP:
    """Return the model with a flag added to its state: s until a state in `goal` [S] is entered, S + s from then on.

    If the states have names, the names of the states S + s say that `name` was entered.
    """
    S, A = cmdp.S, cmdp.A
    P = sparse.csr_array(cmdp.rows)
    keep, turn = (sparse.diags_array(mask.astype(float)) for mask in (~goal, goal))
    blank = sparse.csr_array(P.shape)
    rows: Any = sparse.block_array([[P @ keep, P @ turn], [blank, P]], format="csr")
    rho = np.concatenate([np.where(goal, 0.0, cmdp.rho), np.where(goal, cmdp.rho, 0.0)])
    h, available = np.concatenate([cmdp.h, cmdp.h], axis=1), np.concatenate([cmdp.available, cmdp.available])
    names = None if cmdp.states is None else [*cmdp.states, *_entered(cmdp.states, name)]
    found = CMDP(
        rows if cmdp.is_sparse else rows.toarray().reshape(2 * S, A, 2 * S),
        h[0],
        h[1:],
        cmdp.b,
        rho=rho,
        gamma=None if cmdp.horizon is None else cmdp.gamma,
        criterion=cmdp.criterion,
        horizon=cmdp.horizon,
        names=cmdp.names,
        available=available,
        states=names,
        actions=cmdp.actions,
        order="state",
    )
    object.__setattr__(found, "costs", cmdp.costs)
    return found


def _entered(states: Sequence[str], name: str) -> list[str]:
    return [ENTERED.format(state, name) for state in states]
