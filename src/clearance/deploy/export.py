"""Export policies for other runtimes: as ONNX, or as plain JSON. docs/how_to/deploy_a_policy.md describes both."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from clearance.certificates.certificate_fields import certificate_text
from clearance.core.atomic_files import save_json, write_whole
from clearance.core.convolution import Front
from clearance.core.errors import InputError
from clearance.core.network_form import CLIP, LOG_STD
from clearance.core.spaces import describe_space
from clearance.deploy.policy_file import running
from clearance.deploy.rule_runner import RuleRunner
from clearance.deploy.running_policy import NetworkRunner, RunningPolicy
from clearance.deploy.table_policy import TablePolicy

SCHEMA = "clearance/policy-description/1"


def export_policy(policy: Any, path: str | os.PathLike[str]) -> None:
    """Write a policy for other runtimes, as `.onnx` (needs the extra `onnx`) or as `.json` (a plain description).

    policy  a mixture in memory, or a policy from `load_policy`, whose certificate is then written to the file too
    """
    acting, kind = running(policy), Path(path).suffix
    if isinstance(acting, RuleRunner):
        raise InputError(f"the rule {acting.name} is code, which cannot be exported: load_policy(path, rule=…) runs it")
    if kind == ".json":
        return save_json(path, describe_policy(acting))
    if kind != ".onnx":
        raise InputError(f"{path}: give a name that ends with .onnx or .json")
    from clearance.deploy.onnx_graph import build_model

    model = build_model(acting)
    with write_whole(path) as f:
        f.write(model.SerializeToString())


def describe_policy(policy: RunningPolicy) -> dict[str, Any]:
    """Return the policy as JSON data: everything that another language needs to compute its actions."""
    said = None if policy.certificate is None else json.loads(certificate_text(policy.certificate))
    common = {"schema": SCHEMA, "weights": policy.weights.tolist(), "certificate": said}
    if isinstance(policy, TablePolicy):
        return common | {"kind": "table", "pi": policy.pi.tolist()}
    assert isinstance(policy, NetworkRunner)
    return common | {"kind": "network", **_describe_network(policy)}


def _describe_front(front: Front | None) -> dict[str, Any] | None:
    """Return the shape and axes of image observations, and (channels, kernel, stride) of each convolution, for JSON.

    Return None if the network has no convolutions.
    """
    if front is None:
        return None
    return {"shape": list(front.image.shape), "axes": list(front.image.axes), "layers": [list(x) for x in front.layers]}


def _describe_network(policy: NetworkRunner) -> dict[str, Any]:
    form = policy.form
    mean, var, count = policy.normaliser
    layout = [{"name": s.name, "shape": list(s.shape), "offset": s.offset} for s in form.layout]
    design = {"scale": form.design.scale, "std": form.design.std, "log_std_range": list(LOG_STD)}
    memory = {} if policy.memory is None else {"memory": policy.memory.describe()}
    return memory | {
        "obs_shape": list(policy.obs_shape),
        "action": describe_space(form.space),
        "normaliser": {"mean": mean.tolist(), "var": var.tolist(), "clip": CLIP if count > 0 else None},
        "activation": "tanh",
        "conv": _describe_front(form.front),
        "gaussian": design if form.design.kind == "gaussian" else None,
        "layout": layout,
        "theta": policy.theta.tolist(),
    }
