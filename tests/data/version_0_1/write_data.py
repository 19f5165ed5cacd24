"""Write the test data of this folder, with version 0.1 of clearance: python write_data.py (see README.md)."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import clearance as cl

HERE = Path(__file__).parent
SHORT: dict[str, Any] = {"seed": 5, "checkpoint_every": 1000}


class Pole(gymnasium.Wrapper):
    """CartPole with the cost 1 in every step that leaves the pole tilted; the tests have the same one (learners.py)."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, info | {"cost": float(abs(obs[2]) > 0.05)}


def pole() -> Any:
    costs = {"limits": {"tilt": 15.0}, "constraints": lambda obs, action, after, info: {"tilt": info["cost"]}}
    return cl.gymnasium(Pole, horizon=20, num_envs=2, bounds=(0.0, 1.0), name="pole", **costs)


def interrupt_at(k: int) -> Any:
    """A progress callback that presses Ctrl-C at its k-th call."""
    calls = itertools.count(1)

    def progress(*_: Any, **__: Any) -> None:
        if next(calls) >= k:
            raise KeyboardInterrupt

    return progress


def write_models() -> None:
    cl.zoo.two_state().save("dense.npz")
    sparse_model().save("sparse.npz")


def sparse_model() -> cl.CMDP:
    """Return a ring of 12 states: stay, go on, or (in even states only) jump across; sparse, with `available`."""
    from scipy.sparse import csr_array

    S, A = 12, 3
    available = np.ones((S, A), bool)
    available[1::2, 2] = False
    P = np.zeros((S * A, S))
    r, g = np.zeros((S, A)), np.zeros((1, S, A))
    for s in range(S):
        for a, to in enumerate((s, (s + 1) % S, (s + 6) % S)):
            if available[s, a]:
                P[s * A + a, to], P[s * A + a, (to + 1) % S] = 0.9, 0.1
                r[s, a], g[0, s, a] = s / S, 1 - a / 2
    rho = np.full(S, 1 / S)
    return cl.CMDP(csr_array(P), r, g, b=3.0, rho=rho, gamma=0.9, available=available, names=["rest"])


def write_policies() -> None:
    """Two policies of the dense model."""
    safe, greedy = [[0.5, 0.5], [0.25, 0.75]], [[1.0, 0.0], [0.0, 1.0]]
    cl.Mixture([0.75, 0.25], [safe, greedy]).save("mixture.npz")
    cl.Mixture.single(safe).save("single.npz")


def write_finite_runs() -> None:
    two, queue = cl.zoo.two_state(), cl.zoo.altman_queue()
    cl.solve(queue, cl.RegularisedCNPGPD(K=20, N=20), out="run_exact", **SHORT)
    sampled = cl.RegularisedCNPGPD(K=60, N=20)
    cl.solve(two, sampled, evidence="samples", budget=1e5, delta=0.1, out="run_samples", **SHORT)
    features = np.random.default_rng(0).normal(size=(two.S, two.A, 3))
    learner = cl.CNPGPD(K=60, N=20, kappa=0.01)
    cl.solve(two, learner, policy=cl.linear_softmax(features), out="run_features", **SHORT)
    network = cl.two_layer(two.S, two.A, m=4)
    cl.solve(
        two, cl.CNPGPD(K=30, N=20, kappa=0.01, direction=cl.LeastSquares()), policy=network, out="run_network", **SHORT
    )
    cl.solve(two, cl.CNPGPD(K=60, N=10), seed=3).save("saved_solution")
    cl.solve(two, cl.CNPGPD(K=4000, N=10), out="unfinished_finite", progress=interrupt_at(1), **SHORT)


def write_simulator_runs() -> None:
    """With a linear policy and small critics, so that the folders stay small."""
    of = importlib.import_module  # the modules of version 0.1
    simulator = pole()
    policy = of("clearance.simulator.policy").Design(hidden=()).fitted(simulator.obs_shape, simulator.action, 3)
    sampler = of("clearance.simulator.practical").Practical(simulator, policy, hidden=(4,), epochs=1)
    method = cl.PracticalCNPGPD(K=6, N=120, kappa=0.5)
    how: dict[str, Any] = {"sampler": sampler, "budget": 6000, "seed": 5, "delta": 0.1, "checkpoint_every": 4}
    cl.solve(simulator, method, out="run_gymnasium", **how)
    with contextlib.suppress(KeyboardInterrupt):
        cl.solve(simulator, method, out="unfinished_gymnasium", progress=interrupt_at(4), **how)


def write_sweep() -> None:
    cl.sweep("two-state", {"seed": [0, 1]}, out="sweep", method="cnpgpd", K=30, N=5)


if __name__ == "__main__":
    assert cl.__version__.startswith("0.1."), cl.__version__
    os.chdir(HERE)
    for folder in filter(Path.is_dir, HERE.iterdir()):
        shutil.rmtree(folder)
    write_models()
    write_policies()
    write_finite_runs()
    write_simulator_runs()
    write_sweep()
