"""How many episodes VIOLATED takes, against the best constant bet, and how often it is wrong.

    python benchmarks/violated.py

A limit of 25 on a cost in [0, 1000], δ = 0.01, four laws of the episode cost. Power: the median over runs of the
episodes until `gather` says VIOLATED, for true costs of 30, 27 and 26, beside ln(1/δ) over the best growth rate of a
constant bet c in [0, 1/25), E log(1 + c (X − 25)), which no test with constant bets can better. Coverage: true cost 25,
the share of runs that are ever called VIOLATED within 2,000 episodes, by the same bets and looks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

from clearance.certificates.betting import Bets
from clearance.certificates.episode_source import Batch
from clearance.certificates.sequential_test import gather, look_size
from clearance.core.arrays import Array
from clearance.core.random_streams import fold, key_of

LIMIT, RANGE, DELTA = 25.0, 1000.0, 0.01
Law = Callable[[np.random.Generator, float, tuple[int, ...]], Array]


def normal(rng: np.random.Generator, mean: float, shape: tuple[int, ...]) -> Array:
    """Standard deviation 15, cut off at 0, moved so that the mean is the one asked for."""

    def excess(mu: float) -> float:
        return float(mu * norm.cdf(mu / 15) + 15 * norm.pdf(mu / 15) - mean)

    return np.clip(rng.normal(float(brentq(excess, 0, 2 * mean)), 15, shape), 0, RANGE)  # type: ignore[arg-type]


def bimodal(rng: np.random.Generator, mean: float, shape: tuple[int, ...]) -> Array:
    """10 or 210."""
    return np.where(rng.random(shape) < (mean - 10) / 200, 210.0, 10.0)


LAWS: dict[str, Law] = {
    "normal, sd 15": normal,
    "exponential": lambda rng, mean, shape: np.minimum(rng.exponential(mean, shape), RANGE),
    "{0, 1000}": lambda rng, mean, shape: np.where(rng.random(shape) < mean / RANGE, RANGE, 0.0),
    "bimodal, {10, 210}": bimodal,
}


@dataclass(frozen=True)
class Costs:
    """Episodes with a cost of this law; the reward is 0."""

    law: Law
    mean: float
    episode_steps: float = 1.0

    @property
    def bounds(self) -> tuple[Array, Array]:
        return np.array([0.0, -RANGE]), np.zeros(2)

    @property
    def bias(self) -> Array:
        return np.zeros(2)

    def draw(self, key: np.uint64, begin: int, n: int) -> Batch:
        x = self.law(np.random.default_rng(int(fold(key, begin))), self.mean, (n,))
        return np.column_stack([np.zeros(n), -x]), np.zeros(n, np.int64), n


def best_growth(law: Law, mean: float) -> float:
    """The largest E log(1 + c (X − 25)), by 10⁷ samples."""
    x = law(np.random.default_rng(0), mean, (10**7,)) - LIMIT
    x = np.unique(x, return_counts=True) if law is not normal and len(np.unique(x[:1000])) < 3 else (x[: 10**6], None)
    found = minimize_scalar(
        lambda c: -np.average(np.log1p(c * x[0]), weights=x[1]), bounds=(0, 1 / LIMIT - 1e-9), method="bounded"
    )
    return -found.fun


def needed(law: Law, mean: float, runs: int) -> float:
    """The median of the episodes until VIOLATED."""
    source, b = Costs(law, mean), np.array([-LIMIT])
    seen = [gather(source, b, DELTA, key_of(i), 2e6) for i in range(runs)]
    assert all(x.verdict == "VIOLATED" for x in seen)
    return float(np.median([x.episodes for x in seen]))


def ever_wrong(law: Law, runs: int, most: int = 2000) -> int:
    """In how many runs with a true cost of 25 the capital is 1/δ at some look."""
    bets, wrong = Bets(LIMIT, 0.0, RANGE), 0
    for block in range(0, runs, 500):
        rng, n = np.random.default_rng([1, block]), 0
        wealth, above = np.zeros((500, len(bets.bets))), np.zeros(500, bool)
        while n < most:
            size = look_size(n)
            z = (law(rng, LIMIT, (500, size)) - LIMIT) / RANGE
            wealth += np.stack([np.log1p(c * z).sum(1) for c in bets.bets], axis=1)
            above |= np.logaddexp.reduce(wealth + bets.log_prior, axis=1) >= -np.log(DELTA)
            n += size
        wrong += int(above.sum())
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=201, help="runs for each median (default: 201)")
    parser.add_argument("--coverage", type=int, default=10_000, help="runs for each coverage (default: 10000)")
    parser.add_argument("--only", default="", help="only laws whose name contains this")
    parser.add_argument("--costs", default="30,27,26", help="true costs (default: 30,27,26)")
    args = parser.parse_args()
    laws = {name: law for name, law in LAWS.items() if args.only in name}
    print("| law of the episode cost | true cost | best constant bet | VIOLATED after (median) | ratio |")
    print("|---|---|---|---|---|")
    for name, law in laws.items():
        for mean in map(float, args.costs.split(",")):
            least = np.log(1 / DELTA) / best_growth(law, mean)
            median = needed(law, mean, args.runs)
            print(f"| {name} | {mean:g} | {least:,.0f} | {median:,.0f} | {median / least:.2f} |", flush=True)
    print("\n| law, true cost 25 | runs | false VIOLATED |")
    print("|---|---|---|")
    for name, law in laws.items():
        print(f"| {name} | {args.coverage:,} | {ever_wrong(law, args.coverage)} |", flush=True)


if __name__ == "__main__":
    main()
