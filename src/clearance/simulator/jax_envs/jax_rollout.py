"""Run batches of steps inside one compiled program: n lanes by `jax.vmap`, T steps by `jax.lax.scan`.

A lane is one of n environments that run in parallel. When its episode terminates or reaches the horizon, the lane
begins the next episode. The *latent* of an action is the value that the policy draws, before it is turned into an
action of the environment.
"""

from __future__ import annotations

from typing import Any

from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.policies.network_policy import Net, NetworkPolicy, Normaliser
from clearance.simulator.simulator import Steps


def rollout(
    env: Environment, policy: NetworkPolicy, net: Net, normaliser: Normaliser, key: Any, n: int, T: int
) -> tuple[Steps, Any]:
    """Run n lanes (parallel environments) for T steps from fresh resets; return the steps and the actions' latents.

    All arrays are [T, n, …]. A latent is the value that the policy draws, before it is turned into an action of the
    environment.
    """
    begin, noisy, moving, anew = jax.random.split(key, 4)
    state = jax.vmap(env.reset)(jax.random.split(begin, n))
    given = policy.head.noise(noisy, (T, n)), jax.random.split(moving, (T, n)), jax.random.split(anew, T)
    lane = jax.vmap(lambda *x: _step(env, policy, net, normaliser, *x))

    def one(carry: Any, given: Any) -> Any:
        (state, t), (noise, keys, anew) = carry, given
        moved, record = lane(state, t, noise, keys)
        done = record[0].terminated | record[0].truncated

        def begun() -> Any:
            return jax.vmap(choose)(done, jax.vmap(env.reset)(jax.random.split(anew, n)), moved)

        follow = jax.lax.cond(jnp.any(done), begun, lambda: moved)  # most steps end no episode
        return (follow, jnp.where(done, 0, t + 1)), record

    _, (steps, latent) = jax.lax.scan(one, (state, jnp.zeros(n, jnp.int32)), given)
    return steps, latent


def _step(
    env: Environment, policy: NetworkPolicy, net: Net, normaliser: Normaliser, state: Any, t: Any, noise: Any, key: Any
) -> Any:
    """Run step t of an episode in one environment; return the next state, and the recorded step with its latent.

    The latent is the value that the policy draws. `noise` is the random part of that draw.
    """
    obs = env.observe(state)
    u = act(policy, net, normaliser, obs, noise)
    moved, h, terminated = env.step(key, state, policy.head.action(u))
    truncated = ~terminated & (t + 1 == (env.statement.horizon or 0))
    return moved, (Steps(obs, u, h, terminated, truncated, env.observe(moved), jnp.ones((), bool)), u)


def act(policy: NetworkPolicy, net: Net, normaliser: Normaliser, obs: Any, noise: Any) -> Any:
    """Return the latent at one observation: the value that the policy draws, which determines the action.

    `noise` is the random part of the draw, so the result is a deterministic function of the arguments.
    """
    return policy.head.latent(policy.out(net, normaliser(policy.flat(obs))), noise)


def choose(flag: Any, yes: Any, no: Any) -> Any:
    """Return the state `yes` if the flag is true, else the state `no`; both are nested structures of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(flag, a, b), yes, no)
