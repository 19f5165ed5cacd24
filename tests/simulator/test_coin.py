"""Unbiasedness of the reset-free sampler through a real Gymnasium vector environment on finite models, by z-scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import clearance as cl
from clearance.simulator.samplers import fair_coin
from clearance.simulator.samplers.gymnasium_algorithm2 import ResetFree
from clearance.zoo.simulated.model_env import ModelEnv


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
        z = z_scores(cmdp, pi, fair_coin.coin_draws(sim, sample, seed=3, N=N))
        X, _, steps = fair_coin.geometric_returns(sim, sample, seed=4, N=N)
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

    monkeypatch.setattr(fair_coin, "streams", same)
    with simulator(cmdp, None, n=1) as sim:
        z = z_scores(cmdp, pi, fair_coin.coin_draws(sim, sample, seed=3, N=3000))
    assert np.abs(z).max() > 6


def test_the_coin_needs_a_discount_and_no_horizon() -> None:
    sim = cl.gymnasium("CartPole-v1", limits=[], gamma=0.9, horizon=9, num_envs=1)
    with pytest.raises(cl.InputError, match="without a horizon"):
        fair_coin.coin_draws(sim, lambda rng, obs: np.zeros(1, int), 0, 1)


# ------------------------------------------------------------------------------------ as the sampler of Algorithm 1


def network(cmdp: cl.CMDP, mode: AutoresetMode | None, control: bool) -> Any:
    sim = simulator(cmdp, mode)
    design = cl.categorical(hidden=()).fitted(sim.obs_shape, sim.action)
    return ResetFree(sim, design, control, hidden=(16,)), np.random.default_rng(3).normal(size=design.d)


@pytest.mark.parametrize("control", [True, False])
@pytest.mark.parametrize("mode", [None, AutoresetMode.NEXT_STEP])
def test_gradients_of_networks_are_unbiased_with_and_without_control_variates(mode: Any, control: bool) -> None:
    cmdp = terminating()
    sampler, theta = network(cmdp, mode, control)
    layer = sampler.policy.net(theta).layers[0]
    p = np.exp((np.asarray(layer.weight).T + np.asarray(layer.bias)).astype(float))
    pi = p / p.sum(1, keepdims=True)
    truth, world, rows = cl.evaluate(cmdp, pi), sampler.begin(), []
    for k in range(24):
        draws, J_hat, world, steps = sampler.batch(np.uint64(k), world, theta, 320)
        assert steps > 2 * 320
        rows.append(np.concatenate([J_hat, (draws.score.T @ (draws.weight[:, None] * draws.A))[:6].ravel()]))
    d, A = truth.d.reshape(cmdp.S, cmdp.A), np.moveaxis(truth.A.reshape(1 + cmdp.I, cmdp.S, cmdp.A), 0, -1)
    # ∂ log π(a|s)/∂W[a', s] = 1{a' = a} − π(a'|s)
    exact = np.einsum("sa,sah,asc->csh", d, A, np.eye(cmdp.A)[:, None] - pi[None]).reshape(-1, 1 + cmdp.I)
    seen = np.abs(exact).max(1) > 0  # the state after the end has no gradient
    expected = np.concatenate([truth.J, exact[seen].ravel()])
    drawn = np.array([np.concatenate([x[:2], x[2:].reshape(6, 2)[seen].ravel()]) for x in rows])
    z = (drawn.mean(0) - expected) / (drawn.std(0, ddof=1) / np.sqrt(len(drawn)))
    assert np.abs(z).max() < 4.8 and np.mean(z**2) < 2.5, z


@pytest.mark.slow
def test_control_variates_reduce_the_spread_of_the_coin() -> None:
    spread = []
    for control in (False, True):
        sampler, theta = network(endless(), None, control)
        world, A = sampler.begin(), np.zeros((1, 3))
        for k in range(10):
            draws, _, world, _ = sampler.batch(np.uint64(k), world, theta, 640)
            A = draws.A
        spread.append(A.std(0))
    assert np.all(spread[1] < 0.8 * spread[0]), spread


def test_algorithm_1_on_a_gymnasium_problem(tmp_path: Any) -> None:
    """Learned, certified, and the same bits after a resume."""
    cmdp = endless()
    cmdp = cmdp.replace(b=cl.evaluate(cmdp, np.full((3, 2), 0.5)).J[1:] - 0.1)
    settings: dict[str, Any] = {"constraints": lambda o, a, x, info: info["g"], "b": cmdp.b, "gamma": cmdp.gamma}
    sim = cl.gymnasium(lambda: ModelEnv(cmdp), num_envs=32, bounds=(-1.0, 1.0), **settings)
    how: dict[str, Any] = {"policy": cl.categorical(hidden=()), "budget": 1e5}
    method = cl.CNPGPD(K=10, N=320, kappa=0.05)
    for seed in (2, 3, 4):  # rounding can tip a single run
        sol = cl.solve(sim, method, out=tmp_path / f"run{seed}", seed=seed, **how)
        if sol.certificate.verdict == "CERTIFIED":
            break
    uniform, best = cl.evaluate(cmdp, np.full((3, 2), 0.5)).J[0], cl.optimum(cmdp).J_r
    assert sol.certificate.verdict == "CERTIFIED" and uniform < sol.certificate.J_r < best + 0.05
    again = cl.resume(tmp_path / f"run{seed}", sim)
    assert again.certificate == sol.certificate
    with pytest.raises(cl.InputError, match="no horizon"):
        cl.solve(cl.gymnasium("CartPole-v1", limits=[], horizon=20, num_envs=2), cl.CNPGPD(K=5, N=16), budget=1e5)
