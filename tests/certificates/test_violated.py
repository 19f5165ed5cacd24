"""VIOLATED by samples: about as fast as the best constant bet, from the first episode on, and the limits together."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from clearance.certificates.betting import Bets
from clearance.certificates.episode_source import Batch
from clearance.certificates.sequential_test import Evidence, gather, look_size
from clearance.core.arrays import Array
from clearance.core.random_streams import fold, key_of


class Costs:
    """Costs in [0, 1000] with given means, exponential [I]; the reward is 0."""

    episode_steps = 1.0

    def __init__(self, *means: float) -> None:
        self.means = np.array(means)

    @property
    def bounds(self) -> tuple[Array, Array]:
        return np.append(0.0, np.full(len(self.means), -1000.0)), np.zeros(1 + len(self.means))

    @property
    def bias(self) -> Array:
        return np.zeros(1 + len(self.means))

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        x = np.random.default_rng(int(fold(key, begin))).exponential(self.means, (n, len(self.means)))
        return np.column_stack([np.zeros(n), -np.minimum(x, 1000)]), np.zeros(n, np.int64), n


def run_once(source: Costs, limit: float, seed: int) -> Evidence:
    return gather(source, np.full(len(source.means), -limit), 0.01, key_of(seed), 1e5)


def test_a_small_limit_in_a_large_range_is_seen_to_be_broken() -> None:
    """Cost 40 against 25 in a range of 1000: the best constant bet needs 43 episodes; a cap of .99 on the whole range
    asked for over 300. The median of 41 runs is far from both bounds.
    """
    seen = [run_once(Costs(40.0), 25.0, i) for i in range(41)]
    assert all(x.verdict == "VIOLATED" for x in seen)
    assert np.median([x.episodes for x in seen]) < 100
    assert all(x.upper[1] <= -25 for x in seen), "the bound says the same as the verdict"


def test_a_cost_that_must_not_occur_is_seen_at_once() -> None:
    """Of a limit next to 0 one look at a few episodes is enough."""
    assert run_once(Costs(40.0), 1e-3, 0).episodes <= 4


def test_broken_limits_add_up() -> None:
    """Four limits that are broken are found sooner than one of them beside three that are kept."""
    all_four = [run_once(Costs(40.0, 40.0, 40.0, 40.0), 25.0, i).episodes for i in range(21)]
    one = [run_once(Costs(40.0, 1.0, 1.0, 1.0), 25.0, i).episodes for i in range(21)]
    assert np.median(all_four) < 0.8 * np.median(one)


def test_looks() -> None:
    n, looks = 0, []
    while n < 10_000:
        n += look_size(n)
        looks.append(n)
    assert looks[:6] == [1, 2, 4, 8, 16, 24] and all(b <= 1.1 * a for a, b in pairwise(looks[20:]))


def test_bets_reach_as_far_as_the_lower_end_allows() -> None:
    """The largest bet loses 98 % on the smallest sample, or as little less as tells it from 1."""
    for m in (1e-3, 0.025, 0.3, 0.5, 0.8):
        bets = Bets(m, 0.0, 1.0).bets
        assert 0.8 < bets.max() * m <= 0.98 and np.all(np.diff(np.sort(bets)) > 0)
