"""Mixtures of a user's rule and networks that act with NumPy alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Certificate
from clearance.core.errors import InputError
from clearance.deploy.running_policy import Components, NetworkRunner, Rng, RunningPolicy


class RuleRunner(RunningPolicy):
    """A mixture whose last policy is a rule `observation -> action`; the others are networks.

    The rule gets copies of the observations that are passed to `act`. If the rule has a method `reset`, this method is
    called at the beginning of every episode in which the rule acts.
    """

    def __init__(
        self,
        networks: NetworkRunner,
        weights: Any,
        rule: Callable[[Any], Any],
        name: str,
        certificate: Certificate | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(weights, certificate, seed)
        if len(self.weights) != networks.M + 1 or not self.weights[-1] > 0:
            raise InputError("weights must hold those of networks, and last that of the rule")
        if networks.memory is not None:
            raise InputError("policy: networks beside a rule do not see the cost so far")
        self.networks, self.rule, self.name, self.obs_shape = networks, rule, name, networks.obs_shape
        begin = getattr(rule, "reset", None)
        self._begin_rule = begin if callable(begin) else None

    @property
    def draws(self) -> bool:
        return True

    def reset(self, n: int | None = None, rng: Rng | None = None) -> None:
        if n is not None and self._begin_rule is not None:
            raise InputError(f"the rule {self.name} has a reset: it acts in one episode at a time, call reset()")
        super().reset(n, rng)
        assert self.components is not None
        if self._begin_rule is not None and int(self.components) == self.M - 1:
            self._begin_rule()

    def predict(self, *args: Any, **how: Any) -> Any:
        if self._begin_rule is not None:
            raise InputError(f"the rule {self.name} has a reset: call reset() and act() in place of predict")
        return super().predict(*args, **how)

    def _numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        self.networks._numbers(rows)
        return rows

    def _actions(self, components: Components, rows: NDArray[Any], rng: Rng | None) -> NDArray[Any]:
        components = np.broadcast_to(components, len(rows))
        by_rule = components == self.M - 1
        if by_rule.all():
            return np.stack([self._by_rule(row) for row in rows])
        numbers = self.networks._numbers(rows)
        actions = self.networks._actions(np.where(by_rule, 0, components), numbers, rng)
        for i in np.flatnonzero(by_rule):
            actions[i] = self._by_rule(rows[i])
        return actions

    def _by_rule(self, obs: NDArray[Any]) -> NDArray[Any]:
        action = self.rule(obs.copy())
        return np.asarray(action[0] if isinstance(action, tuple) and len(action) == 2 and action[1] is None else action)

    def _one(self, actions: NDArray[Any]) -> Any:
        return self.networks._one(actions)
