"""Wrappers and values of unusual types: what a wrapper adds is counted, and nothing that changes in place misleads."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import TimeLimit
from gymnasium.wrappers import vector as vector_wrappers

import clearance as cl
from clearance.core.errors import EnvironmentFault, InputError
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Design, Normaliser
from clearance.simulator.samplers.rule_episodes import RoundEpisodes, network_episodes


class Free(gym.Env[Any, Any]):
    """Costs nothing."""

    observation_space = gym.spaces.Box(-1, 100, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {"cost": 0.0}


def asked(env: Any, *, limit: float = 5.0, horizon: int = 10, **more: Any) -> Any:
    return cl.gymnasium(env, limits=limit, horizon=horizon, bounds=(0, 1), **more)


# ---------------------------------------------------------------------------------- wrappers that do more than limit


class Charges(TimeLimit):
    """A time limit that charges for the time."""

    def step(self, action: Any) -> Any:
        *rest, _ = super().step(action)
        return *rest, {"cost": 1.0}


class ChargesAtOnce(TimeLimit):
    def reset(self, **how: Any) -> Any:
        self.env.unwrapped.step = lambda a: (np.zeros(1, np.float32), 0.0, False, False, {"cost": 1.0})  # type: ignore
        return super().reset(**how)


class Below(Charges):
    """Two classes away from the time limit."""


class Plain(TimeLimit):
    """Only another name."""


@pytest.mark.parametrize("wrap", [Charges, ChargesAtOnce, Below])
@pytest.mark.parametrize("steps", [5, 10, 50])
@pytest.mark.parametrize("how", ["factory", "object", "vector"])
def test_a_time_limit_that_does_more_is_lifted_and_not_removed(wrap: Any, steps: int, how: str) -> None:
    make: Any = lambda: wrap(Free(), steps)  # noqa: E731
    env = {"factory": make, "object": make(), "vector": SyncVectorEnv([make])}[how]
    found = cl.certify(asked(env), lambda obs: 0, budget=2e4)
    assert found.verdict == "VIOLATED" and found.J_g == [-10.0]


def test_the_time_limit_of_the_users_object_stays() -> None:
    env = Charges(Free(), 5)
    asked(env)
    assert env._max_episode_steps == 5
    assert cl.certify(asked(Plain(Free(), 5)), lambda obs: 0, budget=2e4).verdict == "CERTIFIED"


# -------------------------------------------------------------------------------------- wrappers of many environments


class BadDays(VectorWrapper):
    """Lanes share the weather: in one of fifty rounds all of them pay."""

    def __init__(self, env: Any, seed: int) -> None:
        super().__init__(env)
        self.weather = np.random.default_rng(seed)

    def reset(self, **how: Any) -> Any:
        self.bad = self.weather.random() < 0.02
        return super().reset(**how)

    def step(self, actions: Any) -> Any:
        *rest, _ = super().step(actions)
        return *rest, {"cost": np.full(self.num_envs, float(self.bad)), "_cost": np.ones(self.num_envs, bool)}


class Subclass(SyncVectorEnv):
    pass


def many(n: int = 64) -> SyncVectorEnv:
    return SyncVectorEnv([Free] * n)


SHARING: dict[str, Any] = {
    "wrapper": lambda: BadDays(many(), 1),
    "below a wrapper": lambda: vector_wrappers.RecordEpisodeStatistics(BadDays(many(), 1)),
    "above a wrapper": lambda: BadDays(vector_wrappers.RecordEpisodeStatistics(many()), 1),
    "subclass": lambda: Subclass([Free] * 64),
}


def network(problem: Any) -> NetworkMixture:
    policy = Design(hidden=(4,)).fitted(problem.obs_shape, problem.action, 3)
    return NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs))


@pytest.mark.parametrize("kind", SHARING)
def test_lanes_behind_an_unknown_wrapper_give_one_sample_per_round(kind: str) -> None:
    """What they share may be too rare for a check of a thousand steps."""
    problem = asked(SHARING[kind](), limit=0.01, horizon=1)
    assert "not known to run separate" in problem.shared_randomness
    assert isinstance(network_episodes(problem, network(problem)), RoundEpisodes)


def test_gymnasiums_own_wrappers_keep_lanes_apart() -> None:
    assert asked(vector_wrappers.RecordEpisodeStatistics(many(4))).shared_randomness == ""


# ------------------------------------------------------------------------------- observations that change in place


class Counts(Free):
    """The observation is one object that counts the steps; its kind is a parameter."""

    def __init__(self, kind: str) -> None:
        self.kind, self.seen = kind, None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.seen = 0, None
        return self._show(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self._show(), 0.0, False, False, {}

    def _show(self) -> Any:
        new = {"array": np.zeros(1), "deque": deque([0.0], 1), "list": [0.0], "own": Shown(0.0), "single": Single(0.0)}[
            self.kind
        ]
        self.seen = new if self.seen is None else self.seen
        if isinstance(self.seen, Shown):
            self.seen.x = float(self.t)
        else:
            self.seen[0] = float(self.t)
        return self.seen


class Shown:
    """An array of the user's own class."""

    def __init__(self, x: float) -> None:
        self.x = x

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([self.x], dtype)

    def __getitem__(self, i: int) -> float:
        return self.x


class Single(Shown):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("there is only one")


@pytest.mark.parametrize("kind", ["array", "deque", "list", "own"])
def test_costs_of_a_change_see_both_observations(kind: str) -> None:
    """Every step changes the observation by 1. Seen through one object, nothing ever changed: CERTIFIED with cost 0."""
    change = lambda obs, action, after, info: float(after[0] - obs[0])  # noqa: E731
    problem = asked(lambda: Counts(kind), constraints=change, num_envs=1)
    found = cl.certify(problem, lambda obs: 0, budget=2e4)
    assert found.verdict == "VIOLATED" and found.J_g == [-10.0]


def test_what_cannot_be_copied_is_refused() -> None:
    with pytest.raises(EnvironmentFault, match="a Single cannot be copied"):
        cl.certify(asked(lambda: Counts("single"), num_envs=1), lambda obs: 0, budget=2e4)


# ------------------------------------------------------------------------------------------------ missing values

MISSING = [np.ma.masked, np.ma.array(1.0, mask=True), np.ma.array([0.0], mask=[True])]


@pytest.mark.parametrize("value", MISSING, ids=["masked", "0-d", "vector"])
@pytest.mark.parametrize("where", ["cost", "reward", "vector cost"])
def test_masked_signals_are_faults(value: Any, where: str) -> None:
    class Masked(Free):
        def step(self, action: Any) -> Any:
            cost = {"cost": value, "reward": 0.0, "vector cost": {"cost": value}}[where]
            reward = value if where == "reward" else 0.0
            return np.zeros(1, np.float32), reward, False, False, {"cost": cost}

    with pytest.raises(EnvironmentFault, match="must be"):
        cl.certify(asked(Masked, num_envs=1), lambda obs: 0, budget=2e4)


@pytest.mark.parametrize("name", ["P", "r", "g", "b", "rho", "policy", "base"])
def test_masked_entries_of_a_model_are_refused(name: str) -> None:
    m = cl.zoo.two_state()
    own = {"P": m.P, "r": m.r, "g": m.g, "b": m.b, "rho": m.rho}
    more = {"policy": np.full((m.S, m.A), 1 / m.A), "base": np.zeros((m.S, 1 + m.I))}
    given = {k: np.ma.array(x, mask=k == name) for k, x in (own | more).items()}
    given = {k: x if k == name else np.asarray(x) for k, x in given.items()}
    with pytest.raises(InputError, match=f"{name} has masked entries"):
        arrays: dict[str, Any] = {k: given[k] for k in own}
        model = cl.CMDP(**arrays, gamma=m.gamma)
        cl.certify(model, given["policy"], evidence="samples", base=given["base"], budget=1e3)
