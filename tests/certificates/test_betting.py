"""Betting against the mathematics: a fair game at the true mean, Ville's inequality, bounds against exact capital."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from clearance.certificates.betting import BETS, LARGER, LARGEST_LOSS, QUARTIC, Bets
from clearance.core.errors import InputError

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

# X in [0, 1] and its mean.
LAWS: dict[str, tuple[float, Draw]] = {
    "rare": (0.01, lambda rng, n: (rng.random(n) < 0.01).astype(float)),
    "uniform": (0.5, lambda rng, n: rng.random(n)),
    "ends": (0.5, lambda rng, n: (rng.random(n) < 0.5).astype(float)),
    "beta": (0.2, lambda rng, n: rng.beta(0.5, 2.0, n)),
}


def log_capital(bets: Bets, x: np.ndarray, m: float, most: float = np.inf) -> float:
    """log Σ_c p_c Π (1 + c z) at m, by brute force, over the bets up to `most`."""
    fair = (bets.bets < 1) | (bets.bets * (m - bets.low) / bets.width <= LARGEST_LOSS)  # the others may lose all there
    fair &= bets.bets <= most
    z = (x - m) / bets.width
    return float(np.logaddexp.reduce(np.log1p(bets.bets[fair, None] * z).sum(1) + bets.log_prior[fair]))


def test_the_capital_is_the_mixture_of_products() -> None:
    """W_n(m) by hand in exact order, whatever the chunks: Σ_c p_c Π (1 + c z)."""
    rng = np.random.default_rng(0)
    for low, high, m in ((0.0, 1.0, 0.4), (-3.0, 7.0, 2.5), (-1e6, 1e6, 10.0)):
        x = rng.uniform(low, high, 777)
        bets = Bets(m, low, high)
        for part in np.split(x, [1, 2, 100, 133]):
            bets.update(part)
        expected = log_capital(bets, x, m)
        assert bets.rejects(np.exp(-expected + 1e-9)) and not bets.rejects(np.exp(-expected - 1e-9))
        assert bets.mean == pytest.approx(x.mean()) and bets.sd == pytest.approx(x.std())
        assert np.exp(bets.log_prior).sum() == pytest.approx(1.0)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("likely", [None, (0.3, 0.05)], ids=["flat", "wrong hint"])
def test_capital_is_a_martingale_at_the_true_mean(law: str, likely: tuple[float, float] | None) -> None:
    """E W_n = 1 if E X = m: n is short, so that the mean over runs is not carried by one run in a million."""
    m, draw = LAWS[law]
    runs = draw(np.random.default_rng(1), (60_000, 1 if law == "rare" else 3))
    bets = Bets(m, 0.0, 1.0, likely)
    z = runs - m
    W = np.exp(bets.log_prior) @ np.prod(1 + bets.bets[:, None, None] * z, axis=2)
    assert abs(W.mean() - 1) < 4.5 * W.std() / np.sqrt(len(W))
    below = np.exp(bets.log_prior) @ np.prod(1 + np.minimum(bets.bets, 0.9)[:, None, None] * (z - 0.1), axis=2)
    assert below.mean() < 1 - 4.5 * below.std() / np.sqrt(len(W)), "and a loss if E X < m"
    for x, capital in zip(runs[:5], W[:5], strict=True):  # what is studied here is what the class keeps
        bets = Bets(m, 0.0, 1.0, likely)
        bets.update(x)
        assert bets.rejects(1 / capital * (1 + 1e-9)) and not bets.rejects(1 / capital * (1 - 1e-9))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("likely", [None, (0.2, 0.3), (0.0, 0.0)], ids=["flat", "wrong hint", "empty hint"])
def test_ville(law: str, likely: tuple[float, float] | None) -> None:
    """P(the capital at the true mean is ever 1/δ) ≤ δ, looking after every sample; and the bounds say the same."""
    m, draw = LAWS[law]
    delta, runs, n = 0.1, 300, 800
    rng, wrong, above = np.random.default_rng(2), 0, 0
    for _ in range(runs):
        bets, x = Bets(m, 0.0, 1.0, likely), draw(rng, (n,))
        path = np.exp(np.cumsum(np.log1p(np.outer(x - m, bets.bets)), axis=0)) @ np.exp(bets.log_prior)
        bets.update(x)
        wrong += bool(np.any(path >= 1 / delta))
        above += bets.lower_bound(delta) > m + 1e-12
        assert bets.rejects(delta) == (path[-1] >= 1 / delta)
    assert wrong <= binom.ppf(0.9999, runs, delta)
    assert above <= wrong, "a bound above the mean is a capital of 1/δ at the mean"


def test_a_true_slack_is_found_and_a_hint_helps() -> None:
    """Power: mean 0.02 above m with sd 0.29 needs about 2 log(1/δ) σ²/slack² samples, and a right hint needs fewer."""
    rng, needed = np.random.default_rng(3), []
    x = rng.random((40, 40_000))
    for likely in (None, (0.02, 0.29)):
        times = []
        for row in x:
            bets = Bets(0.48, 0.0, 1.0, likely)
            for n, part in enumerate(np.split(row, 400), 1):
                bets.update(part)
                if bets.rejects(0.01):
                    times.append(100 * n)
                    break
        assert len(times) == 40
        needed.append(np.mean(times))
    assert needed[1] < needed[0] < 3 * 2 * np.log(100) * 0.0833 / 0.02**2


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [5, 300, 20_000])
@pytest.mark.parametrize("m", [0.0, 0.05, 0.6, 1.0])
def test_lower_bound_against_the_exact_capital(law: str, n: int, m: float) -> None:
    """Never above the root of log W_n(·) = log 1/δ, and close to it, wherever the limit m of the test lies."""
    _, draw = LAWS[law]
    x = draw(np.random.default_rng(n), (n,))
    bets = Bets(m, 0.0, 1.0)
    bets.update(x)
    for delta in (0.2, 0.01):
        got = bets.lower_bound(delta)

        def root(most: float, delta: float = delta) -> float:
            def excess(at: float) -> float:
                return log_capital(bets, x, at, most) + np.log(delta)

            return float(brentq(excess, 0.0, 1.0)) if excess(0.0) > 0 > excess(1.0) else 0.0  # type: ignore[arg-type]

        assert got <= root(np.inf) + 1e-9
        exact = root(1.0)  # four moments say little of larger bets
        width = exact if n < 300 else max(x.mean() - exact, 0.0)  # four moments: loose only for few samples
        assert got >= exact - 0.35 * width - 1e-9


def test_lower_bound_falls_with_confidence() -> None:
    x = np.random.default_rng(4).beta(2, 3, 500)
    bets = Bets(0.3, 0.0, 1.0)
    bets.update(x)
    bounds = [bets.lower_bound(d) for d in (0.5, 0.2, 0.05, 0.01, 1e-4, 1e-12, 1e-300)]
    assert np.all(np.diff(bounds) <= 1e-12) and bounds[0] < x.mean() and bounds[-1] >= 0.0
    assert bounds[0] > bounds[-1]


def test_units_change_nothing() -> None:
    """X → 3 + 5X: the same decisions, and bounds that move along."""
    x = np.random.default_rng(5).beta(2, 3, 500)
    plain, moved = Bets(0.35, 0.0, 1.0), Bets(3 + 5 * 0.35, 3.0, 8.0)
    plain.update(x)
    moved.update(3 + 5 * x)
    assert moved.lower_bound(0.05) == pytest.approx(3 + 5 * plain.lower_bound(0.05), rel=1e-9)
    assert moved.wealth == pytest.approx(plain.wealth, abs=1e-9)


def test_limits_beyond_the_range() -> None:
    """Above the range nothing is ever rejected; below it, any sample above the lower end speaks for the mean."""
    x = np.random.default_rng(6).random(2000)
    above, below = Bets(1.5, 0.0, 1.0), Bets(-0.5, 0.0, 1.0)
    above.update(np.ones(5000))
    below.update(x)
    assert not above.rejects(0.999) and above.lower_bound(0.01) <= 1.0
    assert below.rejects(1e-6) and 0.4 < below.lower_bound(0.05) < x.mean()


def test_no_samples_say_nothing() -> None:
    bets = Bets(0.5, 0.0, 1.0)
    assert not bets.rejects(0.999) and bets.lower_bound(0.5) == 0.0
    bets.update(np.empty(0))
    assert not bets.rejects(0.999) and bets.lower_bound(0.5) == 0.0


@pytest.mark.parametrize("bad", [-1e-6, 1 + 1e-6, np.nan, np.inf])
def test_samples_outside_their_range_are_refused(bad: float) -> None:
    with pytest.raises(InputError, match="outside its declared bounds"):
        Bets(0.5, 0.0, 1.0).update(np.array([0.2, bad, 0.4]))


def test_quartic_inequality() -> None:
    """log(1+x) ≥ x − x²/2 + x³/3 − C x⁴ for |x| ≤ c, every bet, with equality at x = −c."""
    for c, C in zip(BETS, QUARTIC, strict=True):
        x = c * np.concatenate([np.linspace(-1, 1, 4001), np.cos(np.linspace(0, np.pi, 1001))])
        gap = np.log1p(x) - (x - x**2 / 2 + x**3 / 3 - C * x**4)
        assert gap.min() > -1e-15
        assert C >= 0.25 - 1e-3 or c < 1e-3, "−x⁴/4 is the next term"
    x = np.concatenate([np.linspace(-LARGEST_LOSS, 0, 4001), np.geomspace(1e-9, LARGER[-1], 4001)])
    assert np.min(np.log1p(x) - (x - x**2 / 2 + x**3 / 3 - QUARTIC[0] * x**4)) > -1e-15, "bets above 1"
    assert abs(np.log1p(-BETS[0]) + BETS[0] + BETS[0] ** 2 / 2 + BETS[0] ** 3 / 3 + QUARTIC[0] * BETS[0] ** 4) < 1e-12
