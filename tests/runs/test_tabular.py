"""`cl.tabular`: a black box with finitely many observations through the one pipeline, judged by its true model."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import clearance as cl
from clearance.core.errors import InputError
from clearance.exact.optimistic_values import OptimisticValues, optimistic_values
from clearance.finite.softmax_policy import softmax
from clearance.runs.run_reader import load
from clearance.runs.worlds.explored_table import ExploredTable
from clearance.simulator.gymnasium_envs.tabular_problem import TableShape

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces


class Corridor(gymnasium.Env):
    """Cells 0..3; action 1 moves right but slips by 20 %, and pays 1 from cell 3 on, which ends half of the time.

    Action 1 costs 1 in every step; action 0 stays and pays 0.1.
    """

    kind: ClassVar[str] = "discrete"

    def __init__(self) -> None:
        whole = {"discrete": spaces.Discrete(4), "multi": spaces.MultiDiscrete([2, 2])}
        whole["tuple"] = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))
        self.observation_space, self.action_space = whole[self.kind], spaces.Discrete(2)
        self.s = 0

    def _obs(self) -> Any:
        pair = self.s // 2, self.s % 2
        return {"discrete": self.s, "multi": np.array(pair), "tuple": pair}[self.kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.s = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        reward, cost, over = 0.1, float(action), False
        if action == 1 and self.s == 3:
            reward, over = 1.0, bool(self.np_random.random() < 0.5)
        elif action == 1 and self.np_random.random() < 0.8:
            self.s += 1
        return self._obs(), reward, over, False, {"cost": cost}


class Pairs(Corridor):
    kind = "multi"


class Tuples(Corridor):
    kind = "tuple"


def true_model(limit: float) -> cl.CMDP:
    P, r, c = np.zeros((5, 2, 5)), np.full((5, 2), 0.1), np.zeros((1, 5, 2))
    for s in range(4):
        P[s, 0, s] = 1.0
        P[s, 1, min(s + 1, 3)] += 0.8
        P[s, 1, s] += 0.2
    P[3, 1] = [0, 0, 0, 0.5, 0.5]
    P[4, :, 4], r[3, 1], r[4] = 1.0, 1.0, 0.0
    c[0, :4, 1] = 1.0
    return cl.CMDP(P, r, cost=c, limit=limit, rho=[1, 0, 0, 0, 0], gamma=0.8)


@pytest.mark.parametrize("env", [Corridor, Pairs, Tuples])
def test_a_black_box_is_solved_and_certified(env: Any) -> None:
    limit = 1.5  # far from the edge: 12 of 12 seeds are CERTIFIED and earn 93 % of the optimum or more
    problem = cl.tabular(env, limits=limit, bounds=([0, 0], [1, 1]), gamma=0.8)
    found, truth = cl.solve(problem, budget=3e4, seed=1), true_model(limit)
    best, J = cl.optimum(truth), found.policy.J(truth)
    assert found.certificate.verdict == "CERTIFIED" and -J[1] <= limit and found.policy.M <= 2
    assert 0.8 * best.J_r < J[0] <= best.J_r and found.env_steps <= 3.3e4
    assert "estimated best reward" in found.certificate.message


def test_one_policy_of_a_black_box() -> None:
    problem = cl.tabular(Corridor, limits=1.5, bounds=([0, 0], [1, 1]), gamma=0.8)
    found = cl.solve(problem, budget=3e4, seed=1, single="require")
    assert found.certificate.verdict == "CERTIFIED" and found.policy.M == 1


def test_a_run_on_a_black_box_is_resumed_with_the_same_bits(tmp_path: Path) -> None:
    """All counts are part of the state, so nothing that was learned before the interruption is lost."""

    def problem() -> Any:
        return cl.tabular(Corridor, limits=1.5, bounds=([0, 0], [1, 1]), gamma=0.8)

    def stop(part: Any, state: Any, K: int) -> None:
        if state.k >= 20:
            raise KeyError("stopped")

    whole = cl.solve(problem(), budget=2e4, seed=1, out=tmp_path / "whole")
    with pytest.raises(KeyError):
        cl.solve(problem(), budget=2e4, seed=1, out=tmp_path / "cut", progress=stop)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cl.DamagedRunWarning)
        again = cl.resume(tmp_path / "cut", problem())
    assert np.array_equal(again.policy.pi, whole.policy.pi) and np.array_equal(again.trace.lam, whole.trace.lam)
    assert again.certificate == whole.certificate and again.env_steps == whole.env_steps
    assert cl.resume(tmp_path / "cut", problem()).certificate == whole.certificate, "a finished run is recalled"
    stored = load(tmp_path / "cut")
    assert (
        isinstance(stored.policy, cl.Mixture)
        and np.array_equal(stored.policy.pi, whole.policy.pi)
        and stored.problem.b == problem().statement.b
    )
    with pytest.raises(InputError, match="code is not in the folder"):
        cl.resume(tmp_path / "cut")


def test_certify_a_table_of_a_black_box() -> None:
    problem = cl.tabular(Corridor, limits=1.0, bounds=([0, 0], [1, 1]), gamma=0.8)
    run, stay = np.tile([0.0, 1.0], (5, 1)), np.tile([1.0, 0.0], (5, 1))
    assert cl.certify(problem, stay, budget=1e4).verdict == "CERTIFIED"
    assert cl.certify(problem, run, budget=3e4).verdict == "VIOLATED"


def test_sums_that_an_episode_cannot_exceed_make_the_range_shorter() -> None:
    """With a known total the same table is certified with fewer episodes; a total that is exceeded is an error."""
    asked: dict[str, Any] = {"limits": 1.0, "bounds": ([0, 0], [1, 1]), "gamma": 0.99}
    careful = np.tile([1.0, 0.0], (5, 1))
    plain = cl.certify(cl.tabular(Corridor, **asked), careful, budget=3e5)
    short = cl.certify(cl.tabular(Corridor, totals=([0, 0], [np.inf, 2.0]), **asked), careful, budget=3e5)
    assert plain.verdict == short.verdict == "CERTIFIED" and (short.episodes or 0) < 0.2 * (plain.episodes or 0)
    with pytest.raises(InputError, match="declared bounds"):
        cl.certify(cl.tabular(Corridor, totals=([0, 0], [np.inf, 2.0]), **asked), 1 - careful, budget=3e5)
    with pytest.raises(InputError, match="begins with 0"):
        cl.tabular(Corridor, totals=([1, 0], [2, 2]), **asked)


def test_what_was_never_tried_may_end_the_episode() -> None:
    """Rewards are negative, so nothing that lasts can be worth finding; the way out is found all the same."""

    class Maze(Corridor):
        def step(self, action: Any) -> Any:
            obs, _, over, cut, info = super().step(action)
            return obs, -1.0, over, cut, info

    problem = cl.tabular(Maze, limits=15.0, bounds=([-1, 0], [-1, 1]), gamma=0.9)
    found = cl.solve(problem, budget=2e4, seed=0)
    assert np.all(found.policy.pi[0][:4, 1] > 0.5), "walks to the end"


class Lock(gymnasium.Env):
    """Sixteen cells in a row. One of four actions leads to the next cell, the others into a wall; the end pays 20."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Discrete(16), spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.s = 0
        return self.s, {}

    def step(self, action: Any) -> Any:
        self.s += int(action == 3 - self.s % 4)
        over = self.s == 16
        return self.s - over, 20.0 if over else -1.0, over, False, {"cost": 1.0}


def lock() -> Any:
    asked = {"bounds": ([-1, 0], [20, 1]), "totals": ([-np.inf, 0], [20, np.inf]), "gamma": 0.9}
    return cl.tabular(Lock, limits=9.5, **asked)


def test_optimistic_values_do_not_stay_at_a_wall() -> None:
    """Each step updates the values, so that one round of exploration tries every action that may be the way."""
    explored = ExploredTable(lock(), softmax(17, 4))
    assert explored.walk_hopeful(np.uint64(1), hopes_of(explored), 1500) >= 1500
    ends = sum(k for (_, after), k in explored.transitions.items() if after == 16)
    assert ends >= 3, "sixteen right actions in turn: at random, once in 10^9 episodes of that length"


def hopes_of(explored: ExploredTable) -> OptimisticValues:
    V = np.zeros((explored.problem.S, 2))
    return optimistic_values(explored.model(), V, np.array([1.0, 0.0]), 20.0, explored.transitions)


def test_values_updated_step_by_step_are_those_of_a_new_solution() -> None:
    """Repeated updates of all pairs end where value iteration on the same counts does."""
    explored = ExploredTable(lock(), softmax(17, 4))
    hopes = hopes_of(explored)
    explored.walk_hopeful(np.uint64(2), hopes, 600)
    for _ in range(300):
        for pair in hopes.after:
            hopes.refresh(*divmod(pair, 4))
    np.testing.assert_allclose(hopes.Q[:16], hopes_of(explored).Q[:16], atol=1e-2)


def test_a_way_of_many_steps_is_found() -> None:
    found = cl.solve(lock(), budget=2e4, seed=0)
    assert np.all(found.policy.pi[0][np.arange(16), 3 - np.arange(16) % 4] > 0.5)


def test_rows() -> None:
    shape = TableShape((3, 2), (1, 0))
    assert [shape.row((x, y)) for x in (1, 2, 3) for y in (0, 1)] == list(range(6)) and shape.rows == 6
    with pytest.raises(InputError, match="does not fit"):
        shape.row((4, 0))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"horizon": 10}, "horizon is not for tables"),
        ({}, "reward first"),
        ({"bounds": ([0], [1])}, "reward first"),
    ],
)
def test_what_a_table_cannot_be(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        cl.tabular(Corridor, limits=1.0, gamma=0.8, **settings)
    with pytest.raises(InputError, match="neither Discrete"):
        cl.tabular("CartPole-v1", constraints=lambda *_: 0.0, limits=1.0, gamma=0.8, bounds=([0, 0], [1, 1]))


def always_run(obs: Any) -> int:
    return 1


def test_policies_of_a_black_box_are_taken_as_they_come() -> None:
    """The row for the end may be left out, and a rule gets the environment's own observations."""
    problem = cl.tabular(Corridor, limits=1.0, bounds=([0, 0], [1, 1]), gamma=0.8)
    stay = [cl.certify(problem, p, budget=1e4) for p in ([0] * 4, [0] * 5, np.eye(2)[[0] * 4], np.eye(2)[[0] * 5])]
    assert all(x == stay[0] and x.verdict == "CERTIFIED" for x in stay)
    run = [cl.certify(problem, p, budget=3e4) for p in ([1] * 4, always_run)]
    truth = cl.certify(true_model(1.0), np.eye(2)[[1] * 5])
    for found in run:
        assert found.verdict == "VIOLATED" and found.J_g_lower is not None
        assert abs(found.J_g[0] - truth.J_g[0]) < 0.5
    ways = r"table \[5, 2\], one row per observation.* the 4 observations, or a rule"
    for wrong in ([0] * 3, np.eye(2)[[0] * 3], {"a": 0}, [[1.0], [0.0]]):
        with pytest.raises(InputError, match=ways):
            cl.certify(problem, wrong)


def test_a_black_box_is_checked_evaluated_and_shown() -> None:
    problem = cl.tabular(Corridor, limits=1.5, bounds=([0, 0], [1, 1]), gamma=0.8)
    assert cl.check_env(problem).ok
    seen = cl.evaluate(problem, always_run, episodes=200)
    truth = cl.certify(true_model(1.5), np.eye(2)[[1] * 5])
    assert abs(seen.values.mean() + truth.J_g[0]) < 0.5
    with pytest.raises(InputError, match=r"use cl\.certify, or give a rule"):
        cl.evaluate(problem, np.eye(2)[[1] * 5])
    assert repr(problem) == "<TabularProblem Corridor: 4 observations, 2 actions, γ = 0.8; cost ≤ 1.5>"


def test_a_budget_that_leaves_no_test_is_answered_with_one_that_does() -> None:
    """Nothing was measured, so nothing is said to be met, and the advice does not grow with each try."""
    problem = cl.tabular(Corridor, limits=1.5, bounds=([0, 0], [1, 1]), gamma=0.8)
    found = cl.solve(problem, budget=10).certificate
    assert found.episodes == 0 and found.message.startswith("no episode was left for the test, so nothing is known")
    assert "met every limit" not in found.message
    advised = float(found.message.split("give about ")[1].split()[0])
    assert cl.solve(problem, budget=advised).certificate.episodes
