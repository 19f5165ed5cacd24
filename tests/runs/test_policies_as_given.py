"""What `certify` takes for a policy, and limits and discount of a model in other values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import clearance as cl


def two_costs() -> cl.CMDP:
    P, r = [[[1.0], [1.0]]], [[1.0, 0.0]]
    return cl.CMDP(P, r, g=[r], b=0.2, cost=[r, r], limit=[1.5, 1.8], gamma=0.5, names=["output", "wear", "heat"])


# ------------------------------------------------------------------------------------------------------------- certify


@pytest.mark.parametrize("make", [list, tuple, np.array, lambda x: np.array(x, np.uint8)])
def test_an_action_for_each_state(make: Any) -> None:
    model = cl.zoo.maintenance()
    acts = [0] * 5 + [1] * 6
    assert cl.certify(model, make(acts)) == cl.certify(model, np.eye(model.A)[acts])


def test_an_optimum_and_a_solution() -> None:
    model = cl.zoo.two_state()
    best, solution = cl.optimum(model), cl.solve(model, cl.CNPGPD(K=50, N=1))
    assert cl.certify(model, best) == cl.certify(model, best.policy)
    assert cl.certify(model, solution) == cl.certify(model, solution.policy)
    sampled = cl.certify(model, best, evidence="samples", budget=1000)
    assert sampled.evidence == "samples"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0, 1, 0], "one action for each of 2 states"),
        ([0, 2], "policy takes action 2 at state 1; actions are 0..1"),
        ([-1, 0], "policy takes action -1 at state 0"),
        ([0.0, 1.0], "policy"),
        ([[1.0, 0.0], [1.0]], "policy"),
        ([True, False], "policy"),
    ],
)
def test_what_is_no_policy(policy: Any, message: str) -> None:
    with pytest.raises(cl.InputError, match=message) as e:
        cl.certify(cl.zoo.two_state(), policy)
    assert "\n" not in str(e.value)


def test_an_action_that_a_state_does_not_have() -> None:
    P = np.full((2, 2, 2), 0.5)
    model = cl.CMDP(P, np.ones((2, 2)), gamma=0.5, available=[[True, False], [True, True]])
    with pytest.raises(cl.InputError, match="takes action 1 at state 0"):
        cl.certify(model, [1, 1])


# ------------------------------------------------------------------------------------------------------------- replace


def test_limits_as_they_were_written() -> None:
    model = two_costs()
    assert model.replace(limit=1.0).b.tolist() == [0.2, -1.0, -1.0]
    assert model.replace(limit=[1.0, 1.2]).b.tolist() == [0.2, -1.0, -1.2]
    assert model.replace(limit={"heat": 1.1}).b.tolist() == [0.2, -1.5, -1.1]
    assert model.replace(limit={"output": 0.4, "wear": 1.0}).b.tolist() == [0.4, -1.0, -1.8]
    assert model.b.tolist() == [0.2, -1.5, -1.8] and model.replace(limit=1.0).costs == model.costs
    assert cl.optimum(model.replace(limit={"wear": 1.0})).J_r == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limit": {"noise": 1.0}}, "'noise' is no constraint; there are: output, wear, heat"),
        ({"limit": [1.0, 2.0, 3.0]}, "limit has 3 entries for 2 costs"),
        ({"limit": "much"}, "limit must be"),
        ({"limit": {"wear": np.nan}}, "limit of wear"),
        ({"limit": 1.0, "b": [0.0, 0.0, 0.0]}, "in place of b"),
        ({"gamma": 1.0}, "gamma"),
    ],
)
def test_limits_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(cl.InputError, match=message):
        two_costs().replace(**given)
    if "limit" not in given:
        return
    with pytest.raises(cl.InputError):
        cl.zoo.two_state().replace(**given)


def test_another_discount_is_as_a_model_made_with_it() -> None:
    model = cl.zoo.grid_obstacles(9)
    assert cl.optimum(model).status == "optimal"  # so that all that is cached is there
    other = model.replace(gamma=0.7)
    made = cl.CMDP(model.P, model.r, model.g, model.b, rho=model.rho, gamma=0.7)
    assert other.gamma == 0.7 != model.gamma and other.costs == model.costs
    pi = cl.optimum(model).policy
    assert cl.evaluate(other, pi).J.tolist() == pytest.approx(cl.evaluate(made, pi).J.tolist())
