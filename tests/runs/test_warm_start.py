"""Runs that begin from another run or policy: the same start, the origin in the certificate, the same bits resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from learners import KINDS, learn, pole
from runs import Bomb, bits, cli

import clearance as cl
from clearance.learning import loop


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on a Gymnasium problem with limit 15."""
    folder = tmp_path_factory.mktemp("old") / "run"
    learn(pole(), folder)
    return folder


def test_a_run_continues_policy_multipliers_and_critics(old: Path, tmp_path: Path) -> None:
    before = cl.run.load(old)
    found = learn(pole(limit=12.0), tmp_path / "new", init=old)
    state = cl.resume(old, pole()).state
    np.testing.assert_array_equal(found.trace.theta[0], state.theta)
    np.testing.assert_array_equal(found.trace.lam[0], state.lam)
    assert int(found.state.sampler_memory.batches) == 2 * int(state.sampler_memory.batches)
    np.testing.assert_array_equal(found.state.sampler_memory.normaliser.mean, state.sampler_memory.normaliser.mean)
    assert f"run {before.manifest['run']}, {before.certificate.verdict}" in found.certificate.origin  # type: ignore[union-attr]
    assert "Learning began from run" in str(found.certificate)
    stored = cl.run.load(tmp_path / "new")
    assert stored.certificate == found.certificate and stored.manifest["run"] != before.manifest["run"]
    assert stored.problem.b.tolist() == [-12.0]


def test_every_form_of_a_policy_begins_at_it(old: Path) -> None:
    """From a policy alone θ is that of its likeliest component, and the normaliser is its own and stays."""
    mixture: Any = cl.run.load(old).policy
    likeliest = mixture.theta[np.argmax(mixture.weights)]
    for init in (mixture, old / "policy.npz", cl.load_policy(old / "policy.npz")):
        found = learn(pole(), None, init=init)
        np.testing.assert_array_equal(found.trace.theta[0], likeliest)
        np.testing.assert_array_equal(found.last.normaliser.mean, mixture.normaliser.mean)
        assert found.certificate.origin.startswith("policy ")


def test_multipliers_are_found_by_name(old: Path) -> None:
    """Another constraint has λ = 0 and new critics; the policy is the same."""
    found = learn(pole(name="lean"), None, init=old)
    assert found.trace.lam[0].tolist() == [0.0] and int(found.state.sampler_memory.batches) == len(found.trace)


@pytest.mark.parametrize("kind", ["Gymnasium", pytest.param("JAX", marks=pytest.mark.slow)])
def test_interrupted_and_resumed_to_the_same_bits(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn(KINDS[kind](), tmp_path / "old")
    learn(KINDS[kind](), tmp_path / "whole", init=tmp_path / "old")
    with monkeypatch.context() as m:
        m.setattr(loop, "_advance", Bomb(loop._advance, 6, KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            learn(KINDS[kind](), tmp_path / "part", init=tmp_path / "old")
    cl.resume(tmp_path / "part", KINDS[kind](), checkpoint_every=2)
    assert bits(tmp_path / "part") == bits(tmp_path / "whole")


def test_finite_models(tmp_path: Path) -> None:
    """θ = log π of a policy, λ of its problem; a run continues at its last iterate, under another limit and γ."""
    model = cl.zoo.two_state()
    best = cl.optimum(model)
    found = cl.solve(model, cl.CNPGPD(K=20, N=10), init=best)
    pi = np.exp(found.trace.theta[0]).reshape(2, -1)
    np.testing.assert_allclose(pi / pi.sum(1, keepdims=True), best.policy, atol=2e-6)
    np.testing.assert_array_equal(found.trace.lam[0], best.lam)
    first = cl.solve(model, cl.CNPGPD(K=20, N=10), out=tmp_path / "run")
    other = model.replace(b=model.b - 0.01, gamma=0.7)
    for init in (first, tmp_path / "run", cl.run.load(tmp_path / "run")):
        again = cl.solve(other, cl.CNPGPD(K=5, N=10), init=init)
        np.testing.assert_array_equal(again.trace.theta[0], first.state.theta)
        assert again.certificate.verdict == "CERTIFIED" and "run" in (again.certificate.origin or "")


@pytest.mark.parametrize("init, said", [
    (3, "init must be a run folder"), ("nowhere.npz", "nowhere.npz"), (lambda s: 0, "init must be"),
    (np.full((3, 2), 0.5), "init is for 3 states"),
])  # fmt: skip
def test_what_cannot_be_begun_from(init: Any, said: str) -> None:
    with pytest.raises(cl.InputError, match=said):
        cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=5), init=init)


def test_worlds_are_not_mixed_up(old: Path) -> None:
    with pytest.raises(cl.InputError, match="is a run on a simulator, this problem is a finite model"):
        cl.solve(cl.zoo.two_state(), init=old)
    with pytest.raises(cl.InputError, match="policy is for observations"):
        cl.solve(KINDS["JAX"](), init=old)
    with pytest.raises(cl.InputError, match="policy is not the class that init was learned in"):
        cl.solve(pole(), init=old, policy=cl.categorical((5,)))


def test_the_command_line_continues_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = cli(f"solve two-state --method cnpgpd --K 30 --out {tmp_path}/a", capsys)
    assert status == 0, err
    status, out, err = cli(f"solve two-state --method cnpgpd --K 10 --init {tmp_path}/a --out {tmp_path}/b", capsys)
    assert status == 0 and f"Learning began from run {cl.run.load(tmp_path / 'a').manifest['run']}" in out, err
    status, out, err = cli(f"solve --resume {tmp_path}/b", capsys)
    assert status == 0 and "Learning began from run" in out
    status, out, err = cli(f"solve two-state --init {tmp_path}/nowhere", capsys)
    assert status == 2 and "nowhere" in err and err.count("\n") == 1


@pytest.mark.parametrize("kind", ["Gymnasium", pytest.param("JAX", marks=pytest.mark.slow)])
def test_a_rule_is_imitated(kind: str, tmp_path: Path) -> None:
    """The clone acts as the rule does, and is where learning begins; the folder asks for the rule again."""
    simulator, rule = KINDS[kind](), lean if kind == "Gymnasium" else home
    found = learn(simulator, tmp_path / "run", init=rule)
    clone = cl.NetworkMixture.single(found.policy_class, found.trace.theta[0], found.last.normaliser)
    seen, truth = (cl.evaluate(simulator, p, episodes=60) for p in (clone, rule))
    spread = np.abs(np.diff(truth.interval, axis=0))[0] + np.abs(np.diff(seen.interval, axis=0))[0]
    first = cl.evaluate(
        simulator, cl.NetworkMixture.single(found.policy_class, found.policy_class.init(), identity(clone))
    )
    assert abs(seen.mean[0] - truth.mean[0]) < max(3 * spread[0], 0.5 * abs(first.mean[0] - truth.mean[0]))
    assert found.certificate.origin == f"the rule {rule.__module__}.{rule.__qualname__}, imitated"
    assert found.learning_steps > int(found.trace.steps.sum())  # the rollouts are counted
    with pytest.raises(cl.InputError, match="give init=rule"):
        cl.resume(tmp_path / "run", simulator)
    again = cl.resume(tmp_path / "run", simulator, init=rule)
    assert again.recalled and repr(again.policy) == repr(found.policy)
    assert "the rule" in found.certificate.neighbours


def identity(mixture: cl.NetworkMixture) -> Any:
    return type(mixture.normaliser).identity(mixture.policy.inputs)


def lean(obs: Any) -> int:
    """Keep the pole up."""
    return int(obs[2] + 0.5 * obs[3] > 0)


def home(obs: Any) -> Any:
    """Drive towards the goal at (.8, .8)."""
    return np.clip(4.0 * (np.array([0.8, 0.8]) - np.asarray(obs)[:2]), -1.0, 1.0).astype(np.float32)
