"""The streams of plain Python and those of the compiled kernels are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clearance as cl
from clearance.core import random_streams
from clearance.core.compiled.alias_tables import fold
from clearance.core.compiled.compilation import kernel

compiled_fold = kernel(fold.py_func)  # kernels alone can call `fold` itself


@settings(deadline=None)  # the first call compiles
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**62))
def test_fold_is_the_compiled_fold(key: int, i: int) -> None:
    found = random_streams.fold(np.uint64(key), i)
    assert type(found) is np.uint64 and found == compiled_fold(np.uint64(key), i)


def test_streams_differ() -> None:
    keys = {int(random_streams.fold(random_streams.key_of(seed), i)) for seed in range(50) for i in range(50)}
    assert len(keys) == 2500


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "0"])
def test_a_wrong_seed_is_refused(seed: object) -> None:
    with pytest.raises(cl.InputError, match="seed must be a whole number"):
        random_streams.key_of(seed)  # type: ignore[arg-type]
