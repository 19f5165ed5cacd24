"""Limits on chances and tails as plain data and in words; what policies remember of costs."""

from __future__ import annotations

import numpy as np
import pytest

import clearance as cl
from clearance.core.cost_memory import CostMemory, CostTracker
from clearance.core.statement import Statement, describe_statement, restore_statement
from clearance.core.tail_limits import TailLimit, has_tails, parse_tail, split_limits, tail_text


def test_words_and_texts_are_those_of_the_statement():
    chance, tail = cl.Chance(above=40, at_most=0.05), cl.CVaR(level=0.9, at_most=12)
    assert chance.words("energy") == "P(energy > 40) ≤ 0.05"
    assert tail.words("wear") == "CVaR0.9(wear) ≤ 12"
    assert "worst 10 % of episodes" in tail.explain("wear")
    for name, rule in (("energy", chance), ("a b", tail), ("wear", cl.CVaR(0.95, -1e-3, at=2.5))):
        assert parse_tail(tail_text(name, rule)) == (name, rule)
    assert parse_tail("P(energy > 40) ≤ 0.05") == ("energy", chance)
    assert parse_tail("energy<=40") is None and parse_tail("P(energy>40)") is None


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: cl.Chance(above=40, at_most=1.0), "at_most is a probability"),
        (lambda: cl.Chance(above=np.inf, at_most=0.1), "above must be finite"),
        (lambda: cl.Chance(above="x", at_most=0.1), "above must be one real number"),  # type: ignore[arg-type]
        (lambda: cl.CVaR(level=1.0, at_most=3), "level is a probability"),
        (lambda: cl.CVaR(level=0.9, at_most=3, at=np.nan), "at must be finite"),
    ],
)
def test_what_makes_no_sense_is_refused(make, what):
    with pytest.raises(cl.InputError, match=what):
        make()


def test_cvar_is_the_least_of_the_rockafellar_uryasev_forms():
    rng = np.random.default_rng(0)
    C, p = np.sort(rng.integers(0, 30, 12)).astype(float), rng.dirichlet(np.ones(12))
    for level in (0.0, 0.5, 0.9):
        forms = [nu + p @ cl.CVaR(level, 1.0, at=nu).value(C, np) for nu in C]
        left, worst = 1 - level, 0.0
        for c, q in zip(C[::-1], p[::-1], strict=True):  # the mean of the worst 1 − level, by hand
            worst, left = worst + min(q, left) * c, left - min(q, left)
        assert np.isclose(min(forms), worst / (1 - level), rtol=1e-12)


def test_limits_as_users_write_them():
    several = split_limits({"energy": [25, cl.Chance(40, 0.05)], "heat": 3})
    assert several == [("energy", 25.0), ("energy", cl.Chance(40, 0.05)), ("heat", 3.0)]
    assert has_tails({"x": [1.0]}) and has_tails(cl.CVaR(0.9, 1)) and has_tails([1.0, cl.Chance(1, 0.1)])
    assert not has_tails({"x": 1.0}) and not has_tails([1.0, 2.0]) and not has_tails(3.0) and not has_tails(None)


def test_statements_keep_their_tails_in_files():
    tails = (TailLimit("energy", cl.Chance(40, 0.05), 0, 1), None, TailLimit("wear", cl.CVaR(0.9, 12, 8), 8, np.inf))
    names = ("P(energy > 40)", "heat", "CVaR0.9(wear)")
    s = Statement("x", 1.0, np.array([-0.05, -3.0, -12.0]), names, 100, costs=(True,) * 3, tails=tails)
    again = restore_statement(describe_statement(s))
    assert again.tails == tails and "probability that the sum of energy over one episode exceeds 40" in again.meaning
    assert s.offset.tolist() == [0, 0, 0, -8] and s.one_sided == (False, False, True)
    assert "tails" not in describe_statement(Statement("x", 0.9, np.zeros(1)))
    data = describe_statement(s)
    for wrong in ({"kind": "mode"}, {"kind": "chance", "cost": "x", "above": 1, "at_most": 7}, 3):
        with pytest.raises(cl.InputError):
            restore_statement(data | {"tails": [wrong, None, None]})


def test_tails_are_of_whole_undiscounted_episodes():
    tails = (TailLimit("energy", cl.Chance(40, 0.05), 0, 1),)
    for gamma, horizon in ((0.9, None), (0.9, 100)):
        with pytest.raises(cl.InputError, match=r"whole episode: give horizon=…"):
            Statement("x", gamma, np.array([-0.05]), ("P",), horizon, tails=tails)
    with pytest.raises(cl.InputError, match=r"its limit is 0\.05"):
        Statement("x", 1.0, np.array([-0.1]), ("P",), 100, tails=tails)


def test_the_memory_of_costs_refuses_what_would_be_wrong():
    memory = CostMemory((2,), ("energy", "heat"), (40.0, 2.0), 100)
    assert CostMemory.restore(memory.describe()) == memory
    tracker, obs = CostTracker(memory, 3), np.ones((3, 2))
    assert np.array_equal(tracker.join(obs)[0], [1, 1, 0, 0, -1])
    with pytest.raises(cl.InputError, match=r"record\(cost\) after every step"):
        tracker.join(obs)
    with pytest.raises(cl.InputError, match="'heat' is missing"):
        tracker.record({"energy": 1.0})
    with pytest.raises(cl.InputError, match="by name"):
        tracker.record(1.0)
    with pytest.raises(cl.InputError, match="finite"):
        tracker.record({"energy": np.nan, "heat": 0.0})
    tracker.record({"energy": [4.0, 0.0, 8.0], "heat": 1.0})
    assert np.allclose(tracker.join(obs)[2], [1, 1, 0.2, 0.5, -0.98])
    tracker.record({"energy": 0.0, "heat": 0.0})
    with pytest.raises(cl.InputError, match="belongs after act"):
        tracker.record({"energy": 0.0, "heat": 0.0})
    with pytest.raises(cl.InputError, match="of 3 episodes, the observations of 2"):
        tracker.join(obs[:2])
    for wrong in ({"horizon": 0}, {"scales": [1.0]}, {"scales": [0.0, 1.0]}, {"costs": [1, 2]}, {"obs_shape": [-1]}):
        with pytest.raises(ValueError, match="memory must have"):
            CostMemory.restore(memory.describe() | wrong)
