"""Bounds are bounds: what is let through or rounded is charged, and no edge of the bets certifies what is not true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal, localcontext
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import clearance as cl
from clearance.certificates.betting import LARGEST_LOSS, Bets
from clearance.core.errors import InputError, SolverError
from clearance.core.random_streams import key_of
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Normaliser


class Costly(gym.Env[Any, Any]):
    """Every step costs the same, whatever it is."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, cost: Any) -> None:
        self.cost = cost

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {"cost": self.cost}


def costly(cost: Any, limit: float, horizon: int = 100) -> Any:
    return cl.gymnasium(lambda: Costly(cost), limits=limit, gamma=1.0, horizon=horizon, bounds=(0.0, 1.0), num_envs=2)


def costly_jax(cost: float, limit: float) -> tuple[Any, NetworkMixture]:
    import jax.numpy as jnp

    env = cl.environment(
        lambda key: jnp.zeros(1),
        lambda key, s, a: (s, (0.0, jnp.float32(cost)), s[0] > 1),
        lambda s: s,
        action=cl.Discrete(2),
        gamma=1.0,
        horizon=100,
        limits=limit,
        bounds=([0, 0], [0, 1]),
        lanes=8,
    )
    policy = cl.categorical(()).fitted(env.obs_shape, env.action)
    return env, NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs))


# ----------------------------------------------------------------------------------------- costs beyond their bounds


@pytest.mark.parametrize("excess", [5e-10, 1e-10, 9e-10, 2e-16 * 4])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_costs_a_little_above_their_bound_are_not_certified(excess: float, share: float) -> None:
    """The limit is met by the declared bound, and broken by what is let through."""
    found = cl.certify(costly(1 + excess, 100 * (1 + share * excess)), lambda obs: 0, budget=8e3)
    assert found.verdict != "CERTIFIED"


def test_a_limit_above_all_that_is_let_through_is_certified() -> None:
    assert cl.certify(costly(1 + 5e-10, 100 * (1 + 2e-9)), lambda obs: 0, budget=8e3).verdict == "CERTIFIED"
    env, policy = costly_jax(1 + 5e-7, 100 * (1 + 3e-6))
    assert cl.certify(env, policy, budget=8e3).verdict == "CERTIFIED"


@pytest.mark.parametrize("cost", [1 + 5e-7, 1 + 2.5e-7, 1 + 9e-7])
def test_the_same_in_float32(cost: float) -> None:
    env, policy = costly_jax(cost, 100.0)
    assert cl.certify(env, policy, budget=8e3).verdict != "CERTIFIED"


@pytest.mark.parametrize("cost", [1 + 2e-9, -2e-9, 1.5])
def test_costs_beyond_what_is_let_through_are_faults(cost: float) -> None:
    with pytest.raises(cl.EnvironmentFault, match="outside its declared bounds"):
        cl.certify(costly(cost, 50.0), lambda obs: 0, budget=8e3)


# --------------------------------------------------------------------------------------------- what is no number


@pytest.mark.parametrize(
    "cost",
    [
        "1e-3",
        b"1",
        np.str_("0.5"),
        np.array(["0.5"]),
        None,
        1j,
        np.array(1.0, object),
        [None],
        [1.0, [2.0]],
        np.array([1j]),
    ],
    ids=repr,
)
def test_a_cost_that_is_no_number_is_a_fault(cost: Any) -> None:
    with pytest.raises(cl.EnvironmentFault, match="cost must be a number"):
        cl.certify(costly(cost, 50.0, horizon=3), lambda obs: 0, budget=600)


@pytest.mark.parametrize(
    "cost", [True, np.True_, 1, np.int8(1), np.float32(0.5), np.array(0.5), np.array([1]), [0.5], {"cost": 1}], ids=repr
)
def test_numbers_of_any_kind_are_costs(cost: Any) -> None:
    found = cl.certify(costly(cost, 50.0, horizon=3), lambda obs: 0, budget=600)
    assert found.verdict == "CERTIFIED" and found.J_g[0] == pytest.approx(
        -3 * float(np.ravel(cost["cost"] if isinstance(cost, dict) else cost)[0])
    )


# ------------------------------------------------------------------------------------------------- edges of the bets


@pytest.mark.parametrize(
    ("m", "low", "high"),
    [(np.nan, 0, 1), (0.5, -np.inf, 1), (0.5, 0, np.inf), (0.5, np.nan, 1), (0.5, 1, 0), (0.0, -1.7e308, 1.7e308)],
)
def test_bets_without_a_limit_or_a_range_are_refused(m: float, low: float, high: float) -> None:
    with pytest.raises(InputError, match="cannot be tested"):
        Bets(m, low, high)


def test_a_range_of_one_point() -> None:
    at, above, under = Bets(2.0, 2.0, 2.0), Bets(2.0 + 1e-12, 2.0, 2.0), Bets(2.0 - 1e-12, 2.0, 2.0)
    for bets in (at, above, under):
        bets.update(np.full(5000, 2.0))
        assert bets.lower_bound(0.01) == 2.0
    assert under.rejects(1e-9) and not at.rejects(0.99) and not above.rejects(0.99)


@pytest.mark.parametrize("m", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_mean_within_the_bias_of_the_limit_is_never_certified(m: float, share: float) -> None:
    bias = 1e-3
    bets = Bets(m, 0.0, 1.0, None, bias)
    for _ in range(20):
        bets.update(np.full(10_000, min(m + share * bias, 1.0)))
    assert not bets.rejects(0.9) and bets.lower_bound(0.05) <= max(m, 0.0)


@pytest.mark.parametrize("beyond", [1e-15, 1e-9, 1e-3])
def test_samples_are_refused_however_little_they_lie_outside(beyond: float) -> None:
    for x in (-beyond, 1 + beyond):
        with pytest.raises(InputError, match="outside its declared bounds"):
            Bets(0.5, 0.0, 1.0).update(np.array([0.5, x]))


# ----------------------------------------------------------------------------------- capital in 60-digit arithmetic


def exact_log_capital(bets: Bets, values: Mapping[float, int], at: Decimal) -> Decimal:
    """log W(at) of samples that take each value so many times, for the stored bets and prior."""
    width, logs = Decimal(bets.high) - Decimal(bets.low), []
    for c, prior in zip(bets.bets.tolist(), bets.log_prior.tolist(), strict=True):
        if c >= 1 and c * (float(at) - bets.low) / (bets.high - bets.low) > LARGEST_LOSS:
            continue  # it may lose all there, and does not count
        grown = sum((n * (1 + Decimal(c) * (Decimal(x) - at) / width).ln() for x, n in values.items()), Decimal(0))
        logs.append(grown + Decimal(prior))
    top = max(logs)
    return top + sum(((x - top).exp() for x in logs), Decimal(0)).ln()


RANGES = {"unit": (0.0, 1.0), "far": (1e6, 1e6 + 1e-3), "narrow": (3.0, 3.0 + 2**-40), "wide": (-1e9, 1e9)}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("limit", [0.0, 0.49, 0.6, 0.9999])
@pytest.mark.parametrize("n", [50, 4096, 200_000])
def test_no_bound_is_above_that_of_exact_arithmetic(name: str, limit: float, n: int) -> None:
    """At every claimed lower bound above the range's end, and at every limit that is rejected, W ≥ 1/δ in truth."""
    low, high = RANGES[name]
    points = [low + share * (high - low) for share in (0.0, 0.4999, 0.5, 0.5002, 1.0)]
    counts = [n // 50, n - 4 * (n // 50), n // 50, n // 50, n // 50]
    bets = Bets(low + limit * (high - low), low, high)
    x = np.repeat(points, counts)
    np.random.default_rng(n).shuffle(x)
    bets.update(x)
    values = Counter(x.tolist())
    with localcontext() as context:
        context.prec = 60
        for delta in (0.3, 0.01, 1e-9):
            bound = bets.lower_bound(delta)
            if bound > low:
                assert exact_log_capital(bets, values, Decimal(bound)) >= -Decimal(delta).ln()
            if bets.rejects(delta) and bets.given >= low:
                assert exact_log_capital(bets, values, Decimal(bets.m)) >= -Decimal(delta).ln()


@pytest.mark.parametrize("x", [0.500001, 0.51, 0.7, 1.0])
def test_the_instant_of_rejection(x: float) -> None:
    """δ is moved to the very capital of the bets: what rounding could have added does not count."""
    bets, n = Bets(0.5, 0.0, 1.0), 10_000
    bets.update(np.full(n, x))
    with localcontext() as context:
        context.prec = 60
        true = float(exact_log_capital(bets, {x: n}, Decimal("0.5")))
    if true < 600:
        assert not bets.rejects(float(np.exp(-true)))
        assert bets.rejects(float(np.exp(-true * (1 - 1e-6) + 1e-6)))


# --------------------------------------------------------------------------------------- one state, and γ close to 1


@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("pi", [[[0.5, 0.5]], [[0.0, 1.0]], [[1.0, 0.0]]])
def test_models_of_one_state_can_be_sampled(gamma: float, pi: Any) -> None:
    """With V̂ = V the range of X is no wider than its rounding."""
    model = cl.CMDP([[[1.0], [1.0]]], [[1.0, 0.3]], cost=[[[0.7, 0.7]]], limit=0.8 / (1 - gamma), gamma=gamma)
    V = cl.evaluate(model, pi).V.T
    source = MixtureEpisodes(model, cl.Mixture.single(pi), V)
    X, _, _ = source.draw(key_of(0), 0, 500)
    low, high = source.bounds
    assert np.all((low <= X) & (high >= X))
    assert cl.certify(model, pi, evidence="samples", base=V, budget=1e5).verdict == "CERTIFIED"


def closed(S: int, gamma: float, *, as_sparse: bool = False) -> cl.CMDP:
    from scipy import sparse

    P = np.full((S, 2, S), 1 / S)
    return cl.CMDP(
        sparse.csr_array(P.reshape(-1, S)) if as_sparse else P,
        np.ones((S, 2)),
        cost=np.ones((1, S, 2)),
        limit=1.0,
        gamma=gamma,
    )


@pytest.mark.parametrize("gamma", [1 - 2.0**-53, 1 - 2.0**-52, 1 - 2.0**-48])
@pytest.mark.parametrize("S", [1, 2, 4])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_discounts_next_to_one_give_an_answer_or_a_clear_error(gamma: float, S: int, as_sparse: bool) -> None:
    model, pi = closed(S, gamma, as_sparse=as_sparse), np.full((S, 2), 0.5)
    for call in (cl.certify, cl.evaluate, cl.occupancy):
        try:
            call(model, pi)
        except (InputError, SolverError) as e:
            assert "gamma" in str(e) and "\n" not in str(e)
    for rule in (pi, lambda s: 0):
        with pytest.raises(InputError, match="too close to 1 to sample"):
            cl.certify(model, rule, evidence="samples", budget=1e3)
    for method in (None, cl.CNPGPD(K=1, N=1)):
        with pytest.raises(InputError, match="too close to 1 to learn from walks"):
            cl.solve(model, method, budget=1e3)
