"""Policies of finite models that act: an observation is the number of a state, or its name."""

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
    """Policies pi [M, S, A] of a finite model, or [M, H, S, A] with a horizon: then `reset` begins with time 0.

    states, actions  their names, where they have some. Who asks with the name of a state gets the name of an action
    """

    obs_shape = ()
    frames = 5

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
        self.pi: Array = read_distributions("pi", read_numbers("pi", pi, ndim=4 if np.ndim(pi) == 4 else 3))
        if len(self.pi) != self.M:
            raise InputError(f"weights has {self.M} entries for {len(self.pi)} policies; give one each")
        self.states = read_labels("states", states, self.pi.shape[-2])
        self.actions = read_labels("actions", actions, self.pi.shape[-1])
        self.time: Any = 0

    @property
    def horizon(self) -> int | None:
        """Steps of an episode, where the policy depends on the time."""
        return self.pi.shape[1] if self.pi.ndim == 4 else None

    @property
    def draws(self) -> bool:
        return bool(np.any(self.pi.max(-1) < 1))

    def reset(self, n: int | None = None, rng: Rng | None = None) -> None:
        super().reset(n, rng)
        self.time = 0

    def act(
        self, obs: Any, deterministic: bool = False, rng: Rng | None = None, *, cost_so_far: Any = None, t: Any = None
    ) -> Any:
        """Return an action for the number of a state, or for its name: then by name, where actions have names.

        t  the step of the episode, where the policy depends on it; unless given, it counts from `reset`
        """
        named = self._is_named(obs)
        if self.horizon is not None:
            self.time, t = self._check_time(self.time if t is None else t), None
        actions = super().act(self._number(obs) if named else obs, deterministic, rng, cost_so_far=cost_so_far, t=t)
        self.time = self.time + 1
        return self._name(actions) if named and self.actions is not None else actions

    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        if self.horizon is not None:
            raise InputError("this policy depends on the time, which predict does not know: use reset() and act()")
        return super().predict(observation, *args, **kwargs)

    predict.__doc__ = RunningPolicy.predict.__doc__

    def actions_at(self, state: Any, t: int = 0) -> dict[Any, float]:
        """Return the actions that the policy takes in a state, by name or number, with their probabilities.

        Of a mixture it is the component that `reset` has drawn.
        """
        if self.components is None or self.components.ndim:
            raise InputError(f"this policy is a mixture of {self.M}: call reset() first, which draws one of them")
        row = self._numbers(np.asarray(self._number(state) if self._is_named(state) else state)[None])[0]
        table = self.pi[int(self.components)]
        p = table[row] if self.horizon is None else table[self._check_time(t), row]
        return {self._name(a) if self.actions else a: float(p[a]) for a in np.flatnonzero(p).tolist()}

    def _is_named(self, obs: Any) -> bool:
        return not isinstance(obs, dict) and np.asarray(obs).dtype.kind in "US"

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

    def _check_time(self, t: Any) -> Any:
        assert self.horizon is not None
        if np.any(np.asarray(t) >= self.horizon) or np.any(np.asarray(t) < 0):
            raise InputError(f"the policy is for {self.horizon} steps, 0 to {self.horizon - 1}: call reset()")
        return t

    def _numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        S = self.pi.shape[-2]
        if rows.dtype.kind not in "iu" or (rows.size and not (rows.min() >= 0 and rows.max() < S)):
            raise InputError(f"the observation must be the number of a state, 0 .. {S - 1}, got {_short(rows)}")
        return rows

    def _actions(self, components: Components, rows: NDArray[Any], rng: Rng | None) -> NDArray[Any]:
        p = self.pi[components, rows] if self.horizon is None else self.pi[components, self.time, rows]
        if rng is None:
            return np.argmax(p, -1)
        cdf = np.cumsum(p / p.sum(-1, keepdims=True), -1)
        return np.sum(cdf / cdf[:, -1:] <= rng.random(len(rows))[:, None], -1)

    def _one(self, actions: NDArray[Any]) -> int:
        return int(actions[0])


def _short(rows: NDArray[Any]) -> str:
    return " ".join(repr(rows[:3].tolist()).split())[:80]
