"""What was tested or bounded is the problem that the verdict names: limits, models and simulators are not mixed up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import clearance as cl
from clearance.core.errors import InputError, SmallBudgetError
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Design, Normaliser

HEAT, NOISE = 3.0, 1.0  # of every step; ten steps


class Plant(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, heat: float = HEAT, start: float = 0.0, named: bool = True) -> None:
        self.heat, self.start, self.named = heat, start, named

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.full(1, self.start, np.float32), {}

    def step(self, action: Any) -> Any:
        cost: Any = {"heat": self.heat, "noise": NOISE} if self.named else [self.heat, NOISE]
        return np.full(1, self.start, np.float32), 0.0, False, False, {"cost": cost}


def of_gymnasium(**how: Any) -> Any:
    return cl.gymnasium(Plant, horizon=10, bounds=(0, 5), num_envs=1, **how)


def of_lists(**how: Any) -> Any:
    """Costs in the order of the names."""
    names = how.get("names") or list(how["limits"])
    cost = lambda obs, action, after, info: [{"heat": HEAT, "noise": NOISE}.get(name, 0.0) for name in names]  # noqa: E731
    return cl.gymnasium(Plant, constraints=cost, horizon=10, bounds=(0, 5), num_envs=1, **how)


def of_functions(**how: Any) -> Any:
    costs = {"heat": lambda *x: HEAT, "noise": lambda *x: NOISE}
    return cl.gymnasium(Plant, constraints=costs, horizon=10, bounds=(0, 5), num_envs=1, **how)


def of_jax(heat: float = HEAT, start: float = 0.0, **how: Any) -> Any:
    import jax.numpy as jnp

    names = how.get("names") or list(how["limits"])
    costs = [{"heat": heat, "noise": NOISE}.get(name, 0.0) for name in names]
    how = {"action": cl.Discrete(2), "gamma": 1.0, "horizon": 10, "bounds": ([0, 0, 0], [0, 5, 5]), "lanes": 8} | how
    return cl.environment(
        lambda key: jnp.full(1, start), lambda key, s, a: (s, (0.0, *costs), s[0] > 1), lambda s: s, **how
    )


# ------------------------------------------------------------------------------------------- limits go by their names


@pytest.mark.parametrize("make", [of_gymnasium, of_lists, of_functions, of_jax])
@pytest.mark.parametrize("names", [None, ("heat", "noise"), ("noise", "heat")])
@pytest.mark.parametrize("turned", [False, True])
def test_limits_by_name_are_the_limits_of_these_names(make: Any, names: Any, turned: bool) -> None:
    """Heat sums to 30 over a limit of 20, whatever the order in which names and limits are given."""
    limits = {"noise": 40.0, "heat": 20.0} if turned else {"heat": 20.0, "noise": 40.0}
    problem = make(limits=limits, **({} if names is None else {"names": names}))
    assert dict(zip(problem.statement.names, -problem.statement.b, strict=True)) == limits
    assert cl.certify(problem, lambda obs: 0, budget=5e4).verdict == "VIOLATED"


@pytest.mark.parametrize("make", [of_gymnasium, of_lists, of_functions, of_jax])
def test_names_that_are_not_those_of_the_limits_are_refused(make: Any) -> None:
    with pytest.raises(InputError, match="same names"):
        make(limits={"noise": 40.0, "heat": 20.0}, names=("heat", "smell"))


def test_a_limit_by_a_name_that_two_constraints_have_is_refused() -> None:
    costs = [[[1.0, 0.0]], [[0.0, 1.0]]]
    model = cl.CMDP([[[1.0], [1.0]]], [[1.0, 0.0]], cost=costs, limit=[1.0, 1.0], gamma=0.5, names=["a", "a"])
    with pytest.raises(InputError, match="several constraints are called 'a'"):
        model.replace(limit={"a": 5.0})
    assert model.replace(limit=[5.0, 1.0]).b.tolist() == [-5.0, -1.0]


# --------------------------------------------------------------------------- a gap is the gap to this model's optimum


@pytest.mark.parametrize(
    "other",
    [
        lambda m: m.replace(h=m.h * [[[1e-3]], [[1.0]]]),
        lambda m: m.replace(b=m.b - 0.1),
        lambda m: m.replace(gamma=0.7),
        lambda m: m.replace(rho=np.eye(m.S)[0]),
    ],
)
def test_the_optimum_of_another_model_proves_no_gap(other: Any) -> None:
    model = cl.zoo.bai2023()
    best = cl.optimum(other(model))
    safe = cl.optimum(model.replace(b=model.b + 0.5)).policy
    with pytest.raises(InputError, match="not the optimum of this model"):
        cl.certify(model, safe, best=best)
    own = cl.certify(model, safe, best=cl.optimum(cl.zoo.bai2023()))  # an equal model is this model
    assert own.gap == cl.certify(model, safe).gap and own.gap is not None and own.gap > 0.1


# ------------------------------------------------------------------------------ a test is continued on its own problem


def network(problem: Any) -> NetworkMixture:
    policy = Design(hidden=(4,)).fitted(problem.obs_shape, problem.action, 3)
    return NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs))


def gymnasium_plant(heat: float = 0.1, start: float = 0.0, lanes: int = 2) -> Any:
    make = lambda: Plant(heat, start, named=False)  # noqa: E731
    return cl.gymnasium(make, limits={"heat": 5.0, "noise": 40.0}, horizon=10, bounds=(0, 5), num_envs=lanes)


def vector_plant(heat: float = 0.1, start: float = 0.0) -> Any:
    env = gym.vector.SyncVectorEnv([lambda: Plant(heat, start)] * 2)
    cost = lambda obs, action, after, info: [heat, NOISE]  # noqa: E731
    return cl.gymnasium(env, constraints=cost, limits={"heat": 5.0, "noise": 40.0}, horizon=10, bounds=(0, 5))


def jax_plant(heat: float = 0.1, start: float = 0.0) -> Any:
    return of_jax(heat, start, limits={"heat": 5.0, "noise": 40.0})


PLANTS: dict[str, Any] = {"objects": gymnasium_plant, "vector": vector_plant, "JAX": jax_plant}


@pytest.mark.parametrize("kind", PLANTS)
def test_a_changed_simulator_is_not_certified_by_what_another_did(kind: str, tmp_path: Path) -> None:
    """Same name, limits and policy in the same folder, but the code of the costs has changed."""
    make, how = PLANTS[kind], {"budget": 5e4, "out": tmp_path / "tests"}
    policy = network(make())
    first = cl.certify(make(), policy, **how)
    assert first.verdict == "CERTIFIED"
    again = cl.certify(make(), policy, **how)  # the same code: its test is not made twice
    assert again.verdict == "CERTIFIED" and (again.spent, again.episodes) == (first.spent, first.episodes)
    hot = cl.certify(make(heat=0.9), policy, **how)
    assert hot.verdict == "VIOLATED" and hot.spent is not None and first.spent is not None
    assert hot.spent > first.spent
    moved = cl.certify(make(start=0.5), policy, **how)  # it costs the same, but is another simulator
    assert moved.spent is not None and moved.spent > hot.spent


# ----------------------------------------------------------------------------------------- nothing from no episodes


@pytest.mark.parametrize("kind", ["model", "model's rule", *PLANTS])
def test_no_estimates_without_an_episode(kind: str) -> None:
    """They were the limits themselves, shown as estimates with slack 0."""
    if kind in PLANTS:
        problem, policy = PLANTS[kind](), lambda obs: 0
    else:
        problem = cl.zoo.two_state()
        policy = (lambda s: 0) if "rule" in kind else np.full((problem.S, problem.A), 1 / problem.A)
    with pytest.raises(SmallBudgetError, match="too small for one episode: give"):
        cl.certify(problem, policy, evidence="samples", budget=1)
