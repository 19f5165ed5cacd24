"""Gymnasium environments as problems: ends, time limits, autoreset, costs, faults, against numbers known by hand."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from learners import pole, small
from probes import RESET, TERMINAL, Choices, Faulty, Gymnaxlike, Line, Noisy

import clearance as cl
from clearance.cli.command_line import main
from clearance.core.errors import EnvironmentFault, InputError
from clearance.simulator.gymnasium_envs.lane_rollout import episode_seed

MODES = list(AutoresetMode)
HERE = Path(__file__).parents[1] / "support"
T = 13


@pytest.fixture(autouse=True)
def probes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """By side processes, which inherit the environment."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


def zero(obs: Any, t: int) -> Any:
    return np.zeros((len(obs), 1))


def clock(obs: Any, t: int) -> Any:
    """Actions that tell the step of the walk and the lane."""
    return (t / 100 + np.arange(len(obs)) / 1000)[:, None]


def make(how: str, n: int = 2, **kwargs: Any) -> Any:
    """The same environment behind every kind of lanes."""
    if how == "objects":
        return lambda: Line(**kwargs)
    if how == "side":
        return cl.SideProcess("probes:line", kwargs=kwargs, processes=2)
    return SyncVectorEnv([lambda: Line(**kwargs)] * n, autoreset_mode=AutoresetMode[how])


def problem(how: str, n: int = 2, limits: Any = 1.0, horizon: int | None = 100, **kwargs: Any) -> Any:
    gamma = 0.9 if horizon is None else None
    asked: dict[str, Any] = {"limits": limits, "horizon": horizon, "gamma": gamma, "num_envs": n}
    return cl.gymnasium(make(how, n, **kwargs), **asked)


def episodes(steps: Any, lane: int) -> list[Any]:
    """The rows of each episode of a lane, as (obs, action, h, terminated, truncated, after)."""
    rows: list[Any] = [[]]
    for t in range(len(steps.valid)):
        if steps.valid[t, lane]:
            rows[-1].append([x[t, lane] for x in steps[:6]])
            if steps.terminated[t, lane] or steps.truncated[t, lane]:
                rows.append([])
    return rows


EVERY = ["objects", "side", *(m.name for m in MODES)]


@pytest.mark.parametrize("how", EVERY)
@pytest.mark.parametrize("cut", [False, True])
def test_every_step_is_the_environments_own(how: str, cut: bool) -> None:
    """Observations, signals and ends of all episodes, with the terminal cost and never the reset's."""
    with problem(how, cut=cut, horizon=4 if cut else 100) as p:
        steps = p.walk(clock, [5, 8], T)
    for lane, x0 in enumerate([5, 8]):
        found = episodes(steps, lane)
        assert len(found) >= 3
        assert found[0][0][0].tolist() == [x0, 0]
        for episode in found:
            for t, (obs, action, h, terminated, truncated, after) in enumerate(episode):
                assert obs.tolist() == [episode[0][0][0], t] and after.tolist() == [episode[0][0][0], t + 1]
                assert h[0] == pytest.approx(t + float(action[0]))
                assert h[1] == (-TERMINAL if t == 3 else -t / 10) and h[1] != -RESET
                assert (terminated, truncated) == (t == 3 and not cut, t == 3 and cut)


def test_rows_that_are_no_steps_are_marked() -> None:
    """NEXT_STEP: the row after an end is a reset. The other modes lose no row."""
    valid = {how: problem(how).walk(zero, [1, 2], T).valid[:, 0].tolist() for how in EVERY}
    assert valid["NEXT_STEP"] == [t % 5 != 4 for t in range(T)]
    assert all(all(rows) for how, rows in valid.items() if how != "NEXT_STEP")


def test_the_first_episodes_agree_between_all_kinds_of_lanes() -> None:
    walks = [problem(how).walk(clock, [11, 12], 4) for how in EVERY]
    for steps in walks[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(walks[0], steps, strict=True))


@pytest.mark.parametrize("how", ["objects", "side", "DISABLED"])
def test_later_episodes_have_seeds_of_their_own(how: str) -> None:
    steps = problem(how).walk(zero, [5, 8], T)
    for lane, seed in enumerate([5, 8]):
        starts = [e[0][0][0] for e in episodes(steps, lane)]
        assert starts == [episode_seed(seed, k) % 100 for k in range(len(starts))]


def test_a_walk_is_a_pure_function_of_its_seeds() -> None:
    p = cl.gymnasium("CartPole-v1", limits=[], gamma=0.99, num_envs=3)
    act: Callable[[Any, int], Any] = lambda obs, t: (obs[:, 2] > 0).astype(int)  # noqa: E731
    first, again, other = p.walk(act, [1, 2, 3], 60), p.walk(act, [1, 2, 3], 60), p.walk(act, [1, 2, 4], 60)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert np.array_equal(first.obs[:, :2], other.obs[:, :2]) and not np.array_equal(first.obs, other.obs)
    assert first.terminated.any()


def test_asynchronous_vector_environments() -> None:
    """Gymnasium's own processes, started afresh: a fork after JAX may hang."""
    pair = [lambda: gymnasium.make("CartPole-v1")] * 2
    env = AsyncVectorEnv(pair, context="spawn", shared_memory=False, autoreset_mode=AutoresetMode.SAME_STEP)
    sync = SyncVectorEnv(pair, autoreset_mode=AutoresetMode.SAME_STEP)
    act: Callable[[Any, int], Any] = lambda obs, t: np.zeros(len(obs), int)  # noqa: E731
    with cl.gymnasium(env, limits=[], horizon=30) as a, cl.gymnasium(sync, limits=[], horizon=30) as b:
        walks = a.walk(act, [1, 2], 40), b.walk(act, [1, 2], 40)
    assert walks[0].terminated.sum() > 3
    assert all(np.array_equal(x, y) for x, y in zip(*walks, strict=True))


# ------------------------------------------------------------------------------------------------ horizons, time limits


@pytest.mark.parametrize("how", EVERY)
def test_the_horizon_of_the_statement_ends_episodes(how: str) -> None:
    """Episodes of 6 steps asked for 4: every one that is recorded has 4, truncated; nothing between them is counted."""
    with problem(how, horizon=4, length=6) as p:
        steps = p.walk(zero, [5, 8], 20)
    for lane in range(2):
        *whole, _ = episodes(steps, lane)
        assert len(whole) >= 2 and all(len(e) == 4 and e[-1][4] and not e[-1][3] for e in whole)
        assert all([row[5][1] for row in e] == [1, 2, 3, 4] for e in whole)


@pytest.mark.parametrize("how", ["NEXT_STEP", "SAME_STEP"])
def test_lanes_that_never_end_by_themselves_are_reset_together(how: str) -> None:
    steps = problem(how, horizon=3, length=10**6).walk(zero, [5, 8], 9)
    assert steps.valid.all()
    assert [e[0][0][0] for e in episodes(steps, 0)[:3]] == [episode_seed(5, k) % 100 for k in range(3)]


def test_once_stops_with_the_last_episode() -> None:
    steps = problem("objects", horizon=50, length=6).walk(zero, [5, 8], 40, once=True)
    assert steps.valid.shape == (6, 2) and steps.valid.all() and steps.terminated[-1].all()


def test_an_infinite_horizon_lifts_the_time_limit() -> None:
    def limited() -> Any:
        return gymnasium.wrappers.OrderEnforcing(TimeLimit(Line(length=50), 5))

    endless = cl.gymnasium(limited, limits=1.0, gamma=0.9, num_envs=1).walk(zero, [3], 60)
    assert not endless.truncated.any() and endless.terminated[49, 0]
    longer = cl.gymnasium(limited, limits=1.0, horizon=20, num_envs=1).walk(zero, [3], 30)
    assert longer.truncated[:, 0].nonzero()[0].tolist() == [19]
    shorter = cl.gymnasium(limited, limits=1.0, horizon=3, num_envs=1).walk(zero, [3], 7)
    assert shorter.truncated[:, 0].nonzero()[0].tolist() == [2, 5]


def test_an_infinite_horizon_over_a_limit_that_cannot_be_lifted_is_an_error() -> None:
    with pytest.raises(EnvironmentFault, match=r"cut off after 4 steps.*give horizon=4"):
        problem("objects", horizon=None, cut=True).walk(zero, [1, 2], 10)

    class Closed(gymnasium.vector.VectorEnv):
        num_envs, metadata = 2, {"autoreset_mode": AutoresetMode.NEXT_STEP}
        single_observation_space, single_action_space = Line().observation_space, Line().action_space
        spec = gymnasium.spec("CartPole-v1")

    with pytest.raises(InputError, match="time limit of 500 steps that cannot be lifted: give horizon=500"):
        cl.gymnasium(Closed(), limits=1.0, gamma=0.9)


def test_gamma_and_horizon_are_never_guessed() -> None:
    with pytest.raises(InputError, match=r"gamma .*or horizon"):
        cl.gymnasium("CartPole-v1", limits=[])
    with pytest.raises(InputError, match="gamma must be in"):
        cl.gymnasium("CartPole-v1", limits=[], gamma=1.0)
    both = cl.gymnasium("CartPole-v1", limits=[], gamma=0.9, horizon=7, num_envs=1).statement
    assert (both.gamma, both.horizon) == (0.9, 7) and "0.9" in both.meaning and "7 steps" in both.meaning


# ------------------------------------------------------------------------------------------------ costs


@pytest.mark.parametrize("how", EVERY)
@pytest.mark.parametrize("kind", ["vector", "dict"])
def test_costs_as_vectors_and_dicts(how: str, kind: str) -> None:
    limits: Any = {"a": 1.0, "b": 3.0} if kind == "dict" else [1.0, 3.0]
    with problem(how, limits=limits, kind=kind) as p:
        steps = p.walk(zero, [1, 2], 9)
    assert p.statement.b.tolist() == [-1.0, -3.0]
    h = steps.h[steps.valid]
    assert np.array_equal(h[:, 2], 2 * h[:, 1]) and h[:, 1].min() == -TERMINAL


@pytest.mark.parametrize("how", ["objects", "side"])
def test_the_six_values_of_safety_gymnasium(how: str) -> None:
    with problem(how, kind="six") as p:
        steps = p.walk(zero, [1, 2], 4)
    assert steps.h[:, 0, 1].tolist() == [0.0, -0.1, -0.2, -TERMINAL] and steps.terminated[3].all()


@pytest.mark.parametrize("how", [k for k in EVERY if k != "side"])
def test_costs_by_a_function_see_the_true_next_observation(how: str) -> None:
    def f(obs: Any, action: Any, after: Any, info: Any) -> float:
        assert after[1] == obs[1] + 1 and after[0] == obs[0]
        return float(info["cost"] + action[0])

    with cl.gymnasium(make(how), constraints=f, limits=1.0, horizon=100, num_envs=2) as p:
        h = p.walk(lambda obs, t: np.full((len(obs), 1), 0.5), [1, 2], T)
    assert set(h.h[h.valid][:, 1].round(6)) == {-0.5, -0.6, -0.7, -TERMINAL - 0.5}


def test_utilities_with_lower_limits() -> None:
    fs = {"up": lambda obs, a, after, info: after[1], "two": lambda obs, a, after, info: 2.0}
    p = cl.gymnasium(make("objects"), constraints=fs, b={"two": 5.0, "up": -1.0}, gamma=0.9, num_envs=1)
    assert p.statement.names == ("up", "two") and p.statement.b.tolist() == [-1.0, 5.0]
    assert p.walk(zero, [1], 3).h[:, 0, 1:].tolist() == [[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]]


@pytest.mark.parametrize("how", EVERY)
def test_a_missing_cost_is_an_error(how: str) -> None:
    with problem(how, kind="none") as p, pytest.raises(EnvironmentFault, match=r"step 0 .*info has no 'cost'.*has x"):
        p.walk(zero, [1, 2], 5)


def test_six_values_are_not_enough_to_be_safety_gymnasium() -> None:
    with pytest.raises(EnvironmentFault, match=r"step must give \(obs, reward, terminated, truncated, info\)"):
        cl.gymnasium(Gymnaxlike, limits=1.0, horizon=5).walk(zero, range(8), 3)


WRONG = {
    "limits is missing": {"horizon": 5},
    "both given": {"limits": 1.0, "b": 1.0, "horizon": 5},
    "use limits": {"b": 1.0, "horizon": 5},
    "one each": {"limits": [1.0, 2.0], "names": ["a"], "horizon": 5},
    "finite": {"limits": np.nan, "horizon": 5},
    "num_envs": {"limits": 1.0, "horizon": 5, "num_envs": 0},
    "horizon must be": {"limits": 1.0, "horizon": 0},
    "constraints must be": {"constraints": 3, "limits": 1.0, "horizon": 5},
    "same names": {"constraints": {"a": max}, "limits": {"b": 1.0}, "horizon": 5},
    "bounds must be": {"limits": 1.0, "horizon": 5, "bounds": ([0, 0, 0], [1, 1, 1])},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_statements_are_told(message: str) -> None:
    with pytest.raises(InputError, match=message):
        cl.gymnasium(Line, **WRONG[message])


def test_wrong_environments_are_told() -> None:
    with pytest.raises(InputError, match="Gymnasium cannot make 'NoSuch-v0'"):
        cl.gymnasium("NoSuch-v0", limits=1.0, horizon=5)
    with pytest.raises(InputError, match="give a factory or an id"):
        cl.gymnasium(Line(), limits=1.0, horizon=5, num_envs=2)
    with pytest.raises(InputError, match="must be an id, a factory"):
        cl.gymnasium(7, limits=1.0, horizon=5)
    vector = SyncVectorEnv([Line])
    vector.metadata = {}
    with pytest.raises(InputError, match="autoreset_mode"):
        cl.gymnasium(vector, limits=1.0, horizon=5)
    with pytest.raises(InputError, match="cannot go to a side process"):
        cl.gymnasium(make("side"), constraints=lambda *x: 0.0, limits=1.0, horizon=5)
    with pytest.raises(InputError, match="cannot be started"):
        cl.gymnasium(cl.SideProcess("probes:line", python="/no/such/python"), limits=1.0, horizon=5)
    with pytest.raises(InputError, match=r"could not be made by .*no_such_module"):
        cl.gymnasium(cl.SideProcess("no_such_module:make"), limits=1.0, horizon=5)


# ------------------------------------------------------------------------------------------------ faults

FAULTS = {
    "raises": r"RuntimeError: joint 3 is broken \(value",
    "nan observation": r"the observation is not finite \(value \[nan, nan\]\)",
    "nan reward": r"the reward is not finite \(value nan\)",
    "nan cost": r"the cost is not finite \(value \[nan\]\)",
    "wrong shape": r"the observation has shape \(3,\), its space \(2,\)",
    "array reward": "reward must be one number",
    "large cost": r"cost lies outside its declared bounds \(value 12.5\)",
    "no cost": "info has no 'cost'",
    "wrong cost": r"the cost has shape \(3,\) for 1 constraints",
    "number as flag": "terminated must be True or False",
    "four values": "step gave 4 values",
}


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("how", ["objects", "side"])
def test_faults_name_environment_lane_step_and_value(what: str, how: str) -> None:
    env: Any = [Line(length=1000), Faulty(what)].pop if how == "objects" else cl.SideProcess("probes:faulty", what)
    with cl.gymnasium(env, limits=1.0, horizon=100, num_envs=2, bounds=(0.0, TERMINAL), name="robot") as p:
        with pytest.raises(EnvironmentFault, match=FAULTS[what]) as caught:
            p.walk(zero, [5, 6], 9)
        assert str(caught.value).startswith("robot, lane 0, step 2 (step 2 of the episode with seed 5): ")
        assert "\n" not in str(caught.value)
        assert (caught.value.env, caught.value.lane, caught.value.step) == ("robot", 0, 2)


def test_a_side_process_that_dies_is_told() -> None:
    p = cl.gymnasium(cl.SideProcess("probes:faulty", "dies"), limits=1.0, horizon=9, num_envs=2)
    with p, pytest.raises(EnvironmentFault, match=r"step 2 .*the side process died \(exit status 3\)"):
        p.walk(zero, [5, 6], 9)


def test_after_a_fault_the_next_walk_is_right() -> None:
    """No end of the bridge is left half-read."""
    p = cl.gymnasium(cl.SideProcess("probes:faulty", "raises", processes=2), limits=9.0, horizon=9, num_envs=4)
    with p:
        with pytest.raises(EnvironmentFault, match="lane 0"):
            p.walk(zero, [5, 6, 7, 8], 9)
        assert p.walk(zero, [1, 2, 3, 4], 2).obs[1].tolist() == [[x, 1] for x in (1, 2, 3, 4)]


def test_policies_are_checked() -> None:
    p = problem("objects")
    with pytest.raises(InputError, match=r"actions of shape \(2,\), 2 lanes need \(2, 1\)"):
        p.walk(lambda obs, t: np.zeros(2), [1, 2], 3)
    with pytest.raises(InputError, match="not finite"):
        p.walk(lambda obs, t: np.full((2, 1), np.nan), [1, 2], 3)
    with pytest.raises(InputError, match=r"outside 0\.\.2"):
        cl.gymnasium(Choices, limits=[], gamma=0.9, num_envs=1).walk(lambda obs, t: np.array([3]), [1], 3)
    with pytest.raises(InputError, match="one per lane"):
        p.walk(zero, [1], 3)


# ------------------------------------------------------------------------------------------------ spaces


def test_choices_are_one_hot_and_counted_from_zero() -> None:
    p = cl.gymnasium(Choices, limits=[], gamma=0.9, num_envs=2)
    steps = p.walk(lambda obs, t: np.array([0, 2]), [1, 2], 3)
    assert p.obs_shape == (4,) and steps.obs[:, 0].argmax(-1).tolist() == [0, 1, 2]
    assert steps.h[:, :, 0].tolist() == [[1.0, 3.0]] * 3
    vector = cl.gymnasium(SyncVectorEnv([Choices] * 2), limits=[], gamma=0.9)
    assert np.array_equal(vector.walk(lambda obs, t: np.array([0, 2]), [1, 2], 3).obs, steps.obs)


def test_actions_beyond_a_box_are_clipped() -> None:
    steps = problem("objects").walk(lambda obs, t: np.array([[5.0], [-5.0]]), [1, 2], 1)
    assert steps.h[0, :, 0].tolist() == [1.0, -1.0] and steps.action[0, :, 0].tolist() == [5.0, -5.0]


def test_composite_spaces_are_flattened() -> None:
    spaces = gymnasium.spaces

    class Two(Line):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict(
                {"x": spaces.Box(-1e3, 1e3, (2,), np.float64), "k": spaces.Discrete(3)}
            )  # type: ignore[assignment]
            self.action_space = spaces.MultiDiscrete([2, 3])  # type: ignore[assignment]

        def obs(self) -> Any:
            return {"x": super().obs(), "k": self.t % 3}

    p = cl.gymnasium(Two, limits=1.0, horizon=9, num_envs=1)
    steps = p.walk(lambda obs, t: np.array([[1, 2]]), [7], 2)
    assert p.obs_shape == (5,) and p.action.shape == (2,)
    assert steps.obs[:, 0].tolist() == [[1, 0, 0, 7, 0], [0, 1, 0, 7, 1]]


# ------------------------------------------------------------------------------------------------ check_env


def test_check_env_finds_what_is_wrong() -> None:
    good = cl.check_env(Line, limits=1.0, horizon=9, bounds=(0.0, TERMINAL))
    assert good.ok and good.deterministic and "nothing wrong" in str(good)
    noisy = cl.check_env(Noisy, limits=1.0, horizon=9)
    assert noisy.deterministic is False and any("not deterministic given its seed" in n for n in noisy.notes)
    assert any("no bounds are declared" in n for n in noisy.notes)
    for what, message in {"nan cost": "not finite", "no cost": "no 'cost'", "large cost": "declared bounds"}.items():
        wrong = cl.check_env(lambda what=what: Faulty(what), limits=1.0, horizon=9, bounds=(0.0, TERMINAL))
        assert not wrong.ok and message in wrong.wrong[0] and len(str(wrong.wrong[0]).splitlines()) == 1
    cut = cl.check_env(lambda: Line(cut=True), limits=1.0, gamma=0.9)
    assert "give horizon=4" in cut.wrong[0]
    assert "limits is missing" in cl.check_env(Line, horizon=9).wrong[0]


def test_check_env_compares_observations_with_their_space() -> None:
    class Wide(Line):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = gymnasium.spaces.Box(0.0, 1.5, (2,), np.float64)

    found = cl.check_env(Wide, limits=1.0, horizon=9, num_envs=2)
    assert "step 1: observation[1] = 2 lies outside its space" in found.wrong[0]


# ------------------------------------------------------------------------------------------------ zoo, other packages


def test_cartpole_zones_and_tilt() -> None:
    p: Any = cl.zoo.crpo_cartpole(num_envs=1)
    x = np.array([-2.3, -2.0, -1.2, 0.0, 0.11, 1.3, 2.25])
    costs = [p.lanes.own(None, 0, np.array([a, 0, 0.2, 0], np.float32), {}) for a in x]
    assert [c["zones"] for c in costs] == [1, 0, 1, 1, 0, 1, 1] and all(c["tilt"] == 1 for c in costs)
    assert p.lanes.own(None, 0, np.array([0, 0, -0.1, 0], np.float32), {})["tilt"] == 0
    assert p.statement.b.tolist() == [-50.0, -50.0] and p.statement.horizon == 500 and p.statement.gamma == 1


def test_acrobot_charges_torque_against_the_motion() -> None:
    p: Any = cl.zoo.crpo_acrobot(num_envs=1)
    cost = lambda v, w, a: p.lanes.own(np.array([1, 0, 1, 0, v, w]), a, None, {})  # noqa: E731
    assert cost(-1, 1, 0) == {"first": 1, "second": 0} and cost(-1, -1, 2) == {"first": 1, "second": 1}
    assert cost(-1, -1, 1) == {"first": 0, "second": 0} and cost(1, 1, 2) == {"first": 0, "second": 0}


@pytest.mark.parametrize("robot", ["half-cheetah", "ant"])
def test_robots_pay_for_speed(robot: str) -> None:
    """The same numbers in this process and in two others, and costs that follow from the infos."""
    from clearance.zoo.robots import ROBOTS, robot_env, too_fast

    rng = np.random.default_rng(0)
    with cl.zoo.velocity(robot, num_envs=2) as near, cl.zoo.velocity(robot, num_envs=2, processes=2) as far:
        actions = rng.uniform(-1, 1, (30, 2, *near.action.shape))
        walks = [p.walk(lambda obs, t: actions[t], [1, 2], 30) for p in (near, far)]
    assert all(np.array_equal(a, b) for a, b in zip(*walks, strict=True))
    task = ROBOTS[robot]
    cost = too_fast(task.threshold, planar=task.planar)
    assert cost(0, 0, 0, {"x_velocity": task.threshold + 0.01, "y_velocity": 0.0}) == 1.0
    assert cost(0, 0, 0, {"x_velocity": task.threshold - 0.01, "y_velocity": 1.0}) == float(task.planar)
    env = robot_env(robot)
    env.reset(seed=1)
    info = env.step(actions[0, 0].astype(np.float32))[4]
    assert info["cost"] == {"speed": cost(0, 0, 0, info)}


@pytest.mark.skipif("CLEARANCE_SAFETY_PYTHON" not in os.environ, reason="names a Python that has Safety-Gymnasium")
def test_safety_gymnasium_in_an_interpreter_of_its_own() -> None:
    python = os.environ["CLEARANCE_SAFETY_PYTHON"]
    asked = cl.SideProcess("safety_gymnasium:make", "SafetyHalfCheetahVelocity-v1", python=python)
    with cl.gymnasium(asked, limits=25.0, horizon=1000, num_envs=2, bounds=(0.0, 1.0)) as p:
        found = cl.check_env(p)
        assert found.ok and found.deterministic and p.obs_shape == (17,)


def test_the_far_end_needs_nothing_of_clearance() -> None:
    """It must run under interpreters that cannot import clearance."""
    import ast

    from clearance.simulator.gymnasium_envs import env_lanes, env_server, raw_values, time_limits

    for module in (env_lanes, env_server, raw_values, time_limits):
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"), feature_version=(3, 8))
        names = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names) | {"numpy", "gymnasium"}


# ------------------------------------------------------------------------------------------------ the command line


def called(argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(argv.split())
    said = capsys.readouterr()
    return status, said.out, said.err


def test_check_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = called("check crpo-cartpole --json", capsys)
    said = json.loads(out)
    assert status == 0 and said["deterministic"] and said["wrong"] == [] and said["horizon"] == 500
    status, out, _ = called("check gym:CartPole-v1 --limits 5 --horizon 200", capsys)
    assert status == 2 and "wrong: CartPole-v1, lane 0, step 0" in out and "no 'cost'" in out
    status, out, _ = called("check probes:line --limits 5 --horizon 200 --bounds 0,9 --json", capsys)
    assert status == 0 and json.loads(out)["b"] == [-5.0]
    asked = "check gym:CartPole-v1 --constraints probes:tilt --limits 5 --gamma 0.9 --num_envs 2 --json"
    status, out, _ = called(asked, capsys)
    assert status == 0 and any("cost seen in" in note for note in json.loads(out)["notes"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("check bai2023 --num_envs 3", "--num_envs is for environments; bai2023 is a model"),
        ("check crpo-acrobot --horizon 3", "--horizon is for environments; crpo-acrobot comes with its own limits"),
        ("optimum gym:CartPole-v1", "is a simulator: solve, certify and check take it"),
        ("check gym:NoSuch-v1 --limits 5 --horizon 9", "Gymnasium cannot make 'NoSuch-v1'"),
        ("check gym:CartPole-v1 --limits 5,x --horizon 9", "argument --limits: must be a number, got 'x'"),
        ("check gym:CartPole-v1 --horizon 9", "limits is missing"),
        ("check gym:CartPole-v1 --limits 1 --constraints probes --horizon 9", "must be package.module:function"),
        ("solve crpo-cartpole --tau 1,2", "--tau is not for --method practical-cnpgpd"),
        ("solve crpo-cartpole --method npgpd", "--method npgpd is for finite models"),
        ("solve crpo-cartpole --method practical-crpo --eta2 1", "--eta2 is not for --method practical-crpo"),
        ("certify crpo-cartpole nothing.npz", "nothing.npz"),
        ("solve crpo-cartpole --evidence exact", "--evidence exact: only samples can tell of this simulator"),
        ("solve crpo-cartpole --budget 1e4 --out r", "budget 10000 is too small: choice and certificate need at least"),
    ],
)
def test_what_the_command_line_refuses(argv: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = called(argv, capsys)
    assert status == 2 and message in err and not out and err.count("\n") == 1


@pytest.mark.slow
def test_solve_and_certify_on_the_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, _ = called("solve crpo-cartpole --budget 1e5 --out run --json", capsys)
    said = json.loads(out)
    assert status in (0, 4) and said["env_steps"] <= 1.1e5 and len(said["J_g"]) == 2 and "500 steps" in said["scope"]
    status, out, _ = called("certify crpo-cartpole run/policy.npz --budget 5e4 --json", capsys)
    assert json.loads(out)["verdict"] in ("CERTIFIED", "UNDECIDED", "VIOLATED")


def test_an_iteration_is_a_pure_function_of_its_state_and_key() -> None:
    """What a resume rests on: every iteration begins with reset(seed), so the same state and key give the same bits."""
    from clearance.learning.natural_direction import Natural

    method = cl.PracticalCNPGPD(N=120, K=4, kappa=1.0, direction=Natural(iterations=4))
    sampler = small(pole())
    states = [method.init(sampler.policy.init(), 1, sampler.begin())]
    for k in range(3):
        states.append(method.step(np.uint64(k), sampler, states[-1], np.inf)[0])
    fresh = small(pole())  # other environment objects, as after a restart
    memory = jax.tree.map(np.asarray, states[1].sampler_memory)  # what a file would hold
    kept = states[1]._replace(sampler_memory=memory)
    for k in (1, 2):
        kept = method.step(np.uint64(k), fresh, kept, np.inf)[0]
    assert np.array_equal(kept.theta, states[3].theta) and np.array_equal(kept.lam, states[3].lam)
    assert not np.array_equal(kept.theta, states[1].theta)
    leaves = map(jax.tree.leaves, (kept.sampler_memory, states[3].sampler_memory))
    assert all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))
