"""Random streams, all derived from one seed.

A stream is a 64-bit key; `fold(key, i)` is its i-th sub-stream. Each random number of a run is a pure function of
(seed, iteration, sample), so it depends neither on threads nor on machines. The compiled kernels have the same function
(`clearance.core.compiled.alias_tables.fold`), and a test compares the two.
"""

from __future__ import annotations

import numpy as np

from clearance.core.errors import InputError

WORD = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2⁶⁴ / golden ratio, the increment of SplitMix64


def key_of(seed: int) -> np.uint64:
    """Return the key of the root stream of a seed."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**63:
        raise InputError(f"seed must be a whole number in [0, 2**63), got {seed!r}")
    return fold(np.uint64(0x636C656172616E63), int(seed))


def fold(key: np.uint64, i: int) -> np.uint64:
    """Return the key of sub-stream i of a stream: SplitMix64's finaliser of key + (i + 1)·GOLDEN."""
    z = (int(key) + (int(i) + 1) * GOLDEN) & WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return np.uint64(z ^ (z >> 31))
