"""Bounded unbiased estimates of J from whole episodes of a simulator, for certificates and for the choice of a policy.

    horizon H     X = Σ_{t<H} γ^t h_t
    horizon None  X = Σ_{t<T} (γ/q)^t h_t,     P(T > t) = q^t,  q = √γ,  so that E X = J and X is bounded

Here h are the signals: the reward, then the utilities. Termination ends the sum. The bounds of h are declared; a value
outside them is an error, because it would make a certificate invalid. Values that exceed them by rounding alone are
accepted, and the bounds of X are widened by as much. Sums are taken in float64, even if the simulator computes in
float32. A reward may have no bounds: it is then estimated without a confidence bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.episode_source import Batch, blocks, join
from clearance.core.arrays import Array
from clearance.core.compiled.alias_tables import draw_error
from clearance.core.errors import EnvironmentFault, InputError
from clearance.core.random_streams import fold
from clearance.core.statement import Statement
from clearance.simulator.jax_backend import jax, jax_key, jnp, real
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.jax_envs.jax_rollout import act, choose
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.remote_lanes import map_jobs
from clearance.simulator.simulator import ROUGHLY, Simulator, find_wrong_signal, widen_bounds

UNBOUNDED = 1e12  # stands for the bound of a reward that has none
CHUNK = 256  # steps whose signals a compiled program keeps before they are summed in float64


def episode_steps(s: Statement) -> float:
    """Return the expected number of steps of an episode in which the environment never terminates."""
    return 1 / (1 - math.sqrt(s.gamma)) if s.horizon is None else float(s.horizon)


def total_weight(s: Statement) -> float:
    """Return the sum of the weights of all steps in an episode's estimate of J, if the environment never terminates."""
    return s.length if s.horizon is not None else 1 / (1 - math.sqrt(s.gamma))


def signal_bounds(s: Statement) -> tuple[Array, Array]:
    """Return the declared bounds (low, high) of the signals h [1+I]: the reward, then the utilities.

    Raise InputError if a constraint has no bounds.
    """
    if s.bounds is None and not s.I:
        return np.array([-np.inf]), np.array([np.inf])
    if s.bounds is None or not np.all(np.isfinite([x[1:] for x in s.bounds])):
        raise InputError(f"{s.name}: its constraints have no bounds, so samples cannot certify: declare bounds")
    return s.bounds


@dataclass(frozen=True, eq=False)
class NetworkEpisodes:
    """Episodes of a mixture of network policies, as a source of samples for `certificates.sequential_test.gather`."""

    simulator: Simulator
    mixture: NetworkMixture

    @property
    def statement(self) -> Statement:
        return self.simulator.statement

    @property
    def one_sided(self) -> tuple[bool, ...]:
        """For each limit [I], whether episodes can confirm but not refute it; true for CVaR limits."""
        return self.statement.one_sided

    @property
    def nu(self) -> tuple[float | None, ...]:
        """The threshold ν of each CVaR limit [I], None for other limits."""
        return self.statement.nu

    @property
    def q(self) -> float:
        return math.sqrt(self.statement.gamma)

    @property
    def factor(self) -> float:
        """The factor by which the weight of a signal changes from step to step: γ with a horizon, √γ without one."""
        return self.statement.gamma if self.statement.horizon is not None else self.statement.gamma / self.q

    @property
    def bounds(self) -> tuple[Array, Array]:
        """The bounds (low, high) of an episode's estimate of J [1+I]; they include 0 for episodes that end at once."""
        weight = total_weight(self.statement) * (1 + self._rounding)
        return self.statement.sum_ranges(*self._signal_bounds, weight, self._near.slip)

    @property
    def bias(self) -> Array:
        """A bound on |E X − J| [1+I], where X is an episode's estimate of J.

        It covers rounding, NumPy's geometric random numbers (2⁻⁴⁵) and the random choice of mixture components.
        """
        low, high = self._signal_bounds
        components = 1 if self.mixture is None else self.mixture.M
        share = 2 * self._rounding + 2.0**-45 + draw_error(np.ones(1), components)
        summed = np.array([False, *self.statement.one_sided])  # their signals come from rounded sums
        return (share + self._near.slip * summed) * total_weight(self.statement) * np.maximum(np.abs(low), np.abs(high))

    @property
    def _near(self) -> Simulator:
        """The simulator in this process: the simulator itself, or for a fleet the simulator that its workers run."""
        return getattr(self.simulator, "near", self.simulator)

    @cached_property
    def _signal_bounds(self) -> tuple[Array, Array]:
        """The bounds (low, high) of the signals h [1+I] in one step, widened by the accepted rounding errors."""
        low, high = widen_bounds(signal_bounds(self.statement), self._near.slip)
        return np.clip(low, -UNBOUNDED, UNBOUNDED), np.clip(high, -UNBOUNDED, UNBOUNDED)

    @property
    def _rounding(self) -> float:
        """A bound on the rounding error of an episode's estimate of J in float64, relative to the largest sum.

        Each weight and each addition contributes its own rounding error. Without a horizon, terms with negligible
        weights are not counted.
        """
        terms = min(self.statement.horizon or np.inf, 40 / max(1 - self.factor, 2.0**-53))
        return (2 * terms + 16) * 2.0**-53

    @property
    def episode_steps(self) -> float:
        return episode_steps(self.statement)

    def lengths(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """Draw the lengths of n episodes for the case that the environment does not terminate them earlier."""
        H = self.statement.horizon
        return rng.geometric(1 - self.q, n) if H is None else np.full(n, H, np.int64)

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        """Draw the episodes with the indices `begin` to `begin` + n − 1 of the random stream `key`.

        Return their estimates of J [n, 1+I], the mixture component of each, and the environment steps taken.
        """
        return join(map_jobs(self.simulator, _draw_block, (self.mixture, key), blocks(begin, n, self.simulator.n)))

    def _block(self, key: np.uint64, begin: int, n: int) -> Batch:
        rng = np.random.default_rng(int(fold(key, begin)))
        size = self.simulator.n
        component, length = self._components(rng, size), self.lengths(rng, size)
        length[n:] = 0  # lanes that are not needed
        run = self._run if isinstance(self.simulator, Environment) else self._walk
        X, steps = run(fold(key, begin), rng, component, length)
        return X[:n] + self.statement.offset, component[:n], steps

    def _components(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        return self.mixture.components(rng, n)

    def _acting(self, rng: np.random.Generator, component: Any) -> Any:
        """Return a function act(obs, t) → actions for parallel environments.

        Environment i follows the policy with index `component[i]` in the mixture.
        """
        n, head = self.simulator.n, self.mixture.policy.head
        lanes, outs = np.arange(n), self.mixture.outs

        def act(obs: Any, t: int) -> Any:
            out = np.stack([f(obs) for f in outs])[component, lanes] if len(outs) > 1 else outs[0](obs)
            return head.action(head.latent(out, head.plain_noise(rng, n), np), np)

        return act

    def _run(self, key: np.uint64, rng: Any, component: Any, length: Any) -> tuple[Array, int]:
        parts = real(self.mixture.theta), component, jnp.asarray(length, jnp.int32)
        norm = Normaliser(*(real(x) for x in self.mixture.normaliser))
        begin, advance = _episodes(self.simulator, self.mixture.policy)
        carry, X = begin(jax_key(key), parts[2]), np.zeros((self.simulator.n, 1 + self.statement.I))
        while np.any(carry[2]):
            t = int(carry[1])
            carry, h = advance(norm, *parts, carry)
            X += np.einsum("t,tnh->nh", self.factor ** np.arange(t, t + CHUNK, dtype=float), np.asarray(h, float))
        wrong, h, steps = (np.asarray(x) for x in carry[3:6])
        if (wrong >= 0).any():
            lane = int(np.argmax(wrong >= 0))
            told = find_wrong_signal(self.statement, np.asarray(h[lane], float), self.simulator.sign)  # type: ignore[attr-defined]
            assert told is not None
            raise EnvironmentFault(self.statement.name, lane, int(wrong[lane]), *told)
        return X, int(steps)

    def _walk(self, key: np.uint64, rng: Any, component: Any, length: Any) -> tuple[Array, int]:
        """Run one episode in each of n parallel environments; return the estimates of J [n, 1+I], and the steps taken.

        component, length  the mixture component and the largest number of steps of each episode [n]
        """
        sim: Any = self.simulator
        steps = sim.walk(
            self._acting(rng, component), rng.integers(2**31, size=sim.n), np.maximum(length, 1), once=True
        )
        T = len(steps.h)
        counted = steps.valid & (np.arange(T)[:, None] < length)
        t = np.cumsum(steps.valid, axis=0) - steps.valid
        X = np.sum(self.factor ** t[..., None] * np.where(counted[..., None], steps.h, 0.0), axis=0)
        return X, int(steps.valid.sum())


def _draw_block(simulator: Any, shared: tuple[NetworkMixture, np.uint64], job: tuple[int, int]) -> Batch:
    """Draw one block of episodes, in this process or in a worker; return estimates of J, components and steps.

    shared  the mixture and the random key;  job: the index of the first episode, and the number of episodes
    """
    mixture, key = shared
    return NetworkEpisodes(simulator, mixture)._block(key, *job)


def _episodes(env: Any, policy: Any) -> Any:
    """Return two compiled functions, which begin and advance a block of episodes; cached per environment and policy."""
    made = env.__dict__.setdefault("_compiled_episodes", {})
    if id(policy) not in made:
        chunk = jax.jit(lambda *x: _chunk(env, policy, *x))
        made[id(policy)] = policy, (jax.jit(lambda *x: _begin(env, *x)), chunk)
    return made[id(policy)][1]


def _begin(env: Environment, key: Any, length: Any) -> Any:
    """Return the initial state of a block of n parallel episodes of at most `length` [n] steps.

    It is a tuple: states, time t, which episodes still run [n], the first step with wrong signals [n] (−1: none), these
    signals [n, 1+I], the steps taken, and the random key.
    """
    n, H = len(length), 1 + env.statement.I
    begin, going = jax.random.split(key)
    state = jax.vmap(env.reset)(jax.random.split(begin, n))
    return state, jnp.zeros((), jnp.int32), length > 0, jnp.full(n, -1), jnp.zeros((n, H)), jnp.zeros((), int), going


def _chunk(env: Environment, policy: Any, norm: Any, theta: Any, component: Any, length: Any, carry: Any) -> Any:
    """Advance a block of parallel episodes by at most CHUNK steps from its state `carry` (see `_begin`).

    Return the new state and the signals [CHUNK, n, 1+I], which are 0 for episodes that have ended. `norm` is the
    normaliser of observations, and `component` [n] the row of `theta` that each episode follows.
    """
    nets = [policy.net(theta[m]) for m in range(theta.shape[0])]
    n, H, start = len(length), 1 + env.statement.I, carry[1]
    low, high = (real(x) for x in widen_bounds(signal_bounds(env.statement), ROUGHLY))

    def latent(m_obs: Any, noise: Any) -> Any:
        us = jnp.stack([jax.vmap(lambda o, e, net=net: act(policy, net, norm, o, e))(m_obs, noise) for net in nets])
        return us[component, jnp.arange(n)]

    def step(both: Any) -> Any:
        (state, t, alive, wrong, bad, steps, going), kept = both
        noisy, moving = jax.random.split(jax.random.fold_in(going, t))
        u = latent(jax.vmap(env.observe)(state), policy.head.noise(noisy, (n,)))
        moved, h, terminated = jax.vmap(env.step)(jax.random.split(moving, n), state, policy.head.action(u))
        kept = kept.at[t - start].set(jnp.where(alive[:, None], h, 0.0))
        fine = (jnp.isfinite(h) & (h >= low) & (h <= high)).all(1)
        now = alive & ~fine & (wrong < 0)
        wrong, bad = jnp.where(now, t, wrong), jnp.where(now[:, None], h, bad)
        state = jax.vmap(choose)(alive, moved, state)
        alive_ = alive & ~terminated & (t + 1 < length)
        return (state, t + 1, alive_, wrong, bad, steps + jnp.sum(alive), going), kept

    def unfinished(both: Any) -> Any:
        return jnp.any(both[0][2]) & (both[0][1] < start + CHUNK)

    return jax.lax.while_loop(unfinished, step, (carry, jnp.zeros((CHUNK, n, H))))
