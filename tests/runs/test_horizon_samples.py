"""Horizons from samples: the range of an episode's estimate, plans on counts of all steps, and FrozenLake."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import clearance as cl
from clearance.core.random_streams import key_of
from clearance.exact.estimated_model import estimate_over_time
from clearance.exact.stand_ins import with_time
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
from clearance.finite.samplers.path_ranges import forward_paths
from tests.exact.test_criteria import KINDS
from tests.support.criterion_truths import random_model


def extreme_estimates(cmdp: cl.CMDP, pi: np.ndarray, V: np.ndarray, q: float, longest: int) -> tuple[float, float]:
    """Enumerate all possible paths of up to `longest` steps; return the extremes of the reward's estimate X."""
    ratio, P, found = cmdp.gamma / q, np.asarray(cmdp.rows.reshape(cmdp.S, cmdp.A, cmdp.S)), []

    def extend(s: int, t: int, weight: float, x: float) -> None:
        for a in np.flatnonzero(pi[s] > 0):
            for after in np.flatnonzero(P[s, a] > 0):
                now = x + weight * (cmdp.r[s, a] + cmdp.gamma * V[after] - V[s])
                found.append(now)
                if t + 1 < longest:
                    extend(int(after), t + 1, weight * ratio, now)

    for s in np.flatnonzero(cmdp.rho > 0):
        extend(int(s), 0, 1.0, float(V[s]))
    return min(found), max(found)


@pytest.mark.parametrize("seed", range(6))
def test_the_range_is_that_of_the_possible_paths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.ones(3), size=(3, 2)) * (rng.random((3, 2, 3)) < 0.6)
    P[P.sum(-1) == 0] = np.eye(3)[0]
    P /= P.sum(-1, keepdims=True)
    g = rng.uniform(-1, 1, (1, 3, 2))
    cmdp = with_time(cl.CMDP(P, rng.uniform(-1, 1, (3, 2)), g, b=[0.0], rho=[1.0, 0.0, 0.0], horizon=4)).model
    pi = rng.dirichlet(np.ones(2), size=cmdp.S)
    pi[::3] = [1.0, 0.0]
    V = np.append(rng.uniform(-1, 1, cmdp.S - 1), 0.0)
    for base in (np.zeros(cmdp.S), V):
        source = MixtureEpisodes(cmdp, cl.Mixture.single(pi), np.stack([base, base], axis=1))
        low, high = (float(x[0]) for x in source.bounds)
        least, most = extreme_estimates(cmdp, pi, base, source.q, 5)
        assert low <= least and most <= high
        assert low == pytest.approx(least, abs=1e-6) and high == pytest.approx(most, abs=1e-6)
        X = source.draw(key_of(seed), 0, 2000)[0]
        assert np.all(source.bounds[0] <= X) and np.all(source.bounds[1] >= X)


def test_models_with_cycles_keep_their_range() -> None:
    assert forward_paths(cl.zoo.inventory()) is None
    assert forward_paths(with_time(cl.zoo.inventory().replace(horizon=3, limit=1.0)).model) is not None


def test_counts_of_all_steps_give_the_model() -> None:
    """With counts in proportion to the probabilities, the estimate has the values of the model itself."""
    for seed in range(4):
        cmdp = random_model(seed, **KINDS["horizon"])
        timed = with_time(cmdp).model
        rows = 1e6 * np.asarray(timed.rows.toarray() if timed.is_sparse else timed.rows)
        rows[:-1] *= np.random.default_rng(seed).integers(1, 9, len(rows) - 1)[:, None]  # visited unequally often
        low, counts, H = timed.h.min((1, 2)), sparse.csr_array(rows), cmdp.policy_shape[0]
        model = estimate_over_time(counts, 1e6 * timed.rho, timed, low, H)
        pi = np.random.default_rng(seed).dirichlet(np.ones(cmdp.A), size=timed.S)
        pi = np.where(timed.available, pi, 0.0)
        pi /= pi.sum(-1, keepdims=True)
        truth = cl.evaluate(timed, pi).J
        assert pytest.approx(truth, rel=1e-9) == model.evaluate(pi).J
        assert np.all(model.evaluate(pi).doubt < 0.05)


@pytest.mark.parametrize("seed", range(3))
def test_frozen_lake_is_certified_and_near_the_optimum(seed: int) -> None:
    lake = cl.zoo.frozen_lake(4).replace(criterion="total", horizon=50, limit=0.3)
    found = cl.solve(lake, evidence="samples", budget=2e6, seed=seed)
    exact = cl.certify(lake, found.policy)
    assert found.certificate.verdict == exact.verdict == "CERTIFIED"
    assert exact.J_r > 0.95 * cl.optimum(lake).J_r
    assert "possible transitions" in found.certificate.scope
