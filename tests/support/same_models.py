"""Whether two finite models are the same."""

from __future__ import annotations

from typing import Any

import numpy as np

import clearance as cl


def dense(model: cl.CMDP) -> Any:
    return model.rows.toarray() if model.is_sparse else model.rows


def assert_same(found: cl.CMDP, model: cl.CMDP, *, tolerance: float = 0.0, named: bool = True) -> None:
    """Equal to the bit, or up to a tolerance; `named`: with the same names of states and actions."""
    for x, y in ((dense(found), dense(model)), (found.h, model.h), (found.rho, model.rho), (found.b, model.b)):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)
    assert found.gamma == model.gamma and found.names == model.names and found.costs == model.costs
    assert np.array_equal(found.available, model.available)
    assert not named or (found.states == model.states and found.actions == model.actions)
