"""Algorithm 2 on a JAX environment: unbiased draws of (s, a, Â) and of Ĵ by geometric walks (Bai et al. 2023).

(s, a) ~ d_ρ^π     run from ρ, stop with probability 1−γ before each further step; take the last pair
Â = Q̂ − V̂          `resets=True`: the environment is put back into s
Â = ±2 (X − V(s))  `resets=False`: a fair coin decides whether the episode continues from (s, a), giving +, or takes
                   a fresh action at s, giving −; the environment is not put back into a state
X = V(s_0) + Σ_{t<T} (h_t + γ V(s_{t+1}) − V(s_t)),   T ~ Geo(1−γ) on {1, 2, …}

Here ρ is the start distribution, d_ρ^π the discounted occupancy, h are the signals (reward and utilities), and Â
estimates the advantage of a at s. V is any function that does not depend on these episodes: 0, or a critic fitted to
earlier batches (`control=True`). X has the same mean as Σ_{t<T} h_t for any V; a better V reduces its variance. After
termination there are no signals: a draw there has Â = 0 and weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.statement import Statement
from clearance.learning.draws import Draws
from clearance.learning.sampler import Sampler
from clearance.simulator.jax_backend import jax, jax_key, jnp, real
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.jax_envs.jax_rollout import choose
from clearance.simulator.policies.network_policy import Net, NetworkPolicy, Normaliser
from clearance.simulator.policies.network_score import NetworkScore
from clearance.simulator.samplers.value_networks import Critics, Values


class Walked(NamedTuple):
    """The result of N walks (rollouts of random length).

    X [N, 1+I]  sums of the signals;  state: the last states;  terminated [N]: whether a walk terminated
    steps       the number of environment steps of all walks together
    """

    X: Any
    state: Any
    terminated: Any
    steps: Any


class Algorithm2(Sampler):
    """The base class of samplers of Algorithm 2.

    A critic is the control variate, and observations are not normalised.
    """

    simulator: Any
    policy: NetworkPolicy
    hidden: tuple[int, ...]

    @property
    def statement(self) -> Statement:
        """The limits and γ of the problem."""
        return self.simulator.statement

    @cached_property
    def critics(self) -> Critics:
        return Critics(self.policy.inputs, 1 + self.statement.I, self.hidden, front=self.policy.front)

    def begin(self) -> Values:
        return self.critics.begin(self.policy.seed + 1)

    def normaliser(self, memory: Values) -> Normaliser:
        """Return the normaliser that changes nothing, since observations are not normalised."""
        return Normaliser.identity(self.policy.inputs)

    def check_policy(self) -> None:
        if self.policy.design.normalise:
            raise InputError("Algorithm 2 has no warm-up for a normaliser: give a policy with normalise=False")


@dataclass(frozen=True, eq=False)
class Unbiased(Algorithm2):
    """The paper's sampler (Algorithm 2) for network policies on a JAX environment.

    resets   whether the environment is put back into a state s; if not, a fair coin is used
    control  whether a critic is used as control variate, which reduces the variance;  hidden: the critic's layer sizes
    """

    simulator: Environment
    policy: NetworkPolicy
    resets: bool = True
    control: bool = True
    hidden: tuple[int, ...] = (64, 64)

    def __post_init__(self) -> None:
        s = self.simulator.statement
        if s.horizon is not None or not isinstance(self.simulator, Environment):
            raise InputError(f"{s.name}: Algorithm 2 is for JAX environments with γ < 1 and no horizon; use Practical")
        self.check_policy()

    def batch(self, key: np.uint64, memory: Values, theta: Array, N: int) -> tuple[Draws, Array, Values, int]:
        """Return N draws for the update direction, the estimate Ĵ [1+I], the new memory, and the steps taken.

        The draws are those of lines 3–7 of Algorithm 1. Ĵ is the mean of N walks (lines 11–15).
        """
        z, u, weight, A, J_hat, steps, memory = self._compiled(
            jax_key(key), memory, real(theta), N, self.critics.order(key, 2 * N)
        )
        score = NetworkScore(self.policy, theta, z, u, weight)
        draws = Draws(np.asarray(weight, float), score, np.asarray(A, float), np.zeros(0, np.int64))
        return draws, np.asarray(J_hat, float), memory, int(steps)

    @cached_property
    def _compiled(self) -> Any:
        return jax.jit(self._draw, static_argnums=3)

    def _draw(self, key: Any, memory: Values, theta: Any, N: int, order: Any) -> Any:
        env, net = self.simulator, self.policy.net(theta)
        keys = jax.random.split(key, 10)
        start, again = (jax.vmap(env.reset)(jax.random.split(k, N)) for k in keys[:2])
        J = self._walk(net, memory, keys[2], start, self._geometric(keys[3], N))
        to = self._walk(net, memory, keys[4], again, self._geometric(keys[5], N) - 1)
        s, alive = to.state, ~to.terminated
        z = self.policy.flat(jax.vmap(env.observe)(s))
        u = self._act(net, z, keys[6])
        heads = jax.random.bernoulli(keys[7], shape=(N,))
        Q, V = self._continue(net, memory, keys[8:], s, u, alive, heads)
        A = (
            Q.X - V.X
            if self.resets
            else 2 * jnp.where(heads[:, None], Q.X - self._V(memory, z), self._V(memory, z) - V.X)
        )
        A = jnp.where(alive[:, None], A, 0.0)
        fitted = self._fit_critics(memory, order, z, V.X, alive & (self.resets | ~heads), start, J.X)
        steps = J.steps + to.steps + Q.steps + V.steps
        return z, u, alive / N, A, J.X.mean(0), steps, fitted

    def _continue(self, net: Net, memory: Values, keys: Any, s: Any, u: Any, alive: Any, heads: Any) -> Any:
        """Run two walks from each drawn state s: one that begins with the drawn action, and one with a fresh action.

        Return the results of both. `u` holds the policy's random values for the drawn actions. Draws that are not
        `alive` (the episode had ended) are not continued. Without resets, only one walk is run: the first if the coin
        shows `heads`, else the second.
        """
        one, two = jax.random.split(keys[0])
        T1, T2 = (self._geometric(k, len(alive)) * alive for k in jax.random.split(keys[1]))
        if not self.resets:
            T1, T2 = T1 * heads, T2 * ~heads
        return self._walk(net, memory, one, s, T1, u), self._walk(net, memory, two, s, T2)

    def _geometric(self, key: Any, N: int) -> Any:
        """Draw N walk lengths T on {1, 2, …} with P(T > t) = γ^t."""
        U = jax.random.uniform(key, (N,), minval=np.finfo(np.float32).tiny)
        return 1 + jnp.floor(jnp.log(U) / np.log(self.statement.gamma)).astype(jnp.int32)

    def _act(self, net: Net, z: Any, key: Any) -> Any:
        noise = self.policy.head.noise(key, (len(z),))
        return self.policy.head.latent(jax.vmap(lambda x: self.policy.out(net, x))(z), noise)

    def _V(self, memory: Values, z: Any) -> Any:
        return self.critics(memory, z) if self.control else jnp.zeros((len(z), 1 + self.statement.I))

    def _walk(self, net: Net, memory: Values, key: Any, state: Any, length: Any, first: Any = None) -> Walked:
        """Run N walks of `length` [N] steps from the states `state` [N, …]; return their sums and last states.

        first  the values that the policy drew for the first action of each walk; None: draw them here
        """
        env, N, gamma = self.simulator, len(length), self.statement.gamma

        def step(carry: Any) -> Any:
            state, t, alive, V, X, ended, steps = carry
            acting, moving = jax.random.split(jax.random.fold_in(key, t))
            u = self._act(net, self.policy.flat(jax.vmap(env.observe)(state)), acting)
            u = u if first is None else jnp.where(t == 0, first, u)
            moved, h, terminated = jax.vmap(env.step)(jax.random.split(moving, N), state, self.policy.head.action(u))
            V_next = self._V(memory, self.policy.flat(jax.vmap(env.observe)(moved)))
            on, off = alive[:, None], terminated[:, None]
            X = X + jnp.where(on, h + gamma * jnp.where(off, 0.0, V_next) - V, 0.0)
            state, ended = jax.vmap(choose)(alive, moved, state), ended | (alive & terminated)
            going = alive & ~terminated & (t + 1 < length)
            return state, t + 1, going, jnp.where(on, V_next, V), X, ended, steps + jnp.sum(alive)

        V = self._V(memory, self.policy.flat(jax.vmap(env.observe)(state)))
        begin = state, jnp.zeros((), jnp.int32), length > 0, V, V, jnp.zeros(N, bool), jnp.zeros((), jnp.int32)
        state, _, _, _, X, ended, steps = jax.lax.while_loop(lambda c: jnp.any(c[2]), step, begin)
        return Walked(X, state, ended, steps)

    def _fit_critics(self, memory: Values, order: Any, z: Any, X: Any, valid: Any, start: Any, X_J: Any) -> Values:
        """Return the critics for the next batch, fitted to the sums of two kinds of walks.

        z, X, valid  observations at drawn states s, sums [N, 1+I] of walks from there, and whether a row is used
        start, X_J   initial states, and sums [N, 1+I] of walks from there
        order        the indices of the rows for each step of Adam
        """
        if not self.control:
            return memory
        first = self.policy.flat(jax.vmap(self.simulator.observe)(start))
        rows, targets = jnp.concatenate([z, first]), jnp.concatenate([X, X_J])
        return self.critics.fit(
            order, memory, rows, targets, jnp.append(valid, jnp.ones(len(first), bool)).astype(z.dtype)
        )
