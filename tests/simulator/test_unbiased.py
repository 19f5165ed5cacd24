"""Algorithm 2 on a JAX environment against the exact values of the model behind it, by z-scores."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from clearance import CNPGPD, optimum, solve, zoo
from clearance.core.errors import InputError
from clearance.finite.evaluation import evaluate
from clearance.runs import run_reader
from clearance.simulator.policies.network_policy import NetworkPolicy, categorical
from clearance.simulator.samplers.actor_critic import Practical
from clearance.simulator.samplers.jax_algorithm2 import Unbiased
from clearance.zoo import simulated as simulators
from clearance.zoo.simulated.model_environment import of_model


def table(policy: NetworkPolicy, theta: Any) -> Any:
    """π [S, A] of a linear policy on one-hot observations."""
    layer = policy.net(theta).layers[0]
    logits = (np.asarray(layer.weight).T + np.asarray(layer.bias)).astype(float)
    p = np.exp(logits - logits.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


@pytest.fixture(scope="module")
def world() -> Any:
    cmdp = zoo.bai2023()
    env = of_model(cmdp)
    policy = categorical(hidden=()).fitted(env.obs_shape, env.action)
    theta = np.random.default_rng(3).normal(size=policy.d)
    return cmdp, env, policy, theta


@pytest.mark.parametrize(
    ("resets", "control", "N"),
    [
        (False, True, 300),
        *(pytest.param(*x, 1500, marks=pytest.mark.slow) for x in product((False, True), repeat=2)),
    ],
)
def test_gradient_and_values_are_unbiased(world: Any, resets: bool, control: bool, N: int) -> None:
    cmdp, env, policy, theta = world
    sampler = Unbiased(env, policy, resets, control, hidden=(16,))
    found = evaluate(cmdp, table(policy, theta))
    carried, rows = sampler.begin(), []
    for k in range(30):
        draws, J_hat, carried, steps = sampler.batch(np.uint64(k), carried, theta, N)
        assert steps > 2 * N
        probe = draws.score.T @ (draws.weight[:, None] * draws.A)  # E_d[score A] [d, 1+I]
        rows.append(np.concatenate([J_hat, probe[:20].ravel()]))
    pi, d = table(policy, theta), found.d.reshape(cmdp.S, cmdp.A)
    A = np.moveaxis(found.A.reshape(1 + cmdp.I, cmdp.S, cmdp.A), 0, -1)
    # The weights of a linear policy on one-hot states: ∂ log π(a|s)/∂W[a', s] = 1{a' = a} − π(a'|s)
    exact = np.einsum("sa,sah,asc->csh", d, A, np.eye(cmdp.A)[:, None] - pi[None]).reshape(-1, 1 + cmdp.I)
    truth = np.concatenate([found.J, exact[:20].ravel()])
    mean, error = np.mean(rows, 0), np.std(rows, 0, ddof=1) / np.sqrt(len(rows))
    z = (mean - truth) / error
    assert np.abs(z).max() < 4.8, z  # Student's t with 29 degrees of freedom, 42 numbers
    assert np.mean(z**2) < 2.5


@pytest.mark.slow
def test_control_variates_reduce_the_spread(world: Any) -> None:
    _, env, policy, theta = world
    spread = []
    for control in (False, True):
        sampler = Unbiased(env, policy, False, control, hidden=(16,))
        carried, A = sampler.begin(), np.zeros((1, 2))
        for k in range(12):
            draws, _, carried, _ = sampler.batch(np.uint64(k), carried, theta, 1000)
            A = draws.A
        spread.append(A.std(0))
    assert np.all(spread[1] < 0.7 * spread[0]), spread


def test_what_it_is_not_for(world: Any) -> None:
    _, env, _, _ = world
    with pytest.raises(InputError, match="no horizon"):
        pendulum = simulators.pendulum()
        Unbiased(pendulum, categorical(hidden=()).fitted((3,), env.action))
    with pytest.raises(InputError, match="normalise=False"):
        Unbiased(env, categorical().fitted(env.obs_shape, env.action))


@pytest.mark.slow
def test_algorithm_1_as_printed_learns_on_a_jax_environment(tmp_path: Any) -> None:
    """C-NPG-PD with its own regression and its own draws, against the optimum of the model behind the environment."""
    cmdp = zoo.two_state()
    env, best = of_model(cmdp), optimum(cmdp)
    method = CNPGPD(K=300, N=128, eta1=0.1, eta2=0.1, kappa=0.05)
    sol = solve(env, method, policy=categorical(hidden=()), budget=1e6, seed=0, out=tmp_path / "run")
    assert sol.certificate.verdict == "CERTIFIED" and not sol.policy_class.design.normalise
    pi = [table(sol.policy.policy, theta) for theta in sol.policy.theta]
    J = sol.policy.weights @ np.array([evaluate(cmdp, p).J for p in pi])  # exact, of the mixture that was certified
    assert np.all(J[1:] >= cmdp.b) and best.J_r - 0.05 < J[0] <= best.J_r
    again: Any = run_reader.load(tmp_path / "run")
    assert again.settings["method"]["name"] == "CNPGPD" and np.array_equal(again.policy.theta, sol.policy.theta)
    with pytest.raises(InputError, match="CNPGPD goes with the samplers Unbiased and ResetFree"):
        solve(env, method, sampler=Practical(env, sol.policy_class))
