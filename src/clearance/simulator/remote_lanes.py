"""Fleet: a simulator whose environments run in many worker processes.

    with cl.Fleet(cl.gymnasium("CartPole-v1", num_envs=4, …), cl.Ray(workers=16)) as fleet:
        sol = cl.solve(fleet, budget=1e7)

A fleet is a simulator, so `solve`, `resume` and `certify` accept it. The unit of work is a group of n lanes (parallel
environments). All groups have the same shape, because the last bits of matrix products depend on it. The random streams
of a group are a function of (seed, iteration, group). So results are bit-identical for any number of workers, in one
process, and after failures of workers. θ and the normaliser are sent to each worker once per iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from clearance.cluster.executor import Call, Executor, one_blas_thread
from clearance.core.arrays import Array
from clearance.core.errors import EnvironmentFault, InputError, SolverError
from clearance.core.random_streams import fold
from clearance.simulator.gymnasium_envs.lane_independence import check_lanes
from clearance.simulator.jax_backend import jax, jax_key, real
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.jax_envs.jax_rollout import rollout
from clearance.simulator.policies.network_policy import NetworkPolicy, Normaliser
from clearance.simulator.simulator import LaneCheck, Simulator, Steps

GROUP = 8  # lanes of a group on a JAX environment, which has no lanes of its own


class Fleet(Simulator):
    """A simulator whose environments run in the worker processes of an executor.

    `near` is the same simulator in this process, and `pool` holds the workers.
    """

    def __init__(self, simulator: Simulator, executor: Executor) -> None:
        if isinstance(simulator, Fleet):
            raise InputError("the simulator is a fleet already: give the simulator itself")
        self.near, make = _repeatable(simulator)
        self.pool = executor.worker_pool(self.near, make)
        self.statement, self.obs_shape, self.action = self.near.statement, self.near.obs_shape, self.near.action
        self.n, self.sign, self.exact = self.near.n, self.near.sign, self.near.exact
        self.plain, self.tail_costs = self.near.plain, self.near.tail_costs

    def for_learning(self) -> Fleet:
        """Return the fleet itself, because its workers can run one problem only."""
        return self

    def map(self, call: Call, shared: Any, jobs: Sequence[Any]) -> list[Any]:
        try:
            return self.pool.map(call, shared, jobs)
        except SolverError as e:
            raise EnvironmentFault(self.near.statement.name, 0, None, str(e)) from None

    @cached_property
    def lane_check(self) -> LaneCheck:
        """The result of checking whether lanes (parallel environments) are independent.

        A worker makes the check, since this process need not run the simulator.
        """
        if isinstance(self.near, Environment):
            return self.near.lane_check
        return self.map(_check_lanes, None, [None])[0]

    def close(self) -> None:
        """Stop the workers; the simulator itself stays open."""
        self.pool.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _repeatable(simulator: Any) -> tuple[Any, Callable[[], Any]]:
    """Return the simulator as one group of lanes (parallel environments), and a function without arguments.

    The function makes the same group in another process. Raise InputError if that is not possible.
    """
    if isinstance(simulator, Environment):
        group = replace(simulator, n=min(simulator.n, GROUP))
        return group, lambda: group
    make = getattr(simulator, "again", None)
    if make is None:
        name = simulator.statement.name
        raise InputError(f"{name}: an environment object cannot be made again by a worker: give its id, or a factory")
    return simulator, make


def _check_lanes(simulator: Any, shared: None, job: None) -> LaneCheck:
    """Check in a worker whether lanes (parallel environments) are independent; `shared` and `job` are not used.

    A fleet needs this check even for groups of one lane.
    """
    return check_lanes(simulator)


def map_jobs(simulator: Any, call: Call, shared: Any, jobs: Sequence[Any]) -> list[Any]:
    """Return [call(simulator, shared, job) for job in jobs].

    If the simulator is a fleet, its workers compute the list.
    """
    if isinstance(simulator, Fleet):
        return simulator.map(call, shared, jobs)
    with one_blas_thread():
        return [call(simulator, shared, job) for job in jobs]


class Acting(NamedTuple):
    """The data with which a group of parallel environments acts: policy, θ, normaliser, and the number T of steps."""

    policy: NetworkPolicy
    theta: Array
    normaliser: Normaliser
    T: int


def walk(simulator: Any, acting: Acting, key: np.uint64) -> tuple[Steps, Any]:
    """Run one group of lanes (parallel environments) for T steps from fresh resets; return the steps and the latents.

    `acting` holds the policy and T. The latents [T, n, …] are the values that the policy draws, before they are turned
    into actions of the environment.
    """
    if isinstance(simulator, Environment):
        return _compiled(simulator, acting, key)
    rng = np.random.default_rng(int(key))
    actor = LatentRecorder(acting.policy, acting.policy.plain(acting.theta, acting.normaliser), rng)
    steps = simulator.walk(actor, rng.integers(2**31, size=simulator.n), acting.T)
    return steps, np.stack(actor.latent)


def _compiled(env: Any, acting: Acting, key: np.uint64) -> tuple[Steps, Any]:
    """Do the same as `walk`, for a JAX environment: run T steps and return the steps and the latents of the actions.

    The run is one compiled program, which is cached for each policy and T.
    """
    policy, theta, normaliser, T = acting
    made = env.__dict__.setdefault("_compiled_groups", {})
    if (id(policy), T) not in made:
        run = jax.jit(lambda key, norm, theta: rollout(env, policy, policy.net(theta), norm, key, env.n, T))
        made[id(policy), T] = policy, run
    norm = Normaliser(*(real(x) for x in normaliser))
    steps, latent = made[id(policy), T][1](jax_key(key), norm, real(theta))
    return Steps(*(np.asarray(x) for x in steps)), np.asarray(latent)


def streams(key: np.uint64, groups: int) -> list[np.uint64]:
    """Return one random key for each group of parallel environments in an iteration; the first one is `key` itself."""
    return [key, *(fold(key, g) for g in range(1, groups))]


@dataclass(eq=False)
class LatentRecorder:
    """An actor that applies a policy to a batch of observations and records the latents of its actions.

    A latent is the value that the policy draws, before it is turned into an action of the environment. `out` is a
    function from observations to the parameters of the action distribution.
    """

    policy: NetworkPolicy
    out: Callable[[Any], Any]
    rng: np.random.Generator
    latent: list[Any] = field(default_factory=list)

    def __call__(self, obs: Any, t: int) -> Any:
        head = self.policy.head
        u = head.latent(self.out(obs), head.plain_noise(self.rng, len(obs)), np)
        self.latent.append(u)
        return head.action(u, np)
