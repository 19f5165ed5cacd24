"""`repr` of whatever a user may look at: at most 12 lines, whatever the size of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import clearance as cl
from tests.support.models import random_cmdp

MOST_LINES, MOST_CHARACTERS = 12, 2500


def large() -> cl.CMDP:
    """A model with costs whose arrays NumPy prints in full: 60 states, 4 actions, 10 limits."""
    model = random_cmdp(0, S=60, A=4, I=10)
    return cl.CMDP(model.P, model.r, cost=-model.g, limit=-model.b, gamma=0.8, names=[f"cost\n{i}" for i in range(10)])


MODELS = {"two_state": cl.zoo.two_state, "queue": cl.zoo.altman_queue_discounted, "large": large}


def shown(model: cl.CMDP) -> Iterator[Any]:
    best = cl.optimum(model)
    yield from (model, best, best.mixture, cl.Mixture.uniform(np.repeat(best.policy[None], 50, axis=0)))
    yield from (cl.evaluate(model, best.policy), cl.softmax(model.S, model.A), cl.frontier(model, points=3))
    solution = cl.solve(model, cl.CNPGPD(K=40, N=1), seed=0)
    yield solution
    yield from (solution.certificate, solution, solution.trace, solution.policy, solution.state, solution.margin)
    yield from (solution.selection, solution.alternatives, solution.method, solution.policy_class, solution.world)
    yield cl.diagnose(model.replace(b=model.b + 1000))


@pytest.mark.parametrize("name", MODELS)
def test_what_is_shown_is_short(name: str) -> None:
    for thing in shown(MODELS[name]()):
        text = repr(thing)
        assert len(text.splitlines()) <= MOST_LINES, (type(thing), len(text.splitlines()))
        assert len(text) <= MOST_CHARACTERS or isinstance(thing, dict | tuple | cl.Certificate | cl.Solution), text


def test_comparisons_and_run_folders_are_short(tmp_path: Any) -> None:
    found = cl.compare(cl.zoo.two_state(), methods=["cnpgpd"], seeds=1, budget=1e4, K=5)
    cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=20, N=1), out=tmp_path / "run")
    folder = cl.run.load(tmp_path / "run")
    for thing in (found, folder, folder.trace, folder.policy):
        assert len(repr(thing).splitlines()) <= MOST_LINES, type(thing)
    assert "two_state" not in repr(found[0])
    assert "cnpgpd on problem, seed 0" in repr(found[0])


def test_costs_are_shown_as_costs() -> None:
    model = cl.CMDP([[[1.0], [1.0]]], [[1.0, 0.0]], cost=[[[1.0, 0.0]]], limit=1.5, gamma=0.5, names=["wear"])
    assert repr(model) == "<CMDP: 1 states, 2 actions (dense), gamma = 0.5; wear ≤ 1.5>"
    assert "wear: 1.5 ≤ 1.5 (slack" in repr(cl.optimum(model))
    assert "wear ≤ -1" in repr(cl.diagnose(model.replace(b=[1.0])))
    curve = cl.frontier(model, points=3)
    assert "the upper limit of wear" in repr(curve)
    assert curve.limit.tolist() == (-curve.b).tolist() and curve.own.b == -1.5


def test_repr_does_not_choose_a_policy() -> None:
    """To look at a run must not start the work of choosing and certifying."""
    solution = cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=20, N=1))
    assert "not certified yet" in repr(solution)
    assert "selection" not in vars(solution)
    _ = solution.certificate
    assert "CERTIFIED" in repr(solution)


def test_an_optimum_names_states_and_actions() -> None:
    model = cl.zoo.inventory()
    assert model.states and model.actions
    best = cl.optimum(model)
    assert (best.states, best.actions) == (model.states, model.actions)
    assert "order-5 in stock 0" in repr(best) and "order-5 in stock 0" in best._repr_html_()
    nameless = cl.optimum(random_cmdp(0, S=3, A=2, I=1))
    assert nameless.states is None and len(repr(nameless).splitlines()) == 1
