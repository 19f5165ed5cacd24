"""Lanes that are not independent: what they share must not be counted as evidence many times over."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import clearance as cl
from clearance.certificates import steady_episodes
from clearance.certificates.steady_episodes import SteadyEpisodes
from clearance.core.errors import InputError
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.samplers.rule_episodes import RoundEpisodes, network_episodes
from clearance.simulator.samplers.simulator_episodes import NetworkEpisodes

P = 0.55  # the chance of a cost, over a limit of .5
ZERO = np.zeros(1, np.float32)


class Chance(gym.Env[Any, Any]):
    """One step, which costs 1 with probability P, by the generator that Gymnasium seeds."""

    observation_space, action_space = spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return ZERO, {}

    def draw(self) -> float:
        return self.np_random.random()

    def step(self, action: Any) -> Any:
        return ZERO, 0.0, True, False, {"cost": float(self.draw() < P)}


class Deaf(Chance):
    """Ignores its seed: a generator of its own, which is the same in all lanes."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def draw(self) -> float:
        return self.rng.random()


class First(Deaf):
    """Heeds the first seed only."""

    def __init__(self) -> None:
        self.rng: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.rng = np.random.default_rng(seed) if self.rng is None else self.rng
        return ZERO, {}


class Clock(Chance):
    """All lanes draw from one generator, which reset seeds."""

    rng = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        Clock.rng = np.random.default_rng(seed)
        return ZERO, {}

    def draw(self) -> float:
        return Clock.rng.random()


class Vector(gym.vector.VectorEnv[Any, Any, Any]):
    """One coin for all lanes: seeded by one number (`one`), by the first of a list (`list`), or never (`deaf`)."""

    def __init__(self, how: str, n: int = 8, seed: int = 0) -> None:
        self.num_envs, self.how, self.spec, self.rng = n, how, None, np.random.default_rng(seed)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space, self.single_action_space = Chance.observation_space, Chance.action_space
        self.observation_space = spaces.Box(-1.0, 1.0, (n, 1))

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        if self.how == "one" and not isinstance(seed, int):
            raise TypeError("seed must be one number")
        if self.how != "deaf":
            given: Any = seed
            self.rng = np.random.default_rng(given if self.how == "one" else next(iter(given)))
        return np.zeros((self.num_envs, 1), np.float32), {}

    def step(self, actions: Any) -> Any:
        n, all_ = self.num_envs, np.ones(self.num_envs, bool)
        obs, cost = np.zeros((n, 1), np.float32), np.full(n, float(self.rng.random() < P))
        last = {"final_obs": obs, "_final_obs": all_, "final_info": {"cost": cost, "_cost": all_}, "_final_info": all_}
        return obs, np.zeros(n), all_, ~all_, last


def asked(env: Any, *, lanes: int | None = 8, limit: float = 0.5, **more: Any) -> Any:
    return cl.gymnasium(env, limits=limit, horizon=1, num_envs=lanes, bounds=(0.0, 1.0), **more)


def network(problem: Any) -> NetworkMixture:
    policy = cl.categorical(hidden=()).fitted(problem.obs_shape, problem.action)
    return NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs))


def source(problem: Any) -> NetworkEpisodes:
    return network_episodes(problem, network(problem))


# ------------------------------------------------------------------------------------ false certificates

SHARING: dict[str, Any] = {
    "objects that ignore seeds": lambda k: asked(lambda: Deaf(k), lanes=256),
    "vector with one seed": lambda k: asked(Vector("one", 256), lanes=None),
    "vector that takes the first": lambda k: asked(Vector("list", 256), lanes=None),
    "vector that ignores seeds": lambda k: asked(Vector("deaf", 256, k), lanes=None),
    "vector of objects that ignore seeds": lambda k: asked(SyncVectorEnv([lambda: Deaf(k)] * 256), lanes=None),
}


@pytest.mark.parametrize("kind", SHARING)
def test_shared_randomness_makes_no_certificate(kind: str) -> None:
    """All 256 lanes have one coin: counted 256-fold, 45 % of the tests would end with CERTIFIED at the first look."""
    policy = network(SHARING[kind](0))
    for k in range(5):
        problem = SHARING[kind](k)
        c = cl.certify(problem, policy, delta=1e-3, budget=256 * 20 if "vector" in kind else 60, seed=k)
        assert c.verdict != "CERTIFIED" and "depend on each other" in c.scope


@pytest.mark.parametrize("how", ["one", "list", "deaf"])
def test_a_rule_on_a_vector_environment_counts_one_lane(how: str) -> None:
    problem = asked(Vector(how, 64), lanes=None)
    c = cl.certify(problem, lambda obs: 0, delta=1e-3, budget=300)
    assert c.verdict != "CERTIFIED" and c.J_g[0] == pytest.approx(-P, abs=0.16) and c.env_steps == c.episodes


# ------------------------------------------------------------------------------------ which lanes are independent


@pytest.mark.parametrize("env", [Deaf, First, Clock])
def test_objects_that_share_or_ignore_seeds_run_in_one_lane(env: Any) -> None:
    found = source(asked(env))
    assert type(found) is NetworkEpisodes and found.simulator.n == 1


@pytest.mark.parametrize("how", ["one", "list", "deaf"])
def test_vector_environments_with_shared_randomness_give_one_sample_per_round(how: str) -> None:
    found = source(asked(Vector(how), lanes=None))
    assert isinstance(found, RoundEpisodes) and found.episode_steps == 8
    X, component, steps = found.draw(np.uint64(5), 0, 200)
    assert X.shape == (200, 2) and component.shape == (200,) and steps == 1600
    assert set(X[:, 1]) == {-1.0, 0.0} and X[:, 1].mean() == pytest.approx(-P, abs=0.18)  # five standard errors


GOOD: dict[str, Any] = {
    "objects": lambda: asked(Chance),
    "id": lambda: cl.gymnasium("CartPole-v1", limits=[], horizon=20, num_envs=3),
    "synchronous": lambda: asked(SyncVectorEnv([Chance] * 4), lanes=None),
    "same step": lambda: asked(SyncVectorEnv([Chance] * 4, autoreset_mode=AutoresetMode.SAME_STEP), lanes=None),
    "disabled": lambda: asked(SyncVectorEnv([Chance] * 4, autoreset_mode=AutoresetMode.DISABLED), lanes=None),
}


@pytest.mark.parametrize("kind", GOOD)
def test_lanes_with_seeds_of_their_own_stay_many(kind: str) -> None:
    problem = GOOD[kind]()
    found = source(problem)
    assert problem.shared_randomness == "" and type(found) is NetworkEpisodes and found.simulator is problem


def test_gymnasiums_own_vector_cartpole_is_read_in_rounds() -> None:
    """It takes one seed: its lanes are independent, but nobody can know."""
    env = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point")
    assert isinstance(source(cl.gymnasium(env, limits=[], horizon=20)), RoundEpisodes)


class Tuned(Chance):
    """Not the same in every lane: its factory draws a parameter."""

    rng = np.random.default_rng(3)

    def __init__(self) -> None:
        self.p = Tuned.rng.random()

    def step(self, action: Any) -> Any:
        return ZERO, 0.0, True, False, {"cost": self.p}


def test_lanes_that_are_not_the_same_are_averaged() -> None:
    problem = asked(Tuned)
    found = source(problem)
    mean = np.mean([e.p for e in problem.lanes.envs])
    assert isinstance(found, RoundEpisodes) and np.allclose(found.draw(np.uint64(1), 0, 3)[0][:, 1], -mean)


def test_wrappers_around_one_environment_are_refused() -> None:
    one = Chance()
    with pytest.raises(InputError, match="the same environment twice"):
        asked(lambda: gym.wrappers.OrderEnforcing(one))
    with pytest.raises(InputError, match="the same environment twice"):
        asked(lambda: one)


class Inner(Chance):
    """A simulator that lanes share behind different objects."""

    state: float = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        Inner.state = self.np_random.random()
        return ZERO, {}

    def draw(self) -> float:
        return Inner.state


def test_a_simulator_behind_all_lanes_is_found() -> None:
    assert source(asked(Inner)).simulator.n == 1


def test_a_fleet_asks_a_worker_and_stays_here_if_lanes_share() -> None:
    with cl.Fleet(asked(Chance), cl.Local()) as fleet:
        assert source(fleet).simulator is fleet
    with cl.Fleet(asked(Deaf), cl.Local()) as fleet:
        found = source(fleet)
        assert found.simulator.n == 1 and found.simulator is not fleet
    with cl.Fleet(asked(Deaf, lanes=1), cl.Local()) as fleet:
        assert source(fleet).simulator is not fleet


def test_partial_resets_do_not_seed_what_lanes_share() -> None:
    """Autoreset DISABLED, one seed: the lane that ends is reset while the other is in the middle of its episode."""

    class Pair(Vector):
        seeds: list[Any]

        def __init__(self) -> None:
            super().__init__("one", 2)
            self.metadata, self.seeds, self.t = {"autoreset_mode": AutoresetMode.DISABLED}, [], 0

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            if isinstance(seed, list):
                raise TypeError("seed must be one number")
            self.seeds.append(seed)
            return np.zeros((2, 1), np.float32), {}

        def step(self, actions: Any) -> Any:
            self.t += 1
            ended = np.array([False, self.t % 2 == 0])
            return np.zeros((2, 1), np.float32), np.zeros(2), ended, np.zeros(2, bool), {"cost": np.zeros(2)}

    env = Pair()
    problem = cl.gymnasium(env, limits=1.0, horizon=6, bounds=(0.0, 1.0))
    problem.walk(lambda obs, t: np.zeros(2, int), [5, 6], 5)
    assert env.seeds == [5, None, None]


# ------------------------------------------------------------------------------------ early and late


class Drawn:
    """Episodes from a list of numbers."""

    bounds, bias, episode_steps = (np.array([-9.0]), np.array([9.0])), np.zeros(1), 1.0

    def __init__(self, x: Any) -> None:
        self.x = np.asarray(x, float)[:, None]

    def draw(self, key: Any, begin: int, n: int) -> Any:
        return self.x[begin : begin + n], np.zeros(n, np.int64), n


def warned(x: Any) -> bool:
    """Looks at 256 numbers, and then at an eighth more each time."""
    steady, n = SteadyEpisodes(Drawn(x), "mine", ("the reward",)), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while n < len(x):
            size = max(256, n // 8)
            steady.draw(np.uint64(0), n, size)
            n += size
    return steady.warned


def test_false_alarms_are_as_rare_as_stated() -> None:
    """400 sources that do not change: one false alarm is expected at most with probability .4, three with .008."""
    rng = np.random.default_rng(0)
    laws = [lambda n: rng.random(n) < 0.1, rng.standard_normal, rng.standard_cauchy, lambda n: np.zeros(n)]
    assert steady_episodes.FALSE_ALARM == 1e-3
    assert sum(warned(laws[k % 4](1500)) for k in range(400)) <= 2


@pytest.mark.parametrize("late", [lambda r: r.random(1500) < 0.5, lambda r: 3 * r.standard_normal(1500)])
def test_a_source_that_changes_is_warned_of(late: Any) -> None:
    rng = np.random.default_rng(1)
    assert all(warned(np.append(rng.random(1500) < 0.1, late(rng))) for _ in range(5))


class Wears(Chance):
    """Costs more after 200 episodes."""

    k = 0

    def step(self, action: Any) -> Any:
        self.k += 1
        return ZERO, 0.0, True, False, {"cost": float(self.k > 200)}


def test_an_environment_that_wears_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="Wears: cost of the first .* changes over time"):
        cl.certify(asked(Wears, limit=0.9, lanes=1), lambda obs: 0, budget=500, delta=1e-300)  # no early verdict


class Stuck(Chance):
    """Seeds itself again in every reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=11)


def test_check_env_notes_that_seeds_make_no_difference() -> None:
    words = "episodes do not depend on the seed"
    assert words in str(cl.check_env(Stuck, limits=1.0, horizon=1))
    assert words not in str(cl.check_env(Chance, limits=1.0, horizon=1))
    assert "one lane" in str(cl.check_env(Deaf, limits=1.0, horizon=1, num_envs=4))
    c = cl.certify(asked(Stuck, limit=1.5, lanes=1), lambda obs: 0, budget=500)
    assert "Every episode gave the same sums. That is right if they never vary; if the environment" in c.scope
