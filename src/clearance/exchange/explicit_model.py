"""A model as a list of transitions with named rewards. Every file format is read into this form, then a CMDP is built.

    transition n:  s[n], a[n] → s_next[n] with probability prob[n]
    rewards[name][s, a]:  the expected reward of one step

A file lists the rewards. With `build_cmdp` the user decides which of them is maximised, which are limited, and the
discount factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.core.array_files import free_memory
from clearance.core.arrays import Array
from clearance.core.criterion import read_criterion
from clearance.core.errors import InputError
from clearance.core.text import find_name, suggest
from clearance.core.validation import SUM_TOLERANCE, read_number
from clearance.finite.cmdp import CMDP
from clearance.finite.transition_rows import transitions

Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ExplicitModel:
    """Transitions and named rewards of one model.

    source   the name of the file, for error messages
    place    a function that returns where transition n is in the file, for error messages
    rho      start distribution [S]; None: uniform
    states, actions   their names; None if they are only numbered
    averaged   by name, where [S, A] a reward of one step depends on what happens, so that `rewards` has only its mean
    tolerance  how far the sum of a row of probabilities may deviate from 1; rows of files with few digits are
               normalised
    """

    source: str
    S: int
    A: int
    s: Whole
    a: Whole
    s_next: Whole
    prob: Array
    rewards: Mapping[str, Array]
    rho: Array | None = None
    states: tuple[str, ...] | None = None
    actions: tuple[str, ...] | None = None
    place: Callable[[int], str] = "entry {}".format
    tolerance: float = SUM_TOLERANCE
    averaged: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def state_name(self, s: int) -> str:
        return repr(self.states[s]) if self.states else str(s)

    def action_name(self, a: int) -> str:
        return repr(self.actions[a]) if self.actions else str(a)


def build_cmdp(
    model: ExplicitModel,
    *,
    gamma: float | None = None,
    criterion: str | None = None,
    horizon: int | None = None,
    reward: str | None = None,
    limits: Mapping[str, float] | None = None,
    b: Mapping[str, float] | None = None,
    initial: Any = None,
) -> CMDP:
    """Return the CMDP of a model whose rewards are named; the arguments say which rewards have which role.

    limits   upper limits of costs, by name
    b        lower limits of utilities, by name
    reward   the name of the reward to maximise; with a minus before it, it is minimised
    initial  the state to start in, {state: probability} or a list [S]; by default the model's own
    gamma, criterion, horizon  the criterion, as in `CMDP`
    """
    try:
        limits, b = (_full_names(model, check_limits(*given)) for given in (("limits", limits), ("b", b)))
        for name in (*limits, *b):
            _require(model, "limits" if name in limits else "b", name)
        chosen = reward_name(model, reward, (*limits, *b))
        r = chosen[0] * model.rewards[chosen[1]] + 0.0
        prob, available = _check_rows(model)
        P = transitions(model.S, model.A, model.s, model.a, model.s_next, prob)
        g, costs = (np.array([model.rewards[n] for n in names]).reshape(-1, model.S, model.A) for names in (b, limits))
        found = CMDP(
            P, r, g, np.array(list(b.values()), float), cost=costs, limit=np.array(list(limits.values()), float),
            gamma=gamma, criterion=criterion, horizon=horizon,
            rho=read_start(model, initial), names=[*b, *limits], order="state",
            available=None if available.all() else available, states=model.states, actions=model.actions,
        )  # fmt: skip
        certain = np.zeros((model.S, model.A), bool)
        return found.with_averaged([model.averaged.get(name, certain) for name in (chosen[1], *b, *limits)])
    except InputError as e:
        raise InputError(str(e) if str(e).startswith(model.source) else f"{model.source}: {e}") from None


def _full_names(model: ExplicitModel, limits: Mapping[str, float]) -> dict[str, float]:
    """Return the user's limits as a dict whose keys are the full names of the rewards in the file.

    The user may leave out a unit: `energy` means `energy [kWh]`.
    """
    return {find_name(name, model.rewards) or name: value for name, value in limits.items()}


def check_limits(field: str, limits: Any) -> dict[str, float]:
    """Return the limits as {name: number}, or {} for None.

    Raise InputError that names the argument `field` if the limits have any other form.
    """
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        raise InputError(f"{field} must go by name: give {field}={{name: number}}")
    return {str(name): read_number(f"{field}[{name!r}]", value) for name, value in limits.items()}


def check_criterion(source: str, gamma: Any, criterion: Any, horizon: Any) -> None:
    """Raise InputError if the criterion is missing or wrong; the error message names the file `source`.

    This check is made before a long file is read, so that the error comes early.
    """
    if criterion is None or isinstance(criterion, str):
        try:
            read_criterion(criterion, gamma, horizon)
        except InputError as e:
            raise InputError(f"{source}: {e}") from None


def match_limits(costs: Mapping[str, Any] | None, limits: Any) -> tuple[dict[str, Any], dict[str, float]]:
    """Return costs and limits, each as a dict by name; raise InputError unless each cost has one limit.

    The user may leave out a unit in the name of a limit.
    """
    costs = dict(costs or {})
    limits = {find_name(name, costs) or name: value for name, value in check_limits("limits", limits).items()}
    for name in (*costs, *limits):
        if name not in costs or name not in limits:
            field = "limits" if name in costs else "costs"
            raise InputError(f"{field} has no {name!r}: give each cost one limit, by name")
    return costs, limits


def split_reward(reward: str, names: Sequence[str]) -> tuple[float, str]:
    """Return (sign, name) of the reward to maximise.

    "-time" gives (−1, "time"), which minimises time, unless a reward is itself called "-time".
    """
    minus = reward.startswith("-") and reward not in names
    return (-1.0, reward[1:]) if minus else (1.0, reward)


def reward_name(model: ExplicitModel, reward: str | None, limited: Sequence[str]) -> tuple[float, str]:
    """Return (sign, name) of the reward to maximise; `limited` are the names of the rewards that have a limit."""
    sign, name = (1.0, None) if reward is None else split_reward(reward, list(model.rewards))
    name = None if name is None else find_name(name, model.rewards) or name
    return sign, choose_reward(model, name, limited)


def choose_reward(model: ExplicitModel, reward: str | None, limited: Sequence[str]) -> str:
    """Return the name of the reward to maximise: `reward` if given, else "reward", else the only one without a limit.

    `limited` are the names of the rewards with a limit.
    """
    if reward is not None:
        _require(model, "reward", reward)
        return reward
    free = [name for name in model.rewards if name not in limited]
    if len(free) == 1 or "reward" in free:
        return "reward" if "reward" in free else free[0]
    raise InputError(f"reward is missing: say which one to maximise (reward=…, --reward): {_known(model)}")


def _require(model: ExplicitModel, field: str, name: str) -> None:
    if name not in model.rewards:
        raise InputError(f"{field}: there is no {name!r}; the model has {_known(model)}")


def _known(model: ExplicitModel) -> str:
    return ", ".join(model.rewards) or "no rewards"


def _check_rows(model: ExplicitModel) -> tuple[Array, NDArray[np.bool_]]:
    """Return the probabilities of all transitions, and a mask [S, A] of the actions that exist.

    Raise InputError if probabilities are wrong. Rows that sum to 1 only roughly, because the file has few digits, are
    normalised.
    """
    row = model.s * model.A + model.a
    bad = np.flatnonzero(~((model.prob >= 0) & (model.prob <= 1 + model.tolerance)))
    if len(bad):
        raise _at(model, int(bad[0]), f"must be in [0, 1], got {float(model.prob[bad[0]])!r}")
    total = np.bincount(row, model.prob, model.S * model.A)
    available = np.bincount(row, minlength=model.S * model.A) > 0
    off = available & (np.abs(total - 1) > model.tolerance)
    if off.any():
        first = int(np.flatnonzero(off[row])[0])
        where = f"state {model.state_name(int(model.s[first]))}, action {model.action_name(int(model.a[first]))}"
        again = _repeated(model, row, int(row[first])) if total[row[first]] > 1 else ""
        raise _at(model, first, f"of {where} sums to {total[row[first]]:.12g}; probabilities must sum to 1{again}")
    mask = available.reshape(model.S, model.A)
    if not mask.any(axis=1).all():
        s = int(np.argmin(mask.any(axis=1)))
        raise InputError(f"state {model.state_name(s)} has no transitions; an end of the process is a loop of its own")
    loose = np.abs(total - 1) > SUM_TOLERANCE
    return np.where(loose[row], model.prob / np.where(total > 0, total, 1.0)[row], model.prob), mask


def _repeated(model: ExplicitModel, row: Whole, pair: int) -> str:
    """Return a clause of an error message that names a transition of the pair s·A + a which is in the file twice.

    Return "" if there is none.
    """
    first: dict[int, int] = {}
    for n in np.flatnonzero(row == pair).tolist():
        before = first.setdefault(int(model.s_next[n]), n)
        if before != n:
            return f"; {model.place(n)} has the next state of {model.place(before)}, and repeated rows are added up"
    return ""


def _at(model: ExplicitModel, n: int, what: str) -> InputError:
    return InputError(f"{model.source}, {model.place(n)}: probability {what}")


def read_start(model: ExplicitModel | CMDP, initial: Any) -> Array | None:
    """Return the start distribution ρ [S] from a state, a dict {state: probability} or a list [S].

    If `initial` is None, return the model's own ρ.
    """
    if initial is None:
        return model.rho
    if isinstance(initial, Mapping):
        rho = np.zeros(model.S)
        for state, p in initial.items():
            rho[_index(model, state)] += read_number(f"initial[{state!r}]", p)
        return rho
    if isinstance(initial, str | int | np.integer):
        return np.eye(1, model.S, _index(model, initial))[0]
    return np.asarray(initial)


def _index(model: ExplicitModel | CMDP, state: Any) -> int:
    if model.states is not None and str(state) in model.states:
        return model.states.index(str(state))
    if model.states is None and str(state).isdecimal() and int(state) < model.S:
        return int(state)
    known = f"0..{model.S - 1}" if model.states is None else ", ".join(model.states[:5]) + ", …" * (model.S > 5)
    near = "" if model.states is None else suggest(str(state), model.states)
    raise InputError(f"initial: there is no state {state!r}; states are {known}{near}")


def check_pairs(source: str, S: int, A: int) -> None:
    """Raise InputError if a table [S, A] would need more than a quarter of the free memory."""
    if free_memory() / 4 < 8.0 * S * A:
        raise InputError(
            f"{source}: has {S} states and {A} different actions, too many for a table of all pairs; "
            "give the actions of different states the same names"
        )


def expect(S: int, A: int, row: Whole, prob: Array, values: Array) -> Array:
    """Return the expected value [S, A] of `values` [n], one for each transition, under the probabilities `prob` [n].

    row[n] = s·A + a is the pair of transition n. The result has no rounding error if all values of a pair are equal.
    """
    mean = np.bincount(row, prob * values, S * A)
    low, high = np.full(S * A, np.inf), np.full(S * A, -np.inf)
    np.minimum.at(low, row, values)
    np.maximum.at(high, row, values)
    return np.where(low == high, np.where(np.isfinite(low), low, 0.0), mean).reshape(S, A)


def varies(S: int, A: int, row: Whole, prob: Array, values: Array) -> NDArray[np.bool_]:
    """Return where [S, A] the `values` [n] of the possible transitions of a pair differ; arguments as in `expect`."""
    low, high = np.full(S * A, np.inf), np.full(S * A, -np.inf)
    np.minimum.at(low, row[prob > 0], values[prob > 0])
    np.maximum.at(high, row[prob > 0], values[prob > 0])
    return (low < high).reshape(S, A)


def index_names(names: Sequence[str]) -> tuple[dict[str, int], tuple[str, ...] | None]:
    """Return {name: index}, and the names in the order of their indices.

    If the names are the numbers 0..n−1, each is its own index, and None is returned in place of the names.
    """
    if set(names) == {str(n) for n in range(len(names))}:
        return {name: int(name) for name in names}, None
    return {name: n for n, name in enumerate(names)}, tuple(names)


def describe_cmdp(cmdp: CMDP, source: str = "model") -> ExplicitModel:
    """Return a CMDP as a list of transitions with named rewards; costs are listed with the user's sign."""
    from scipy import sparse

    entries = sparse.coo_array(cmdp.rows)
    row, s_next = entries.row.astype(np.int64), entries.col.astype(np.int64)
    order = np.lexsort((s_next, row))
    row, s_next, prob = row[order], s_next[order], np.asarray(entries.data, float)[order]
    signals = {name: -g if cost else g for name, g, cost in zip(cmdp.names, cmdp.g, cmdp.costs, strict=True)}
    rewards = {"reward": cmdp.r + 0.0, **{name: g + 0.0 for name, g in signals.items()}}
    if len(rewards) != 1 + cmdp.I:
        raise InputError(f"names {', '.join(cmdp.names)}: each must be there once, and none may be 'reward'")
    return ExplicitModel(
        source, cmdp.S, cmdp.A, row // cmdp.A, row % cmdp.A, s_next, prob, rewards,
        cmdp.rho, cmdp.states, cmdp.actions,
    )  # fmt: skip
