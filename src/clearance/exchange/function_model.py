"""Models given by functions of states and actions; a state is any object that can be a key of a dict."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from clearance.core.errors import InputError
from clearance.core.keywords import not_called
from clearance.exchange.explicit_model import ExplicitModel, build_cmdp, check_pairs, expect, match_limits, varies
from clearance.finite.cmdp import CMDP

MOST_STATES = 5_000_000


@not_called("limit", "limits")
def model(
    *,
    actions: Iterable[Hashable] | Callable[[Any], Iterable[Hashable]],
    transitions: Callable[[Any, Any], Any],
    reward: Callable[..., float],
    gamma: float | None = None,
    criterion: str | None = None,
    horizon: int | None = None,
    states: Iterable[Hashable] | None = None,
    costs: Mapping[str, Callable[..., float]] | None = None,
    limits: Mapping[str, float] | None = None,
    initial: Any = None,
) -> CMDP:
    """Return the finite model that these functions describe.

    states       all states; default: those that can be reached from `initial`
    actions      all actions, or a function from a state to the list of its actions
    transitions  f(s, a) → {next state: probability}, or a list of (next state, probability)
    reward       f(s, a) or f(s, a, next state)
    costs        functions like `reward`, by name
    limits       an upper limit for each cost, by name
    initial      the state to start in, or {state: probability}; default, if `states` are given: uniform
    gamma, criterion, horizon  the criterion, as in `CMDP`

    A state without actions ends the process.

    >>> move = lambda s, a: {1: 1.0} if a == "order" else {max(s - 1, 0): 1.0}
    >>> shop = model(actions=["wait", "order"], transitions=move, reward=lambda s, a: float(s > 0),
    ...              costs={"orders": lambda s, a: a == "order"}, limits={"orders": 3}, initial=1, gamma=0.9)
    >>> shop.states, shop.actions
    (('1', '0'), ('wait', 'order'))
    """
    costs, limits = match_limits(costs, limits)
    start = _read_initial(initial)
    listed = _Listing(list(start) if states is None else list(states), actions, transitions, closed=states is not None)
    signals = {"reward": reward, **costs}
    J = {"gamma": gamma, "criterion": criterion, "horizon": horizon}
    return _build(listed, signals, J, limits, start or None)


def _read_initial(initial: Any) -> dict[Any, float]:
    if initial is None:
        return {}
    try:
        return dict(initial) if isinstance(initial, Mapping) else {initial: 1.0}
    except TypeError:
        raise InputError(f"initial must be a state that can be a key of a dict, got {str(initial)[:60]!r}") from None


class _Listing:
    """A list of all transitions; states and actions are numbered in the order in which they are found."""

    def __init__(self, states: list[Any], actions: Any, transitions: Any, *, closed: bool) -> None:
        if not states:
            raise InputError("states: give them, or the initial one to start from")
        self.states = {state: n for n, state in enumerate(dict.fromkeys(states))}
        self.actions: dict[Any, int] = {}
        self.rows: list[tuple[int, int, int, float]] = []
        self.ends: list[int] = []
        actions_of = _actions_of(actions)
        todo = list(self.states)
        for state in todo:  # grows while new states are met
            available = list(actions_of(state))
            if not available:
                self.ends.append(self.states[state])
            for action in available:
                a = self.actions.setdefault(action, len(self.actions))
                for s_next, p in _outcomes(transitions, state, action):
                    if s_next not in self.states:
                        if closed:
                            raise InputError(
                                f"transitions({state!r}, {action!r}) has {s_next!r}, which is not in states"
                            )
                        if len(todo) >= MOST_STATES:
                            raise InputError(f"transitions: more than {MOST_STATES} states can be reached")
                        self.states[s_next] = len(self.states)
                        todo.append(s_next)
                    self.rows.append((self.states[state], a, self.states[s_next], p))
        if not self.actions:
            raise InputError("actions: no state has any")


def _actions_of(actions: Any) -> Callable[[Any], Iterable[Any]]:
    if callable(actions):
        function: Any = actions
        return function
    everywhere = [*actions]
    return lambda state: everywhere


def _outcomes(transitions: Any, state: Any, action: Any) -> list[tuple[Any, float]]:
    found = transitions(state, action)
    where = f"transitions({state!r}, {action!r})"
    try:
        pairs = [(s_next, float(p)) for s_next, p in (found.items() if isinstance(found, Mapping) else found)]
        hash(tuple(s_next for s_next, _ in pairs))
    except (TypeError, ValueError):
        kinds = "{next state: probability} or [(next state, probability), …]"
        raise InputError(f"{where} must be {kinds}, got {str(found)[:60]!r}") from None
    total = sum(p for _, p in pairs)
    if not all(p >= 0 for _, p in pairs) or not abs(total - 1) <= 1e-9:
        raise InputError(f"{where} sums to {total:.12g}; probabilities must be ≥ 0 and sum to 1")
    return [(s_next, p) for s_next, p in pairs if p > 0]


def _build(
    listed: _Listing, signals: Mapping[str, Any], J: Mapping[str, Any], limits: dict[str, float], start: Any
) -> CMDP:
    S, A = len(listed.states), len(listed.actions)
    check_pairs("model", S, A)
    rows = listed.rows + [(s, 0, s, 1.0) for s in listed.ends]
    s, a, s_next = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    prob = np.array([row[3] for row in rows], float)
    by_state, by_action = list(listed.states), list(listed.actions)
    met = [(by_state[i], by_action[j], by_state[k]) for i, j, k, _ in listed.rows]
    zeros = [0.0] * len(listed.ends)
    rewards, averaged = {}, {}
    for name, f in signals.items():
        listed_values = [_value(name, f, three, *args) for three in [_takes_three(name, f)] for args in met]
        values = np.array(listed_values + zeros, float)
        rewards[name], averaged[name] = (f(S, A, s * A + a, prob, values) for f in (expect, varies))
    labels = _texts(by_state), _texts(by_action)
    found = ExplicitModel("model", S, A, s, a, s_next, prob, rewards, None, *labels, averaged=averaged)
    rho = None
    if start is not None:
        rho = np.zeros(S)
        for state, p in start.items():
            if state not in listed.states:
                raise InputError(f"initial: {state!r} is not in states")
            rho[listed.states[state]] += p
    return build_cmdp(found, **J, reward="reward", limits=limits, initial=rho)


def _takes_three(name: str, f: Any) -> bool:
    if not callable(f):
        raise InputError(f"{name} must be a function f(s, a) or f(s, a, next state), got {type(f).__name__}")
    try:
        inspect.signature(f).bind(None, None)
    except TypeError:
        return True
    except ValueError:  # built in, without a signature
        return False
    return False


def _value(name: str, f: Any, three: bool, s: Any, a: Any, s_next: Any) -> float:
    found = f(s, a, s_next) if three else f(s, a)
    try:
        value = float(found)
    except (TypeError, ValueError):
        raise InputError(f"{name}({s!r}, {a!r}) must be a number, got {str(found)[:40]!r}") from None
    if not np.isfinite(value):
        raise InputError(f"{name}({s!r}, {a!r}) must be finite, got {value}")
    return value


def _texts(keys: list[Any]) -> tuple[str, ...]:
    """Return the names of states or actions: `str` of each, or `repr` if two have the same `str` (1 and "1")."""
    for show in (str, repr):
        texts = tuple(show(key) for key in keys)
        if len(set(texts)) == len(texts):
            return texts
    twice = next(t for t in texts if texts.count(t) > 1)
    raise InputError(f"states and actions must have different texts, {twice!r} is there twice")
