"""Build ONNX graphs of policies: normaliser, network, action distribution and action in one file.

Inputs are `obs` [n, …], `noise` and, for mixtures, `component` [n], the index of the policy for each row. Outputs are
`action` [n, …] in the environment's form, and the parameters of the action distribution. The graph is deterministic:
the caller draws the noise and the component.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from clearance.certificates.certificate_fields import certificate_text
from clearance.core.action_draws import NormalDraws
from clearance.core.convolution import Front
from clearance.core.errors import MissingExtraError
from clearance.core.network_form import CLIP, LOG_STD, Parameters
from clearance.core.spaces import Box, Discrete, MultiDiscrete
from clearance.deploy.running_policy import NetworkRunner, RunningPolicy
from clearance.deploy.table_policy import TablePolicy
from clearance.deploy.timed_table import TimedTablePolicy

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError:
    raise MissingExtraError("onnx", "onnx") from None

OPSET, IR = 17, 8  # read by every runtime since 2022


class Graph:
    """A builder of an ONNX graph.

    Most methods add a constant or a node to the graph and return the name of its output.
    """

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def input(self, name: str, dtype: int, *shape: int) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, ["n", *shape]))
        return name

    def output(self, name: str, value: str, dtype: int, *shape: int) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, dtype, ["n", *shape]))

    def columns(self, x: str, begin: int, end: int) -> str:
        """Add a node for x[:, begin:end], and return the name of its output."""
        return self.node("Slice", x, *(self.constant(np.array([i], np.int64)) for i in (begin, end, 1)))

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.constant(np.array([-1, *shape], np.int64)))


def build_model(policy: RunningPolicy) -> Any:
    """Return the validated ONNX model of a policy; its metadata holds the mixture weights and the certificate."""
    graph = Graph()
    if isinstance(policy, TablePolicy):
        _add_table(graph, policy)
    else:
        assert isinstance(policy, NetworkRunner)
        _add_network(graph, policy)
    made = helper.make_graph(graph.nodes, "policy", graph.inputs, graph.outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    model.producer_name = "clearance"
    texts = {"weights": str(policy.weights.tolist())}
    texts |= {} if policy.certificate is None else {"certificate": certificate_text(policy.certificate)}
    helper.set_model_props(model, texts)
    onnx.checker.check_model(model, full_check=True)
    return model


def _add_table(graph: Graph, policy: TablePolicy) -> None:
    """Add a policy table π to the graph: take the row of the state, and draw an action from it.

    The input `noise` is uniform in [0, 1]. The action is the first one whose cumulative probability in the row exceeds
    the noise.
    """
    M, S, A = policy.M, policy.pi.shape[-2], policy.pi.shape[-1]
    H = policy.H if isinstance(policy, TimedTablePolicy) else 1
    row = graph.input("obs", TensorProto.INT64)
    noise = graph.reshape(graph.input("noise", TensorProto.DOUBLE), 1)
    for name, there, stride in (("t", isinstance(policy, TimedTablePolicy), S), ("component", M > 1, H * S)):
        if there:
            index = graph.input(name, TensorProto.INT64)
            row = graph.node("Add", row, graph.node("Mul", index, graph.constant(np.int64(stride))))
    pi = policy.pi.reshape(M * H * S, A)
    pi = pi / pi.sum(-1, keepdims=True)
    cdf = np.cumsum(pi, -1)
    below = graph.node("LessOrEqual", graph.node("Gather", graph.constant(cdf / cdf[:, -1:]), row), noise)
    whole = graph.node("Cast", below, to=TensorProto.INT64)
    action = graph.node("ReduceSum", whole, graph.constant(np.array([1], np.int64)), keepdims=0)
    graph.output("action", action, TensorProto.INT64)
    graph.output("probabilities", graph.node("Gather", graph.constant(pi), row), TensorProto.DOUBLE, A)


def _add_network(graph: Graph, policy: NetworkRunner) -> None:
    z = _normalised(graph, policy)
    component = graph.input("component", TensorProto.INT64) if policy.M > 1 else None
    parameters = [policy.form.split(theta) for theta in policy.theta]
    z = z if policy.form.front is None else _convolved(graph, policy.form.front, z, parameters, component)
    for i in range(len(parameters[0].layers)):
        weight, bias = (np.stack([p.layers[i][k] for p in parameters]) for k in (0, 1))
        z = graph.node("Tanh", z) if i else z
        z = _linear(graph, z, weight.transpose(0, 2, 1), bias, component)
    if isinstance(policy.form.head, NormalDraws):
        log_std = None if parameters[0].log_std is None else np.stack([p.log_std for p in parameters])
        _add_normal(graph, policy, z, log_std, component)
    else:
        _add_choices(graph, policy, z)


def _normalised(graph: Graph, policy: NetworkRunner) -> str:
    """Add nodes that flatten and normalise the observations; return the name of their output."""
    obs = graph.reshape(graph.input("obs", TensorProto.FLOAT, *policy.form.obs_shape), policy.form.inputs)
    mean, var, count = policy.normaliser
    z = graph.node("Div", graph.node("Sub", obs, graph.constant(mean)), graph.constant(np.sqrt(var)))
    return _clipped(graph, z, np.float32(-CLIP), np.float32(CLIP)) if count > 0 else z


def _convolved(graph: Graph, front: Front, z: str, parameters: list[Parameters], component: str | None) -> str:
    """Add the convolutions for observations z to the graph, and return the name of their output.

    For a mixture, the convolutions of all policies are computed. Each row then selects the policy that the input
    `component` names; `component` is None for a single policy.
    """
    size, (height, width, channels) = front.image.size, front.image.pixels
    order = [*(a + 1 for a in front.image.axes[2:]), *(a + 1 for a in front.image.axes[:2])]
    x = graph.reshape(graph.columns(z, 0, size), *front.image.shape)
    image = graph.reshape(graph.node("Transpose", x, perm=[0, *order]), channels, height, width)
    found = []
    for own in parameters:
        x = image
        for (weight, bias), (_, k, s) in zip(own.conv, front.layers, strict=True):
            kernel = graph.constant(np.transpose(weight, (0, 3, 1, 2)))
            x = graph.node("Conv", x, kernel, graph.constant(bias), kernel_shape=[k, k], strides=[s, s])
            x = graph.node("Tanh", x)
        found.append(graph.reshape(graph.node("Transpose", x, perm=[0, 2, 3, 1]), front.features - front.rest))
    x = found[0]
    if component is not None:
        M, features = len(found), front.features - front.rest
        ends = graph.constant(np.array([0, 1], np.float32))
        chosen = graph.node("OneHot", component, graph.constant(np.array([M], np.int64)), ends, axis=1)
        all_of_them = graph.reshape(graph.node("Concat", *found, axis=1), M, features)
        each = graph.node("Mul", all_of_them, graph.reshape(chosen, M, 1))
        x = graph.node("ReduceSum", each, graph.constant(np.array([1], np.int64)), keepdims=0)
    return x if not front.rest else graph.node("Concat", x, graph.columns(z, size, size + front.rest), axis=1)


def _linear(graph: Graph, z: str, weight: Any, bias: Any, component: str | None) -> str:
    """Add a linear layer, z [n, in] times weight [M, in, out] plus bias [M, out]; return the name of its output.

    component  the input that holds each row's index among the M policies of a mixture; None for a single policy
    """
    if component is None:
        return graph.node("Add", graph.node("MatMul", z, graph.constant(weight[0])), graph.constant(bias[0]))
    a, b = weight.shape[1:]
    each = graph.node("Gather", graph.constant(weight), component)
    product = graph.reshape(graph.node("MatMul", graph.reshape(z, 1, a), each), b)
    return graph.node("Add", product, graph.node("Gather", graph.constant(bias), component))


def _add_choices(graph: Graph, policy: NetworkRunner, logits: str) -> None:
    """Add the choice of discrete actions: for each part of an action, the index of the largest logit + noise.

    The sum is computed in float64, as in the library.
    """
    head, space = policy.form.head, policy.form.space
    assert isinstance(space, Discrete | MultiDiscrete)
    noise = graph.input("noise", TensorProto.DOUBLE, head.size)
    total = graph.node("Add", graph.node("Cast", logits, to=TensorProto.DOUBLE), noise)
    ends = np.cumsum((0, *head.nvec)).tolist()
    parts = [graph.columns(total, a, b) for a, b in pairwise(ends)]
    chosen = [graph.node("ArgMax", part, axis=1, keepdims=1) for part in parts]
    action = graph.node("Concat", *chosen, axis=1) if len(chosen) > 1 else chosen[0]
    start = np.asarray(space.start or 0, np.int64)
    shape = space.shape if isinstance(space, Discrete) else space.form or space.shape
    action = graph.reshape(graph.node("Add", action, graph.constant(start)), *shape)
    graph.output("action", action, TensorProto.INT64, *shape)
    graph.output("logits", logits, TensorProto.FLOAT, head.size)


def _add_normal(graph: Graph, policy: NetworkRunner, y: str, log_std: Any, component: str | None) -> None:
    """Add real actions, mean + σ · noise, to the graph.

    They are squashed by tanh if the box has both bounds, and clipped if it has one.

    y          the output of the last layer: the mean and, if σ depends on the state, log σ
    log_std    log σ [M, m] if it is learned and the same in all states; else None
    component  the input that holds each row's index among the M policies of a mixture; None for a single policy
    """
    head, design = policy.form.head, policy.form.design
    noise = graph.input("noise", TensorProto.FLOAT, head.m)
    start, mean = np.float32(np.log(design.std)), graph.columns(y, 0, head.m)
    if design.scale == "state":
        scale = graph.node("Add", graph.columns(y, head.m, 2 * head.m), graph.constant(start))
    else:
        own = np.full((policy.M, head.m), start, np.float32) if log_std is None else log_std
        zero = graph.node("Mul", mean, graph.constant(np.float32(0)))  # zeros, one row per observation
        rows = graph.constant(own[0]) if component is None else graph.node("Gather", graph.constant(own), component)
        scale = graph.node("Add", zero, rows)
    scale = _clipped(graph, scale, *map(np.float32, LOG_STD))
    u = graph.node("Add", mean, graph.node("Mul", graph.node("Exp", scale), noise))
    space = policy.form.space
    assert isinstance(space, Box)
    shape = space.form or space.shape
    graph.output("action", graph.reshape(_bounded(graph, u, space), *shape), TensorProto.FLOAT, *shape)
    graph.output("mean", mean, TensorProto.FLOAT, head.m)
    graph.output("log_std", scale, TensorProto.FLOAT, head.m)


def _bounded(graph: Graph, u: str, box: Box) -> str:
    low, high = (np.where(box.bounded, x, 0).astype(np.float32) for x in (box.low, box.high))
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    inside = graph.node("Add", graph.node("Mul", graph.node("Tanh", u), graph.constant(half)), graph.constant(middle))
    return _clipped(
        graph,
        graph.node("Where", graph.constant(box.bounded), inside, u),
        *(x.astype(np.float32) for x in (box.low, box.high)),
    )


def _clipped(graph: Graph, x: str, low: Any, high: Any) -> str:
    return graph.node("Min", graph.node("Max", x, graph.constant(low)), graph.constant(high))
