"""A rule of the user's own as a candidate, and as one component of the policy that is certified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learners import KINDS, learn, pole, small

import clearance as cl
from clearance.core.random_streams import key_of
from clearance.runs.worlds.simulator_candidates import LateIterates
from clearance.runs.worlds.simulator_start import read_source
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.policies.rule_mixture import RuleMixture, load_mixture
from clearance.simulator.samplers.rule_episodes import OwnRuleEpisodes, any_episodes, sees_what_networks_see

POLE = pole()


class Balance:
    """Keep the pole up, and count the episodes in which this was asked for."""

    episodes = 0

    def reset(self) -> None:
        self.episodes += 1

    def __call__(self, obs: Any) -> int:
        return int(obs[2] + 0.5 * obs[3] > 0)


def push(obs: Any) -> int:
    """Always push to the left, which ends early and costs most of the time."""
    return 0


def networks(M: int = 2) -> NetworkMixture:
    policy, rng = small(POLE).policy, np.random.default_rng(0)
    return NetworkMixture(
        policy, np.full(M, 1 / M), rng.normal(0, 1, (M, policy.d)), Normaliser.identity(policy.inputs)
    )


def test_episodes_are_those_of_the_rule_and_the_networks_in_their_shares() -> None:
    mixture = RuleMixture(networks(), 0.25, Balance(), "balance")
    source = any_episodes(POLE, mixture)
    X, component, steps = source.draw(key_of(1), 0, 400)
    share = np.bincount(component, minlength=3) / 400
    np.testing.assert_allclose(share, mixture.weights, atol=5 * np.sqrt(0.25 / 400))
    alone = [any_episodes(POLE, mixture.networks.part(row)).draw(key_of(2), 0, 300)[0] for row in np.eye(2)]
    alone.append(OwnRuleEpisodes(POLE, rule=Balance()).draw(key_of(2), 0, 300)[0])
    for m, Y in enumerate(alone):
        own = X[component == m]
        error = np.sqrt(own.var(0) / len(own) + Y.var(0) / len(Y))
        assert np.all(np.abs(own.mean(0) - Y.mean(0)) <= 5 * error + 1e-12)
    assert steps == X[:, 0].sum()  # a reward of 1 per step
    again = source.draw(key_of(1), 0, 400)
    np.testing.assert_array_equal(again[0], X)


def test_bounds_and_bias_are_no_smaller_than_those_of_the_parts() -> None:
    mixture = RuleMixture(networks(), 0.5, push, "push")
    source, parts = any_episodes(POLE, mixture), [any_episodes(POLE, networks()), OwnRuleEpisodes(POLE, rule=push)]
    for part in parts:
        assert np.all(source.bounds[0] <= part.bounds[0]) and np.all(source.bounds[1] >= part.bounds[1])
        assert np.all(source.bias >= part.bias)


def test_candidates_end_with_the_rule() -> None:
    late = networks(3)
    made = LateIterates(late, lambda mixture: any_episodes(POLE, mixture), rule=push)
    assert made.count == 4 and isinstance(made.mixture(np.eye(4)[0]), NetworkMixture)
    alone: Any = made.mixture(np.eye(4)[3])
    assert alone.M == 1 and alone.share == 1
    np.testing.assert_array_equal(alone.networks.theta, late.theta[2:])  # the imitation, to continue from
    both: Any = made.mixture(np.array([0.2, 0.0, 0.0, 0.6]))
    np.testing.assert_allclose(both.weights, [0.25, 0.75])
    assert both.M == 2 and both.name.endswith("test_rule_candidates.push")


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_saved_loaded_and_run_with_numpy_alone(share: float, tmp_path: Path) -> None:
    rule = Balance()
    mixture = RuleMixture(networks(), share, rule, "lab.balance")
    mixture.save(tmp_path / "policy.npz")
    with pytest.raises(cl.InputError, match=r"the rule lab\.balance, whose code is not in the file"):
        cl.load_policy(tmp_path / "policy.npz")
    policy: Any = cl.load_policy(tmp_path / "policy.npz", seed=0, rule=rule)
    rng, obs = np.random.default_rng(0), np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    acted = 0
    for x in obs:
        policy.reset(rng=rng)
        policy.components = np.asarray(policy.components)
        if policy.components == policy.M - 1:
            acted += 1
            assert policy.act(x) == rule(x)
        else:
            assert policy.act(x) in (0, 1)
    assert rule.episodes == acted and abs(acted / 50 - share) < 0.35
    with pytest.raises(cl.InputError, match="one episode at a time"):
        policy.reset(4)
    with pytest.raises(cl.InputError, match="in place of predict"):
        policy.predict(obs)
    with pytest.raises(cl.InputError, match="is code, which cannot be exported"):
        cl.export_policy(mixture, tmp_path / "policy.onnx")
    back: Any = load_mixture(tmp_path / "policy.npz")
    np.testing.assert_allclose(back.weights, mixture.weights)
    with pytest.raises(cl.InputError, match="give it with load_policy"):
        back.reset()


def test_rules_without_a_memory_act_in_batches(tmp_path: Path) -> None:
    mixture = RuleMixture(networks(), 0.5, push, "push")
    mixture.save(tmp_path / "policy.npz")
    policy: Any = cl.load_policy(tmp_path / "policy.npz", seed=0, rule=push)
    obs = np.random.default_rng(1).normal(size=(200, 4)).astype(np.float32)
    policy.reset(200)
    actions = policy.act(obs)
    assert actions.shape == (200,) and not actions[policy.components == 2].any()
    assert actions[policy.components < 2].any()
    actions, state = policy.predict(obs)
    assert not actions[state[0] == 2].any()
    with pytest.raises(cl.InputError, match="leave out rule"):
        mixture.networks.save(tmp_path / "networks.npz")
        cl.load_policy(tmp_path / "networks.npz", rule=push)


def test_it_is_certified_and_evaluated_as_any_policy(tmp_path: Path) -> None:
    mixture = RuleMixture(networks(), 0.9, Balance(), "balance")
    seen = cl.certify(POLE, mixture, budget=20_000, delta=0.1)
    assert seen.components == 3 and "with probability 0.9 it is the rule balance" in seen.scope
    mixture.save(tmp_path / "policy.npz", seen)
    loaded = cl.load_policy(tmp_path / "policy.npz", seed=0, rule=Balance())
    assert loaded.certificate == seen
    again = cl.certify(POLE, loaded, budget=20_000, delta=0.1)
    assert again.verdict == seen.verdict and again.components == 3
    for policy in (mixture, loaded):
        found = cl.evaluate(POLE, policy, episodes=200)
        assert abs(found.mean[0] - seen.J_r) < 5 * (found.interval[1][0] - found.interval[0][0])


def test_a_good_rule_is_not_lost(tmp_path: Path) -> None:
    """A run that learns next to nothing gives back what the rule earns, certified; the folder and a new run know it."""
    rule, simulator = Balance(), pole(limit=18.0, horizon=40)  # eight of eight seeds: 40.0 with 12,000 of 30,000 steps
    found = learn(simulator, tmp_path / "run", init=rule, budget=30_000)
    assert found.certificate.verdict == "CERTIFIED" and found.certificate.J_r > 39
    assert "the rule" in found.certificate.neighbours
    stored = cl.run.load(tmp_path / "run")
    assert repr(stored.policy) == repr(found.policy)
    assert read_source(stored).policy_class is not None


def test_rules_that_see_something_else_are_imitated_alone() -> None:
    assert all(sees_what_networks_see(kind()) for kind in KINDS.values())
    flat = cl.gymnasium("FrozenLake-v1", limits=[], horizon=20, num_envs=2)
    assert not sees_what_networks_see(flat)
