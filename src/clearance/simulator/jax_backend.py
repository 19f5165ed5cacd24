"""Import JAX, Equinox and Optax in one place; a missing package raises an error that names the extra to install."""

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
    """Convert `key`, a 64-bit random key of clearance, to a JAX random key with the same bits."""
    bits = int(key)
    data = jnp.array([bits >> 32, bits & 0xFFFFFFFF], jnp.uint32)
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def real(x: Any) -> Any:
    """Return x in the float type that JAX computes with: float32, or float64 if `jax_enable_x64` is set."""
    return jnp.asarray(x, jnp.zeros(0).dtype)
