"""Policies in use: the same actions as in the library, with NumPy alone, and errors for what is no observation."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed import HEADS, SHAPES, network_mixture, table_mixture, timed_mixture

import clearance as cl
from clearance.certificates.certificate import Certificate
from clearance.core.atomic_files import save_npz
from clearance.deploy.policy_file import running
from clearance.deploy.running_policy import RunningPolicy

VERSION_0_1 = Path(__file__).resolve().parents[1] / "data/version_0_1"


def certificate(**other: Any) -> Certificate:
    model = cl.zoo.two_state()
    return replace(cl.certify(model, cl.optimum(model).policy), greedy_verdict=None, **other)


def act_as_the_library(mixture: Any, observations: Any, seed: int, episodes: int = 5) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [actor.act(obs) for actor in (mixture.reset(rng) for _ in range(episodes)) for obs in observations]


def act_as_loaded(policy: RunningPolicy, observations: Any, seed: int, episodes: int = 5) -> list[Any]:
    rng, found = np.random.default_rng(seed), []
    for _ in range(episodes):
        policy.reset(rng=rng)
        found += [policy.act(obs, rng=rng) for obs in observations]
    return found


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("M", [1, 3])
def test_networks_act_as_in_the_library(head: str, M: int, tmp_path: Path) -> None:
    mixture = network_mixture(head, M)
    mixture.save(tmp_path / "policy.npz")
    policy = cl.load_policy(tmp_path / "policy.npz")
    observations = np.random.default_rng(1).normal(0, 3, (40, *SHAPES[head]))
    ours, theirs = act_as_loaded(policy, observations, 7), act_as_the_library(mixture, observations, 7)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert type(ours[0]) is type(theirs[0]) and np.shape(ours[0]) == np.shape(theirs[0])
    assert np.asarray(ours[0]).dtype == np.asarray(theirs[0]).dtype


@pytest.mark.parametrize("M", [1, 4])
def test_tables_act_as_in_the_library(M: int, tmp_path: Path) -> None:
    mixture = table_mixture(M)
    mixture.save(tmp_path / "policy.npz")
    policy = cl.load_policy(tmp_path / "policy.npz")
    states = np.random.default_rng(1).integers(0, mixture.pi.shape[1], 100)
    assert act_as_loaded(policy, states, 3) == act_as_the_library(mixture, states, 3)
    np.testing.assert_array_equal(policy.pi, mixture.pi)  # type: ignore[attr-defined]


@pytest.mark.parametrize("head", HEADS)
def test_a_batch_is_its_rows(head: str) -> None:
    """Deterministic actions of rows with components of their own, against one row at a time."""
    policy = running(network_mixture(head, 3))
    observations = np.random.default_rng(2).normal(size=(30, *SHAPES[head]))
    policy.components = components = np.arange(30) % 3
    many = policy.act(observations, deterministic=True)
    assert len(many) == 30
    for m, obs, action in zip(components, observations, many, strict=True):
        policy.components = np.asarray(m)
        np.testing.assert_allclose(policy.act(obs, deterministic=True), action, rtol=1e-5, atol=1e-5)


def test_drawn_actions_have_the_probabilities_of_the_table() -> None:
    policy = running(table_mixture(1))
    n = 40_000
    drawn = np.bincount(policy.act(np.full(n, 2), rng=np.random.default_rng(0)), minlength=3) / n
    assert np.abs(drawn - policy.pi[0, 2]).max() < 6 * np.sqrt(0.25 / n)  # type: ignore[attr-defined]
    assert np.all(policy.act(np.full(9, 2), deterministic=True) == policy.pi[0, 2].argmax())  # type: ignore[attr-defined]


def test_predict_keeps_the_component_of_an_episode() -> None:
    """The state holds one component per row; it changes where an episode starts, and nowhere else."""
    policy, obs = running(table_mixture(4)), np.zeros(200, int)
    _, state = policy.predict(obs)
    for _ in range(5):
        _, after = policy.predict(obs, state=state, episode_start=np.zeros(200, bool))
        np.testing.assert_array_equal(after[0], state[0])
    starts = np.arange(200) < 100
    _, after = policy.predict(obs, state=state, episode_start=starts)
    np.testing.assert_array_equal(after[0][100:], state[0][100:])
    assert np.sum(after[0][:100] != state[0][:100]) > 30  # 75 of 100 on average
    action, single = policy.predict(1, episode_start=True)
    assert isinstance(action, int) and single[0].shape == (1,)
    for wrong in ((np.zeros(3, int),), (np.full(200, 9),), (np.zeros(200),)):
        with pytest.raises(cl.InputError, match="state must be what predict gave"):
            policy.predict(obs, state=wrong)


def test_mixtures_ask_for_reset_and_draw_by_weight() -> None:
    policy = running(network_mixture("discrete", 3))
    with pytest.raises(cl.InputError, match=r"mixture of 3: call reset\(\)"):
        policy.act(np.zeros(3))
    policy.reset(10_000)
    assert policy.components is not None
    np.testing.assert_allclose(np.bincount(policy.components, minlength=3) / 1e4, policy.weights, atol=0.03)
    with pytest.raises(cl.InputError, match="began 10000 episodes"):
        policy.act(np.zeros((4, 3)))


@pytest.mark.parametrize("head", ["discrete", "squashed"])
@pytest.mark.parametrize("wrong, said", [
    ([0.0, np.nan, 1.0], r"not finite at entry \(1,\)"), ([np.inf, 0, 0], "not finite"), ([1e39, 0, 0], "not finite"),
    ([0.0, 1.0], r"shape \(3,\), or \(n, 3\), got \(2,\)"), (np.zeros((2, 2, 3)), "shape"), ({"a": 1}, "got a dict"),
    (["a", "b", "c"], "real numbers"), (np.array([1j, 0, 0]), "real numbers"), (0.0, "shape"),
])  # fmt: skip
def test_what_is_no_observation_is_an_error(head: str, wrong: Any, said: str) -> None:
    policy = running(network_mixture(head, 1))
    for call in (policy.act, policy.predict):
        with pytest.raises(cl.InputError, match=said):
            call(wrong)


NUMBER = r"the observation must be the number of a state, 0 \.\. 4, got "
SHAPE = r"the observation must have shape \(\), or \(n\), got "


@pytest.mark.parametrize("wrong, said", [
    (5, NUMBER + r"\[5\]$"), (-1, NUMBER + r"\[-1\]$"), (1.0, NUMBER + r"\[1\.0\]$"), (np.nan, NUMBER + r"\[nan\]$"),
    (True, NUMBER + r"\[True\]$"), ([0, 7], NUMBER + r"\[0, 7\]$"), ([[0]], SHAPE + r"\(1, 1\)"),
    ({"s": 0}, SHAPE + "a dict"), ("a", "^this policy has no names of states: give the number of a state$"),
])  # fmt: skip
def test_what_is_no_state_is_an_error(wrong: Any, said: str) -> None:
    with pytest.raises(cl.InputError, match=said):
        running(table_mixture(1)).act(wrong)


# --------------------------------------------------------------------------------------------------- the certificate


def test_the_certificate_travels_in_the_file(tmp_path: Path) -> None:
    seen = certificate()
    for mixture in (table_mixture(2), network_mixture("squashed", 2)):
        mixture.save(tmp_path / "policy.npz", seen)
        found = cl.load_policy(tmp_path / "policy.npz").certificate
        assert found == replace(seen, proof=None)
        assert type(mixture).load(tmp_path / "policy.npz").M == 2  # and the library reads the same file
    mixture.save(tmp_path / "policy.npz")
    assert cl.load_policy(tmp_path / "policy.npz").certificate is None


def test_what_the_certificate_does_not_cover_is_said_once(tmp_path: Path) -> None:
    network_mixture("squashed", 1).save(tmp_path / "policy.npz", certificate())
    policy = cl.load_policy(tmp_path / "policy.npz")
    policy.act(np.zeros(3))
    with pytest.warns(cl.NotCertifiedWarning, match="actions that are drawn") as said:
        for _ in range(3):
            policy.act(np.zeros(3), deterministic=True)
            policy.predict(np.zeros(3), deterministic=True)
    assert len(said) == 1


@pytest.mark.parametrize("pi, greedy, covered", [
    ([[[1.0, 0.0]]], None, True), ([[[0.6, 0.4]]], "CERTIFIED", True),
    ([[[0.6, 0.4]]], "VIOLATED", False), ([[[0.6, 0.4]]], None, False),
])  # fmt: skip
def test_deterministic_tables_are_covered(pi: Any, greedy: Any, covered: bool, tmp_path: Path) -> None:
    cl.Mixture([1.0], pi).save(tmp_path / "policy.npz", replace(certificate(), greedy_verdict=greedy))
    policy = cl.load_policy(tmp_path / "policy.npz")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        policy.act(0, deterministic=True)
    assert bool(said) != covered
    assert covered or greedy is None or greedy in str(said[0].message)


def test_a_policy_that_is_not_certified_says_so_when_loaded(tmp_path: Path) -> None:
    table_mixture(1).save(tmp_path / "policy.npz", certificate(verdict="UNDECIDED"))
    with pytest.warns(cl.NotCertifiedWarning, match="not certified, its verdict is UNDECIDED"):
        cl.load_policy(tmp_path / "policy.npz")


# --------------------------------------------------------------------------------------------------------- the files


def test_a_run_folder_is_as_good_as_its_file(tmp_path: Path) -> None:
    solution = cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=50), out=tmp_path / "run")
    folder, file = cl.load_policy(tmp_path / "run"), cl.load_policy(tmp_path / "run/policy.npz")
    assert folder.certificate == file.certificate == replace(solution.certificate, proof=None)
    assert cl.run.load(tmp_path / "run").certificate == solution.certificate
    table_mixture(1).save(tmp_path / "run/policy.npz")
    with pytest.raises(cl.InputError, match="altered, its sha256"):
        cl.load_policy(tmp_path / "run")
    (tmp_path / "run/policy.npz").unlink()
    with pytest.raises(cl.InputError, match="is missing"):
        cl.load_policy(tmp_path / "run")


def test_policies_of_version_0_1_act() -> None:
    for folder in sorted(p.parent for p in VERSION_0_1.glob("run*/policy.npz")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.NotCertifiedWarning)
            policy = cl.load_policy(folder)
        policy.reset()
        policy.act(np.zeros(policy.obs_shape, int))
        assert policy.certificate is not None or not (folder / "certificate.json").exists()


@pytest.mark.parametrize("change, said", [
    ({"certificate": np.array("{")}, "certificate is no JSON"), ({"certificate": np.array("[1]")}, "no JSON object"),
    ({"certificate": np.array('{"verdict": "FINE"}')}, "verdict must be one of"), ({"theta": None}, "theta is missing"),
    ({"theta": np.zeros((1, 2))}, "its description asks for"), ({"theta": np.full((1, 195), np.nan)}, "theta"),
    ({"obs_mean": np.zeros(2)}, "the normaliser must have"), ({"weights": np.array([0.5])}, "weights"),
    ({"policy": np.array("{}")}, "its description cannot be read"), ({"policy": None, "theta": None}, "is missing"),
])  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    arrays = network_mixture("discrete", 1).arrays() | change
    save_npz(tmp_path / "p.npz", {k: v for k, v in arrays.items() if v is not None})
    with pytest.raises(cl.InputError, match=said) as e:
        cl.load_policy(tmp_path / "p.npz")
    assert str(e.value).startswith(str(tmp_path / "p.npz")) and "\n" not in str(e.value)


def test_loading_needs_numpy_alone(tmp_path: Path) -> None:
    """In a process of its own: neither JAX nor Gymnasium, numba, SciPy or an environment is loaded."""
    network_mixture("squashed", 2).save(tmp_path / "net.npz", certificate())
    table_mixture(2).save(tmp_path / "table.npz")
    code = """
import json, sys, clearance as cl
for name, obs in (("net", [0.0, 1.0, 2.0]), ("table", 1)):
    policy = cl.load_policy(f"{name}.npz")
    policy.reset()
    policy.act(obs)
cl.Monitor
print(json.dumps(sorted({m.partition(".")[0] for m in sys.modules})))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    heavy = {"jax", "jaxlib", "equinox", "optax", "gymnasium", "numba", "scipy", "highspy", "rich", "onnx", "ray"}
    assert "numpy" in loaded and not loaded & heavy


@pytest.mark.parametrize("M", [1, 3])
def test_tables_that_depend_on_the_step(M: int, tmp_path: Path) -> None:
    """Step t of an episode is drawn from pi[m, t], in `act` and in `predict`; there is no step after the last."""
    mixture = timed_mixture(M)
    mixture.save(tmp_path / "policy.npz")
    policy: Any = cl.load_policy(tmp_path / "policy.npz", seed=0)
    np.testing.assert_array_equal(policy.pi, mixture.pi)
    states = np.tile(np.arange(5), 40)
    for _ in range(2):
        policy.reset(len(states))
        for t in range(4):
            u = np.random.default_rng(t).random(len(states))
            cdf = np.cumsum(mixture.pi[policy.components, t, states], -1)
            expected = np.sum(cdf / cdf[:, -1:] <= u[:, None], -1)
            np.testing.assert_array_equal(policy.act(states, rng=np.random.default_rng(t)), expected)
    with pytest.raises(cl.InputError, match="the episode is over after 4 steps"):
        policy.act(states)
    greedy, state = mixture.pi.argmax(-1), None
    for t, began in enumerate([[True, True], [False, False], [False, True], [False, False]]):
        actions, state = policy.predict(np.array([1, 2]), state, np.array(began), deterministic=True)
        steps = t, t if t < 2 else t - 2
        assert actions.tolist() == [greedy[state[0][i], steps[i], s] for i, s in enumerate((1, 2))]
