"""The practical sampler: whole steps of n lanes, advantages by GAE with a critic per signal.

Biased where the critic is wrong, where γ = 1 is stood in for by a discount inside the advantages, and where the horizon
is long (H (1 − discount) ≥ 2): there advantages go on past it, as if the episode did. Never in Ĵ of limits per episode,
which is the mean over whole first episodes, with the discount of the statement. Certificates do not depend on any of
it. The critic's bias matters most on long tasks (docs/gymnasium.md): hence its many short steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from clearance.errors import EnvironmentFault
from clearance.problem import Array
from clearance.sample.draws import Draws
from clearance.simulator.advantage import first_returns, gae, occupancy_weights, times
from clearance.simulator.backend import jax, jax_key, jnp, real
from clearance.simulator.critic import Critics, Values
from clearance.simulator.environment import Environment
from clearance.simulator.fleet import Acting, each, streams, walk
from clearance.simulator.jacobian import GROUPS, side_by_side
from clearance.simulator.natural import Scores
from clearance.simulator.policy import NetworkPolicy, Normaliser
from clearance.simulator.problem import ROUGHLY, Simulator, Statement, Steps, allowed, wrong_signal
from clearance.simulator.rollout import rollout

REST = 0.02  # what discounting leaves of the signals after a batch's last step, where there is no horizon
LANES = 64  # from so many on, the lanes of a JAX environment are shared between threads
MEMORY = 0.1  # the weight of a new batch in the running sizes
SHORT = 2.0  # horizons of fewer discounted steps than this are ends for the advantages


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


class Rows(NamedTuple):
    """Steps as rows [N, …]: normalised observations, latents, weights as draws from d_ρ^π, advantages and returns
    [N, 1+I], observations, whether a row is a step, and its time within the horizon, −1 to 1.
    """

    z: Any
    latent: Any
    weight: Any
    A: Any
    R: Any
    obs: Any
    valid: Any
    clock: Any


class Digest(NamedTuple):
    """Rows, and the sums X [n, 1+I] over the first episode of every lane; the first row in which an observation or a
    signal is not what was declared, −1 without one, and its signals.
    """

    rows: Rows
    X: Any
    wrong: Any
    h: Any


@dataclass(frozen=True, eq=False)
class Practical:
    """Draws for a network policy, from a JAX environment or from anything with `walk`.

    discount  inside the advantages where the statement's own is 1; else that one
    decay   λ of GAE
    warm    batches after which the normaliser is frozen
    """

    simulator: Simulator
    policy: NetworkPolicy
    discount: float = 0.995
    decay: float = 0.97
    warm: int = 20
    hidden: tuple[int, ...] = (64, 64)
    rate: float = 1e-3
    epochs: float = 10
    batch_rows: int = 128

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

    @property
    def smallest_batch(self) -> int:
        """Lanes that step together walk together; of a JAX environment there are as many as a batch asks for."""
        return self.steps_per_lane * (1 if isinstance(self.simulator, Environment) else self.simulator.n)

    def lanes(self, N: int) -> int:
        return max(1, round(N / self.steps_per_lane))

    @property
    def timed(self) -> bool:
        """Whether the end at the horizon is part of the advantages, and the time an input of the critics."""
        H = self.cmdp.horizon
        return H is not None and H * (1 - self.gamma) < SHORT

    @cached_property
    def critics(self) -> Critics:
        inputs = self.policy.inputs + self.timed
        return Critics(inputs, 1 + self.cmdp.I, self.hidden, self.rate, self.epochs, self.batch_rows)

    def begin(self) -> World:
        one = jnp.ones(1 + self.cmdp.I)
        normaliser = Normaliser(*(real(x) for x in Normaliser.identity(self.policy.inputs)))
        values = self.critics.begin(self.policy.seed + 1)
        return World(values, normaliser, one, one, one[1:], jnp.zeros((), jnp.int32))

    def normaliser(self, world: World) -> Normaliser:
        """What a policy's observations go through, as of now."""
        return world.normaliser

    def batch(self, key: np.uint64, world: World, theta: Array, N: int) -> tuple[Draws, Array, World, int]:
        """About N steps: draws, Ĵ [1+I], the world after them, and the steps they cost."""
        rows, X = self.walked(key, world, theta, N)
        weight = rows.weight / rows.weight.sum()
        world = self._measured(world, weight, rows.A, X)
        world = self._learned(self.critics.order(key, len(weight)), world, rows)
        score = Scores(self.policy, theta, rows.z, rows.latent, weight)
        draws = Draws(weight.astype(float), score, rows.A.astype(float), np.zeros(0, np.int64))
        return draws, X.mean(0, dtype=float), world, int(rows.valid.sum())

    def walked(self, key: np.uint64, world: World, theta: Array, N: int) -> tuple[Rows, Array]:
        """The rows of about N steps, and the sums over first episodes."""
        parts = self._rollouts(key, world, theta, N)
        self._check(parts)
        rows = Rows(*(np.concatenate(x) for x in zip(*(p.rows for p in parts), strict=True)))
        return rows, np.concatenate([p.X for p in parts])

    def _rollouts(self, key: np.uint64, world: World, theta: Array, N: int) -> list[Digest]:
        """Steps and what the critic says of them; of a JAX environment in groups of lanes, each a job of one thread."""
        if not isinstance(self.simulator, Environment):
            return [self._digested(world, *self._walk(key, world, theta, N))]
        n, stream, theta = self.lanes(N), jax_key(key), real(theta)
        groups = GROUPS if n % GROUPS == 0 and n >= LANES else 1
        return side_by_side(
            lambda g: self._compiled(jax.random.fold_in(stream, g), world, theta, n // groups), range(groups)
        )

    @cached_property
    def _compiled(self) -> Any:
        def run(key: Any, world: World, theta: Any, n: int) -> Digest:
            env = self.simulator
            assert isinstance(env, Environment)
            net, T = self.policy.net(theta), self.steps_per_lane
            return self._digest(world, *rollout(env, self.policy, net, world.normaliser, key, n, T))

        return jax.jit(run, static_argnums=3)

    @cached_property
    def _digested(self) -> Any:
        return jax.jit(self._digest)

    def _digest(self, world: World, steps: Steps, latent: Any) -> Digest:
        obs, after = self.policy.flat(steps.obs), self.policy.flat(steps.after)
        z, t = world.normaliser(obs), times(steps)
        if self.timed:  # what is cut off at the horizon is no part of J
            steps = steps._replace(terminated=steps.terminated | steps.truncated, truncated=steps.truncated & False)
        V = self._values(world, z, t)
        V_after = self._following(world, steps, V, after, t)
        A = gae(steps, V, V_after, self.gamma, self.decay)
        weight = occupancy_weights(t, steps, self.cmdp.gamma)
        rows = Rows(z, latent, weight, A, A + V, obs, steps.valid.astype(z.dtype), self._clock(t, z.dtype))
        X = first_returns(steps, V_after, self.cmdp.gamma)
        wrong = self._first_wrong(steps, obs)
        h = steps.h.reshape(-1, steps.h.shape[-1])[wrong]
        return Digest(Rows(*(x.reshape(-1, *x.shape[2:]) for x in rows)), X, wrong, h)

    def _clock(self, t: Any, dtype: Any) -> Any:
        return (2.0 * t / self.cmdp.horizon - 1.0 if self.timed else jnp.zeros_like(t)).astype(dtype)

    def _values(self, world: World, z: Any, t: Any) -> Any:
        seen = jnp.concatenate([z, self._clock(t, z.dtype)[..., None]], -1) if self.timed else z
        return self.critics(world.values, seen)

    def _following(self, world: World, steps: Steps, V: Any, after: Any, t: Any) -> Any:
        """V of the next observation [T, n, 1+I]: that of the next row, unless an episode was cut off in between."""

        def V_of(obs: Any, t: Any) -> Any:
            return self._values(world, world.normaliser(obs), t)

        def shifted() -> Any:
            return jnp.concatenate([V[1:], V_of(after[-1:], t[-1:] + 1)])

        apart = steps.truncated | ~steps.valid
        return jax.lax.cond(jnp.any(apart[:-1]), lambda: V_of(after, t + 1), shifted)

    def _first_wrong(self, steps: Steps, obs: Any) -> Any:
        low, high = (-np.inf, np.inf) if self.cmdp.bounds is None else allowed(self.cmdp.bounds, ROUGHLY)
        fine = jnp.isfinite(steps.h) & (steps.h >= real(low)) & (steps.h <= real(high))
        wrong = ((~fine).any(-1) | ~jnp.isfinite(obs).all(-1)) & steps.valid
        return jnp.where(wrong.any(), jnp.argmax(wrong.ravel()), -1)

    def _check(self, parts: list[Digest]) -> None:
        """Environments in JAX cannot raise where they go wrong; those of Gymnasium have done so."""
        lanes = np.cumsum([0, *(len(p.X) for p in parts)])
        for first, part in zip(lanes, parts, strict=False):
            if part.wrong >= 0:
                t, lane = divmod(int(part.wrong), len(part.X))
                obs, h = np.asarray(part.rows.obs[int(part.wrong)]), np.asarray(part.h, float)
                found = wrong_signal(self.cmdp, h, getattr(self.simulator, "sign", 1.0))
                if found is None or not np.isfinite(obs).all():
                    found = "the observation is not finite", obs.tolist()
                what, value = found
                raise EnvironmentFault(self.cmdp.name, int(first) + lane, t, what, value)

    def _learned(self, order: Any, world: World, rows: Rows) -> World:
        """The critic fitted to the returns, and the normaliser moved while it is warming up.

        Two programs: the next walk needs the normaliser at once, while the critic goes on learning beside it.
        """
        seen = np.concatenate([rows.z, rows.clock[:, None]], 1) if self.timed else rows.z
        values = self._fit(order, world.values, seen, rows.R, rows.valid)
        if not self.policy.design.normalise or int(world.batches) > self.warm:  # this batch is counted
            return world._replace(values=values)
        return world._replace(values=values, normaliser=_joined(world.normaliser, rows.obs, rows.valid))

    @cached_property
    def _fit(self) -> Any:
        return jax.jit(self.critics.fit)

    def _measured(self, world: World, weight: Any, A: Any, X: Any) -> World:
        """The running sizes after this batch: mean squares with memory 1/MEMORY batches."""
        gain = max(MEMORY, 1 / (int(world.batches) + 1.0))
        new = weight @ A**2, X.var(0), ((X[:, 1:] - self.cmdp.b) ** 2).mean(0)
        old = (np.asarray(x) for x in (world.size, world.spread, world.miss))
        size, spread, miss = (real(np.sqrt(a**2 + gain * (b - a**2))) for a, b in zip(old, new, strict=True))
        return world._replace(size=size, spread=spread, miss=miss, batches=world.batches + 1)

    def _walk(self, key: np.uint64, world: World, theta: Array, N: int) -> tuple[Steps, Any]:
        """Steps of a simulator in groups of lanes, and the latents behind its actions; groups side by side as lanes."""
        T, n = self.steps_per_lane, self.simulator.n
        frozen = Normaliser(*(np.asarray(x) for x in world.normaliser))
        acting, groups = Acting(self.policy, theta, frozen, T), max(1, round(N / (T * n)))
        walks, latents = zip(*each(self.simulator, walk, acting, streams(key, groups)), strict=True)
        latent = [u.reshape(T, n, -1) for u in latents]
        return Steps(*(np.concatenate(x, 1) for x in zip(*walks, strict=True))), np.concatenate(latent, 1)


@jax.jit
def _joined(normaliser: Normaliser, obs: Any, valid: Any) -> Normaliser:
    return normaliser.joined(obs, valid)


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
