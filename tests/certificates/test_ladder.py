"""A ladder of mixtures on shared episodes: unbiased, no rung beyond the limit at level δ, capital never overstated."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import clearance as cl
from clearance.certificates.betting import Bets
from clearance.certificates.ladder import Ladder, Reweighted
from clearance.core.compiled.episodes import log_wealth
from clearance.core.random_streams import fold, key_of
from clearance.finite.evaluation import evaluate
from clearance.finite.samplers.finite_episodes import MixtureEpisodes

MODEL = cl.zoo.two_state()
BOLD, SAFE = 0.6, 0.3  # J_g − b = 2/3 − 4p/3: the limit lies at α = 2/3


def table(p: float) -> np.ndarray:
    return np.array([[p, 1 - p], [1.0, 0.0]])


def episodes(share: float, bold: float = BOLD, safe: float = SAFE, *, control: bool = True) -> MixtureEpisodes:
    pi = np.stack([table(bold), table(safe)])
    base = np.stack([evaluate(MODEL, own).V.T for own in pi]) if control else None
    return MixtureEpisodes(MODEL, cl.Mixture([share, 1 - share], pi), base)


def climb(seed: int, delta: float = 0.2, budget: float = 4e3, *, control: bool = True) -> tuple[float, str]:
    ladder = Ladder(episodes(0.5, control=control), 0.5, MODEL.b, delta, 0.0)
    rung = ladder.climb(fold(key_of(seed), 5), budget)
    return rung.alpha, rung.seen.verdict


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("control", [True, False])
def test_weights_keep_the_estimate_unbiased_and_within_its_bounds(alpha: float, control: bool) -> None:
    share, wanted = np.array([0.4, 0.6]), np.array([alpha, 1 - alpha])
    source = Reweighted(episodes(0.4, control=control), share, wanted, np.append(0.1, MODEL.b))
    X = source.draw(key_of(3), 0, 40_000)[0]
    J = wanted @ np.stack([evaluate(MODEL, table(p)).J for p in (BOLD, SAFE)])
    z = (X.mean(0) - J) / (X.std(0) / np.sqrt(len(X)))
    low, high = source.bounds
    assert np.all(np.abs(z) < 5)
    assert np.all((low <= X) & (high >= X)) and np.all((low <= J) & (high >= J))


@pytest.mark.parametrize("control", [True, False])
def test_no_rung_beyond_the_limit_is_certified_more_often_than_delta(control: bool) -> None:
    """All rungs share one δ. Without control variate the samples vary as much as they can."""
    runs, delta = 300, 0.2
    found = [climb(seed, delta, control=control) for seed in range(runs)]
    wrong = sum(alpha > 2 / 3 and verdict == "CERTIFIED" for alpha, verdict in found)
    assert wrong <= binom.ppf(1 - 1e-6, runs, delta)


def test_the_rungs_come_close_to_the_limit() -> None:
    found = [climb(seed, 0.01, 4e5) for seed in range(8)]
    assert all(verdict == "CERTIFIED" for _, verdict in found)
    assert 0.55 < np.median([alpha for alpha, _ in found]) < 2 / 3


def test_a_safe_end_that_breaks_the_limit_is_not_certified() -> None:
    source = episodes(0.5, 0.9, 0.7)
    rung = Ladder(source, 0.5, MODEL.b, 0.01, 0.0).climb(key_of(1), 1e5)
    assert rung.alpha == 0 and rung.seen.verdict != "CERTIFIED"
    assert rung.seen.steps < 7e4, "the rest of the budget is left"


def test_the_first_rung_that_fails_ends_the_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rung counts only if all before it pass: otherwise many rungs would need a correction for their number."""
    ladder = Ladder(episodes(0.5), 0.5, MODEL.b, 0.01, 0.0)
    ladder.climb(key_of(2), 4e5)
    whole, own = ladder.highest(key_of(2)).alpha, Ladder.rung

    def gap(self: Ladder, alpha: float, key: np.uint64):  # type: ignore[no-untyped-def]
        rung = own(self, alpha, key)
        failed = 0.2 < alpha < 0.25
        return rung._replace(seen=type(rung.seen)(**{**vars(rung.seen), "verdict": "UNDECIDED"})) if failed else rung

    monkeypatch.setattr(Ladder, "rung", gap)
    assert whole > 0.5 and ladder.highest(key_of(2)).alpha <= 0.2


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 0.9])
def test_the_capital_of_a_rung_is_never_overstated(alpha: float) -> None:
    """The moments bound the capital that the same bets have on the reweighted samples themselves."""
    ladder = Ladder(episodes(0.5), 0.5, MODEL.b, 0.01, 0.0)
    ladder.climb(key_of(4), 1e5)
    rung = ladder.rung(alpha, key_of(4))
    X = rung.source.draw(key_of(4), 0, ladder.episodes)[0]
    for bets, x in zip(rung.seen.tally.up + rung.seen.tally.down, np.concatenate([X, -X], axis=1).T, strict=True):
        exact = np.zeros(len(bets.bets))
        log_wealth(np.ascontiguousarray((x - bets.m) / bets.width), bets.bets, exact)
        assert np.all(bets.wealth <= exact + 1e-9)
        near = bets.bets < 0.1
        assert np.all(exact[near] - bets.wealth[near] < 0.05 * np.abs(exact[near]) + 0.1)
        assert bets.mean == pytest.approx(x.mean(), abs=1e-9)


def test_moments_about_any_point_are_those_of_the_samples() -> None:
    x = np.random.default_rng(0).uniform(0, 1, 500)
    plain, moments = Bets(0.4, 0.0, 1.0), Bets(0.4, 0.0, 1.0)
    plain.update(x)
    moments.take_moments(np.array([np.sum((x - 0.7) ** k) for k in range(5)]), 0.7, 1)
    assert moments.sums == pytest.approx(plain.sums, rel=1e-9, abs=1e-9)
    assert np.all(moments.wealth <= plain.wealth + 1e-9)


def test_nothing_is_bet_in_a_range_of_no_length() -> None:
    still = Bets(0.0, 0.0, 0.0)
    with np.errstate(all="raise"):
        still.take_moments(np.array([50.0, 0, 0, 0, 0]), 0.0, 3)
    assert not still.wealth.any() and not still.rejects(0.5) and still.mean == 0


def test_the_evidence_is_that_of_the_rung() -> None:
    ladder = Ladder(episodes(0.5), 0.5, MODEL.b, 0.01, 0.0)
    ladder.climb(key_of(6), 2e5)
    J = np.stack([evaluate(MODEL, table(p)).J for p in (BOLD, SAFE)])
    for alpha in (0.0, 0.25, 1.0):
        seen = ladder.rung(alpha, key_of(6)).seen
        assert seen.mean == pytest.approx(alpha * J[0] + (1 - alpha) * J[1], abs=0.05)
        assert sum(part.episodes for part in seen.components.values()) == seen.episodes == ladder.episodes
        assert np.all(seen.interval[0] <= seen.mean) and np.all(seen.mean <= seen.interval[1])
