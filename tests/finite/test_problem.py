"""Exact evaluation against closed forms and identities; files; costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import random_cmdp
from scipy import sparse

import clearance as cl
from clearance.finite.evaluation import evaluate, occupancy, policy_from_occupancy, values_from_occupancy


def test_two_states_by_hand() -> None:
    """J_r = 4p/3, J_g = 5/3 − 4p/3 for p = π(risky | work): see the docstring of the model."""
    cmdp = cl.zoo.two_state()
    for p in (0.0, 0.25, 0.5, 1.0):
        at = evaluate(cmdp, [[p, 1 - p], [0.3, 0.7]])
        assert pytest.approx([4 * p / 3, 5 / 3 - 4 * p / 3], abs=1e-14) == at.J
        assert at.d.sum(1) == pytest.approx([2 / 3, 1 / 3], abs=1e-14)


def test_a_single_state_is_a_geometric_series() -> None:
    cmdp = cl.CMDP([[[1.0], [1.0]]], [[3.0, 1.0]], gamma=0.9)
    assert pytest.approx([(0.25 * 3 + 0.75) / 0.1], rel=1e-13) == evaluate(cmdp, [[0.25, 0.75]]).J


def test_the_papers_instance_is_the_published_one() -> None:
    cmdp = cl.zoo.bai2023()
    assert cmdp.r.ravel()[:3] == pytest.approx([0.02965494, 0.01142853, 0.331844], abs=1e-8)
    assert cmdp.g.ravel()[:3] == pytest.approx([0.17432566, 0.27558586, -0.18982531], abs=1e-8)
    assert pytest.approx([2.0151894, -1.2152820], abs=1e-7) == evaluate(cmdp, np.full((10, 5), 0.2)).J


def test_altmans_queue_moves_as_described() -> None:
    P = cl.zoo.altman_queue_discounted().P
    a = 4 * 1 + 2  # service 0.4, flow 0.6
    assert P[2, a, 3] == pytest.approx(0.6 * 0.6)
    assert P[2, a, 1] == pytest.approx(0.4 * 0.4)
    assert P[4, a, 3] == pytest.approx(0.4)
    assert P[0, a, 1] == pytest.approx(0.6 * 0.6)
    assert P[0, a, 0] == pytest.approx(1 - 0.36)


def test_frozen_lake_ends_where_gymnasium_ends() -> None:
    """Sampled episodes of the environment itself against the model's J (γ^t discounted, at most 100 steps)."""
    import gymnasium

    cmdp = cl.zoo.frozen_lake()
    J = evaluate(cmdp, np.full((16, 4), 0.25)).J
    env, rng = gymnasium.make("FrozenLake-v1", is_slippery=True, max_episode_steps=1000), np.random.default_rng(0)
    env.reset(seed=0)
    holes = env.unwrapped.desc.ravel() == b"H"  # pyright: ignore[reportAttributeAccessIssue]
    returns = []
    for _ in range(1500):
        env.reset()
        t, over, total = 0, False, np.zeros(2)
        while not over:
            s, r, terminated, truncated, _ = env.step(int(rng.integers(4)))
            total += cmdp.gamma**t * np.array([float(r), -float(holes[s])])
            t, over = t + 1, terminated or truncated
        returns.append(total)
    z = (np.mean(returns, 0) - J) / (np.std(returns, 0) / np.sqrt(len(returns)))
    assert np.abs(z).max() < 4


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 7),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from([0.01, 0.5, 0.9, 0.999]),
)
def test_identities(seed: int, S: int, A: int, I: int, gamma: float) -> None:
    """J = ρ·V = ⟨h, d⟩/(1−γ); V = Σ_a π Q; Σ_a π A = 0; d is a distribution that flows; policy_of(d) = π."""
    cmdp = random_cmdp(seed, S, A, I, gamma)
    pi = np.random.default_rng(seed).dirichlet(np.ones(A), size=S)
    at = evaluate(cmdp, pi)
    scale = 3 / (1 - gamma)
    assert pytest.approx(values_from_occupancy(cmdp, at.d), abs=1e-10 * scale) == at.J
    assert pytest.approx(at.V @ cmdp.rho, abs=1e-12 * scale) == at.J
    assert np.einsum("sa,hsa->hs", pi, at.Q) == pytest.approx(at.V, abs=1e-10 * scale)
    assert np.einsum("sa,hsa->hs", pi, at.A) == pytest.approx(0, abs=1e-10 * scale)
    assert at.d.sum() == pytest.approx(1, abs=1e-10)
    inflow = (1 - gamma) * cmdp.rho + gamma * at.d.ravel() @ cmdp.rows
    assert at.d.sum(1) == pytest.approx(inflow, abs=1e-12)
    assert occupancy(cmdp, np.stack([pi, pi]))[1] == pytest.approx(at.d, abs=1e-12)
    seen = at.d.sum(1) > 1e-9
    assert policy_from_occupancy(at.d)[seen] == pytest.approx(pi[seen], abs=1e-5)


@pytest.mark.parametrize("I", [0, 2])
def test_sparse_equals_dense_and_files_bring_both_back(tmp_path: Path, I: int) -> None:
    dense = random_cmdp(3, S=9, A=4, I=I, gamma=0.95, concentration=0.05)
    thin = cl.CMDP(sparse.csr_array(dense.rows), dense.r, dense.g, dense.b, rho=dense.rho, gamma=dense.gamma)
    pi = np.random.default_rng(0).dirichlet(np.ones(4), size=9)
    a, b = evaluate(dense, pi), evaluate(thin, pi)
    for x, y in zip(vars(a).values(), vars(b).values(), strict=True):
        assert x == pytest.approx(y, abs=1e-10)
    assert occupancy(thin, np.stack([pi, pi])) == pytest.approx(occupancy(dense, np.stack([pi, pi])), abs=1e-12)
    for i, cmdp in enumerate((dense, thin)):
        path = tmp_path / f"{i}.npz"
        cmdp.save(path)
        again = cl.CMDP.load(path)
        assert again.is_sparse == cmdp.is_sparse and again.names == cmdp.names and again.gamma == cmdp.gamma
        assert (
            np.array_equal(again.h, cmdp.h) and np.array_equal(again.b, cmdp.b) and np.array_equal(again.rho, cmdp.rho)
        )
        assert (again.rows != cmdp.rows).sum() == 0
        assert [p.name for p in tmp_path.iterdir() if p.suffix == ".partial"] == []


def test_costs_mean_the_same_as_negated_utilities() -> None:
    base = random_cmdp(5, I=2)
    cost = cl.CMDP(base.P, base.r, cost=-base.g, limit=-base.b, rho=base.rho, gamma=base.gamma)
    assert np.array_equal(cost.g, base.g) and np.array_equal(cost.b, base.b)
    both = cl.CMDP(base.P, base.r, base.g[0], base.b[0], cost=-base.g[1], limit=2.0, rho=base.rho, gamma=base.gamma)
    assert np.array_equal(both.g, base.g) and both.b.tolist() == [base.b[0], -2.0]


def test_a_model_cannot_be_changed_by_accident() -> None:
    cmdp = cl.zoo.bai2023()
    with pytest.raises(ValueError, match="read-only"):
        cmdp.P[0, 0, 0] = 1.0


def test_class_model_has_the_values_of_the_class() -> None:
    """Every policy of the 35-feature class has the same J on the class model, whatever is done at states 7..9."""
    cmdp, policy = cl.zoo.bai2023(), cl.zoo.bai2023_policy()
    pi = policy.pi(np.random.default_rng(2).normal(size=35))
    assert pi[7:] == pytest.approx(0.2, abs=1e-15)
    elsewhere = pi.copy()
    elsewhere[7:] = np.eye(5)[:3]
    for model in (cl.class_model(cmdp, policy), cl.class_model(_sparse(cmdp), policy)):
        assert pytest.approx(evaluate(cmdp, pi).J, abs=1e-12) == evaluate(model, elsewhere).J


def _sparse(cmdp: cl.CMDP) -> cl.CMDP:
    return cl.CMDP(sparse.csr_array(cmdp.rows), cmdp.r, cmdp.g, cmdp.b, rho=cmdp.rho, gamma=cmdp.gamma)


def test_costs_are_costs_after_a_file(tmp_path: Path) -> None:
    """How a constraint was written is not lost on the way through a file."""
    for model in (cl.zoo.maintenance(), cl.zoo.two_state()):
        model.save(tmp_path / "m.npz")
        assert cl.CMDP.load(tmp_path / "m.npz").costs == model.costs
