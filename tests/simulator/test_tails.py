"""Limits on what single episodes cost, on simulators: signals, tests, policies that see the cost so far."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import clearance as cl
from clearance.core.statement import describe_statement, restore_statement
from clearance.deploy.policy_file import running
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.samplers.actor_critic import Practical
from clearance.simulator.samplers.simulator_episodes import NetworkEpisodes
from clearance.simulator.samplers.tail_quantiles import fit_nu, with_nu
from clearance.simulator.simulator import SLOPE
from tests.support.coins import BOLD, CALM, Coins, H, any_policy, chance_above, cvar, gym_coins, jax_coins

SEVERAL = [4.0, cl.Chance(5, 0.3), cl.CVaR(0.8, 7.0, at=5.0)]


def test_increments_of_a_gymnasium_walk_sum_to_what_is_limited():
    env = gym_coins({"cost": SEVERAL})
    assert env.statement.names == ("cost", "P(cost > 5)", "CVaR0.8(cost)") and env.obs_shape == (3,)
    rng = np.random.default_rng(0)
    steps = env.walk(lambda obs, t: rng.integers(0, 2, 4), [1, 2, 3, 4], 3 * H)
    cost = -steps.h[..., 1].reshape(3, H, 4)
    so_far = np.cumsum(cost, 1)
    C = so_far[:, -1]
    sums = -steps.h[..., 2:].reshape(3, H, 4, 2).sum(1) - env.statement.offset[2:]
    assert np.array_equal(sums[..., 0], C > 5)
    assert np.allclose(sums[..., 1], 5 + np.maximum(C - 5, 0) / 0.2)
    seen = steps.obs.reshape(3, H, 4, 3)
    assert np.allclose(seen[:, 1:, :, 1] * 5, so_far[:, :-1]) and np.all(seen[:, 0, :, 1] == 0)
    assert np.allclose(seen[0, :, 0, 2], 2 * np.arange(H) / H - 1)
    assert np.allclose(steps.after.reshape(3, H, 4, 3)[..., 1] * 5, so_far)
    env.close()


def test_samplers_and_tests_estimate_the_same_numbers_in_jax():
    env = jax_coins({"cost": SEVERAL})
    mixture = any_policy(env)
    X, _, steps = NetworkEpisodes(env, mixture).draw(np.uint64(3), 0, 512)
    true = np.array([H * BOLD, chance_above(5, BOLD), cvar(0.8, BOLD)])
    assert steps == 512 * H and set(np.unique(X[:, 2])) == {-1.0, 0.0}
    assert np.allclose(-X[:, 3], 5 + np.maximum(-X[:, 1] - 5, 0) / 0.2, atol=1e-4)
    assert np.all(np.abs(-X[:, 1:].mean(0) - true) < 5 * X[:, 1:].std(0) / np.sqrt(512))
    low, high = NetworkEpisodes(env, mixture).bounds
    assert np.all((low <= X) & (high >= X)) and np.allclose(low[2:], [-1, -5 - 7 / 0.2], rtol=1e-5)
    sampler = Practical(env, mixture.policy)
    J = sampler.batch(np.uint64(1), sampler.begin(), mixture.policy.init(), 256 * H)[1]
    assert np.all(np.abs(-J[1:] - true) < 5 * X[:, 1:].std(0) / np.sqrt(256))


@pytest.mark.parametrize("action", [0, 1])
def test_certify_takes_rules_and_their_chances(action):
    p, env = (CALM, BOLD)[action], gym_coins({"cost": cl.Chance(5, 0.12)})
    assert (chance_above(5, CALM) < 0.03, chance_above(5, BOLD) > 0.3) == (True, True)
    cert = cl.certify(env, lambda obs: action, budget=2e4, delta=1e-3)
    assert cert.verdict == ("CERTIFIED", "VIOLATED")[action]
    assert abs(-cert.J_g[0] - chance_above(5, p)) < 5 * np.sqrt(chance_above(5, p) / cert.episodes)
    assert "P(cost > 5)" in str(cert) and "≤ 0.12" in str(cert).replace("> 0.12", "≤ 0.12")
    env.close()


def test_of_a_tail_only_its_upper_bound_is_claimed():
    true, env = cvar(0.8, BOLD), jax_coins({"cost": cl.CVaR(0.8, 8.0)})
    kept = cl.certify(env, any_policy(env), budget=2e5)
    assert true < 7.3 and kept.verdict == "CERTIFIED"
    assert true <= -kept.J_lower[1] <= 8.0 and -kept.J_upper[1] == 0.0 and abs(-kept.J_g[0] - true) < 0.3
    assert kept.nu is not None and kept.nu[0] == pytest.approx(6.0, abs=1.01)  # the quantile of earlier episodes
    assert f"Threshold ν, fixed before the test: CVaR0.8(cost): {kept.nu[0]:g}." in str(kept)
    tight = jax_coins({"cost": cl.CVaR(0.8, 4.0)})  # far below what it is
    broken = cl.certify(tight, any_policy(tight), budget=2e4)
    assert broken.verdict == "UNDECIDED" and "fixed before the test" in broken.scope
    both = jax_coins({"cost": [cl.CVaR(0.8, 4.0), cl.Chance(2, 0.1)]})
    assert cl.certify(both, any_policy(both), budget=2e5).verdict == "VIOLATED"  # the chance proves it


def test_nu_is_the_quantile_of_earlier_episodes():
    env = jax_coins({"cost": cl.CVaR(0.8, 8.0)})
    mixture = any_policy(env)
    fitted, steps = fit_nu(env, lambda e: NetworkEpisodes(e, mixture), np.uint64(5), 1e6)
    assert fitted.statement.tails[0].rule.at == pytest.approx(6.0, abs=1.01) and steps == 200 * H
    given = jax_coins({"cost": cl.CVaR(0.8, 8.0, at=3.0)})
    assert fit_nu(given, lambda e: NetworkEpisodes(e, mixture), np.uint64(5), 1e6) == (given, 0)
    worse = NetworkEpisodes(with_nu(env, {0: 1.0}), mixture).draw(np.uint64(3), 0, 256)[0]
    better = NetworkEpisodes(fitted, mixture).draw(np.uint64(3), 0, 256)[0]
    assert -worse[:, 1].mean() > -better[:, 1].mean() + 1


def test_policies_are_tested_with_as_much_memory_as_they_have():
    plain = gym_coins({"cost": 6.0})
    blind = any_policy(plain)
    env = plain.with_limits({"cost": cl.Chance(8, 0.3)})
    remembers = any_policy(env)
    assert (blind.policy.memory, remembers.policy.inputs) == (None, 3)
    for problem in (plain, env, plain.with_limits({"cost": cl.CVaR(0.5, 11.0)})):
        for policy in (blind, remembers):
            assert cl.certify(problem, policy, budget=3e4, delta=0.05).verdict == "CERTIFIED"
    short = cl.gymnasium(plain.lanes.envs[0], limits={"cost": cl.Chance(8, 0.3)}, horizon=5, bounds=(0.0, 1.0))
    with pytest.raises(cl.InputError, match="policy is for observations"):
        cl.certify(short, remembers, budget=3e4)
    plain.close()


def test_saved_policies_say_what_they_need(tmp_path):
    env = gym_coins({"cost": cl.Chance(8, 0.3)})
    rng, policy = np.random.default_rng(1), cl.categorical(hidden=(4,)).fitted(env.obs_shape, env.action, 0, env.memory)
    mixture = cl.NetworkMixture.single(policy, rng.normal(size=policy.d), Normaliser.identity(policy.inputs))
    mixture.save(tmp_path / "policy.npz")
    assert cl.NetworkMixture.load(tmp_path / "policy.npz").policy.memory == env.memory
    acting = cl.load_policy(tmp_path / "policy.npz", seed=0)
    assert acting.memory == env.memory and acting.obs_shape == (1,)
    obs = rng.random((5, 1)).astype("f")
    with pytest.raises(cl.InputError, match=r"acts on the sum of cost so far: call reset\(\)"):
        acting.act(obs[0])
    acting.reset()
    first = acting.act(obs[0], deterministic=True)
    with pytest.raises(cl.InputError, match=r"record\(cost\) after every step"):
        acting.act(obs[1])
    acting.record(1.0)
    assert first in (0, 1) and acting.tracker is not None
    for cost, t in ((3.0, 4), (12.0, 11)):
        inputs = np.column_stack([obs, np.full(5, cost / 8), np.full(5, 2 * t / H - 1)]).astype("f")
        expected = np.argmax(mixture.outs[0](inputs), -1)
        assert np.array_equal(acting.act(obs, deterministic=True, cost_so_far=cost, t=t), expected)
    with pytest.raises(cl.InputError, match="go together"):
        acting.act(obs, cost_so_far=1.0)
    with pytest.raises(cl.InputError, match="predict is not told of costs"):
        acting.predict(obs)
    actor = mixture.reset(np.random.default_rng(0))
    assert actor.act(obs[0]) in (0, 1)
    with pytest.raises(cl.InputError, match=r"record\(cost\)"):
        actor.act(obs[0])
    env.close()


def test_deployed_episodes_are_those_that_were_certified():
    env = gym_coins({"cost": cl.Chance(4, 0.3)}, num_envs=1)
    rng, policy = np.random.default_rng(1), cl.categorical(hidden=(4,)).fitted(env.obs_shape, env.action, 0, env.memory)
    mixture = cl.NetworkMixture.single(policy, rng.normal(0, 3, policy.d), Normaliser.identity(policy.inputs))
    walked = env.walk(lambda obs, t: np.argmax(mixture.outs[0](obs), -1), [7], H)
    acting, lone = running(mixture), env.lanes.plain.envs[0]
    acting.reset()
    obs, _ = lone.reset(seed=7)
    for t in range(H):
        action = acting.act(obs, deterministic=True)
        assert action == walked.action[t, 0]
        obs, _, _, _, info = lone.step(action)
        acting.record(info["cost"])
    env.close()


def test_wrong_costs_are_errors_and_not_missed():
    class Broken(Coins):
        value = 0.0

        def step(self, action):
            return *super().step(action)[:4], {"cost": self.value}

    for value, what in ((np.nan, "cost is not finite"), (3.0, "cost lies outside its declared bounds")):
        Broken.value = value
        env = cl.gymnasium(Broken, limits={"cost": cl.Chance(5, 0.1)}, horizon=H, bounds=(0.0, 1.0), num_envs=2)
        with pytest.raises(cl.EnvironmentFault, match=what):
            env.walk(lambda obs, t: np.zeros(2, int), [1, 2], H)

    def step(key, s, a):
        return s, jnp.array([0.0, jnp.nan]), jnp.zeros((), bool)

    bad = cl.environment(lambda key: jnp.zeros(()), step, lambda s: s[None], action=cl.Discrete(2), gamma=1.0,
                         limits={"cost": cl.Chance(5, 0.1)}, horizon=H, bounds=([0.0, 0.0], [1.0, 1.0]))  # fmt: skip
    with pytest.raises(cl.EnvironmentFault, match="not finite, or a cost is outside its bounds"):
        cl.certify(bad, any_policy(bad), budget=1e4)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"gamma": 0.9}, "whole episode: give horizon"),
        ({"criterion": "average"}, "cannot be certified from samples, since no number of steps"),
        ({"criterion": "never"}, "criterion must be one of"),
        ({"limits": {"cost": cl.Chance(5, 0.0)}}, "cannot be shown by samples"),
        ({"limits": {"noise": cl.Chance(5, 0.1)}, "names": ["cost"]}, "names|entries|no cost"),
        ({"limits": None, "b": {"cost": cl.Chance(5, 0.1)}}, "must be"),
    ],
)
def test_limits_that_cannot_be_meant_are_refused(more, what):
    with pytest.raises(cl.InputError, match=what):
        gym_coins(**({"limits": {"cost": cl.Chance(5, 0.1)}} | more))


def test_a_cvar_needs_bounds_and_a_chance_does_not():
    env = gym_coins({"cost": cl.Chance(5, 0.12)}, bounds=None)
    assert cl.certify(env, lambda obs: 0, budget=1e4).verdict == "CERTIFIED"
    tail = gym_coins({"cost": cl.CVaR(0.9, 9.0)}, bounds=None)
    with pytest.raises(cl.InputError, match="no bounds"):
        cl.certify(tail, lambda obs: 0, budget=1e4)


def test_tail_sums_in_float32_are_exact_to_the_last_step():
    """400 steps of 0.1 are 40, and not above it; plain float32 sums are."""

    def step(key, s, a):
        return s, jnp.array([0.0, 0.1]), jnp.zeros((), bool)

    def env(above):
        return cl.environment(lambda key: jnp.zeros(()), step, lambda s: s[None], action=cl.Discrete(2), gamma=1.0,
                              limits={"cost": cl.Chance(above, 0.1)}, horizon=400, lanes=4)  # fmt: skip

    for above, expected in ((40.0, 0.0), (39.95, -1.0)):
        X = NetworkEpisodes(env(above), any_policy(env(above))).draw(np.uint64(0), 0, 4)[0]
        assert np.all(X[:, 1] == expected)


def test_runs_store_their_tails_and_resume(tmp_path):
    env = jax_coins({"cost": cl.Chance(7, 0.3)}, lanes=32)
    sol = cl.solve(env, cl.PracticalCNPGPD(K=3), policy=cl.categorical(hidden=()), budget=2e4, out=tmp_path / "run")
    assert sol.certificate.verdict == "CERTIFIED" and sol.certificate.names == ["P(cost > 7)"]
    stored: Any = cl.run.load(tmp_path / "run").problem
    assert stored.tails == env.statement.tails == restore_statement(describe_statement(env.statement)).tails
    again = cl.resume(tmp_path / "run", problem=env)
    assert np.array_equal(again.policy.theta, sol.policy.theta) and again.policy.policy.memory == env.memory


def test_learners_see_a_slope_and_keep_the_chance_itself():
    env = jax_coins({"cost": [cl.Chance(2, 0.1), cl.CVaR(0.5, 6.0, at=3.0)]}, lanes=16)
    mixture, sloped = any_policy(env), env.for_learning()
    true, steep = (NetworkEpisodes(x, mixture).draw(np.uint64(3), 0, 64)[0] for x in (env, sloped))
    C = -true[:, 2] / 2 + 1.5  # beyond 3 the tail counts double from there: (φ − 3)·0.5 + 3
    assert np.allclose(steep[:, 2], true[:, 2])  # a tail has a slope of its own
    assert np.all(steep[:, 1] <= true[:, 1]) and np.all((steep[:, 1] < 0) == (true[:, 1] < 0))
    lost = C > 3
    assert np.allclose(-steep[lost, 1], 1 + SLOPE * (C[lost] - 2) / 2)
    assert np.array_equal(sloped.tail_costs.limited_sums(steep, np)[:, 1], true[:, 1])
    low, high = sloped.statement.bounds
    assert low[1] == -1 - SLOPE / 2 and high[1] == 0 and gym_coins({"cost": 3.0}).for_learning().tail_costs is None
    sampler = Practical(sloped, mixture.policy)
    J = sampler.batch(np.uint64(1), sampler.begin(), mixture.policy.init(), 256 * H)[1]
    assert abs(-J[1] - chance_above(2, BOLD)) < 5 * np.sqrt(0.25 / 256)


def test_policies_with_another_memory_are_not_learned_from():
    env = jax_coins({"cost": cl.Chance(7, 0.3)}, lanes=16)
    other = jax_coins({"cost": cl.Chance(5, 0.3)}, lanes=16)  # its unit of cost is 5, not 7
    assert other.obs_shape == env.obs_shape and other.memory != env.memory
    with pytest.raises(cl.InputError, match=r"give problem\.remembering\(policy\.memory\)"):
        cl.solve(env, policy=any_policy(other).policy, budget=2e4)
    assert env.remembering(other.memory).memory == other.memory
    assert jax_coins({"cost": 4.0}).with_limits({"cost": 3.0}).memory is None


def test_vector_environments_count_alike():
    import gymnasium

    vector = gymnasium.vector.SyncVectorEnv([Coins] * 3)
    env = cl.gymnasium(vector, limits={"cost": [4.0, cl.Chance(5, 0.3)]}, horizon=H, bounds=(0.0, 1.0))
    steps = env.walk(lambda obs, t: np.ones(3, int), [1, 2, 3], 3 * H)
    done = np.cumsum(steps.truncated & steps.valid, 0) - (steps.truncated & steps.valid)
    for lane in range(3):
        for episode in range(2):
            h = steps.h[(done[:, lane] == episode) & steps.valid[:, lane], lane]
            assert len(h) == H and -h[:, 2].sum() == float(-h[:, 1].sum() > 5)
    env.close()
