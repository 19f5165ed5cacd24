"""Run the policy tables of finite models. An observation is the index of a state, or its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Certificate
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.text import suggest
from clearance.core.validation import read_distributions, read_labels, read_numbers
from clearance.deploy.running_policy import Components, Rng, RunningPolicy


class TablePolicy(RunningPolicy):
    """A mixture of M policy tables pi [M, S, A] of a finite model; an observation is the index of a state.

    states, actions  the names of states and actions, or None. If an observation is a name, the action is a name too
    """

    obs_shape = ()
    axes = 3
    frames = 5
    step: Any = 0  # steps of the episode so far, for policies that depend on it
    names_only = False  # whether state indices are refused: in a table of names they may differ from the model's

    def __init__(
        self,
        weights: Any,
        pi: Any,
        certificate: Certificate | None = None,
        seed: int | None = None,
        states: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
    ) -> None:
        super().__init__(weights, certificate, seed)
        self.pi: Array = read_distributions("pi", read_numbers("pi", pi, ndim=self.axes))
        if len(self.pi) != self.M:
            raise InputError(f"weights has {self.M} entries for {len(self.pi)} policies; give one each")
        self.states = read_labels("states", states, self.pi.shape[-2])
        self.actions = read_labels("actions", actions, self.pi.shape[-1])

    @property
    def draws(self) -> bool:
        return bool(np.any(self.pi.max(-1) < 1))

    def act(
        self, obs: Any, deterministic: bool = False, rng: Rng | None = None, *, cost_so_far: Any = None, t: Any = None
    ) -> Any:
        """Return an action for a state, which is given by index or by name.

        The action is returned by index. If the state is given by name, or if the policy was read from a table of names,
        the action is returned by name, if it has one. The arguments are those of `RunningPolicy.act`.
        """
        named = _is_named(obs)
        self._check_naming(named)
        rows = self._number(obs) if named else obs
        actions = super().act(rows, deterministic, rng, cost_so_far=cost_so_far, t=t)
        return self._name(actions) if (named or self.names_only) and self.actions is not None else actions

    def actions_at(self, state: Any, t: int = 0) -> dict[Any, float]:
        """Return {action: probability} for the actions of the policy in a state; actions are names or indices.

        For a mixture, the policy is the one that `reset` has drawn. `t` is the step, if the policy depends on it.
        """
        if self.components is None or self.components.ndim:
            raise InputError(f"this policy is a mixture of {self.M}: call reset() first, which draws one of them")
        self._check_naming(_is_named(state))
        row = self._numbers(np.asarray(self._number(state) if _is_named(state) else state)[None])
        kept, self.step = self.step, t
        try:
            p = self._table(self.components, row)[0]
        finally:
            self.step = kept
        return {self._name(a) if self.actions else a: float(p[a]) for a in np.flatnonzero(p).tolist()}

    def _check_naming(self, named: bool) -> None:
        if self.names_only and self.states is not None and not named:
            raise InputError(
                "this policy was read from a table of names, which has no numbers: give the name of a state, "
                "or load the policy from an .npz file"
            )

    def _number(self, names: Any) -> Any:
        if self.states is None:
            raise InputError("this policy has no names of states: give the number of a state")
        index = {name: s for s, name in enumerate(self.states)}
        flat = [str(name) for name in np.asarray(names).ravel()]
        for name in flat:
            if name not in index:
                raise InputError(f"{name[:40]!r} is no state of this policy{suggest(name, index)}")
        return np.array([index[name] for name in flat]).reshape(np.shape(names))

    def _name(self, actions: Any) -> Any:
        assert self.actions is not None
        return self.actions[actions] if np.ndim(actions) == 0 else np.array(self.actions)[actions]

    def _numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        S = self.pi.shape[-2]
        if rows.dtype.kind not in "iu" or (rows.size and not (rows.min() >= 0 and rows.max() < S)):
            raise InputError(f"the observation must be the number of a state, 0 .. {S - 1}, got {_short(rows)}")
        return rows

    def _actions(self, components: Components, rows: NDArray[Any], rng: Rng | None) -> NDArray[Any]:
        p = self._table(components, rows)
        if rng is None:
            return np.argmax(p, -1)
        cdf = np.cumsum(p / p.sum(-1, keepdims=True), -1)
        return np.sum(cdf / cdf[:, -1:] <= rng.random(len(rows))[:, None], -1)

    def _table(self, components: Components, rows: NDArray[Any]) -> Array:
        """Return the probabilities [n, A] of the actions in the states `rows` [n], by the policies `components` [n]."""
        return self.pi[components, rows]

    def _one(self, actions: NDArray[Any]) -> int:
        return int(actions[0])


def _is_named(obs: Any) -> bool:
    return not isinstance(obs, dict) and np.asarray(obs).dtype.kind in "US"


def _short(rows: NDArray[Any]) -> str:
    return " ".join(repr(rows[:3].tolist()).split())[:80]
