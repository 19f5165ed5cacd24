"""What is said where no policy was certified."""

from __future__ import annotations

import numpy as np

from clearance.certificates.advice import advise
from clearance.certificates.episode_source import Batch
from clearance.certificates.sequential_test import Evidence, gather


class Costs:
    """Episodes of a cost of 0 or 1 in each of ten steps, with a given mean."""

    bounds = np.array([0.0, -10.0]), np.array([1.0, 0.0])
    bias = np.zeros(2)
    episode_steps = 10.0

    def __init__(self, mean: float) -> None:
        self.mean = mean

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        rng = np.random.default_rng([int(key), begin])
        cost = rng.binomial(10, self.mean / 10, n)
        return np.column_stack([np.ones(n), -cost]).astype(float), np.zeros(n, np.int64), 10 * n


def seen(mean: float, budget: float) -> Evidence:
    return gather(Costs(mean), np.array([-2.0]), 0.01, np.uint64(1), budget)


def test_a_policy_with_too_little_slack_gets_a_budget_and_a_limit() -> None:
    found = seen(1.9, 2000)
    assert found.verdict == "UNDECIDED" and found.mean[1] > -2.0
    words = advise(found, np.array([-2.0]), 4000, found.steps, ["waiting"], [True])
    assert f"met every limit in {found.episodes} episodes" in words and "steps should certify it" in words
    limit = float(words.split("waiting ≤ ")[1].split()[0])
    assert 2.0 < limit < 3.0
    budget = float(words.split("budget of about ")[1].split()[0])
    assert seen(float(-found.mean[1]), budget).verdict == "CERTIFIED"


def test_limits_that_nothing_met_are_said_with_the_smallest_cost() -> None:
    found = seen(3.0, 500)
    words = advise(found, np.array([-2.0]), 1000, found.steps, ["waiting"], [True])
    assert words.startswith("no policy was found that meets the limits: the smallest waiting reached was")
    assert "its limit is 2" in words and "not known" in words
