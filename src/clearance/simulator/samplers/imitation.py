"""Behaviour cloning: train a network to act like a user's rule, from episodes of the rule.

For discrete actions the loss is the negative log likelihood. For real actions it is the squared distance between the
rule's action and the network's most likely action, in units of half the width of the box.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from clearance.certificates.rule_watch import WatchedRule
from clearance.core.action_draws import NormalDraws
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.random_streams import fold
from clearance.simulator.jax_backend import jax, jnp, optax, real
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.policies.network_policy import NetworkPolicy, Normaliser
from clearance.simulator.samplers.observed_episodes import longest
from clearance.simulator.samplers.rule_episodes import follow_any_rule

ROWS, EPISODES = 8000, (8, 400)  # steps of the rule to learn from; the least and the most episodes
EPOCHS, BATCH, RATE = 60, 128, 2e-3
QUIET = 0.3  # a learned σ begins at this share of its usual initial value, since the rule has no noise


def imitate(
    simulator: Any, policy: NetworkPolicy, rule: Callable[[Any], Any], key: np.uint64, most: float
) -> tuple[Array, Normaliser, int]:
    """Return θ [d] of a network that acts like the rule, a normaliser of observations, and the steps taken.

    most  the largest number of environment steps, except that a few episodes are always run
    """
    if policy.memory is not None and isinstance(simulator, Environment):
        raise InputError("init: a rule does not see the costs so far of this problem: give cost_so_far=False")
    obs, actions = collect(simulator, rule, key, min(ROWS, most))
    z = policy.flat(np.stack(obs).astype(np.float32))
    normaliser = Normaliser.identity(policy.inputs)
    if policy.design.normalise:
        mean, var = z.mean(0), np.maximum(z.var(0), 1e-8)
        normaliser = Normaliser(mean.astype("f"), var.astype("f"), np.float32(len(z)))
    own: Array = np.stack([policy.space.own(a) for a in actions]).astype(float)
    if not isinstance(policy.head, NormalDraws):
        own = own.reshape(len(own), -1)  # latents: one whole number for each part
    theta = fit(policy, np.asarray(normaliser(z, np)), own, key)
    return policy.with_noise(theta, QUIET, QUIET), normaliser, len(z)


def collect(simulator: Any, rule: Callable[[Any], Any], key: np.uint64, steps: float) -> tuple[list[Any], list[Any]]:
    """Run the rule for about `steps` steps; return the observations as networks see them, and the rule's actions."""
    watched, seen = WatchedRule(rule), []
    for i in range(EPISODES[1]):
        watched.begin()
        seed = int(np.random.default_rng(int(fold(key, i))).integers(2**31))
        follow_any_rule(simulator, watched.choose, seed, longest(simulator.statement), seen)
        if len(seen) >= steps and i + 1 >= EPISODES[0]:
            break
    obs, actions = zip(*seen, strict=True)
    return list(obs), list(actions)


def fit(policy: NetworkPolicy, z: Array, actions: Array, key: np.uint64) -> Array:
    """Train a network by Adam to take the actions [N, …] at normalised observations z [N, inputs]; return its θ."""
    rng, size = np.random.default_rng(int(key)), min(BATCH, len(z))
    order = np.concatenate([rng.permutation(len(z))[: len(z) // size * size] for _ in range(EPOCHS)]).reshape(-1, size)
    kind = int if not isinstance(policy.head, NormalDraws) else jnp.zeros(0).dtype
    return np.asarray(_adam(policy, real(policy.init()), real(z), jnp.asarray(actions, kind), order), float)


@partial(jax.jit, static_argnums=0)
def _adam(policy: NetworkPolicy, theta: Any, z: Any, actions: Any, order: Any) -> Any:
    optimiser, half = optax.adam(optax.cosine_decay_schedule(RATE, len(order), 0.05)), 1.0
    if isinstance(policy.head, NormalDraws):
        box = policy.head.box
        half = np.where(box.bounded, 0.5 * (np.where(box.bounded, box.high - box.low, 2.0)), 1.0).astype(np.float32)

    def miss(theta: Any, rows: Any) -> Any:
        net = policy.net(theta)
        out = jax.vmap(lambda x: policy.out(net, x))(z[rows])
        if isinstance(policy.head, NormalDraws):
            likeliest = policy.head.action(out[:, : policy.head.m])
            return jnp.mean(((likeliest - actions[rows]) / half) ** 2)
        return -jnp.mean(jax.vmap(policy.head.log_prob)(out, actions[rows]))

    def step(carry: Any, rows: Any) -> Any:
        theta, state = carry
        move, state = optimiser.update(jax.grad(miss)(theta, rows), state)
        return (optax.apply_updates(theta, move), state), None

    return jax.lax.scan(step, (theta, optimiser.init(theta)), order)[0][0]
