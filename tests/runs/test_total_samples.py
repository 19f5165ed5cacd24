"""Sums until absorption from samples: payments, the range of an episode's sum, tests of policies, and `solve`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearance as cl
from clearance.certificates.sequential_test import gather
from clearance.core.errors import InputError
from clearance.core.random_streams import fold, key_of
from clearance.finite.samplers.payments import payments_of, silent, sum_range
from clearance.finite.samplers.total_episodes import RuleSums, SumEpisodes


def forward_model(seed: int, S: int = 6, A: int = 2) -> cl.CMDP:
    """A model whose states lead only to later states, with signals of both signs; the last two states are absorbing."""
    rng = np.random.default_rng(seed)
    P = np.zeros((S, A, S))
    for s in range(S - 2):
        P[s, :, s + 1 :] = rng.dirichlet(np.ones(S - s - 1), size=A) * (rng.random((A, S - s - 1)) < 0.6)
        P[s, :, -1] += 1 - P[s].sum(-1)
    P[-2, :, -2] = P[-1, :, -1] = 1.0
    h = rng.uniform(-1, 1, (2, S, A)) * (np.arange(S) < S - 2)[:, None]
    return cl.CMDP(P, h[0], h[1:], b=[-0.5], rho=np.eye(S)[0], criterion="total")


def lake(limit: float = 0.3) -> cl.CMDP:
    return cl.zoo.frozen_lake(4).replace(criterion="total", limit=limit)


def uniform(cmdp: cl.CMDP) -> cl.Mixture:
    return cl.Mixture.single(cmdp.available / cmdp.available.sum(1, keepdims=True))


def path_sums(cmdp: cl.CMDP, pi: Any) -> list[float]:
    """The reward of every possible path of a model without cycles."""
    found = []

    def extend(s: int, x: float) -> None:
        if cmdp.P[s, 0, s] == 1:
            found.append(x)
            return
        for a, after in itertools.product(np.flatnonzero(pi[s] > 0), range(cmdp.S)):
            if cmdp.P[s, a, after] > 0:
                extend(after, x + cmdp.r[s, a])

    extend(0, 0.0)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_the_range_is_that_of_all_paths_and_the_mean_is_the_value(seed: int) -> None:
    cmdp = forward_model(seed)
    pi = np.random.default_rng(seed).dirichlet(np.ones(2), size=cmdp.S)
    pi[1] = [1.0, 0.0]
    source, sums = SumEpisodes(cmdp, cl.Mixture.single(pi)), path_sums(cmdp, pi)
    low, high = (float(x[0]) for x in source.bounds)
    assert low <= min(sums) and max(sums) <= high
    assert low == pytest.approx(min(sums), abs=1e-9) and high == pytest.approx(max(sums), abs=1e-9)
    X, _, _ = source.draw(key_of(seed), 0, 40_000)
    assert np.all(source.bounds[0] <= X) and np.all(source.bounds[1] >= X)
    assert np.all(np.abs(X.mean(0) - cl.evaluate(cmdp, pi).J) < 5 * X.std(0) / 200 + 1e-12)


def reach_models() -> dict[str, cl.CMDP]:
    stay = cl.limit_reach(lake(), [6], at_least=0.05)  # a state that can be left again: adds a flag
    paid = lake().replace(h=lake().h * np.array([10.0, 3.0])[:, None, None], b=[-0.9])
    return {"holes": lake(), "absorbing set": cl.limit_reach(lake(), [5], at_most=0.2), "flag": stay, "amounts": paid}


@pytest.mark.parametrize("name", reach_models())
def test_entering_is_paid_once_however_often_a_run_passes_by(name: str) -> None:
    cmdp = reach_models()[name]
    found = payments_of(cmdp)
    expected = found.rest + np.where(np.repeat(found.over, cmdp.A, axis=0), 0.0, cmdp.rows @ found.paid)
    np.testing.assert_allclose(expected.T.reshape(cmdp.h.shape), cmdp.h, rtol=0, atol=1e-12)
    source = SumEpisodes(cmdp, uniform(cmdp))
    X, _, _ = source.draw(key_of(1), 0, 40_000)
    assert np.all(source.bounds[0] <= X) and np.all(source.bounds[1] >= X)
    assert np.all(np.abs(X.mean(0) - cl.evaluate(cmdp, uniform(cmdp).pi[0]).J) < 5 * X.std(0) / 200 + 1e-9)


def test_payments_of_different_sizes() -> None:
    """Two goals pay differently, and a pair can lead to both: least squares tell them apart."""
    P = np.zeros((3, 2, 3))
    P[0] = [[0.5, 0.3, 0.2], [0.6, 0.1, 0.3]]
    P[1, :, 1] = P[2, :, 2] = 1.0
    u = np.array([0.0, 5.0, -2.0])
    cmdp = cl.CMDP(P, P @ u * np.array([1, 0, 0])[:, None], rho=[1.0, 0, 0], criterion="total")
    source = SumEpisodes(cmdp, uniform(cmdp))
    assert source.bounds[0][0] == pytest.approx(-2) and source.bounds[1][0] == pytest.approx(5)


def test_cycles_that_pay_have_no_range() -> None:
    cliff = cl.zoo.cliff().replace(criterion="total", limit=0.1)
    low, high, _ = sum_range(cliff, payments_of(cliff), cliff.available)
    assert np.isinf(low[0]) and np.isinf(high[0])
    with pytest.raises(InputError, match=r"state horizon=H .* or use evidence='exact'"):
        cl.solve(cliff, evidence="samples")
    with pytest.raises(InputError, match="go round a cycle in which the reward and falls add up"):
        cl.certify(cliff, lambda s: 0, evidence="samples")


def test_a_policy_that_avoids_the_cycle_has_a_range() -> None:
    P = np.zeros((2, 2, 2))
    P[0, 0] = [0.5, 0.5]
    P[0, 1, 1] = P[1, :, 1] = 1.0
    cmdp = cl.CMDP(P, [[0.0, 0.0], [0, 0]], rho=[1.0, 0], criterion="total", cost=[[1.0, 1.0], [0, 0]], limit=1.5)
    assert cl.certify(cmdp, [1, 1], evidence="samples", budget=1e5).verdict == "CERTIFIED"
    with pytest.raises(InputError, match="go round a cycle"):
        cl.certify(cmdp, [0, 0], evidence="samples", budget=1e5)


def test_episodes_end_where_nothing_can_be_paid() -> None:
    cmdp, pi = lake(), np.zeros((16, 4))
    pi[:, 0] = 1.0
    over = silent(cmdp, payments_of(cmdp), pi > 0)
    assert over[[5, 7, 11, 12, 15]].all() and not over[4]
    assert np.all(SumEpisodes(cmdp, cl.Mixture.single(pi)).draw(key_of(0), 0, 100)[0][:, 0] == 0)


def test_a_broken_limit_is_rarely_certified() -> None:
    """At a limit a hair below the truth, at most a share δ of the tests may pass, and 3.1 errors more."""
    cmdp = lake()
    truth, delta, trials = -cl.evaluate(cmdp, uniform(cmdp).pi[0]).J[1], 0.05, 400
    source, b = SumEpisodes(cmdp, uniform(cmdp)), np.array([-truth * (1 - 1e-6)])
    found = [gather(source, b, delta, fold(key_of(7), k), 4000).verdict for k in range(trials)]
    assert found.count("CERTIFIED") <= delta * trials + 3.1 * np.sqrt(delta * trials)
    assert gather(source, b + 0.1, 0.05, key_of(8), 1e5).verdict == "VIOLATED"


@pytest.mark.parametrize("seed", range(2))
def test_frozen_lake_until_the_end(seed: int) -> None:
    found = cl.solve(lake(), evidence="samples", budget=2e6, seed=seed)
    exact = cl.certify(lake(), found.policy)
    assert found.certificate.verdict == exact.verdict == "CERTIFIED"
    assert exact.J_r > 0.95 * cl.optimum(lake()).J_r
    assert "possible transitions" in found.certificate.scope and "until absorption" in found.certificate.scope
    assert found.env_steps <= 2.1e6


def test_a_limit_that_binds() -> None:
    cmdp = lake(0.1)
    found = cl.solve(cmdp, evidence="samples", budget=2e6, seed=0)
    exact = cl.certify(cmdp, found.policy)
    assert found.certificate.verdict == exact.verdict == "CERTIFIED"
    assert found.policy.M == 2  # no stationary policy is best
    assert exact.J_r > 0.75 * cl.optimum(cmdp).J_r


def test_runs_resume_to_the_same_result(tmp_path: Path) -> None:
    whole = cl.solve(lake(), evidence="samples", budget=2e5, seed=3, out=tmp_path / "run")
    again = cl.resume(tmp_path / "run")
    assert (again.certificate.verdict, again.certificate.J_r) == (whole.certificate.verdict, whole.certificate.J_r)
    np.testing.assert_array_equal(again.policy.pi, whole.policy.pi)


def test_rules_are_called_until_the_end() -> None:
    cmdp = lake()
    best: Any = cl.optimum(cmdp).policy
    actions = best.argmax(-1)
    source = RuleSums(cmdp, lambda s: int(actions[s]))
    X, _, steps = source.draw(key_of(0), 0, 500)
    assert steps > 500 and set(np.unique(X)) <= {-1.0, 0.0, 1.0}
    cert = cl.certify(cmdp, lambda s: int(actions[s]), evidence="samples", budget=2e4)
    assert cert.verdict == "CERTIFIED"


def test_infeasible_limits_are_not_called_proven() -> None:
    with pytest.raises(cl.InfeasibleError) as e:
        cl.solve(cl.limit_reach(lake(), [15], at_least=0.9), evidence="samples", budget=2e5)
    assert not e.value.proven
