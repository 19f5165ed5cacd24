"""The root of all randomness: one seed, from which every stream is derived (see `clearance.kernels`)."""

from __future__ import annotations

import numpy as np

from clearance.errors import InputError
from clearance.kernels import fold


def key_of(seed: int) -> np.uint64:
    """The root stream of a seed."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number in [0, 2**63), got {seed!r}")
    return np.uint64(fold(np.uint64(0x636C656172616E63), int(seed)))
