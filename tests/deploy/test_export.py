"""Exported policies: ONNX by its runtime and JSON by plain Python, against the library's own actions."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployed import HEADS, SHAPES, network_mixture, table_mixture, timed_mixture

import clearance as cl
from clearance.deploy.policy_file import restore_policy, running
from clearance.deploy.running_policy import NetworkRunner, TablePolicy

N = 10_000


def session(path: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path: Path, **given: Any) -> dict[str, Any]:
    s = session(path)
    used = {i.name: given[i.name] for i in s.get_inputs()}
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, used), strict=True))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("M", [1, 3])
def test_onnx_acts_as_the_library(head: str, M: int, tmp_path: Path) -> None:
    """On 10⁴ observations: the same noise and components give the same actions; choices but for ties of rounding."""
    pytest.importorskip("onnx")
    policy = running(network_mixture(head, M))
    assert isinstance(policy, NetworkRunner)
    cl.export_policy(policy, tmp_path / "policy.onnx")
    rng = np.random.default_rng(4)
    obs = rng.normal(0, 2, (N, *SHAPES[head])).astype(np.float32)
    policy.reset(N, rng)
    noise = policy.form.head.plain_noise(np.random.default_rng(5), N)
    found = run(tmp_path / "policy.onnx", obs=obs, noise=noise, component=policy.components)
    action = policy.act(obs, rng=np.random.default_rng(5))
    out = policy._outputs(np.asarray(policy.components), obs)
    assert found["action"].shape == action.shape and found["action"].dtype == action.dtype
    if "logits" in found:
        np.testing.assert_allclose(found["logits"], out, rtol=1e-4, atol=1e-4)
        parts = [np.sort(p, -1) for p in policy.form.head.parts(out + noise)]
        clear = np.all([p[:, -1] - p[:, -2] > 1e-3 for p in parts], axis=0)
        assert clear.mean() > 0.98
        np.testing.assert_array_equal(found["action"][clear], action[clear])
    else:
        np.testing.assert_allclose(np.concatenate([found["mean"], found["log_std"]], -1), out, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["action"], action, rtol=1e-4, atol=1e-3)
    still = run(tmp_path / "policy.onnx", obs=obs, noise=0 * noise, component=policy.components)["action"]
    same = np.isclose(still, policy.act(obs, deterministic=True), rtol=1e-4, atol=1e-4)
    assert same.mean() > 0.999


@pytest.mark.parametrize("M", [1, 3])
def test_onnx_tables_that_depend_on_the_step(M: int, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy: Any = running(timed_mixture(M))
    cl.export_policy(policy, tmp_path / "policy.onnx")
    policy.reset(N)
    states, noise = np.random.default_rng(6).integers(0, 5, N), np.random.default_rng(7).random(N)
    for t in range(4):
        given = {"obs": states, "noise": noise, "component": policy.components, "t": np.full(N, t)}
        action = policy.act(states, rng=np.random.default_rng(7))
        np.testing.assert_array_equal(run(tmp_path / "policy.onnx", **given)["action"], action)


@pytest.mark.parametrize("M", [1, 3])
def test_onnx_tables_act_as_the_library(M: int, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    policy = running(table_mixture(M))
    assert isinstance(policy, TablePolicy)
    cl.export_policy(policy, tmp_path / "policy.onnx")
    states = np.random.default_rng(6).integers(0, 5, N)
    policy.reset(N)
    noise = np.random.default_rng(7).random(N)
    found = run(tmp_path / "policy.onnx", obs=states, noise=noise, component=policy.components)
    np.testing.assert_array_equal(found["action"], policy.act(states, rng=np.random.default_rng(7)))
    np.testing.assert_allclose(found["probabilities"], policy.pi[policy.components, states], atol=1e-15)


def test_onnx_is_opened_in_another_process_without_clearance(tmp_path: Path) -> None:
    """One observation at a time, and the certificate from the metadata."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = cl.zoo.two_state()
    best = cl.optimum(model).policy
    seen = replace(cl.certify(model, best), greedy_verdict=None)
    policy = restore_policy(network_mixture("squashed", 1).arrays(), seen)
    cl.export_policy(policy, tmp_path / "policy.onnx")
    code = """
import json, sys, numpy as np, onnxruntime
s = onnxruntime.InferenceSession("policy.onnx", providers=["CPUExecutionProvider"])
(action, *_) = s.run(["action"], {"obs": np.ones((1, 3), "f"), "noise": np.zeros((1, 2), "f")})
said = json.loads(s.get_modelmeta().custom_metadata_map["certificate"])
print(json.dumps([action[0].tolist(), said["verdict"], "clearance" in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    action, verdict, ours = json.loads(done.stdout)
    with pytest.warns(cl.NotCertifiedWarning):
        np.testing.assert_allclose(action, policy.act(np.ones(3), deterministic=True), rtol=1e-5)
    assert verdict == "CERTIFIED" and not ours


# ------------------------------------------------------------------------------------------------------------- JSON


def convolve(conv: dict[str, Any], slots: dict[str, Any], theta: list[float], z: list[float]) -> list[float]:
    """The convolutions by what docs/how_to/deploy_a_policy.md says of them, one number at a time."""
    shape, axes = conv["shape"], conv["axes"]
    steps = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    sizes = [shape[a] for a in axes]
    rest = [(i, steps[a]) for a in axes[2:] for i in [shape[a]]]

    def pixel(y: int, x: int, c: int) -> float:
        at = y * steps[axes[0]] + x * steps[axes[1]]
        for n, step in reversed(rest):
            c, i = divmod(c, n)
            at += i * step
        return z[at]

    height, width, channels = sizes[0], sizes[1], math.prod(sizes[2:])
    grid = [[[pixel(y, x, c) for c in range(channels)] for x in range(width)] for y in range(height)]
    for i, (outputs, k, stride) in enumerate(conv["layers"]):
        at, bias, inputs = slots[f"conv.{i}.weight"]["offset"], slots[f"conv.{i}.bias"]["offset"], len(grid[0][0])
        rows, columns = (len(grid) - k) // stride + 1, (len(grid[0]) - k) // stride + 1

        def value(o: int, y: int, x: int, at: int = at, k: int = k, s: int = stride, inputs: int = inputs,
                  bias: int = bias, grid: Any = grid) -> float:  # fmt: skip
            terms = ((a, b, c) for a in range(k) for b in range(k) for c in range(inputs))
            w = lambda a, b, c: theta[at + ((o * k + a) * k + b) * inputs + c]  # noqa: E731
            return math.tanh(sum(w(a, b, c) * grid[s * y + a][s * x + b][c] for a, b, c in terms) + theta[bias + o])

        grid = [[[value(o, y, x) for o in range(outputs)] for x in range(columns)] for y in range(rows)]
    return [v for row in grid for column in row for v in column]


def most_likely(data: dict[str, Any], m: int, obs: list[float]) -> list[float]:
    """The mean or the logits at an observation, as docs/how_to/deploy_a_policy.md describes the file, without NumPy."""
    theta, norm = data["theta"][m], data["normaliser"]
    slots = {s["name"]: s for s in data["layout"]}
    z = [(x - a) / math.sqrt(v) for x, a, v in zip(obs, norm["mean"], norm["var"], strict=True)]
    if norm["clip"] is not None:
        z = [min(max(x, -norm["clip"]), norm["clip"]) for x in z]
    z = z if data["conv"] is None else convolve(data["conv"], slots, theta, z)
    count = sum(name.startswith("layers") and name.endswith("weight") for name in slots)
    for i in range(count):
        rows, columns = slots[f"layers.{i}.weight"]["shape"]
        at, bias = slots[f"layers.{i}.weight"]["offset"], slots[f"layers.{i}.bias"]["offset"]
        y = [sum(theta[at + r * columns + c] * z[c] for c in range(columns)) + theta[bias + r] for r in range(rows)]
        z = y if i == count - 1 else [math.tanh(x) for x in y]
    return z


@pytest.mark.parametrize("head", HEADS)
def test_json_has_all_that_is_needed(head: str, tmp_path: Path) -> None:
    mixture = network_mixture(head, 2)
    cl.export_policy(mixture, tmp_path / "policy.json")
    data = json.loads((tmp_path / "policy.json").read_text())
    sizes = [math.prod(s["shape"]) for s in data["layout"]]
    assert [s["offset"] for s in data["layout"]] == [sum(sizes[:i]) for i in range(len(sizes))]
    assert sum(sizes) == len(data["theta"][0]) == mixture.policy.d
    for m, out in enumerate(mixture.outs):
        for obs in np.random.default_rng(8).normal(0, 2, (5, *SHAPES[head])):
            y = most_likely(data, m, np.ravel(obs).astype(np.float32).tolist())
            first = len(y) if data["gaussian"] is None else len(data["action"]["low"])  # the mean, before log σ
            np.testing.assert_allclose(y[:first], out(obs[None])[0][:first], rtol=1e-4, atol=1e-4)


def test_json_of_a_table_and_wrong_names(tmp_path: Path) -> None:
    mixture = table_mixture(2)
    cl.export_policy(mixture, tmp_path / "policy.json")
    data = json.loads((tmp_path / "policy.json").read_text())
    np.testing.assert_array_equal(data["pi"], mixture.pi)
    np.testing.assert_array_equal(data["weights"], mixture.weights)
    for path, policy, said in (("policy.txt", mixture, "ends with .onnx or .json"), ("a.json", 3, "policy must be")):
        with pytest.raises(cl.InputError, match=said):
            cl.export_policy(policy, tmp_path / path)
    assert not (tmp_path / "a.json").exists() and not (tmp_path / "policy.txt").exists()
