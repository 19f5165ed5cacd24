"""Unbiasedness of the reset-free sampler through a real Gymnasium vector environment on finite models, by z-scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import clearance as cl
from clearance.simulator import coin
from clearance.simulator.model import ModelEnv


def terminating() -> cl.CMDP:
    """Two states and an end: state 2 is absorbing with zero signals."""
    rng = np.random.default_rng(5)
    P = np.zeros((3, 2, 3))
    P[:2] = rng.dirichlet(np.ones(3), (2, 2))
    P[2, :, 2] = 1.0
    r, g = rng.uniform(size=(3, 2)), rng.uniform(-1, 1, (1, 3, 2))
    r[2], g[0, 2] = 0.0, 0.0
    return cl.CMDP(P, r, g, rho=[0.6, 0.4, 0.0], gamma=0.8)


def endless() -> cl.CMDP:
    rng = np.random.default_rng(4)
    P, r = rng.dirichlet(np.ones(3), (3, 2)), rng.uniform(size=(3, 2))
    return cl.CMDP(P, r, rng.uniform(-1, 1, (2, 3, 2)), rho=[0.2, 0.3, 0.5], gamma=0.8)


def policy(cmdp: cl.CMDP) -> Any:
    pi = np.random.default_rng(1).dirichlet(np.ones(cmdp.A), cmdp.S)

    def sample(rng: np.random.Generator, obs: Any) -> Any:
        return (rng.random(len(obs))[:, None] > np.cumsum(pi[obs.argmax(-1)], axis=1)).sum(1)

    return pi, sample


def simulator(cmdp: cl.CMDP, mode: AutoresetMode | None, n: int = 32) -> Any:
    env: Any = lambda: ModelEnv(cmdp)  # noqa: E731
    if mode is not None:
        env = SyncVectorEnv([env] * n, autoreset_mode=mode)
    settings: dict[str, Any] = {"constraints": lambda o, a, x, info: info["g"], "b": cmdp.b, "gamma": cmdp.gamma}
    return cl.gymnasium(env, num_envs=n, **settings)


def z_scores(cmdp: cl.CMDP, pi: Any, draws: Any) -> Any:
    """Of visits d(s, a) and of d(s, a) A(s, a), for all pairs and signals."""
    truth, pair = cl.evaluate(cmdp, pi), draws.obs.argmax(-1) * cmdp.A + draws.action
    seen = (pair[:, None] == np.arange(cmdp.S * cmdp.A)) & draws.alive[:, None]  # [N, S·A]
    ends = ~np.any(cmdp.h, axis=(0, 2)).repeat(cmdp.A)
    d, A = truth.d.ravel()[~ends], truth.A.reshape(1 + cmdp.I, -1).T[~ends]
    x = np.concatenate([seen[:, ~ends, None].astype(float), seen[:, ~ends, None] * draws.A[:, None]], axis=2)
    expected = d[:, None] * np.concatenate([np.ones((len(d), 1)), A], axis=1)
    return ((x.mean(0) - expected) / (x.std(0) / np.sqrt(len(x)))).ravel()


CASES = [(endless, None), (endless, AutoresetMode.NEXT_STEP), (terminating, None)]
CASES += [(terminating, mode) for mode in AutoresetMode]


@pytest.mark.parametrize(("model", "mode"), CASES)
def test_the_coin_is_unbiased(model: Any, mode: AutoresetMode | None) -> None:
    cmdp, N = model(), 12_000 if mode is None else 4_000
    pi, sample = policy(cmdp)
    with simulator(cmdp, mode) as sim:
        z = z_scores(cmdp, pi, coin.coin_draws(sim, sample, seed=3, N=N))
        X, steps = coin.geometric_returns(sim, sample, seed=4, N=N)
    assert np.abs(z).max() < 4.5 and np.mean(z**2) == pytest.approx(1.0, abs=0.8)
    z_J = (X.mean(0) - cl.evaluate(cmdp, pi).J) / (X.std(0) / np.sqrt(len(X)))
    assert np.abs(z_J).max() < 4
    assert model is terminating or steps / len(X) == pytest.approx(1 / (1 - cmdp.gamma), rel=0.06)


def test_one_stream_for_both_would_be_biased(monkeypatch: pytest.MonkeyPatch) -> None:
    """What two streams are for: seeded alike, the environment's numbers are the sampler's."""
    cmdp = endless()
    pi, sample = policy(cmdp)

    def same(seed: int, k: int, n: int) -> Any:
        word = int(np.random.SeedSequence([seed, k]).generate_state(1)[0])
        return [word], np.random.default_rng(word)

    monkeypatch.setattr(coin, "streams", same)
    with simulator(cmdp, None, n=1) as sim:
        z = z_scores(cmdp, pi, coin.coin_draws(sim, sample, seed=3, N=3000))
    assert np.abs(z).max() > 6


def test_the_coin_needs_a_discount_and_no_horizon() -> None:
    sim = cl.gymnasium("CartPole-v1", limits=[], gamma=0.9, horizon=9, num_envs=1)
    with pytest.raises(cl.InputError, match="without a horizon"):
        coin.coin_draws(sim, lambda rng, obs: np.zeros(1, int), 0, 1)
