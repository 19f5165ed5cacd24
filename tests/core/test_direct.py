"""The sparse LU of models with local structure: against SciPy's solver, and what it is used for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import with_limits
from scipy import sparse
from scipy.sparse.linalg import spsolve

import clearance as cl
from clearance.core.compiled import dissection
from clearance.core.compiled.dissection import Elimination
from clearance.core.compiled.sparse_lu import Factor
from clearance.exact.bellman import Operator
from clearance.finite.evaluation import evaluate
from clearance.zoo import garnet


def grid(n: int, m: int, I: int = 2, gamma: float = 0.95, seed: int = 0, hubs: int = 0) -> cl.CMDP:
    """n × m cells; stay or move, slipping now and then; absorbing cells, missing actions; a few cells can be reached
    from everywhere (`hubs`)."""
    rng, S = np.random.default_rng(seed), n * m
    x, y = np.divmod(np.arange(S), m)
    moves = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]
    to = np.stack([np.clip(x + dx, 0, n - 1) * m + np.clip(y + dy, 0, m - 1) for dx, dy in moves], 1)
    P = np.zeros((S, 5, S))
    for s in range(S):
        for a in range(5):
            P[s, a, to[s, a]] += 0.9
            P[s, a, rng.choice(to[s]) if not hubs else rng.integers(hubs)] += 0.1
    P[rng.random(S) < 0.05] = np.eye(S)[S - 1]
    available = rng.random((S, 5)) < 0.8
    available[:, 0] = True
    P = np.where(available[:, :, None], P, 0.0)
    h = rng.random((1 + I, S, 5))
    rows = sparse.csr_array(P.reshape(S * 5, S))
    return cl.CMDP(rows, h[0], h[1:], np.zeros(I), gamma=gamma, available=available)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 25),
    st.integers(1, 25),
    st.sampled_from([0.1, 0.9, 0.9999, 1 - 1e-9]),
    st.sampled_from([0, 1, 2]),
)
def test_agrees_with_scipy(seed: int, n: int, m: int, gamma: float, hubs: int) -> None:
    """Both systems of policies that change a few states at a time; absorbing cells, γ near 1, restarts."""
    cmdp = grid(n, m, gamma=gamma, seed=seed, hubs=min(hubs, n * m))
    places = Elimination.of(cmdp.P, 5, 1 - 1e-9)  # with a small γ iterations may be cheaper, and there is none
    assert places is not None, "a grid has small separators, and a common restart does not hide them"
    rng, S, factor = np.random.default_rng(seed), cmdp.S, Factor(places, gamma)
    act = np.zeros(S, np.int64)
    for changes in (0, 1, S):
        for s in rng.integers(0, S, changes):
            act[s] = rng.choice(np.flatnonzero(cmdp.available[s]))
        M = cmdp.P[np.arange(S) * 5 + act]
        system = sparse.csc_array(sparse.eye_array(S) - gamma * M)
        factor.update(cmdp.P, 5, act)
        y = rng.normal(size=(S, 6))
        size = np.abs(y).max() / (1 - gamma)
        V, x = factor.solve(y), factor.solve_T(y[:, 0])
        assert np.abs(system @ V - y).max() <= 1e-14 * size and np.abs(system.T @ x - y[:, 0]).max() <= 1e-13 * S * size
        if gamma < 0.99999:
            exact: Any = spsolve(system, y[:, 5]), spsolve(system.T.tocsc(), y[:, 0])
            assert V[:, 5] == pytest.approx(exact[0], abs=1e-10 * size)
            assert x == pytest.approx(exact[1], abs=1e-10 * S * size)


def test_rows_without_entries_and_states_apart() -> None:
    """A matrix with empty rows, and parts that have nothing to do with each other."""
    M = sparse.csr_array(sparse.block_diag([sparse.csr_array((1, 1))] * 40 + [np.roll(np.eye(9), 1, axis=1)] * 3))
    places = Elimination.of(M, 1, 0.9)
    assert places is not None and sorted(places.order) == list(range(67))
    y = np.arange(67.0)
    assert Factor(places, 0.9).update(M).solve(y) == pytest.approx(
        np.linalg.solve(np.eye(67) - 0.9 * M.toarray(), y), rel=1e-12
    )


def test_random_graphs_are_left_to_iterations() -> None:
    assert garnet(1000).elimination is None and garnet(1000, successors=2).elimination is None
    assert garnet(5000, A=1, successors=3).elimination is None


def test_places_are_those_of_the_symbolic_factor() -> None:
    """Every entry that elimination makes has a place, whatever the order: the factor of random numbers there is exact;
    and nested dissection beats the order in which the states stand.
    """
    cmdp = grid(20, 20)
    ptr, idx, _ = dissection.graph(cmdp.P.indptr, cmdp.P.indices, 5, dissection.WIDTH)
    natural = np.arange(400)
    uptr, uidx, lptr, lidx, parent = dissection.fill(ptr, idx, natural, 1e12)
    places = Elimination(natural, natural, uptr, uidx, lptr, lidx, parent)
    found = Elimination.of(cmdp.P, 5, 0.9)
    assert found is not None and len(found.uidx) < 0.75 * len(places.uidx)
    act, y = np.zeros(400, np.int64), np.random.default_rng(0).normal(size=400)
    a, b = (Factor(p, 0.9).update(cmdp.P, 5, act).solve(y) for p in (places, found))
    assert a == pytest.approx(b, abs=1e-12)
    assert dissection.fill(ptr, idx, natural, 1e3)[4][0] == -2, "too much work is noticed"


@pytest.mark.parametrize("gamma", [0.9, 0.999])
def test_optimum_of_a_grid_is_that_of_the_linear_program(gamma: float) -> None:
    for seed in range(3):
        free = grid(16, 16, I=3, gamma=gamma, seed=seed)
        cmdp = with_limits(free, 0.02 / (1 - gamma))
        assert cmdp.elimination is not None
        best, whole = cl.optimum(cmdp, method="columns"), cl.optimum(cmdp, method="lp")
        assert best.J_r == pytest.approx(whole.J_r, rel=2e-7) and np.all(best.slack >= 0) and best.mixture.M <= 4
        assert cl.certify(cmdp, best.policy, best=best).verdict == "CERTIFIED"
        assert cl.optimum(with_limits(free, -0.1), method="columns").status == "infeasible"


@pytest.mark.parametrize("gamma", [0.5, 0.99999])
def test_a_grid_of_costs_is_certified(gamma: float) -> None:
    """Negative signals, and γ close to 1."""
    free = grid(24, 24, gamma=gamma, seed=1, hubs=1)
    cmdp = with_limits(free.replace(h=-free.h), 0.05 / (1 - gamma))
    best = cl.optimum(cmdp)
    assert cmdp.elimination is not None and cl.certify(cmdp, best.policy, best=best).verdict == "CERTIFIED"
    assert 0 <= best.gap <= 1e-6 * abs(best.J_r)


def test_evaluation_and_policy_iteration_by_the_factor() -> None:
    """The same numbers as by iterations, of a model large enough for them."""
    cmdp = grid(20, 20, gamma=0.99)
    pi = cmdp.available / cmdp.available.sum(1, keepdims=True)
    exact = evaluate(cmdp, pi)
    model = Operator.of(cmdp)
    best, _ = model.maximise(cmdp.r.ravel(), np.zeros(400), np.zeros(400, np.int64), 1e-9)
    object.__setattr__(cmdp, "elimination", None)
    other, model = evaluate(cmdp, pi), Operator.of(cmdp)
    assert pytest.approx(other.V, abs=1e-9) == exact.V and pytest.approx(other.d, abs=1e-12) == exact.d
    again, _ = model.maximise(cmdp.r.ravel(), np.zeros(400), np.zeros(400, np.int64), 1e-9)
    assert best == pytest.approx(again, abs=1e-6)
