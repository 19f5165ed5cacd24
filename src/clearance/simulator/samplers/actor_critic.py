"""The actor-critic sampler: batches of steps in n lanes (parallel environments), and advantages by GAE.

There is one critic per signal. Advantages have three sources of bias: (1) a critic that is wrong, (2) if γ = 1, the
discount that replaces it inside the advantages, and (3) a long horizon H (H (1 − discount) ≥ 2), since advantages are
then computed as if episodes continued past the horizon. For problems with a horizon, the estimate of J is unbiased: it
is the mean over whole first episodes, with the discount of the problem. Certificates do not depend on any of these
estimates. The critic's bias matters most on long tasks (docs/research/gymnasium_log.md); many short steps of learning
reduce it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import EnvironmentFault
from clearance.core.statement import Statement
from clearance.learning.draws import Draws
from clearance.learning.sampler import Sampler
from clearance.simulator.jax_backend import jax, jax_key, jnp, real
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.jax_envs.jax_rollout import rollout
from clearance.simulator.policies.jacobian import GROUPS, map_groups
from clearance.simulator.policies.network_policy import NetworkPolicy, Normaliser
from clearance.simulator.policies.network_score import NetworkScore
from clearance.simulator.remote_lanes import Acting, map_jobs, streams, walk
from clearance.simulator.samplers.gae import episode_times, first_returns, gae, occupancy_weights
from clearance.simulator.samplers.value_networks import Critics, Values
from clearance.simulator.simulator import ROUGHLY, Simulator, Steps, find_wrong_signal, widen_bounds

REST = 0.02  # without a horizon, a batch runs each lane until γ^t has fallen to this value
LANES = 64  # from this number on, the lanes of a JAX environment are divided among threads
MEMORY = 0.1  # the weight of a new batch in the running averages
MOST_ROWS = 16384  # the most rows of several batches that the critics learn from
SHORT = 2.0  # if H (1 − discount) is below this, advantages end at the horizon H


class Past(NamedTuple):
    """A ring buffer with the rows (steps) of the last batches, from which the critics learn.

    obs    observations;  clock: time within the horizon, from −1 to 1
    R      training targets [rows, 1+I];  valid: 1 if a row is a real step, else 0
    """

    obs: Any
    clock: Any
    R: Any
    valid: Any


class Memory(NamedTuple):
    """The state of the sampler that is carried from batch to batch, as arrays.

    values      the critics;  past: the rows that the critics learn from
    normaliser  the normaliser of the observations; frozen after `warm` batches
    size        root mean square of the advantages [1+I]: the units in which reward and utilities are compared
    spread      standard deviation of one episode's sum [1+I]
    miss        root mean square distance of one episode's sum from its limit [I]
    batches     number of batches so far
    """

    values: Values
    normaliser: Normaliser
    size: Any
    spread: Any
    miss: Any
    batches: Any
    past: Past


class Rows(NamedTuple):
    """The steps of a batch as rows [N, …].

    z       normalised observations;  obs: the observations before normalisation
    latent  the values that the policy drew, which are turned into actions
    weight  weights with which the rows represent d_ρ^π, the discounted distribution of states and actions
    A, R    advantages and returns [N, 1+I]
    valid   1 if a row is a real step, else 0;  clock: the time within the horizon, from −1 to 1
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
    """A batch after advantages are computed: its rows, the sums of the signals, and the first error in the data.

    X      the sums [n, 1+I] over the first episode of each parallel environment
    wrong  the index of the first row with wrong data (not finite, or out of bounds); −1 if there is none
    h      the signals in that row
    """

    rows: Rows
    X: Any
    wrong: Any
    h: Any


@dataclass(frozen=True, eq=False)
class Practical(Sampler):
    """The actor-critic sampler for a network policy, on a JAX environment or any simulator with `walk`.

    discount    discount inside the advantages if the problem's γ is 1; otherwise γ is used
    decay       λ of GAE
    warm        number of batches after which the normaliser is frozen
    hidden      layer sizes of the critics;  rate, epochs, batch_rows: how Adam trains them
    kept        number of batches that the critics learn from; with several, critics see a rare cost more often
    """

    stepwise: ClassVar[bool] = True

    simulator: Simulator
    policy: NetworkPolicy
    discount: float = 0.995
    decay: float = 0.97
    warm: int = 20
    hidden: tuple[int, ...] = (64, 64)
    rate: float = 1e-3
    epochs: float = 10
    batch_rows: int = 128
    kept: int = 1

    @property
    def statement(self) -> Statement:
        """The limits, γ and horizon of the problem."""
        return self.simulator.statement

    @property
    def gamma(self) -> float:
        return self.discount if self.statement.gamma == 1 else self.statement.gamma

    @property
    def steps_per_lane(self) -> int:
        """T, the number of steps that each parallel environment makes in a batch.

        After T steps, the rest of the discounted sums is negligible. T is at most the horizon.
        """
        H, gamma = self.statement.horizon, self.statement.gamma
        rest = np.inf if gamma == 1 else np.log(REST) / np.log(gamma)
        return int(np.ceil(min(rest, np.inf if H is None else H)))

    @property
    def smallest_batch(self) -> int:
        """The smallest number of steps in a batch.

        On a JAX environment, a batch may consist of the steps of a single lane (environment). Any other simulator
        always steps all of its lanes.
        """
        return self.steps_per_lane * (1 if isinstance(self.simulator, Environment) else self.simulator.n)

    def lanes(self, N: int) -> int:
        return max(1, round(N / self.steps_per_lane))

    @property
    def timed(self) -> bool:
        """Whether the horizon is so short that advantages end there and the critics get the time as an input."""
        H = self.statement.horizon
        return H is not None and H * (1 - self.gamma) < SHORT

    @cached_property
    def critics(self) -> Critics:
        inputs = self.policy.inputs + self.timed
        return Critics(
            inputs, 1 + self.statement.I, self.hidden, self.rate, self.epochs, self.batch_rows, front=self.policy.front
        )

    def begin(self) -> Memory:
        one = jnp.ones(1 + self.statement.I)
        normaliser = Normaliser(*(real(x) for x in Normaliser.identity(self.policy.inputs)))
        values = self.critics.begin(self.policy.seed + 1)
        empty = np.zeros((0, self.policy.inputs)), np.zeros(0), np.zeros((0, 1 + self.statement.I)), np.zeros(0)
        past = Past(*(x.astype(np.float32) for x in empty))
        return Memory(values, normaliser, one, one, one[1:], jnp.zeros((), jnp.int32), past)

    def normaliser(self, memory: Memory) -> Normaliser:
        """Return the current normaliser of the observations, which is part of `memory`."""
        return memory.normaliser

    def carry(self, theta: Array, before: Memory, after: Memory) -> Array:
        """Return θ of the same policy after the normaliser of observations has changed.

        The old normaliser is in the memory `before`, the new one in `after`. With convolutions the change cannot be
        expressed in θ. Then θ is returned unchanged, and the policy changes slightly.
        """
        if after.normaliser is before.normaliser or self.policy.front is not None:
            return theta
        return self.policy.renormalised(theta, before.normaliser, after.normaliser)

    def batch(self, key: np.uint64, memory: Memory, theta: Array, N: int) -> tuple[Draws, Array, Memory, int]:
        """Draw about N steps; return the draws, the estimate Ĵ [1+I], the next memory, and the steps taken."""
        rows, X = self.walked(key, memory, theta, N)
        weight = rows.weight / rows.weight.sum()
        memory = self._measure(memory, weight, rows.A, X)
        memory = self._learn(key, memory._replace(past=_remember(memory, rows, self.kept)), rows)
        score = NetworkScore(self.policy, theta, rows.z, rows.latent, weight)
        draws = Draws(weight.astype(float), score, rows.A.astype(float), np.zeros(0, np.int64))
        return draws, X.mean(0, dtype=float), memory, int(rows.valid.sum())

    def walked(self, key: np.uint64, memory: Memory, theta: Array, N: int) -> tuple[Rows, Array]:
        """Return the rows of about N steps, and sums of the signals [n, 1+I].

        Each of the n sums is over the first episode of one parallel environment.
        """
        parts = self._rollouts(key, memory, theta, N)
        self._check(parts)
        rows = Rows(*(np.concatenate(x) for x in zip(*(p.rows for p in parts), strict=True)))
        return rows, np.concatenate([p.X for p in parts])

    def _rollouts(self, key: np.uint64, memory: Memory, theta: Array, N: int) -> list[Digest]:
        """Run about N steps and compute advantages; return one result for each group of parallel environments.

        A JAX environment may run in several groups, each in its own thread; another simulator gives a single result.
        """
        if not isinstance(self.simulator, Environment):
            return [self._digested(memory, *self._walk(key, memory, theta, N))]
        n, stream, theta = self.lanes(N), jax_key(key), real(theta)
        groups = GROUPS if n % GROUPS == 0 and n >= LANES else 1
        return map_groups(
            lambda g: self._compiled(jax.random.fold_in(stream, g), memory, theta, n // groups), range(groups)
        )

    @cached_property
    def _compiled(self) -> Any:
        def run(key: Any, memory: Memory, theta: Any, n: int) -> Digest:
            env = self.simulator
            assert isinstance(env, Environment)
            net, T = self.policy.net(theta), self.steps_per_lane
            return self._digest(memory, *rollout(env, self.policy, net, memory.normaliser, key, n, T))

        return jax.jit(run, static_argnums=3)

    @cached_property
    def _digested(self) -> Any:
        return jax.jit(self._digest)

    def _digest(self, memory: Memory, steps: Steps, latent: Any) -> Digest:
        obs, after = self.policy.flat(steps.obs), self.policy.flat(steps.after)
        z, t = memory.normaliser(obs), episode_times(steps)
        if self.timed:  # nothing after the horizon is part of J
            steps = steps._replace(terminated=steps.terminated | steps.truncated, truncated=steps.truncated & False)
        V = self._values(memory, z, t)
        V_after = self._following(memory, steps, V, after, t)
        A = gae(steps, V, V_after, self.gamma, self.decay)
        weight = occupancy_weights(t, steps, self.statement.gamma)
        rows = Rows(z, latent, weight, A, A + V, obs, steps.valid.astype(z.dtype), self._clock(t, z.dtype))
        X = first_returns(steps, V_after, self.statement.gamma) + real(self.statement.offset)
        X = X if self.simulator.tail_costs is None else self.simulator.tail_costs.limited_sums(X, jnp)
        wrong = self._first_wrong(steps, obs)
        h = steps.h.reshape(-1, steps.h.shape[-1])[wrong]
        return Digest(Rows(*(x.reshape(-1, *x.shape[2:]) for x in rows)), X, wrong, h)

    def _clock(self, t: Any, dtype: Any) -> Any:
        return (2.0 * t / self.statement.horizon - 1.0 if self.timed else jnp.zeros_like(t)).astype(dtype)

    def _values(self, memory: Memory, z: Any, t: Any) -> Any:
        seen = jnp.concatenate([z, self._clock(t, z.dtype)[..., None]], -1) if self.timed else z
        return self.critics(memory.values, seen)

    def _following(self, memory: Memory, steps: Steps, V: Any, after: Any, t: Any) -> Any:
        """Return the critics' values [T, n, 1+I] of the next observations `after`.

        V [T, n, 1+I] are the values of the current observations, and t the times in the episodes. Where the next
        observation of a step is also the current observation of the following step, its value is read from V. If an
        episode was cut off, the critics are evaluated at `after`.
        """

        def V_of(obs: Any, t: Any) -> Any:
            return self._values(memory, memory.normaliser(obs), t)

        def shifted() -> Any:
            return jnp.concatenate([V[1:], V_of(after[-1:], t[-1:] + 1)])

        apart = steps.truncated | ~steps.valid
        return jax.lax.cond(jnp.any(apart[:-1]), lambda: V_of(after, t + 1), shifted)

    def _first_wrong(self, steps: Steps, obs: Any) -> Any:
        low, high = (-np.inf, np.inf) if self.statement.bounds is None else widen_bounds(self.statement.bounds, ROUGHLY)
        fine = jnp.isfinite(steps.h) & (steps.h >= real(low)) & (steps.h <= real(high))
        wrong = ((~fine).any(-1) | ~jnp.isfinite(obs).all(-1)) & steps.valid
        return jnp.where(wrong.any(), jnp.argmax(wrong.ravel()), -1)

    def _check(self, parts: list[Digest]) -> None:
        """Raise EnvironmentFault for the first wrong row in the parts of a batch.

        The check is made here because compiled JAX programs cannot raise errors.
        """
        lanes = np.cumsum([0, *(len(p.X) for p in parts)])
        for first, part in zip(lanes, parts, strict=False):
            if part.wrong >= 0:
                t, lane = divmod(int(part.wrong), len(part.X))
                obs, h = np.asarray(part.rows.obs[int(part.wrong)]), np.asarray(part.h, float)
                found = find_wrong_signal(self.statement, h, getattr(self.simulator, "sign", 1.0))
                if found is None or not np.isfinite(obs).all():
                    found = "the observation is not finite", obs.tolist()
                what, value = found
                raise EnvironmentFault(self.statement.name, int(first) + lane, t, what, value)

    def _learn(self, key: np.uint64, memory: Memory, rows: Rows) -> Memory:
        """Return the memory with critics fitted to the returns and, in the first `warm` batches, an updated normaliser.

        Critics and normaliser are updated by two programs, so that the next rollout can use the normaliser at once,
        while the critics still learn in parallel.
        """
        N, past = len(rows.R), memory.past
        order = self.critics.order(key, min(int(memory.batches) * N, len(past.R)), N)
        values = self._fit(order, memory.values, memory.normaliser, past, rows.R, rows.valid)
        if not self.policy.design.normalise or int(memory.batches) > self.warm:  # `batches` includes this one
            return memory._replace(values=values)
        return memory._replace(values=values, normaliser=_merge(memory.normaliser, rows.obs, rows.valid))

    @cached_property
    def _fit(self) -> Any:
        def fit(order: Any, values: Values, normaliser: Normaliser, past: Past, R: Any, valid: Any) -> Values:
            z = normaliser(past.obs)
            seen = jnp.concatenate([z, past.clock[:, None]], 1) if self.timed else z
            return self.critics.descend(order, self.critics.rescaled(values, R, valid), seen, past.R, past.valid)

        return jax.jit(fit)

    def _measure(self, memory: Memory, weight: Any, A: Any, X: Any) -> Memory:
        """Return the memory after updating its running averages over about 1/MEMORY batches.

        They are `size` (of advantages), `spread` (of episode sums) and `miss` (distance from limits), as in `Memory`.

        weight, A  the weights [N] and advantages [N, 1+I] of the rows
        X          the sums of the signals [n, 1+I] over the first episode of each parallel environment
        """
        gain = max(MEMORY, 1 / (int(memory.batches) + 1.0))
        new = weight @ A**2, X.var(0), ((X[:, 1:] - self.statement.b) ** 2).mean(0)
        old = (np.asarray(x) for x in (memory.size, memory.spread, memory.miss))
        size, spread, miss = (real(np.sqrt(a**2 + gain * (b - a**2))) for a, b in zip(old, new, strict=True))
        return memory._replace(size=size, spread=spread, miss=miss, batches=memory.batches + 1)

    def _walk(self, key: np.uint64, memory: Memory, theta: Array, N: int) -> tuple[Steps, Any]:
        """Run about N steps of a simulator that is not in JAX, in groups of lanes (parallel environments).

        Return the steps of all groups and their latents (the values that the policy drew), joined along the axis of
        lanes.
        """
        T, n = self.steps_per_lane, self.simulator.n
        frozen = Normaliser(*(np.asarray(x) for x in memory.normaliser))
        acting, groups = Acting(self.policy, theta, frozen, T), max(1, round(N / (T * n)))
        walks, latents = zip(*map_jobs(self.simulator, walk, acting, streams(key, groups)), strict=True)
        latent = [u.reshape(T, n, -1) for u in latents]
        return Steps(*(np.concatenate(x, 1) for x in zip(*walks, strict=True))), np.concatenate(latent, 1)


def _remember(memory: Memory, rows: Rows, kept: int) -> Past:
    """Return the ring buffer of past rows, in which the oldest batch is replaced by `rows`.

    kept  the number of batches in the buffer; the first batch fills the whole buffer with copies of itself

    `memory.batches` must already include the batch in `rows`.
    """
    new, N = Past(rows.obs, rows.clock, rows.R, rows.valid), len(rows.R)
    if len(memory.past.R) < N:  # the first batch: make room for all batches that are kept
        return Past(*(np.concatenate([np.asarray(x)] * max(1, min(kept, MOST_ROWS // N))) for x in new))
    begin = (int(memory.batches) - 1) * N % len(memory.past.R)
    past = Past(*(np.array(x) for x in memory.past))
    for old, x in zip(past, new, strict=True):
        old[begin : begin + N] = x
    return past


@jax.jit
def _merge(normaliser: Normaliser, obs: Any, valid: Any) -> Normaliser:
    return normaliser.joined(obs, valid)
