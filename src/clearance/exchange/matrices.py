"""Convert models of other libraries to a `CMDP`.

There are two functions: `from_matrices` takes one transition matrix per action, as MDPtoolbox does, and
`from_quantecon` takes QuantEcon's `DiscreteDP`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import ORDERS, read_numbers
from clearance.exchange.explicit_model import ExplicitModel, build_cmdp, match_limits, varies
from clearance.finite.cmdp import CMDP


def from_matrices(
    P: Any,
    R: Any,
    *,
    gamma: float | None = None,
    criterion: str | None = None,
    horizon: int | None = None,
    costs: Mapping[str, Any] | None = None,
    limits: Mapping[str, float] | None = None,
    initial: Any = None,
    states: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
    order: str | None = None,
) -> CMDP:
    """Return the model with the transition matrices P: one matrix [S, S] for each action.

    P          a list [P_0, …, P_A−1] of matrices [S, S], dense or sparse, or an array [A, S, S]; see also `order`
    R          the reward: [S], [S, A], [A, S, S], or a list of A matrices [S, S] by (state, next state)
    costs      costs by name, each in one of the forms of R
    limits     an upper limit for each cost, by name
    order      needed if the shape is ambiguous: "action" for [A, S, S] or stacked rows a·S + s, "state" for [S, A, S]
               or rows s·A + a
    gamma, criterion, horizon  the criterion, as in `CMDP`

    >>> from_matrices([[[1.0, 0.0], [0.5, 0.5]]], [0.0, 1.0], gamma=0.9).A
    1
    """
    J = {"gamma": gamma, "criterion": criterion, "horizon": horizon}
    rows, A = _stack(P, order)
    S = rows.shape[1]
    costs, limits = match_limits(costs, limits)
    signals = {name: _signal(name, x, rows, S, A) for name, x in {"reward": R, **costs}.items()}
    entries = sparse.coo_array(rows)
    row = entries.row.astype(np.int64)
    names = [None if found is None else tuple(str(x) for x in found) for found in (states, actions)]
    model = ExplicitModel(
        "P", S, A, row // A, row % A, entries.col.astype(np.int64), entries.data.astype(float), signals,
        states=names[0], actions=names[1],
        averaged={name: _varying(x, row, entries, A) for name, x in {"reward": R, **costs}.items()},
    )  # fmt: skip
    return build_cmdp(model, **J, reward="reward", limits=limits, initial=initial)


def _stack(P: Any, order: str | None) -> tuple[Any, int]:
    """Return the transition matrices P as one sparse matrix [S·A, S] with rows s·A + a, and the number of actions A."""
    if order not in (None, *ORDERS):
        raise InputError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
    if sparse.issparse(P):
        return _read_stack(sparse.csr_array(P), order)
    if _is_list_of_matrices(P):
        blocks: list[Any] = [sparse.csr_array(x if sparse.issparse(x) else read_numbers("P", x, ndim=2)) for x in P]
        S = blocks[0].shape[1]
        for a, block in enumerate(blocks):
            if block.shape != (S, S):
                raise InputError(f"P[{a}] has shape {block.shape}, it must be [S, S] = {(S, S)} as P[0] has")
        return _by_state(sparse.csr_array(sparse.vstack(blocks)), S, len(blocks)), len(blocks)
    P_ = read_numbers("P", P, ndim=3)
    if order is None and isinstance(P, list | tuple) and P_.shape[1] == P_.shape[2]:
        order = "action"  # a list has one matrix per action
    return _read_array(P_, order)


def _is_list_of_matrices(P: Any) -> bool:
    return isinstance(P, list | tuple) and len(P) > 0 and any(sparse.issparse(x) for x in P)


def _read_array(P: Array, order: str | None) -> tuple[Any, int]:
    """Return an array P, [A, S, S] or [S, A, S], as a sparse matrix [S·A, S] with rows s·A + a, and the number A.

    `order` names the first axis of P: "action" or "state". It is needed if S = A and the two readings differ.
    """
    n, m, S = P.shape
    if S == 0 or (m != S and n != S):
        raise InputError(f"P has shape {P.shape}, it must be [A, S, S] or a list of A matrices [S, S]")
    if n == m and order is None and not np.array_equal(P, P.transpose(1, 0, 2)):
        raise InputError(
            f'P has shape {P.shape}, which has two readings: give order="action" for [A, S, S], or "state"'
        )
    by_action = m == S and (n != m or order != "state")
    if order is not None and order != ("action" if by_action else "state"):
        raise InputError(f"P has shape {P.shape}, which is not in the order {order!r}")
    found = P.transpose(1, 0, 2) if by_action else P
    A = found.shape[1]
    return sparse.csr_array(found.reshape(S * A, S)), A


def _read_stack(P: Any, order: str | None) -> tuple[Any, int]:
    """Return a sparse matrix P [S·A, S] with its rows in the order s·A + a, and the number of actions A.

    `order` says how the rows of P are ordered: "state" (s·A + a) or "action" (a·S + s). It may be None only if both
    orders give the same model.
    """
    n, S = P.shape
    if S == 0 or n % S:
        raise InputError(f"sparse P has shape {P.shape}, it must be [S·A, S], or a list of A matrices [S, S]")
    A = n // S
    other = _by_state(P, S, A)
    if order is None and abs(P - other).nnz:
        raise InputError(
            f'sparse P has shape {P.shape}, which has two readings: give order="action" for one matrix per action, '
            'stacked (row a·S + s), or order="state" for row s·A + a'
        )
    return (other if order == "action" else P), A


def _by_state(P: Any, S: int, A: int) -> Any:
    """Reorder a matrix with rows a·S + s, so that its rows are s·A + a."""
    return sparse.csr_array(P[np.arange(S * A).reshape(A, S).T.ravel()])


def _signal(name: str, x: Any, rows: Any, S: int, A: int) -> Array:
    """Return the reward or cost x as a table [S, A]; values for (state, next state) are averaged over the next state.

    rows  the transition matrix [S·A, S]
    """
    x = _dense(x)
    shape = np.shape(np.asarray(x, dtype=object)) if isinstance(x, list | tuple) else np.shape(x)
    if shape == (S,):
        return np.repeat(read_numbers(name, x, ndim=1)[:, None], A, axis=1)
    if shape == (A, S, S):
        by_row = read_numbers(name, x, ndim=3).transpose(1, 0, 2).reshape(S * A, S)
        return np.asarray(rows.multiply(by_row).sum(axis=1)).reshape(S, A)
    if shape == (S, A):
        return read_numbers(name, x, ndim=2)
    raise InputError(f"{name} has shape {shape}, it must be [S] = ({S},), [S, A] = {(S, A)} or [A, S, S] = {(A, S, S)}")


def _dense(x: Any) -> Any:
    if _is_list_of_matrices(x):
        return np.stack([m.toarray() if sparse.issparse(m) else np.asarray(m, float) for m in x])
    return x.toarray() if sparse.issparse(x) else x


def _varying(x: Any, row: NDArray[np.int64], entries: Any, A: int) -> NDArray[np.bool_]:
    """Return where [S, A] the reward or cost x differs between the possible next states of a pair.

    row, entries  the row s·A + a of each transition, and the transition matrix [S·A, S] in coordinates
    """
    S, x = entries.shape[1], np.asarray(_dense(x), float)
    if x.shape != (A, S, S):
        return np.zeros((S, A), bool)
    return varies(S, A, row, entries.data, x[row % A, row // A, entries.col])


def from_quantecon(
    ddp: Any,
    *,
    costs: Mapping[str, Any] | None = None,
    limits: Mapping[str, float] | None = None,
    gamma: float | None = None,
    initial: Any = None,
) -> CMDP:
    """Return the model of a `quantecon.markov.DiscreteDP`, from its attributes R, Q, beta, s_indices and a_indices.

    costs    tables by name, in the form of R: [S, A], or [L] for the L state-action pairs
    limits   an upper limit for each cost, by name
    gamma    the discount factor (default: beta)

    State-action pairs with the reward −∞ are left out.
    """
    for name in ("R", "Q", "beta"):
        if not hasattr(ddp, name):
            raise InputError(f"ddp must be a DiscreteDP: it has no {name}")
    costs, limits = match_limits(costs, limits)
    R, Q = np.asarray(ddp.R, float), ddp.Q
    s, a, Q = _pairs(ddp, R, Q)
    S, A = int(Q.shape[1]), int(a.max()) + 1
    values = {"reward": R, **{name: np.asarray(x, float) for name, x in costs.items()}}
    real = ~np.isneginf(R.ravel())
    rewards = {}
    for name, x in values.items():
        if x.shape != R.shape:
            raise InputError(f"costs[{name!r}] has shape {x.shape}, it must be {R.shape} as R has")
        rewards[name] = np.zeros((S, A))
        rewards[name][s[real], a[real]] = x.ravel()[real]
    entries = sparse.coo_array(Q)
    pair = entries.row.astype(np.int64)
    keep = real[pair]
    pair, s_next, prob = pair[keep], entries.col.astype(np.int64)[keep], entries.data[keep].astype(float)
    model = ExplicitModel("ddp", S, A, s[pair], a[pair], s_next, prob, rewards, place="Q, entry {}".format)
    beta = float(ddp.beta) if gamma is None else gamma
    return build_cmdp(model, gamma=beta, reward="reward", limits=limits, initial=initial)


def _pairs(ddp: Any, R: Array, Q: Any) -> tuple[Any, Any, Any]:
    """Return the state and the action of each of the L state-action pairs, and Q as a sparse matrix [L, S].

    R and Q are the rewards and the transition probabilities of the model `ddp`.
    """
    s, a = getattr(ddp, "s_indices", None), getattr(ddp, "a_indices", None)
    if s is not None and a is not None:
        return np.asarray(s, np.int64), np.asarray(a, np.int64), sparse.csr_array(Q)
    S, A = R.shape
    dense = np.asarray(Q.toarray() if sparse.issparse(Q) else Q, float)
    return np.repeat(np.arange(S), A), np.tile(np.arange(A), S), sparse.csr_array(dense.reshape(S * A, -1))
