"""Policies that act with NumPy alone: tables of finite models and networks, single or as a mixture.

    policy = clearance.load_policy("policy.npz")
    policy.reset()                        # once per episode: draws the component of a mixture
    action = policy.act(obs)              # or actions [n, …] for observations [n, …]

    policy.record(cost)                   # after each step, if `policy.memory` is set: it acts on the costs so far

The component (policy) of a mixture is drawn once per episode by `reset`, as its certificate assumes; `act` never draws
another one. For a batch, `reset(n)` draws one component for each row.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Certificate
from clearance.core.cost_memory import CostMemory, CostTracker, read_costs
from clearance.core.errors import InputError
from clearance.core.network_form import NetworkForm
from clearance.core.validation import read_distributions, read_numbers

Components = NDArray[np.int64]
Rng = np.random.Generator


class NotCertifiedWarning(UserWarning):
    """A warning that the policy is used in a way that its certificate does not cover."""


class RunningPolicy(ABC):
    """A policy that can act: a mixture of M policies with probabilities weights [M]; M = 1 is a single policy.

    certificate  the certificate in the policy's file, or None
    seed         seed of the policy's random numbers; None draws one from the system
    memory       the costs whose sums so far the policy needs as input; None if it needs observations alone
    """

    obs_shape: tuple[int, ...]
    memory: CostMemory | None = None
    tracker: CostTracker | None = None
    frames = 4  # stack frames between the user's call and a warning
    certified_elsewhere = False  # whether the file has no place for a certificate, as .csv files have none

    def __init__(self, weights: Any, certificate: Certificate | None = None, seed: int | None = None) -> None:
        self.weights = read_distributions("weights", read_numbers("weights", weights, ndim=1))
        self.certificate, self.rng = certificate, np.random.default_rng(seed)
        self.components: Components | None = np.zeros((), np.int64) if self.M == 1 else None
        self._said = False

    @property
    def M(self) -> int:
        return len(self.weights)

    def reset(self, n: int | None = None, rng: Rng | None = None) -> None:
        """Begin an episode: draw the policy of the mixture that acts until the next `reset`.

        With n, begin n episodes at once, and draw one policy for each row of a batch.
        """
        self.components = self._draw(n, rng or self.rng)
        self.tracker = None if self.memory is None else CostTracker(self.memory, n)

    def record(self, costs: Any) -> None:
        """Record the costs of the last step, for a policy that needs the costs so far; other policies ignore them.

        `costs` is a number, an array [n], or a dict.
        """
        if self.memory is not None:
            if self.tracker is None:
                raise InputError(f"{self.memory.needed} after every step")
            self.tracker.record(costs)

    def act(
        self, obs: Any, deterministic: bool = False, rng: Rng | None = None, *, cost_so_far: Any = None, t: Any = None
    ) -> Any:
        """Return an action in the environment's form, or actions [n, …] for a batch of observations [n, …].

        deterministic   take the most likely action; the certificate is about sampled actions
        rng             the random generator to use; default: the policy's own
        cost_so_far, t  costs and number of steps of the episode so far, if `record` is not used; may be arrays [n]
        """
        if self.components is None:
            raise InputError(f"this policy is a mixture of {self.M}: call reset() at the beginning of every episode")
        rows, single = self._rows(obs)
        if self.components.ndim and len(self.components) != len(rows):
            n, given = len(self.components), len(rows)
            raise InputError(f"reset({n}) began {n} episodes, the observations are of {given}: call reset({given})")
        rows = self._with_costs(rows, cost_so_far, t)
        actions = self._act(self.components, rows, deterministic, rng or self.rng)
        return self._one(actions) if single else actions

    def _with_costs(self, rows: NDArray[Any], cost_so_far: Any, t: Any) -> NDArray[Any]:
        """Return the inputs of the policy for the observations `rows`.

        For a policy with a `memory`, the costs so far and the time are appended. They are `cost_so_far` and `t` or, if
        these are None, the costs that `record` has summed and the steps that it has counted.
        """
        memory, given = self.memory, cost_so_far is not None
        if given != (t is not None):
            raise InputError("cost_so_far and t go together: the costs of the episode so far, and its steps so far")
        if memory is None:
            if given:
                raise InputError("this policy has no memory of costs: leave out cost_so_far and t")
            return rows
        if given:
            return memory.join(rows, read_costs(memory, cost_so_far, len(rows)), np.broadcast_to(t, len(rows)))
        if self.tracker is None:
            raise InputError(f"{memory.needed} after every step, or give act(obs, cost_so_far=…, t=…)")
        return self.tracker.join(rows)

    def predict(
        self,
        observation: Any,
        state: tuple[Any, ...] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return (actions, state), with the signature of Stable-Baselines3; pass the state to the next call.

        `state` holds, for every row, the index of the policy in the mixture. A new policy is drawn if there is no
        state yet, or if `episode_start` is true for the row. So `reset` is not needed.
        """
        if self.memory is not None:
            raise InputError(
                f"predict is not told of costs: {self.memory.needed} after every step, with act in between"
            )
        rows, single = self._rows(observation)
        components = self._draw(len(rows), self.rng)
        if state is not None:
            began = np.broadcast_to(False if episode_start is None else np.asarray(episode_start, bool), len(rows))
            components = np.where(began, components, self._given(state, len(rows)))
        actions = self._act(components, rows, deterministic, self.rng)
        return (self._one(actions) if single else actions), (components,)

    def actions_at(self, state: Any, t: int = 0) -> dict[Any, float]:
        """Return {action: probability} in a state, if the policy is a table; raise InputError for networks."""
        raise InputError("this policy is a network, which has no table of actions: use act(obs)")

    def _given(self, state: tuple[Any, ...], n: int) -> Components:
        found = np.asarray(state[0])
        if found.shape != (n,) or found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= self.M:
            raise InputError(f"state must be what predict gave for the same {n} rows, got {state!r}")
        return found.astype(np.int64)

    def _draw(self, n: int | None, rng: Rng) -> Components:
        return np.asarray(rng.choice(self.M, size=n, p=self.weights / self.weights.sum()))

    def _rows(self, obs: Any) -> tuple[NDArray[Any], bool]:
        """Return the observations as a batch [n, *obs_shape], and True if `obs` is a single observation, else False."""
        shape, k = np.shape(obs) if not isinstance(obs, dict) else None, len(self.obs_shape)
        if shape is None or shape[len(shape) - k :] != self.obs_shape or len(shape) not in (k, k + 1):
            many = f"({', '.join(map(str, ('n', *self.obs_shape)))})"
            got = "a dict" if shape is None else str(shape)
            hint = "flatten it first: gymnasium.spaces.flatten(observation_space, obs)"
            raise InputError(f"the observation must have shape {self.obs_shape}, or {many}, got {got}; {hint}")
        single = len(shape) == k
        return self._numbers(np.asarray(obs)[None] if single else np.asarray(obs)), single

    def _act(self, components: Components, rows: NDArray[Any], deterministic: bool, rng: Rng) -> NDArray[Any]:
        if deterministic:
            self._say_not_covered()
        return self._actions(components, rows, None if deterministic else rng)

    def _say_not_covered(self) -> None:
        """Warn once that the certificate does not cover a policy that always takes the most likely action.

        There is no warning if the policy has no random actions, if it has no certificate, or if its certificate is
        CERTIFIED for the most likely actions as well.
        """
        verdict = None if self.certificate is None else self.certificate.greedy_verdict
        known = self.certified_elsewhere or self.certificate is not None
        if self._said or not known or not self.draws or verdict == "CERTIFIED":
            return
        self._said = True
        said = "" if verdict is None else f" (the verdict on that is {verdict})"
        text = (
            f"the certificate is about actions that are drawn; always taking the most likely one is not covered{said}"
        )
        warnings.warn(f"{text}: use deterministic=False", NotCertifiedWarning, stacklevel=self.frames)

    @property
    @abstractmethod
    def draws(self) -> bool:
        """Whether the policy chooses actions at random in some state."""

    @abstractmethod
    def _numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the observations in the number type of the policy; raise InputError if they are not valid."""

    @abstractmethod
    def _actions(self, components: Components, rows: NDArray[Any], rng: Rng | None) -> NDArray[Any]:
        """Return actions [n, …] in the environment's form; row i follows the policy with index `components[i]`.

        If `rng` is None, return the most likely actions.
        """

    def _one(self, actions: NDArray[Any]) -> Any:
        return actions[0]


class NetworkRunner(RunningPolicy):
    """A mixture of M network policies theta [M, d] of one architecture, with one normaliser (mean, var, count)."""

    def __init__(
        self,
        form: NetworkForm,
        weights: Any,
        theta: Any,
        normaliser: tuple[Any, Any, Any],
        certificate: Certificate | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(weights, certificate, seed)
        self.form, self.memory = form, form.memory
        self.obs_shape = tuple(int(n) for n in (form if form.memory is None else form.memory).obs_shape)
        self.theta = read_numbers("theta", theta, ndim=2).astype(np.float32)
        self.normaliser = tuple(
            read_numbers("the normaliser", x, ndim=np.ndim(x)).astype(np.float32) for x in normaliser
        )
        if self.theta.shape != (self.M, form.d):
            raise InputError(f"theta has shape {self.theta.shape}, its description asks for {(self.M, form.d)}")
        if [x.shape for x in self.normaliser] != [(form.inputs,), (form.inputs,), ()]:
            raise InputError(f"the normaliser must have {form.inputs} entries, as the observations have")

    @property
    def draws(self) -> bool:
        return True

    @cached_property
    def outs(self) -> list[Callable[[Any], Any]]:
        """A list with one function per policy: obs [n, …] → parameters of the action distribution [n, size]."""
        return [self.form.plain(theta, self.normaliser) for theta in self.theta]

    def _numbers(self, rows: NDArray[Any]) -> NDArray[Any]:
        if rows.dtype.kind not in "biuf":
            raise InputError(f"the observation must hold real numbers, got {rows.dtype}")
        with np.errstate(over="ignore"):
            z = rows.astype(np.float32)
        if not np.isfinite(z).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(z))[0][1:])
            raise InputError(f"the observation is not finite at entry {at}: no action is chosen")
        return z

    def _actions(self, components: Components, rows: NDArray[Any], rng: Rng | None) -> NDArray[Any]:
        head, out = self.form.head, self._outputs(components, rows)
        noise = np.float32(0) if rng is None else head.plain_noise(rng, len(rows))
        return self.form.space.native_rows(head.action(head.latent(out, noise)))

    def _outputs(self, components: Components, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the parameters of the action distribution [n, size]; row i comes from the policy `components[i]`."""
        if not components.ndim or self.M == 1:
            return self.outs[int(components.flat[0]) if components.size else 0](rows)
        out = np.empty((len(rows), self.form.head.size), np.float32)
        for m in np.unique(components):
            out[components == m] = self.outs[int(m)](rows[components == m])
        return out

    def _one(self, actions: NDArray[Any]) -> Any:
        return int(actions[0]) if actions.ndim == 1 else actions[0]
