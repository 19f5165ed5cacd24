"""Every sampler against the exact values, by z-scores over many draws."""

from __future__ import annotations

import numpy as np
import pytest
from models import random_cmdp, random_theta

import clearance as cl
from clearance.core.compiled import alias_tables
from clearance.core.compiled import walks as kernels
from clearance.core.compiled.compilation import kernel
from clearance.core.random_streams import fold, key_of
from clearance.finite.evaluation import evaluate
from clearance.learning.direction import dense

N = 40_000
unit, geometric = kernel(alias_tables.unit.py_func), kernel(alias_tables.geometric.py_func)
walk = kernel(kernels.walks.py_func)  # as other kernels call it, but from Python


def draw(sampler: cl.Table, theta: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Pairs [N], Â [N, 1+I], rollouts of J [N, 1+I] and the steps taken."""
    H = 1 + sampler.cmdp.I
    pair, start, last = np.empty(N, np.int64), np.empty(2 * N, np.int64), np.empty(2 * N, np.int64)
    J, QV = np.empty((2 * N, H)), np.empty((2 * N, H))
    lanes = kernels.workspace(sampler.cmdp.A, H)
    rows, tables = sampler.rows(theta), sampler.tables
    steps = kernels.rollouts(key_of(seed), tables, rows, kernels.READY, sampler.resets, pair, start, last, J, QV, lanes)
    return pair, QV[:N] - QV[N:], J[N:], int(steps)


def z_scores(x: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """(mean of x − mean)/se for each column; columns that never vary must be right exactly."""
    sd = x.std(0)
    z = np.sqrt(len(x)) * (x.mean(0) - mean) / np.where(sd > 0, sd, 1)
    return np.where(sd > 0, z, np.where(np.isclose(x.mean(0), mean, atol=1e-6), 0.0, np.inf))


@pytest.mark.parametrize("resets", [True, False], ids=["resets", "coin"])
@pytest.mark.parametrize("I", [0, 1, 3])
@pytest.mark.parametrize("gamma", [0.5, 0.8, 0.99])
def test_table_is_unbiased(gamma: float, I: int, resets: bool) -> None:
    scores: list[np.ndarray] = []
    for seed, size in ((0, 0.0), (1, 1.0), (2, 4.0)):  # uniform, ordinary and nearly deterministic policies
        cmdp = random_cmdp(10 + seed, I=I, gamma=gamma)
        policy = cl.softmax(cmdp.S, cmdp.A)
        theta = random_theta(seed, policy.d, size)
        at = evaluate(cmdp, policy.pi(theta))
        pair, A_hat, J_hat, steps = draw(cl.Table(cmdp, policy, resets=resets), theta, seed)
        here = pair[:, None] == np.arange(cmdp.S * cmdp.A)
        often = at.d.ravel() * N > 50  # the normal limit needs counts
        scores.append(z_scores(here, at.d.ravel())[often])
        for h in range(1 + I):  # E[Â 1{s, a}] = d(s, a) A(s, a), and E Σ_{t<T} h = J
            scores.append(z_scores(here * A_hat[:, [h]], (at.d * at.A[h]).ravel())[often])
        scores.append(z_scores(J_hat, at.J))
        walks = 4 if resets else 3  # each of expected length 1/(1−γ)
        sd = np.sqrt(walks * N * gamma) / (1 - gamma)
        assert abs(steps - walks * N / (1 - gamma)) < 5 * sd
    z = np.concatenate(scores)
    assert np.abs(z).max() < 4.8, "biased"
    assert 0.5 < np.mean(z**2) < 1.6, "the z-scores themselves must look like z-scores"


def test_sparse_model_and_features() -> None:
    """CSR rows of different lengths and features that share parameters between states."""
    from scipy import sparse

    base = random_cmdp(7, S=30, A=4, I=2, concentration=0.02)
    P = np.where(base.P > 0.01, base.P, 0)
    P /= P.sum(-1, keepdims=True)
    cmdp = cl.CMDP(sparse.csr_array(P.reshape(-1, 30)), base.r, base.g, base.b, rho=np.eye(30)[3], gamma=0.8)
    policy = cl.linear_softmax(np.random.default_rng(0).normal(size=(30, 4, 5)))
    theta = random_theta(0, 5)
    at = evaluate(cmdp, policy.pi(theta))
    pair, A_hat, J_hat, _ = draw(cl.Table(cmdp, policy), theta, 0)
    here = pair[:, None] == np.arange(120)
    often = at.d.ravel() * N > 50
    z = [z_scores(here, at.d.ravel())[often], z_scores(J_hat, at.J)]
    z += [z_scores(here * A_hat[:, [h]], (at.d * at.A[h]).ravel())[often] for h in range(3)]
    assert np.abs(np.concatenate(z)).max() < 4.8


def test_geometric_horizon_starts_at_one() -> None:
    """T on {1, 2, …}: P(T > t) = γ^t; NumPy's convention, without which J is off by γ."""
    gamma, n = 0.8, 200_000
    words = (fold(key_of(3), i) for i in range(n))
    T = np.array([geometric(word, *alias_tables.geometric_tables(gamma)) for word in words])
    assert T.min() == 1
    for t in range(1, 20):
        p = gamma**t
        assert abs(np.mean(t < T) - p) < 5 * np.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("gamma", [0.01, 0.5, 0.8, 0.99, 0.999999])
def test_geometric_table_agrees_with_the_logarithm(gamma: float) -> None:
    tables = alias_tables.geometric_tables(gamma)
    words = [fold(key_of(1), i) for i in range(3000)] + [np.uint64(0), np.uint64(2**64 - 1)]
    for word in words:
        u, T = unit(word), geometric(word, *tables)
        assert T >= 1 and u < gamma ** (T - 1) * (1 + 1e-9) and u >= gamma**T * (1 - 1e-9)


@pytest.mark.parametrize("p", [[1.0], [0.5, 0.5], [0.0, 1.0, 0.0], [1e-9, 1 - 1e-9], [0.1, 0.2, 0.3, 0.4], None])
def test_alias_tables_hold_the_probabilities(p: list[float] | None) -> None:
    """Not by sampling: the table's own probabilities, threshold by threshold."""
    weights = np.random.default_rng(0).dirichlet(np.full(50, 0.1)) if p is None else np.array(p)
    n = len(weights)
    for width in (0, n, n + 3):
        cells = alias_tables.alias_cells(np.array([0, n]), np.arange(n), weights, width).astype(float)
        held = np.zeros(n)
        for threshold, own, alias, fine in cells:
            chance = threshold / 2**32 + fine / 2**64
            held[int(own)] += chance / len(cells)
            held[int(alias)] += (1 - chance) / len(cells)
        assert len(cells) == max(n, width) and held == pytest.approx(weights, abs=1e-15)
        assert np.all(held[weights == 0] == 0), "an impossible state must stay impossible"


def test_streams_are_pure_functions_and_lanes_change_nothing() -> None:
    """The same walks whatever the number of lanes: interleaving must not touch a result."""
    cmdp = random_cmdp(1, I=2)
    policy = cl.softmax(cmdp.S, cmdp.A)
    sampler = cl.Table(cmdp, policy)
    rows, start = sampler.rows(random_theta(0, policy.d)), np.full(500, -1)
    results = []
    for lanes in (1, 3, 16):
        narrow = kernels.workspace(cmdp.A, 3, lanes)
        sums, last = np.empty((500, 3)), np.empty(500, np.int64)
        walk(key_of(5), sampler.tables, rows, kernels.READY, start, sums, last, narrow)
        results.append((sums, last))
    for sums, last in results[1:]:
        assert np.array_equal(sums, results[0][0]) and np.array_equal(last, results[0][1])


def test_words_look_uniform() -> None:
    words = np.array([fold(key_of(0), i) for i in range(100_000)], dtype=np.uint64)
    assert len(np.unique(words)) == len(words)
    bits = (words[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.mean(0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(words))
    u = np.array([unit(w) for w in words])
    assert u.min() > 0 and u.max() < 1
    corr = np.corrcoef(u[:-1], u[1:])[0, 1]
    assert abs(corr) < 5 / np.sqrt(len(u))


def test_exact_sampler_is_the_expectation_of_the_table() -> None:
    cmdp = random_cmdp(4, I=1)
    policy = cl.softmax(cmdp.S, cmdp.A)
    theta = random_theta(1, policy.d)
    exact, J, _, steps = cl.Exact(cmdp, policy).batch(np.uint64(0), None, theta, 1)
    assert steps == 0 and exact.weight.sum() == pytest.approx(1)
    assert exact.score.T @ exact.weight == pytest.approx(0, abs=1e-14), "the score has mean 0"
    draws, J_hat, _, _ = cl.Table(cmdp, policy).batch(key_of(1), None, theta, N)
    gradient = (exact.score.T @ (exact.weight * exact.A[:, 0])) / (1 - cmdp.gamma)
    terms = dense(draws.score) * draws.A[:, [0]] / (1 - cmdp.gamma)
    assert np.abs(z_scores(terms, gradient)).max() < 4.8
    assert J_hat == pytest.approx(J, abs=0.2)
