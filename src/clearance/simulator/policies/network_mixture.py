"""A mixture of network policies: several parameter vectors θ with weights, and one normaliser of observations.

One of the policies is drawn at the start of each episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.certificate import Certificate
from clearance.certificates.certificate_fields import certificate_array
from clearance.core.array_files import read_arrays
from clearance.core.arrays import Array
from clearance.core.atomic_files import save_npz
from clearance.core.cost_memory import CostTracker
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.core.network_form import ARRAYS, most_numbers
from clearance.core.validation import read_distributions, read_numbers
from clearance.simulator.policies.network_policy import NetworkPolicy, Normaliser


@dataclass(frozen=True, eq=False, repr=False)
class NetworkMixture:
    """A mixture of M network policies with parameters theta [M, d]; policy m is drawn with probability weights[m].

    With M = 1 it is a single policy. θ and the normaliser are rounded to float32 on creation. So the policy that is
    measured is exactly the policy that is saved.
    """

    policy: NetworkPolicy
    weights: Array
    theta: Array
    normaliser: Normaliser

    def __post_init__(self) -> None:
        weights, theta = read_numbers("weights", self.weights, ndim=1), read_numbers("theta", self.theta, ndim=2)
        if len(weights) != len(theta) or not len(theta):
            raise InputError(f"weights has {len(weights)} entries for {len(theta)} policies; give one each")
        if theta.shape[1] != self.policy.d:
            raise InputError(f"theta has {theta.shape[1]} entries per policy, its description asks for {self.policy.d}")
        normaliser = Normaliser(*(np.asarray(x, np.float32) for x in self.normaliser))
        if normaliser.mean.shape != (self.policy.inputs,) or normaliser.var.shape != (self.policy.inputs,):
            raise InputError(f"the normaliser must have {self.policy.inputs} entries, as the observations have")
        object.__setattr__(self, "weights", read_distributions("weights", weights))
        object.__setattr__(self, "theta", theta.astype(np.float32).astype(float))
        object.__setattr__(self, "normaliser", normaliser)

    def __repr__(self) -> str:
        many = "one network" if self.M == 1 else f"{self.M:,} networks"
        obs, head = self.policy.obs_shape, type(self.policy.head).__name__
        return f"<NetworkMixture: {many} with {self.policy.d:,} parameters, observation {obs}, {head} actions>"

    @classmethod
    def single(cls, policy: NetworkPolicy, theta: Array, normaliser: Normaliser) -> NetworkMixture:
        return cls(policy, np.ones(1), theta[None], normaliser)

    @property
    def M(self) -> int:
        return len(self.weights)

    def part(self, weights: Array) -> NetworkMixture:
        """Return a mixture of the same policies with new weights [M], which are scaled to sum to 1.

        Policies of weight 0 are left out.
        """
        used = np.flatnonzero(weights)
        return NetworkMixture(self.policy, weights[used] / weights[used].sum(), self.theta[used], self.normaliser)

    @cached_property
    def outs(self) -> list[Callable[[Any], Any]]:
        """A list with one NumPy function per policy: obs [n, …] → parameters of the action distribution [n, size]."""
        return [self.policy.plain(theta, self.normaliser) for theta in self.theta]

    def components(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """Draw the policies of n episodes; return their indices in the mixture [n]."""
        return rng.choice(self.M, size=n, p=self.weights / self.weights.sum())

    def reset(self, rng: np.random.Generator) -> NetworkActor:
        """Draw one policy of the mixture; return an actor that follows it for one episode."""
        memory = self.policy.memory
        tracker = None if memory is None else CostTracker(memory, None)
        return NetworkActor(self.policy, self.outs[int(self.components(rng, 1)[0])], rng, tracker)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of a policy file: weights [M], theta [M, d], description as JSON, and normaliser."""
        texts = {"schema": np.array("clearance/policy/1"), "policy": np.array(self.policy.description())}
        normaliser = {f"obs_{k}": v for k, v in self.normaliser._asdict().items()}
        return {**texts, "weights": self.weights, "theta": self.theta, **normaliser}

    def save(self, path: AnyPath, certificate: Certificate | None = None) -> None:
        """Write `policy.npz`, with the certificate of this policy if given; `clearance.load_policy` reads the file."""
        save_npz(path, self.arrays() | certificate_array(certificate))

    @classmethod
    def load(cls, path: AnyPath) -> NetworkMixture:
        z = read_arrays(path, ARRAYS, most_numbers)
        missing = [k for k in ARRAYS if k not in z]
        if missing:
            raise InputError(f"{path}: {missing[0]} is missing; this is no policy of a simulator")
        try:
            return cls.restored(z)
        except InputError as e:
            raise InputError(f"{path}: {e}") from None

    @classmethod
    def restored(cls, z: Mapping[str, NDArray[Any]]) -> NetworkMixture:
        """Return the mixture that is stored in a policy file; z holds the arrays of the file by name."""
        policy = NetworkPolicy.from_description(str(z["policy"]))
        if policy.weight_count > z["theta"].shape[-1:][0]:  # before the network is made
            raise InputError(f"theta has shape {z['theta'].shape}, its description asks for {policy.weight_count}")
        return cls(policy, z["weights"], z["theta"], Normaliser(z["obs_mean"], z["obs_var"], z["obs_count"]))


@dataclass(frozen=True, eq=False)
class NetworkActor:
    """An actor that follows one policy of a mixture during one episode.

    If the policy sees the costs so far, `record` must be called after every step.
    """

    policy: NetworkPolicy
    out: Callable[[Any], Any]
    rng: np.random.Generator
    tracker: CostTracker | None = None

    def record(self, costs: Any) -> None:
        """Record the cost of the last step: a number, or a dict by name."""
        if self.tracker is not None:
            self.tracker.record(costs)

    def act(self, obs: Any) -> Any:
        """Return an action for one observation, in the form of the environment's own action space."""
        policy, head = self.policy, self.policy.head
        shape = policy.obs_shape if policy.memory is None else policy.memory.obs_shape
        if np.shape(obs) != shape:
            told = "flatten it first: gymnasium.spaces.flatten(observation_space, obs)"
            raise InputError(f"the observation must have shape {shape}, got {_describe_shape(obs)}; {told}")
        rows = np.asarray(obs)[None] if self.tracker is None else self.tracker.join(np.asarray(obs, float)[None])
        u = head.latent(self.out(rows), head.plain_noise(self.rng, 1), np)
        return policy.space.native(np.asarray(head.action(u, np))[0])


def _describe_shape(obs: Any) -> str:
    return "a dict" if isinstance(obs, dict) else str(np.shape(obs))
