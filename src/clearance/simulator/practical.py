"""The practical sampler: whole steps of n lanes, advantages by GAE with a critic per signal.

Biased where the critic is wrong and where γ = 1 is stood in for by γ = .99 inside the advantages; never in Ĵ of limits
per episode, which is the mean over whole first episodes, with the discount of the statement. Certificates do not
depend on any of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from clearance.problem import Array
from clearance.sample.draws import Draws
from clearance.simulator.advantage import first_returns, gae, occupancy_weights
from clearance.simulator.backend import jax, jax_key, jnp, real
from clearance.simulator.critic import Critics, Values
from clearance.simulator.environment import Environment
from clearance.simulator.natural import Scores
from clearance.simulator.policy import NetworkPolicy, Normaliser
from clearance.simulator.problem import Simulator, Statement, Steps
from clearance.simulator.rollout import rollout

REST = 0.02  # what discounting leaves of the signals after a batch's last step, where there is no horizon
MEMORY = 0.1  # the weight of a new batch in the running sizes


class World(NamedTuple):
    """What is carried from batch to batch, all of it arrays.

    values      the critic;  normaliser  of the observations, frozen after `warm` batches
    size        root mean square of the advantages [1+I]: the units in which r and g_i are weighed against each other
    spread      standard deviation of one episode's sum [1+I]
    miss        root mean square distance of one episode's sum from its limit [I]
    batches     so far
    """

    values: Values
    normaliser: Normaliser
    size: Any
    spread: Any
    miss: Any
    batches: Any


@dataclass(frozen=True, eq=False)
class Practical:
    """Draws for a network policy, from a JAX environment or from anything with `walk`.

    discount  inside the advantages where the statement's own is 1; else that one
    decay   λ of GAE
    warm    batches after which the normaliser is frozen
    """

    simulator: Simulator
    policy: NetworkPolicy
    discount: float = 0.99
    decay: float = 0.95
    warm: int = 20
    hidden: tuple[int, ...] = (64, 64)
    rate: float = 1e-3
    epochs: int = 4
    batch_rows: int = 512

    @property
    def cmdp(self) -> Statement:
        """The problem, as far as a method asks for it: γ, b and I."""
        return self.simulator.statement

    @property
    def gamma(self) -> float:
        return self.discount if self.cmdp.gamma == 1 else self.cmdp.gamma

    @property
    def steps_per_lane(self) -> int:
        """T: the horizon, or until what is left of the discounted sums is small."""
        H, gamma = self.cmdp.horizon, self.cmdp.gamma
        rest = np.inf if gamma == 1 else np.log(REST) / np.log(gamma)
        return int(np.ceil(min(rest, np.inf if H is None else H)))

    def lanes(self, N: int) -> int:
        return max(1, round(N / self.steps_per_lane))

    @cached_property
    def critics(self) -> Critics:
        return Critics(self.policy.inputs, 1 + self.cmdp.I, self.hidden, self.rate, self.epochs, self.batch_rows)

    def begin(self) -> World:
        one = jnp.ones(1 + self.cmdp.I)
        normaliser = Normaliser(*(real(x) for x in Normaliser.identity(self.policy.inputs)))
        values = self.critics.begin(self.policy.seed + 1)
        return World(values, normaliser, one, one, one[1:], jnp.zeros((), jnp.int32))

    def batch(self, key: np.uint64, world: World, theta: Array, N: int) -> tuple[Draws, Array, World, int]:
        """About N steps: draws, Ĵ [1+I], the world after them, and the steps they cost."""
        stream = jax_key(key)
        if isinstance(self.simulator, Environment):
            rows, J_hat, steps, world = self._compiled(stream, world, real(theta), self.lanes(N))
        else:
            rows, J_hat, steps, world = self._digested(world, *self._walk(key, world, theta, N))
        z, latent, weight, A, R, obs, valid = rows
        order = self.critics.order(key, len(z))
        world = self._learned(order, world, z, R, obs, valid)  # goes on in the background, beside the direction
        score = Scores(self.policy, theta, z, latent, weight)
        rows = np.zeros(0, np.int64)
        return (
            Draws(np.asarray(weight, float), score, np.asarray(A, float), rows),
            np.asarray(J_hat, float),
            world,
            int(steps),
        )

    @cached_property
    def _compiled(self) -> Any:
        def run(key: Any, world: World, theta: Any, n: int) -> Any:
            env = self.simulator
            assert isinstance(env, Environment)
            net, T = self.policy.net(theta), self.steps_per_lane
            steps, latent = rollout(env, self.policy, net, world.normaliser, jax.random.fold_in(key, 0), n, T)
            return self._digest(world, steps, latent)

        return jax.jit(run, static_argnums=3)

    @cached_property
    def _digested(self) -> Any:
        return jax.jit(self._digest)

    def _digest(self, world: World, steps: Steps, latent: Any) -> Any:
        """Rows (z, latent, weight, A, returns, observations, valid) [N, …], Ĵ, the number of steps, and the sizes."""
        obs, after = self.policy.flat(steps.obs), self.policy.flat(steps.after)
        z = world.normaliser(obs)
        V = self.critics(world.values, z)
        V_after = self._following(world, steps, V, after)
        A = gae(steps, V, V_after, self.gamma, self.decay)
        weight = occupancy_weights(steps, self.cmdp.gamma)
        X = first_returns(steps, V_after, self.cmdp.gamma)
        rows = z, latent, weight, A, A + V, obs, steps.valid.astype(z.dtype)
        world = self._measured(world, weight, A, X)
        return [x.reshape(-1, *x.shape[2:]) for x in rows], X.mean(0), jnp.sum(steps.valid), world

    def _following(self, world: World, steps: Steps, V: Any, after: Any) -> Any:
        """V of the next observation [T, n, 1+I]: that of the next row, unless an episode was cut off in between."""

        def V_of(obs: Any) -> Any:
            return self.critics(world.values, world.normaliser(obs))

        def shifted() -> Any:
            return jnp.concatenate([V[1:], V_of(after[-1:])])

        apart = steps.truncated | ~steps.valid
        return jax.lax.cond(jnp.any(apart[:-1]), lambda: V_of(after), shifted)

    @cached_property
    def _learned(self) -> Any:
        """The critic fitted to the returns R, and the normaliser moved while it is warming up."""

        def learned(order: Any, world: World, z: Any, R: Any, obs: Any, valid: Any) -> World:
            values = self.critics.fit(order, world.values, z, R, valid)
            if not self.policy.design.normalise:
                return world._replace(values=values)
            more, warm = world.normaliser.joined(obs, valid), world.batches <= self.warm  # this batch is counted
            normaliser = jax.tree.map(lambda a, b: jnp.where(warm, a, b), more, world.normaliser)
            return world._replace(values=values, normaliser=normaliser)

        return jax.jit(learned)

    def _measured(self, world: World, weight: Any, A: Any, X: Any) -> World:
        """The running sizes after this batch: mean squares with memory 1/MEMORY batches."""
        gain = jnp.maximum(MEMORY, 1 / (world.batches + 1.0))
        weight, A = weight.ravel(), A.reshape(-1, A.shape[-1])
        new = weight @ A**2, jnp.var(X, axis=0), jnp.mean((X[:, 1:] - real(self.cmdp.b)) ** 2, axis=0)
        old = world.size, world.spread, world.miss
        size, spread, miss = (jnp.sqrt(a**2 + gain * (b - a**2)) for a, b in zip(old, new, strict=True))
        return world._replace(size=size, spread=spread, miss=miss, batches=world.batches + 1)

    def _walk(self, key: np.uint64, world: World, theta: Array, N: int) -> tuple[Steps, Any]:
        """Steps of a simulator with `walk`, and the latents behind its actions; walks side by side as more lanes."""
        sim: Any = self.simulator
        T, rng = self.steps_per_lane, np.random.default_rng(int(key))
        actor = Recorder(self.policy, self.policy.plain(theta, world.normaliser), rng)
        walks = [sim.walk(actor, rng.integers(2**31, size=sim.n), T) for _ in range(max(1, round(N / (T * sim.n))))]
        latent = np.stack(actor.latent).reshape(len(walks), T, sim.n, -1)
        return Steps(*(np.concatenate(x, 1) for x in zip(*walks, strict=True))), np.concatenate(list(latent), 1)


@dataclass(eq=False)
class Recorder:
    """A policy at work on a vector of observations, which keeps the latents that its actions came from."""

    policy: NetworkPolicy
    out: Callable[[Any], Any]
    rng: np.random.Generator
    latent: list[Any] = field(default_factory=list)

    def __call__(self, obs: Any, t: int) -> Any:
        head = self.policy.head
        u = head.latent(self.out(obs), head.plain_noise(self.rng, len(obs)), np)
        self.latent.append(u)
        return head.action(u, np)
