"""What was computed for one model is not used for another that `replace` made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import clearance as cl

GOOD, BAD = np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.5, 0.5])


def two_rings() -> cl.CMDP:
    """Two pairs of states that runs do not leave; in the second pair each step costs 1. Started in the first."""
    P = np.zeros((4, 2, 4))
    for s, after in enumerate([1, 0, 3, 2]):
        P[s, 0, after], P[s, 1, s] = 1.0, 1.0
    cost = np.zeros((1, 4, 2))
    cost[0, 2:] = 1.0
    return cl.CMDP(P, np.ones((4, 2)), cost=cost, limit=[4.0], rho=GOOD, gamma=0.9)


UNIFORM = np.full((4, 2), 0.5)
CHANGES: dict[str, Any] = {
    "start": {"rho": BAD},
    "start and limit": {"rho": BAD, "b": [-5.0]},
    "signals": {"h": np.stack([np.ones((4, 2)), -np.ones((4, 2))])},
    "horizon and start": {"rho": BAD, "horizon": 20, "gamma": 1.0},
    "discount and start": {"rho": BAD, "gamma": 0.95},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("used", ["certify", "rule", "solve"])
def test_a_replaced_model_is_sampled_as_it_is(change: str, used: str) -> None:
    """The cost of all runs of the new model is twice its limit, and is certain; of the old one it was 0."""
    model = two_rings()
    how: dict[str, Any] = {"evidence": "samples", "budget": 5e4}
    if used == "solve":
        cl.solve(model, cl.RegularisedCNPGPD(K=5, N=20), **how)
    else:
        assert cl.certify(model, UNIFORM if used == "certify" else (lambda s: 0), **how).verdict == "CERTIFIED"
    new = model.replace(**CHANGES[change])
    for policy in (UNIFORM, lambda s: 0):
        found = cl.certify(new, policy, **how)
        assert found.verdict == "VIOLATED" and found.J_g[0] < -8


@pytest.mark.parametrize("change", [{"rho": BAD}, {"gamma": 0.5}, {"b": [-1.0]}, {"h": np.ones((2, 4, 2))}])
def test_a_replaced_model_has_the_samples_of_a_new_one(change: dict[str, Any]) -> None:
    model, how = two_rings(), {"evidence": "samples", "budget": 5e3}
    cl.certify(model, UNIFORM, **how)
    old = model.replace(**change)
    new = cl.CMDP(old.P, old.r, old.g, old.b, rho=old.rho, gamma=old.gamma)
    one, other = cl.certify(old, UNIFORM, **how), cl.certify(new, UNIFORM, **how)
    assert (one.verdict, one.J_g, one.J_lower) == (other.verdict, other.J_g, other.J_lower)


def test_learning_uses_the_discount_of_its_model() -> None:
    """Tables of walks hold the discount, too."""
    from clearance.finite.samplers.algorithm2 import alias_tables

    model = two_rings()
    alias_tables(model)
    fresh = cl.CMDP(model.P, model.r, model.g, model.b, rho=model.rho, gamma=0.5)
    for one, other in zip(alias_tables(model.replace(gamma=0.5)), alias_tables(fresh), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    assert alias_tables(model.replace(b=[-1.0])) is alias_tables(model)  # what is alike is not computed again
