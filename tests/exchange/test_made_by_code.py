"""Models from matrices, functions, tables of environments and DiscreteDP; the order of stacked rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from same_models import assert_same, dense
from scipy import sparse

import clearance as cl
from clearance.core.validation import order_rows


def queue() -> cl.CMDP:
    """A queue with four speeds: moves to the neighbours of a state."""
    return cl.zoo.queue_power(60)


def stacked(model: cl.CMDP) -> Any:
    """One sparse matrix per action, stacked: row a·S + s."""
    rows = sparse.csr_array(model.rows)
    return sparse.csr_array(sparse.vstack([rows[a :: model.A] for a in range(model.A)]))


def with_rows(P: Any, model: cl.CMDP, **order: Any) -> cl.CMDP:
    return cl.CMDP(P, model.r, model.g, model.b, rho=model.rho, gamma=model.gamma, names=model.names, **order)


# ------------------------------------------------------------------------------------------ the order of stacked rows


def test_a_stack_of_one_matrix_per_action_is_not_read_as_ours() -> None:
    """Both readings are stochastic; the wrong one has another optimum and used to be taken silently."""
    model = queue()
    P = stacked(model)
    for rows in (P, sparse.csr_array(model.rows)):
        np.testing.assert_allclose(rows.sum(axis=1), 1.0)
    with pytest.raises(cl.InputError, match=r'P has rows that look like one matrix per action.*order="action"'):
        with_rows(P, model)
    right, wrong = (cl.optimum(with_rows(P, model, order=order)).J_r for order in ("action", "state"))
    assert right == pytest.approx(cl.optimum(model).J_r, rel=1e-9) and abs(wrong - right) > 0.1 * abs(right)
    assert np.array_equal(dense(with_rows(P, model, order="action")), dense(model))


LOCAL = [
    "altman-queue-discounted",
    "cliff",
    "frozen-lake",
    "grid-obstacles",
    "harvesting-discounted",
    "lazar-discounted",
    "maintenance-discounted",
    "queue-power",
]
LOCAL += ["streaming-discounted", "sutton-barto", "taxi"]


@pytest.mark.parametrize("name", LOCAL)
def test_the_orders_of_models_with_near_moves_are_told_apart(name: str) -> None:
    model = cl.zoo.MODELS[name]()
    rows = sparse.csr_array(model.rows)
    assert np.array_equal(dense(with_rows(rows, model, available=model.available)), dense(model))
    with pytest.raises(cl.InputError, match="one matrix per action"):
        with_rows(stacked(model), model)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_wrong_numbers_in_a_stack_keep_their_message(bad: float) -> None:
    P = sparse.csr_array(np.array([[bad, 1.0], [1, 0], [0, 1], [1, 0]]))
    with pytest.raises(
        cl.InputError, match=r"^P\[0, 0\] has a (value that is not finite|negative value) at next state 0"
    ):
        cl.CMDP(P, np.zeros((2, 2)), gamma=0.9)


def test_models_without_structure_are_rarely_refused() -> None:
    """Moves to a random state: less than one of a hundred is refused, even if there are two states."""
    rng = np.random.default_rng(0)
    for S in (2, 3, 5, 10):
        refused = 0
        for _ in range(500):
            P = sparse.csr_array((np.ones(3 * S), (np.arange(3 * S), rng.integers(0, S, 3 * S))), shape=(3 * S, S))
            try:
                order_rows(P, S, 3, None)
            except cl.InputError:
                refused += 1
        assert refused <= 10, S


@pytest.mark.parametrize("seed", range(5))
def test_rows_without_structure_are_taken_as_documented(seed: int) -> None:
    """Nothing tells the orders of a random model apart: row s·A + a is what CMDP documents."""
    model = cl.zoo.garnet(30, 4, seed=seed)
    assert np.array_equal(dense(with_rows(sparse.csr_array(model.rows), model)), dense(model))


def test_from_matrices_asks_wherever_two_readings_differ() -> None:
    model = cl.zoo.garnet(30, 4, seed=0)
    P = stacked(model)
    with pytest.raises(cl.InputError, match="two readings"):
        cl.from_matrices(P, model.r, gamma=0.9)
    for rows, order in ((P, "action"), (sparse.csr_array(model.rows), "state")):
        assert np.array_equal(dense(cl.from_matrices(rows, model.r, gamma=0.9, order=order)), dense(model))
    same = sparse.csr_array(np.full((6, 3), 1 / 3))  # equal rows: one reading
    assert cl.from_matrices(same, np.zeros((3, 2)), gamma=0.9).A == 2
    square = np.random.default_rng(0).dirichlet(np.ones(3), (3, 3))  # S = A: [S, A, S] and [A, S, S] have one shape
    with pytest.raises(cl.InputError, match="two readings"):
        cl.from_matrices(square, np.zeros(3), gamma=0.9)
    by_action, by_state = (cl.from_matrices(square, np.zeros(3), gamma=0.9, order=o) for o in ("action", "state"))
    assert np.array_equal(by_state.P, square) and np.array_equal(by_action.P, square.transpose(1, 0, 2))


@pytest.mark.parametrize("order", ["rows", "", 1])
def test_an_unknown_order_is_refused(order: Any) -> None:
    model = queue()
    with pytest.raises(cl.InputError, match="order must be one of state, action"):
        with_rows(stacked(model), model, order=order)
    with pytest.raises(cl.InputError, match="order must be one of state, action"):
        cl.from_matrices(stacked(model), model.r, gamma=0.9, order=order)


# --------------------------------------------------------------------------------------------------------- matrices


def test_lists_and_arrays_are_the_model() -> None:
    """Lists of dense and sparse matrices, arrays, and all forms of rewards, against the same CMDP."""
    model = queue()
    P = model.P.transpose(1, 0, 2)
    R = np.repeat(model.r.T[:, :, None], model.S, axis=2)  # of (action, state, next state)
    limit, cost = -model.b, -model.g[0]
    how: dict[str, Any] = {
        "gamma": model.gamma,
        "costs": {"power": cost},
        "limits": {"power": limit[0]},
        "initial": model.rho,
    }
    wanted = cl.CMDP(model.P, model.r, cost=cost, limit=limit, rho=model.rho, gamma=model.gamma, names=["power"])
    thin = [sparse.csr_matrix(x) for x in P]
    forms = [
        (P, model.r),
        (list(P), model.r),
        ([x.tolist() for x in P], model.r.tolist()),
        (thin, model.r),
        (tuple(thin), R),
    ]
    for matrices, rewards in [*forms, (P, [sparse.csr_array(x) for x in R])]:
        assert_same(cl.from_matrices(matrices, rewards, **how), wanted, tolerance=1e-12)
    per_state = cl.from_matrices(P, np.arange(model.S), gamma=0.9)
    assert np.array_equal(per_state.r, np.repeat(np.arange(model.S)[:, None], model.A, axis=1))


def test_a_forest_as_mdptoolbox_has_it() -> None:
    """Wait or cut; by hand: P and R of the forest example with three ages, r1 = 4, r2 = 2, p = 0.1."""
    P = np.array([[[0.1, 0.9, 0], [0.1, 0, 0.9], [0.1, 0, 0.9]], [[1, 0, 0], [1, 0, 0], [1, 0, 0]]])
    R = np.array([[0, 0], [0, 1], [4, 2.0]])
    forest = cl.from_matrices(P, R, gamma=0.9, states=["young", "mid", "old"], actions=["wait", "cut"])
    best = cl.optimum(forest)
    assert best.policy.argmax(1).tolist() == [0, 0, 0] and forest.states == ("young", "mid", "old")


@pytest.mark.parametrize(
    "P, R, words",
    [
        (np.ones((2, 3, 4)), np.zeros(4), "P has shape"),
        ([sparse.eye_array(2), sparse.eye_array(3)], np.zeros(2), r"P\[1\] has shape \(3, 3\)"),
        ([np.eye(2), np.eye(2) * 0.5], np.zeros(2), "probability of state 0, action 1 sums to 0.5"),
        (sparse.csr_array(np.ones((5, 2))), np.zeros(2), "sparse P has shape"),
        ([np.eye(2)], np.zeros(3), "reward has shape"),
        ([np.eye(2)], [np.nan, 0], "reward has a NaN"),
        ("P", np.zeros(2), "P must be an array"),
        ([], np.zeros(2), "P must have 3 axes"),
    ],
)
def test_wrong_matrices_are_refused(P: Any, R: Any, words: str) -> None:
    with pytest.raises(cl.InputError, match=words):
        cl.from_matrices(P, R, gamma=0.9)


def test_costs_and_limits_go_together() -> None:
    how: Any
    for how, words in (
        ({"costs": {"heat": np.zeros(2)}}, "limits has no 'heat'"),
        ({"limits": {"heat": 1}}, "costs has no 'heat'"),
        ({"costs": {"heat": np.zeros(2)}, "limits": {"heat": 1, "noise": 2}}, "costs has no 'noise'"),
    ):
        with pytest.raises(cl.InputError, match=words):
            cl.from_matrices([np.eye(2)], np.zeros(2), gamma=0.9, **how)


# ------------------------------------------------------------------------------------------------ DiscreteDP, env.P


def test_a_discrete_dp_in_both_of_its_forms() -> None:
    """By attributes alone; a pair with reward −∞ does not exist."""
    rng = np.random.default_rng(1)
    Q, R, heat = rng.dirichlet(np.ones(4), (4, 3)), rng.normal(size=(4, 3)), rng.random((4, 3))
    R[1, 2] = -np.inf
    real = np.isfinite(R)
    wanted = cl.CMDP(
        Q, np.where(real, R, 0), cost=[np.where(real, heat, 0)], limit=5, gamma=0.8, names=["heat"], available=real
    )
    product = SimpleNamespace(R=R, Q=Q, beta=0.8, s_indices=None, a_indices=None)
    s, a = np.nonzero(real)
    pairs = SimpleNamespace(R=R[s, a], Q=sparse.csr_matrix(Q[s, a]), beta=0.8, s_indices=s, a_indices=a)
    assert_same(cl.from_quantecon(product, costs={"heat": heat}, limits={"heat": 5}), wanted, tolerance=1e-12)
    assert_same(cl.from_quantecon(pairs, costs={"heat": heat[s, a]}, limits={"heat": 5}), wanted, tolerance=1e-12)
    how: Any
    for wrong, how, words in (
        (SimpleNamespace(R=R, Q=Q), {}, "it has no beta"),
        (product, {"costs": {"heat": heat[0]}, "limits": {"heat": 1}}, r"costs\['heat'\] has shape"),
        (product, {"gamma": 1.0}, "gamma must be in"),
    ):
        with pytest.raises(cl.InputError, match=words):
            cl.from_quantecon(wrong, **how)


def test_the_table_of_an_environment_by_object_and_by_id() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    lake = gymnasium.make("FrozenLake-v1")
    holes = lake.unwrapped.desc.ravel() == b"H"
    how: dict[str, Any] = {
        "gamma": 0.99,
        "costs": {"holes": lambda s, a, s_next, reward, over: float(holes[s_next])},
        "limits": {"holes": 0.1},
    }
    for env in (lake, "FrozenLake-v1"):
        assert_same(cl.from_toy_text(env, **how), cl.zoo.frozen_lake(), tolerance=1e-12, named=False)
    for wrong, words in (("NoSuchLake-v9", "env 'NoSuchLake-v9'"), (SimpleNamespace(), "no transition table")):
        with pytest.raises(cl.InputError, match=words):
            cl.from_toy_text(wrong, gamma=0.9)
    with pytest.raises(cl.InputError, match="limits has no 'holes'"):
        cl.from_toy_text(lake, gamma=0.9, costs=how["costs"])


# --------------------------------------------------------------------------------------------------------- functions


def shop(**how: Any) -> cl.CMDP:
    """Stock 0..3; order one or wait; demand of one with probability 0.6."""

    def move(stock: int, action: str) -> dict[int, float]:
        after = min(stock + (action == "order"), 3)
        return {after: 1.0} if after == 0 else {after: 0.4, after - 1: 0.6}

    given: dict[str, Any] = {
        "actions": ["wait", "order"],
        "transitions": move,
        "reward": lambda s, a, t: float(t < min(s + (a == "order"), 3)),
        "costs": {"orders": lambda s, a: a == "order"},
        "limits": {"orders": 4},
        "gamma": 0.9,
        "initial": 0,
    }
    return cl.model(**given | how)


def test_functions_are_the_model() -> None:
    """By reachability and with all states listed: the same model up to the order of its states."""
    found, listed = shop(), shop(states=range(4))
    assert found.states == listed.states == ("0", "1", "2", "3") and found.actions == ("wait", "order")
    P = np.zeros((4, 2, 4))
    for s in range(4):
        for a in range(2):
            after = min(s + a, 3)
            P[s, a, after] += 1.0 if after == 0 else 0.4
            P[s, a, max(after - 1, 0)] += 0.0 if after == 0 else 0.6
    orders = np.tile([0.0, 1.0], (4, 1))
    r = np.array([[0.0, 0.6], [0.6, 0.6], [0.6, 0.6], [0.6, 0.6]])
    wanted = cl.CMDP(
        P, r, cost=[orders], limit=4, rho=[1, 0, 0, 0], gamma=0.9, names=["orders"], states=list("0123"),
        actions=["wait", "order"],
    )  # fmt: skip
    assert_same(found, wanted, tolerance=1e-12)
    assert_same(listed, wanted, tolerance=1e-12)


def test_states_may_be_anything_that_can_be_a_key() -> None:
    """Tuples, frozensets, 1 beside "1"; lists of pairs; actions of a state; a state without actions is an end."""
    ways = {("a", 1): [(frozenset("x"), 0.5), ("1", 0.5)], frozenset("x"): [(1, 1)], "1": [(1, 1.0)]}
    found = cl.model(
        initial={("a", 1): 0.25, 1: 0.75}, actions=lambda s: ["go"] if s in ways else [],
        transitions=lambda s, a: ways[s], reward=lambda s, a: 1, gamma=0.5,
    )  # fmt: skip
    assert found.states == ("('a', 1)", "1", "frozenset({'x'})", "'1'")
    assert found.P[1, 0].tolist() == [0, 1, 0, 0] and found.r[:, 0].tolist() == [1, 0, 1, 1]
    assert found.rho.tolist() == [0.25, 0.75, 0, 0]


@pytest.mark.parametrize(
    "how, words",
    [
        ({"transitions": lambda s, a: {s: 0.5}}, r"transitions\(0, 'wait'\) sums to 0.5"),
        ({"transitions": lambda s, a: {s: 1.5, 1: -0.5}}, r"transitions\(0, 'wait'\) sums to 1"),
        ({"transitions": lambda s, a: {s: float("nan")}}, r"transitions\(0, 'wait'\) sums to nan"),
        ({"transitions": lambda s, a: s}, r"transitions\(0, 'wait'\) must be \{next state: probability\}"),
        ({"transitions": lambda s, a: [([s], 1)]}, r"transitions\(0, 'wait'\) must be"),
        ({"transitions": lambda s, a: {9: 1}, "states": range(4)}, r"has 9, which is not in states"),
        ({"reward": lambda s, a: "much"}, r"reward\(0, 'wait'\) must be a number, got 'much'"),
        ({"reward": lambda s, a: float("inf")}, r"reward\(0, 'wait'\) must be finite"),
        ({"reward": 3}, "reward must be a function"),
        ({"costs": {}}, "costs has no 'orders'"),
        ({"limits": {}}, "limits has no 'orders'"),
        ({"initial": 7, "states": range(4)}, "initial: 7 is not in states"),
        ({"initial": None}, "states: give them, or the initial one"),
        ({"initial": [0]}, "initial must be a state that can be a key"),
        ({"initial": {0: 0.5}}, "rho sums to 0.5"),
        ({"actions": []}, "actions: no state has any"),
        ({"gamma": 2}, r"gamma must be in \(0, 1\)"),
    ],
)
def test_wrong_functions_are_refused(how: dict[str, Any], words: str) -> None:
    with pytest.raises(cl.InputError, match=words):
        shop(**how)


def test_limits_may_leave_out_the_units_of_costs() -> None:
    how: Any = {"states": ["a"], "actions": ["x"], "transitions": lambda s, a: {"a": 1}, "reward": lambda s, a: 1}
    model = cl.model(**how, costs={"wear [mm]": lambda s, a: 1}, limits={"wear": 20}, gamma=0.9)
    assert model.names == ("wear [mm]",) and model.limits_in_words == ["wear ≤ 20 mm"]
