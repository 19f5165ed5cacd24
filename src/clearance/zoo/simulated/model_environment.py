"""A finite model as a JAX environment with known exact values, to test code that samples environments."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.core.errors import InputError
from clearance.core.spaces import Discrete
from clearance.core.statement import Statement
from clearance.finite.cmdp import CMDP
from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.jax_envs.jax_environment import LANES, Environment


def of_model(cmdp: CMDP, lanes: int = LANES) -> Environment:
    """Return a finite model as a JAX environment with one-hot observations, for tests against exact values.

    `lanes` is the number of parallel episodes.
    """
    if cmdp.is_sparse or not cmdp.available.all():
        raise InputError("of_model takes dense models in which every state has all actions")
    log_P, log_rho = jnp.log(jnp.asarray(cmdp.P)), jnp.log(jnp.asarray(cmdp.rho))
    signals = jnp.asarray(np.moveaxis(cmdp.h, 0, -1))
    bounds = cmdp.h.min(axis=(1, 2)), cmdp.h.max(axis=(1, 2))

    def reset(key: Any) -> Any:
        return jax.random.categorical(key, log_rho)

    def step(key: Any, s: Any, a: Any) -> tuple[Any, Any, Any]:
        return jax.random.categorical(key, log_P[s, a]), signals[s, a], jnp.zeros((), bool)

    def observe(s: Any) -> Any:
        return jax.nn.one_hot(s, cmdp.S)

    statement = Statement("model", cmdp.gamma, cmdp.b, cmdp.names, None, bounds, cmdp.costs)
    return Environment(statement, reset, step, observe, Discrete(cmdp.A), lanes)
