"""JAX and its companions, in one place: modules that need them are loaded late, and a missing one names the extra."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.core.errors import MissingExtraError

try:
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import optax
except ImportError as e:
    raise MissingExtraError((e.name or "jax").partition(".")[0], "sim") from None

__all__ = ["eqx", "jax", "jax_key", "jnp", "optax", "real"]


def jax_key(key: np.uint64) -> Any:
    """Return the stream of JAX that belongs to a key of ours: its 64 bits as they are."""
    bits = int(key)
    data = jnp.array([bits >> 32, bits & 0xFFFFFFFF], jnp.uint32)
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def real(x: Any) -> Any:
    """x as JAX computes: float32 as shipped, float64 where `jax_enable_x64` is set."""
    return jnp.asarray(x, jnp.zeros(0).dtype)
