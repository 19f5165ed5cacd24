"""Compute a digest of a simulator's behaviour, by which a ledger of tests detects that a simulator has changed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from clearance.core.atomic_files import digest
from clearance.simulator.gymnasium_envs.env_check import SHORT, random_walk
from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.simulator import Simulator


def digest_behaviour(simulator: Simulator) -> str:
    """Return a digest of a simulator's behaviour.

    For a JAX environment, it is the digest of its complete program. For any other environment, it is the digest of a
    few steps with random actions from fixed seeds. So a change that rarely shows is not noticed, and an environment
    that is not deterministic given its seed has another digest each time.
    """
    near: Any = getattr(simulator, "near", simulator)
    if isinstance(near, Environment):
        return _digest_program(near)
    found = random_walk(near, SHORT, 0)
    return digest(found) if isinstance(found, str) else digest("steps", found._asdict())


def _digest_program(env: Environment) -> str:
    key = jax.random.key(0)
    state = jax.eval_shape(env.reset, key)
    kind = jnp.zeros(0, float if hasattr(env.action, "low") else int).dtype
    action = jax.ShapeDtypeStruct(env.action.shape, kind)
    parts = [jax.make_jaxpr(f)(*x) for f, x in ((env.reset, [key]), (env.step, [key, state, action]))]
    parts.append(jax.make_jaxpr(env.observe)(state))
    texts = [re.sub("0x[0-9a-f]+", "", str(part)) for part in parts]  # addresses differ from process to process
    constants = [_numbers(x) for part in parts for x in part.consts]
    return digest(texts, {str(i): x for i, x in enumerate(constants)})


def _numbers(x: Any) -> Any:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
