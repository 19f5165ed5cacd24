"""The bounded unbiased estimator of J against exact values: means by z-scores, ranges always, chunks bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_cmdp
from scipy import sparse

import clearance as cl
from clearance.certificates.betting import check_within
from clearance.core.errors import InputError
from clearance.core.random_streams import key_of
from clearance.exact.estimated_model import EstimatedModel
from clearance.finite.evaluation import evaluate
from clearance.finite.samplers.finite_episodes import MixtureEpisodes, RuleEpisodes, shorten_range

ZOO = {
    "bai2023": cl.zoo.bai2023,
    "two-state": cl.zoo.two_state,
    "altman-queue-discounted": cl.zoo.altman_queue_discounted,
}
ZOO["frozen-lake"] = cl.zoo.frozen_lake


def random_policies(cmdp: cl.CMDP, seed: int, M: int) -> np.ndarray:
    """M policies [M, S, A] that take what is available, one of them nearly deterministic."""
    rng = np.random.default_rng(seed)
    pi = rng.dirichlet(np.full(cmdp.A, 0.4), size=(M, cmdp.S)) * cmdp.available + 1e-12 * cmdp.available
    return pi / pi.sum(-1, keepdims=True)


def mixture_of(cmdp: cl.CMDP, seed: int, M: int) -> cl.Mixture:
    return cl.Mixture(np.random.default_rng(seed).dirichlet(np.ones(M)), random_policies(cmdp, seed, M))


def exact_V(cmdp: cl.CMDP, pi: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(evaluate(cmdp, pi).V.T)


def z_scores(X: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """(mean of X − mean)/se; a column that does not vary must be right up to rounding."""
    sd, scale = X.std(0), np.abs(mean) + 1
    z = np.sqrt(len(X)) * (X.mean(0) - mean) / np.where(sd > 1e-10 * scale, sd, np.inf)
    assert np.all((sd > 1e-10 * scale) | (np.abs(X.mean(0) - mean) < 1e-7 * scale))
    return z


def ragged(seed: int, gamma: float = 0.9) -> cl.CMDP:
    """Sparse rows of different lengths, missing actions, an absorbing state without signals."""
    base, rng = random_cmdp(seed, S=8, A=3, I=2, gamma=gamma), np.random.default_rng(seed)
    available = rng.random((8, 3)) < 0.7
    available[:, 1] = True
    P = np.where(rng.random((8, 3, 8)) < 0.4, base.P, 0.0) + 0.05 * np.eye(8)[:, None]
    P[7], h = np.eye(8)[7], base.h.copy()
    h[:, 7] = 0.0
    P /= P.sum(-1, keepdims=True)
    args = (sparse.csr_array(P.reshape(24, 8)), h[0], h[1:], base.b)
    return cl.CMDP(*args, rho=base.rho, gamma=gamma, available=available)


@pytest.mark.parametrize("base", ["none", "exact", "random"])
@pytest.mark.parametrize("M", [1, 3])
@pytest.mark.parametrize("name", [*ZOO, "ragged"])
def test_unbiased_for_any_table(name: str, M: int, base: str) -> None:
    """E X = J = Σ_m w_m J(π_m), with V̂ = 0, V̂ = V of a component, and V̂ that means nothing."""
    cmdp = ragged(3) if name == "ragged" else ZOO[name]()
    mixture = mixture_of(cmdp, 5, M)
    size = np.abs(cmdp.h).max(axis=(1, 2)) / (1 - cmdp.gamma)
    random = np.random.default_rng(0).normal(size=(cmdp.S, 1 + cmdp.I)) * size
    table = {"none": None, "exact": exact_V(cmdp, mixture.pi[0]), "random": random}[base]
    source = MixtureEpisodes(cmdp, mixture, table)
    X, component, steps = source.draw(key_of(1), 0, 40_000)
    assert np.abs(z_scores(X, mixture.J(cmdp))).max() < 4.5
    for j, (low, high) in enumerate(zip(*source.bounds, strict=True)):
        check_within(X[:, j], low, high)
    share = np.bincount(component, minlength=M) / len(X)
    assert np.all(np.abs(share - mixture.weights) < 4.5 * np.sqrt(mixture.weights / len(X)))
    for m in range(M):  # each component's episodes are its own
        assert np.abs(z_scores(X[component == m], cl.Mixture.single(mixture.pi[m]).J(cmdp))).max() < 4.5
    q = np.sqrt(cmdp.gamma)
    assert abs(steps - len(X) / (1 - q)) < 5 * np.sqrt(len(X) * q) / (1 - q), "P(T > t) = q^t"
    assert source.episode_steps == pytest.approx(1 / (1 - q))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([0.01, 0.5, 0.9, 0.99]),
    st.sampled_from([0.0, 1.0, 100.0]),
    st.sampled_from(["normal", "spike", "plus", "minus"]),
)
def test_samples_lie_within_the_bounds(seed: int, S: int, A: int, I: int, gamma: float, size: float, kind: str) -> None:
    """Every X in [low, high], whatever V̂: of one sign, with one spike, or of any size."""
    cmdp, rng = random_cmdp(seed, S, A, I, gamma), np.random.default_rng(seed)
    table = rng.normal(size=(S, 1 + I))
    table = {"normal": table, "spike": np.where(table == table.max(), 50.0, 0.0), "plus": 1 + table**2}.get(
        kind, -1 - table**2
    )
    source = MixtureEpisodes(cmdp, mixture_of(cmdp, seed, 2), size * table)
    X, _, _ = source.draw(key_of(seed), 0, 400)
    for j, (low, high) in enumerate(zip(*source.bounds, strict=True)):
        check_within(X[:, j], low, high)


def test_the_bounds_are_attained() -> None:
    """Without table and with h = 1: X = (1 − q^T)/(1 − q) is 1 for T = 1, and comes close to 1/(1 − q) for large T."""
    cmdp = cl.CMDP(np.ones((1, 1, 1)), [[1.0]], gamma=0.25)
    source = MixtureEpisodes(cmdp, cl.Mixture.single([[1.0]]))
    X, _, _ = source.draw(key_of(0), 0, 20_000)
    low, high = source.bounds
    assert low == pytest.approx([1.0]) and high == pytest.approx([2.0])
    assert X.min() == 1.0 and 2 - 1e-3 < X.max() <= 2.0
    T = np.round(-np.log2(1 - X[:, 0] / 2))
    assert np.all(X[:, 0] == pytest.approx(2 * (1 - 0.5**T)))


def test_the_exact_table_leaves_only_the_noise_of_transitions() -> None:
    """A chain that is left once in a hundred steps: V as control variate takes most of the variance."""
    stay = 0.99
    P = np.array([[[stay, 1 - stay]] * 2, [[1 - stay, stay]] * 2])
    cmdp = cl.CMDP(P, [[1.0, 0.9], [0.0, 0.1]], [[[0.0, 0.1], [1.0, 0.9]]], 0.0, rho=[1.0, 0.0], gamma=0.95)
    pi = np.full((2, 2), 0.5)
    variance = [
        MixtureEpisodes(cmdp, cl.Mixture.single(pi), table).draw(key_of(2), 0, 20_000)[0].var(0)
        for table in (None, exact_V(cmdp, pi))
    ]
    assert np.all(variance[1] < 0.75 * variance[0]) and variance[1][0] < 0.3 * variance[0][0]


def test_a_deterministic_world_is_known_at_once() -> None:
    """With the exact V and no randomness in π, P and ρ every X is J itself."""
    cmdp, pi = cl.zoo.two_state(), np.array([[1.0, 0.0], [1.0, 0.0]])
    X, _, _ = MixtureEpisodes(cmdp, cl.Mixture.single(pi), exact_V(cmdp, pi)).draw(key_of(0), 0, 500)
    assert np.all(np.abs(X - cl.Mixture.single(pi).J(cmdp)) < 1e-12)


@pytest.mark.parametrize("make", [lambda: ragged(1), cl.zoo.bai2023])
def test_chunks_change_no_bit(make: Any) -> None:
    cmdp = make()
    source = MixtureEpisodes(cmdp, mixture_of(cmdp, 1, 3))
    whole = source.draw(key_of(7), 0, 100)
    first, second = source.draw(key_of(7), 0, 30), source.draw(key_of(7), 30, 70)
    assert np.array_equal(whole[0], np.concatenate([first[0], second[0]]))
    assert np.array_equal(whole[1], np.concatenate([first[1], second[1]]))
    assert whole[2] == first[2] + second[2]
    assert not np.array_equal(first[0], source.draw(key_of(8), 0, 30)[0]), "another key, other episodes"


@pytest.mark.parametrize("rule", [False, True], ids=["table", "rule"])
def test_bounds_that_were_declared_too_narrow_are_noticed(rule: bool) -> None:
    """In the two-state model the reward 1 is met at step 0 of the first episode, utility ½ at the first step 1."""
    cmdp, pi = cl.zoo.two_state(), np.array([[1.0, 0.0], [1.0, 0.0]])

    def draw(low: list[float], high: list[float]) -> None:
        declared = np.array(low), np.array(high)
        source = (
            RuleEpisodes(cmdp, lambda s: 0, declared)
            if rule
            else MixtureEpisodes(cmdp, cl.Mixture.single(pi), None, declared)
        )
        source.draw(key_of(0), 0, 50)

    draw([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(InputError, match="step 0 of episode 0:"):
        draw([0.0, 0.0], [0.9, 1.0])
    with pytest.raises(InputError, match=r"step 1 of episode \d+:"):
        draw([0.0, 0.0], [1.0, 0.4])
    with pytest.raises(InputError, match=r"step 1 of episode \d+:"):
        cl.certify(cmdp, (lambda s: 0) if rule else pi, evidence="samples", bounds=([0, 0], [1, 0.4]))


def test_declared_bounds_are_the_ones_that_are_used() -> None:
    cmdp = cl.zoo.two_state()
    wide = MixtureEpisodes(cmdp, cl.Mixture.single(np.full((2, 2), 0.5)), None, (np.full(2, -3.0), np.full(2, 5.0)))
    full = 1 / (1 - np.sqrt(0.5))
    assert wide.bounds[0] == pytest.approx([-3 * full] * 2) and wide.bounds[1] == pytest.approx([5 * full] * 2)


class Randomly:
    """π as a rule with its own random numbers; counts its episodes and answers as Stable-Baselines3 does."""

    def __init__(self, pi: np.ndarray, wrap: bool) -> None:
        self.pi, self.wrap, self.episodes = pi, wrap, 0
        self.rng = np.random.default_rng(0)

    def reset(self) -> None:
        self.episodes += 1

    def __call__(self, s: int) -> Any:
        a = int(self.rng.choice(self.pi.shape[1], p=self.pi[s]))
        return (np.array([a]), None) if self.wrap else a


@pytest.mark.parametrize("name", ["bai2023", "ragged"])
@pytest.mark.parametrize("wrap", [False, True], ids=["action", "tuple"])
def test_a_rule_has_the_law_of_its_table(name: str, wrap: bool) -> None:
    """The same mean, the same second moment, the same range; `reset` once per episode."""
    cmdp, n = ragged(3, gamma=0.8) if name == "ragged" else cl.zoo.bai2023(), 1000
    pi = random_policies(cmdp, 2, 1)[0]
    rule = Randomly(pi, wrap)
    acted, table = RuleEpisodes(cmdp, rule), MixtureEpisodes(cmdp, cl.Mixture.single(pi))
    X, component, steps = acted.draw(key_of(1), 0, n)
    assert rule.episodes == n and not component.any()
    assert np.abs(z_scores(X, cl.Mixture.single(pi).J(cmdp))).max() < 4.5
    Y, _, _ = table.draw(key_of(2), 0, 40_000)
    second = (X**2).mean(0) - (Y**2).mean(0)
    assert np.all(np.abs(second) < 4.5 * np.sqrt((X**2).var(0) / n + (Y**2).var(0) / len(Y)) + 1e-12)
    q = np.sqrt(cmdp.gamma)
    assert abs(steps - n / (1 - q)) < 5 * np.sqrt(n * q) / (1 - q)
    for a, b in zip(acted.bounds, table.bounds, strict=True):
        assert np.array_equal(a, b)
    assert acted.episode_steps == table.episode_steps


def test_a_rule_with_memory() -> None:
    """Risky at the first step of an episode only, so not a stationary policy: J_r = 1, J_g = 5/3 − 1 by hand."""

    class First:
        fresh = True

        def reset(self) -> None:
            self.fresh = True

        def __call__(self, s: int) -> int:
            fresh, self.fresh = self.fresh, False
            return 0 if fresh else 1

    X, _, _ = RuleEpisodes(cl.zoo.two_state(), First()).draw(key_of(0), 0, 1500)
    assert np.abs(z_scores(X, np.array([1.0, 2 / 3]))).max() < 4.5


@pytest.mark.parametrize("answer", [2, -1, 5, [0, 1], (9, None)])
def test_impossible_actions_are_refused(answer: Any) -> None:
    with pytest.raises(InputError, match="no such action"):
        RuleEpisodes(cl.zoo.two_state(), lambda s: answer).draw(key_of(0), 0, 10)


def test_missing_actions_are_refused() -> None:
    P = np.ones((1, 2, 1))
    cmdp = cl.CMDP(P, [[1.0, 2.0]], gamma=0.5, available=[[True, False]])
    with pytest.raises(InputError, match="action 1 at state 0, which has no such action"):
        RuleEpisodes(cmdp, lambda s: 1).draw(key_of(0), 0, 1)
    assert RuleEpisodes(cmdp, lambda s: 0).draw(key_of(0), 0, 5)[0].shape == (5, 1)


@pytest.mark.parametrize("power", [0.5, 0.9])
def test_a_shorter_range_keeps_the_mean_and_tells_its_spread(power: float) -> None:
    """A cost that is high in rare states alone: the range halves, the spread is as computed, and the mean is J."""
    rng = np.random.default_rng(3)
    P = rng.dirichlet(np.full(6, 0.5), size=(6, 2)) * np.array([1, 1, 1, 1, 1, 0.002])
    g = -np.array([0.0, 0.1, 0.05, 0.1, 0.0, 1.0])[:, None] * np.ones(2)
    cmdp = cl.CMDP(P / P.sum(-1, keepdims=True), rng.uniform(size=(6, 2)), g[None], -1.0, rho=np.eye(6)[0], gamma=0.95)
    seen = EstimatedModel(cmdp, np.full(12, 1e12), 1e12).evaluate(np.full((6, 2), 0.5))
    lowest = np.stack([cmdp.r.min(1), g.min(1)], axis=1)
    tables = [shorten_range(seen.V, lowest, 0.95, power, share) for share in (0.0, 0.5, 1.0)]
    sources = [MixtureEpisodes(cmdp, cl.Mixture.single(seen.pi), V, power=power) for V in tables]
    lower = [source.bounds[0][1] for source in sources]
    assert np.array_equal(tables[0], seen.V) and lower[0] < lower[1] < lower[2] and lower[2] > 0.7 * lower[0]
    for V, source in zip(tables, sources, strict=True):
        X = source.draw(np.uint64(7), 0, 20_000)[0]
        assert np.all(source.bounds[0] <= X) and np.all(source.bounds[1] >= X)
        assert seen.spread(power, V) == pytest.approx(X.std(0), rel=0.2)
        assert np.all(np.abs(X.mean(0) - seen.J) < 5 * X.std(0) / np.sqrt(len(X)))
