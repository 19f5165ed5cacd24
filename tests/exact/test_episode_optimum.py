"""Chances and tails of finite models against all histories of small ones, enumerated."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import clearance as cl
from clearance.exact.episode_optimum import tail_of
from clearance.finite.cost_product import cost_product, find_unit


def small_model(seed: int, H: int | None = 3, unit: float = 1.0) -> cl.CMDP:
    """Three states, two actions, costs of 0 to 3 units; with H None the last state ends an episode."""
    rng = np.random.default_rng(seed)
    P, r = rng.dirichlet(np.ones(3), (3, 2)), rng.random((3, 2))
    cost = unit * rng.integers(0, 4, (1, 3, 2))
    r[:, 1] += 0.4 * cost[0, :, 1] / unit  # what costs more earns more
    more: dict[str, Any] = {"horizon": H}
    if H is None:
        P = 0.6 * P + 0.4 * np.eye(3)[2]  # soon
        P[2], r[2], cost[0, 2] = np.eye(3)[2], 0.0, 0.0
        more = {"criterion": "total"}
    return cl.CMDP(P, r, cost=cost, limit=[100.0 * unit], names=["wear"], rho=[0.6, 0.4, 0.0], **more)


def histories(model: cl.CMDP, H: int) -> Iterator[tuple[tuple[int, ...], float, float, float]]:
    """(s_0, a_0, s_1, …, a_{H−1}) with the chance of its states, its reward and its cost."""

    def grow(path: tuple[int, ...], p: float, r: float, c: float) -> Iterator[Any]:
        s = path[-1]
        for a in range(model.A):
            here = (*path, a), p, r + model.h[0, s, a], c - model.h[1, s, a]
            if len(path) == 2 * H - 1:
                yield here
            else:
                for s_ in np.flatnonzero(model.P[s, a]).tolist():
                    yield from grow((*here[0], s_), p * model.P[s, a, s_], *here[2:])

    for s in np.flatnonzero(model.rho).tolist():
        yield from grow((s,), float(model.rho[s]), 0.0, 0.0)


def best_over_histories(model: cl.CMDP, H: int, value: Any, limit: float) -> float | None:
    """max E r subject to E value(C) ≤ limit over all policies, also those that remember everything: a program over the
    chances w(s_0 a_0 … a_t) that a policy takes these actions in these states."""
    all_ = list(histories(model, H))
    prefixes = sorted({path[: 2 * t + 2] for path, *_ in all_ for t in range(H)}, key=lambda x: (len(x), x))
    at = {x: i for i, x in enumerate(prefixes)}
    equal, right = [], []
    for node in {x[:-1] for x in prefixes}:  # Σ_a w(node, a) = w(what led there)
        row = np.zeros(len(at))
        row[[at[(*node, a)] for a in range(model.A)]] = 1.0
        if len(node) > 1:
            row[at[node[:-1]]] = -1.0
        equal.append(row)
        right.append(float(len(node) == 1))
    r, v = np.zeros(len(at)), np.zeros(len(at))
    for path, p, reward, cost in all_:
        r[at[path]], v[at[path]] = p * reward, p * value(cost)
    found = linprog(-r, A_ub=v[None], b_ub=[limit], A_eq=np.array(equal), b_eq=right, bounds=(0, 1))
    return -float(found.fun) if found.status == 0 else None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("unit", [1.0, 0.1])
def test_chances_are_those_of_all_histories(seed: int, unit: float) -> None:
    model = small_model(seed, unit=unit)
    rule, above = cl.Chance(above=4 * unit, at_most=0.15), 4.5 * unit
    truth = best_over_histories(model, 3, lambda C: float(above < C), 0.15)
    found = cl.episode_optimum(model, {"wear": rule})
    if truth is None:
        assert found.status == "infeasible"
        return
    assert found.status == "optimal" and found.J_r == pytest.approx(truth, rel=1e-7)
    cert = cl.certify(found.product.cmdp, found.optimum)
    assert cert.verdict == "CERTIFIED" and cert.names == [f"P(wear > {4 * unit:g})"]


@pytest.mark.parametrize("seed", range(4))
def test_tails_are_those_of_all_histories_at_the_best_level(seed: int) -> None:
    model, level, limit = small_model(seed), 0.7, 5.0
    truths = [best_over_histories(model, 3, lambda C, nu=nu: nu + max(C - nu, 0) / (1 - level), limit)
              for nu in range(6)]  # fmt: skip
    found = cl.episode_optimum(model, {"wear": cl.CVaR(level, limit)})
    known = [x for x in truths if x is not None]
    if not known:
        assert found.status == "infeasible"
        return
    assert found.status == "optimal" and found.J_r == pytest.approx(max(known), rel=1e-7)
    assert found.nu is not None and truths[round(found.nu)] == pytest.approx(max(known), rel=1e-7)
    between = best_over_histories(model, 3, lambda C: 3.5 + max(C - 3.5, 0) / (1 - level), limit)
    assert between is None or between <= max(known) + 1e-9


def test_values_of_a_policy_are_those_of_its_histories() -> None:
    for seed in range(6):
        model = small_model(seed)
        pi = np.random.default_rng(seed).dirichlet(np.ones(2), 3)
        weights, costs = [], []
        for path, p, _, cost in histories(model, 3):
            taken = np.prod([pi[s, a] for s, a in zip(path[::2], path[1::2], strict=True)])
            weights.append(p * taken)
            costs.append(cost)
        w, C = np.array(weights), np.array(costs)
        assert tail_of(model, pi, "wear", cl.Chance(4, 0.1)) == pytest.approx(w[C > 4].sum(), rel=1e-7)
        for level in (0.0, 0.5, 0.9):
            worst = min(nu + w @ np.maximum(C - nu, 0) / (1 - level) for nu in range(10))
            assert tail_of(model, pi, "wear", cl.CVaR(level, 1.0)) == pytest.approx(worst, rel=1e-7)


def test_until_absorption_long_horizons_agree() -> None:
    for seed in range(3):
        total, long = small_model(seed, None), small_model(seed, None).replace(horizon=60)
        for limits in ({"wear": cl.Chance(above=6, at_most=0.1)}, {"wear": cl.CVaR(level=0.8, at_most=6)}):
            a, b = cl.episode_optimum(total, limits), cl.episode_optimum(long, limits)
            assert a.status == b.status == "optimal" and a.J_r == pytest.approx(b.J_r, rel=1e-7)


def test_the_policy_runs_in_the_model_itself() -> None:
    model = small_model(1)
    found = cl.episode_optimum(model, {"wear": [cl.Chance(above=4, at_most=0.15), 4.0]})
    assert found.product.cmdp.names == ("P(wear > 4)", "wear") and found.optimum.slack.min() > -1e-9
    rng, costs = np.random.default_rng(0), []
    for _ in range(4000):
        actor, s, C = found.product.actor(found.policy, rng), int(rng.choice(3, p=model.rho)), 0.0
        for _ in range(3):
            a = actor.act(s)
            C -= model.h[1, s, a]
            assert actor.cost_so_far["wear"] == min(C, 5)
            s = int(rng.choice(3, p=model.P[s, a]))
        costs.append(C)
    true = -found.optimum.J[1]
    assert abs(np.mean(np.array(costs) > 4) - true) < 5 * np.sqrt(true * (1 - true) / 4000) + 1e-9
    assert found.product.cmdp.states is not None and "wear ≥ 5" in " ".join(found.product.cmdp.states)
    assert found.product.state(0, wear=0) == found.product.where[0, 0]


def test_what_cannot_be_counted_is_refused() -> None:
    model, chance = small_model(0), {"wear": cl.Chance(above=4, at_most=0.15)}
    for wrong, what in (
        (model.replace(h=-model.h), "negative costs"),
        (model.replace(horizon=3, gamma=0.9), "undiscounted sums with an end"),
        (model.replace(h=model.h * np.sqrt(2 + np.arange(6)).reshape(1, 3, 2)), "multiples of one unit"),
    ):
        with pytest.raises(cl.InputError, match=what):
            cl.episode_optimum(wrong, chance)
    for limits, what in (
        ({"heat": cl.Chance(4, 0.1)}, "is no cost; there are: wear"),
        ({"wear": [cl.CVaR(0.9, 5), cl.CVaR(0.5, 4)]}, "give at=ν to all but one"),
        ({"wear": cl.CVaR(0.9, -1)}, "below 0"),
        ({"wear": cl.Chance(1e9, 0.1)}, "too many"),
    ):
        with pytest.raises(cl.InputError, match=what):
            cl.episode_optimum(model, limits)
    with pytest.raises(cl.InputError, match="needs a level"):
        cost_product(model, {"wear": cl.CVaR(0.9, 5)})
    with pytest.raises(cl.InputError, match="cannot be reached"):
        cl.episode_optimum(model, chance).product.state(2, wear=0)


BIKES = {  # of one bike, half of the days two customers lose a sale
    "state": ["0 bikes", "0 bikes", "1 bike", "1 bike"],
    "action": ["wait"] * 4,
    "next_state": ["0 bikes", "1 bike", "0 bikes", "1 bike"],
    "probability": [0.5, 0.5, 0.5, 0.5],
    "reward": [1.0, 1.0, 1.0, 1.0],
    "lost sales": [2.0, 0.0, 0.0, 0.0],
    "days": [1.0, 1.0, 1.0, 1.0],
}


def bikes(**more: Any) -> cl.CMDP:
    return cl.from_table(BIKES | more, limits={"lost sales": 9.0, "days": 9.0}, initial="0 bikes", horizon=2)


def test_costs_of_which_only_the_mean_is_known_have_no_chances(tmp_path: Any) -> None:
    # The table's own rows lose more than 3 sales with probability 1/4; the means 1 + (1 or 0) never exceed 2.
    model = bikes()
    model.save(tmp_path / "model.npz")
    words = r"the cost of '0 bikes', 'wait' depends on what happens next, .* only its mean: put what happened into"
    stored, scaled = cl.CMDP.load(tmp_path / "model.npz"), model.h * np.array([3.0, 1.0, 1.0])[:, None, None]
    for same in (model, stored, model.replace(horizon=3), model.tightened(0.1), model.replace(h=scaled)):
        for rule in (cl.Chance(3, 0.05), cl.CVaR(0.9, 3), cl.CVaR(0.9, 3, at=2)):
            with pytest.raises(cl.InputError, match=words):
                cl.limit_episodes(same, {"lost sales": rule})
        with pytest.raises(cl.InputError, match=words):
            tail_of(same, np.ones((2, 1)), "lost sales", cl.CVaR(0.9, 3))
    on_days = cl.limit_episodes(model, {"days": cl.Chance(5, 0.05)})  # this cost is certain
    with pytest.raises(cl.InputError, match=words.replace("'0 bikes'", "'0 bikes, days 0'")):
        cl.limit_episodes(on_days.cmdp, {"lost sales": cl.Chance(3, 0.05)})


def test_entering_by_chance_is_a_mean() -> None:
    for state in ("0 bikes", "1 bike"):  # both can be left again, so the states double
        found = cl.limit_reach(bikes().replace(rho=[0.5, 0.5]), [state], at_most=0.5, name="there")
        for name in ("lost sales", "there"):
            with pytest.raises(cl.InputError, match="depends on what happens next"):
                cl.limit_episodes(found, {name: cl.Chance(3, 0.05)})


def test_costs_that_are_certain_or_replaced_have_chances() -> None:
    model = bikes()
    other = model.replace(h=model.h * 2.0)
    certain = bikes(**{"lost sales": [2.0, 2.0, 0.0, 0.0]})
    impossible = bikes(probability=[0.0, 1.0, 0.5, 0.5])  # the rows differ, but one of them never happens
    assert other.averaged is None and certain.averaged is None and impossible.averaged is None
    for free in (other, certain, impossible):
        assert cl.episode_optimum(free, {"lost sales": cl.Chance(9, 0.05)}).status == "optimal"


def test_all_importers_know_which_costs_are_means() -> None:
    P = np.array([[[0.5, 0.5], [0.0, 1.0]]])
    R = np.array([[[2.0, 0.0], [7.0, 3.0]]])  # from state 1 only one next state is possible
    by_matrices = cl.from_matrices(P, [0.0, 1.0], costs={"c": R}, limits={"c": 9.0}, horizon=3)
    by_functions = cl.model(
        states=[0, 1], actions=["go"], transitions=lambda s, a: [{0: 0.5, 1: 0.5}, {1: 1.0}][s],
        reward=lambda s, a: float(s), costs={"c": lambda s, a, t: R[0, s, t]}, limits={"c": 9.0}, horizon=3,
    )  # fmt: skip
    for model in (by_matrices, by_functions):
        assert model.averaged is not None
        assert model.averaged[:, :, 0].tolist() == [[False, False], [True, False]]
        with pytest.raises(cl.InputError, match="only its mean"):
            cl.episode_optimum(model, {"c": cl.Chance(3, 0.05)})
    with pytest.raises(cl.InputError, match="averaged must be"):
        by_matrices.with_averaged([True])
    env = SimpleNamespace(P={0: {0: [(0.5, 0, 0.0, False), (0.5, 1, 1.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}})
    fall = {"fall": lambda s, a, t, reward, over: float(t == 1)}
    with pytest.raises(cl.InputError, match="the cost of state 0, action 0 depends on what happens next"):
        cl.episode_optimum(
            cl.from_toy_text(env, costs=fall, limits={"fall": 1.0}, horizon=3), {"fall": cl.Chance(0, 0.5)}
        )


def test_units() -> None:
    assert find_unit("x", np.array([0.0, 0.3, 0.1])) == pytest.approx(0.1)
    assert find_unit("x", np.array([4.0, 6.0])) == 2.0 and find_unit("x", np.zeros(2)) == 1.0
