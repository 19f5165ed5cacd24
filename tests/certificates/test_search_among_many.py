"""The search among many candidates that were measured little: what looks safest by luck is measured again."""

from typing import Any

import numpy as np
import pytest

from clearance.certificates.candidate_search import CandidateSearch
from clearance.core.random_streams import fold, key_of


class Normal:
    """Episodes of a mixture: sums with the mean of the component that is drawn, cut off at the ends of their range."""

    bounds = np.array([0.0, -60.0]), np.array([10.0, 0.0])
    bias = np.zeros(2)
    episode_steps = 60.0

    def __init__(self, weights: Any, J: Any, sd: float) -> None:
        self.weights, self.J, self.sd = np.asarray(weights), J, sd
        self.used = np.flatnonzero(self.weights)

    def draw(self, key: np.uint64, begin: int, n: int) -> Any:
        rng = np.random.default_rng(int(fold(key, begin)))
        drawn = rng.choice(len(self.used), n, p=self.weights[self.used] / self.weights.sum())
        X = self.J[self.used[drawn]] + rng.normal(0, self.sd, (n, 2))
        return np.clip(X, *self.bounds), drawn, 60 * n


class Table:
    """Candidates by their values; a mixture is its weights."""

    def __init__(self, J: Any, sd: float) -> None:
        self.J, self.sd, self.count = J, sd, len(J)

    def mixture(self, weights: Any) -> Any:
        return weights

    def episodes(self, mixture: Any) -> Any:
        return Normal(mixture, self.J, self.sd)


def test_the_policy_that_is_tested_is_one_of_the_safest() -> None:
    """No mixture should pass a test with so few episodes. Of 16 candidates with a slack of .05 and 4 with .25, those of
    .25 are tested, though at the first look some of the others seem safer.
    """
    J = np.array([[5.0, -5.95]] * 16 + [[4.0, -5.75]] * 4)
    chosen = []
    for seed in range(4):
        search = CandidateSearch(Table(J, 1.0), np.array([-6.0]), key_of(seed), 6e4, 0.01)
        search.run()
        chosen.append(sum(float(w[16:].sum()) for w in search.weights) / len(search.weights))
        assert search.steps <= 6.1e4
    assert np.mean(chosen) > 0.5


def test_slack_counts_in_units_of_what_a_test_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on a sum of a large range needs a large slack: the safest policy is not the one with equal slacks."""
    J = np.array([[1.0, -9.0, -0.5], [1.0, -6.0, -0.53]])
    search = CandidateSearch.__new__(CandidateSearch)
    search.b, search.single = np.array([-10.0, -1.0]), "require"
    search.n, search.total = np.full(2, 1e6), J * 1e6
    search.squares, search.reach = (J**2 + [[0.0, 25.0, 0.01]]) * 1e6, np.array([100.0, 1.0])
    monkeypatch.setattr(CandidateSearch, "episode", 10.0)
    assert search._safest(0.01, 1e4).tolist() == [0.0, 1.0]
