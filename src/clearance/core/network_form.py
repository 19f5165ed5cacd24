"""Policy networks without any framework: their shape, the layout of θ, and their outputs in NumPy.

    z = clip((obs − mean)/√var, ±10),     z ← tanh(W z + b) for each layer, but no tanh after the last one

Images first go through convolutions (`clearance.core.convolution`). θ [d] holds, in this order: the kernels [outputs,
width, width, inputs] and biases [outputs] of the convolutions, if there are any; for each layer, W [outputs, inputs]
row by row and b [outputs]; at the end log σ [m], if the scale is "free".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np

from clearance.core.action_draws import NormalDraws, draws_of
from clearance.core.array_files import max_memory
from clearance.core.atomic_files import parse_json
from clearance.core.convolution import Front, Layer, apply_convolutions, find_image, read_layers
from clearance.core.cost_memory import CostMemory
from clearance.core.errors import InputError
from clearance.core.spaces import Space, describe_space, restore_space

Scale = Literal["free", "state", "fixed"]
CLIP = 10.0  # normalised observations are clipped at this number of standard deviations
LOG_STD = (-5.0, 2.0)  # the range of log σ
ARRAYS = ("weights", "theta", "policy", "obs_mean", "obs_var", "obs_count")  # the arrays of a policy file
RULE_NAME = "rule"  # in a policy file, the name of a rule written by the user; the last of the weights is its weight


@dataclass(frozen=True)
class Architecture:
    """The layers and the scale σ of a policy network, without its observation shape and action space."""

    kind: Literal["categorical", "gaussian", "auto"] = "auto"
    hidden: tuple[int, ...] = (64, 64)
    scale: Scale = "free"
    std: float = 0.6
    normalise: bool = True
    conv: tuple[Layer, ...] | None = None  # None: chosen by the shape of the observations

    def __post_init__(self) -> None:
        object.__setattr__(self, "conv", read_layers(self.conv))
        object.__setattr__(self, "hidden", tuple(int(n) for n in self.hidden))
        if any(n < 1 for n in self.hidden):
            raise InputError(f"hidden must hold widths of at least 1, got {self.hidden}")
        if self.scale not in ("free", "state", "fixed"):
            raise InputError(f"scale must be 'free', 'state' or 'fixed', got {self.scale!r}")
        least, most = np.exp(LOG_STD)
        if not least <= self.std <= most:
            raise InputError(f"std must be between {least:.2g} and {most:.2g}, got {self.std!r}: choose other units")


class Slot(NamedTuple):
    """The name, shape and first index (`offset`) of one array in the parameter vector θ."""

    name: str
    shape: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        return self.offset + math.prod(self.shape)


class Parameters(NamedTuple):
    """The parameter vector θ as arrays.

    layers   (W [outputs, inputs], b [outputs]) of each layer
    log_std  log σ [m] if it is a parameter of its own, else None
    conv     (kernels, biases) of each convolution
    """

    layers: list[tuple[Any, Any]]
    log_std: Any
    conv: list[tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class NetworkForm:
    """A network that maps observations of one shape to a distribution over one action space.

    design  the layers and the scale σ of the network (an `Architecture`)
    memory  names and scales of the costs so far, if they are inputs of the policy; obs_shape then includes them
    """

    obs_shape: tuple[int, ...]
    space: Space
    design: Any
    memory: CostMemory | None = field(default=None, kw_only=True)
    architecture: ClassVar[type[Architecture]] = Architecture

    @cached_property
    def head(self) -> Any:
        return draws_of(self.space)

    @property
    def inputs(self) -> int:
        return math.prod(int(n) for n in self.obs_shape)

    @cached_property
    def front(self) -> Front | None:
        """The convolutional layers; None if there are none."""
        if not self.design.conv:
            return None
        image = find_image(self.obs_shape if self.memory is None else self.memory.obs_shape)
        return Front(image, self.design.conv, self.inputs - image.size)

    @property
    def layer_sizes(self) -> tuple[int, ...]:
        head = self.head
        outputs = head.size if not isinstance(head, NormalDraws) or self.design.scale == "state" else head.m
        return (self.inputs if self.front is None else self.front.features, *self.design.hidden, outputs)

    @property
    def weight_count(self) -> int:
        """The number of weights and biases, computed without allocating them; a free log σ is not counted."""
        kernels = [] if self.front is None else self.front.shapes
        return sum((a + 1) * b for a, b in pairwise(self.layer_sizes)) + sum(math.prod(s) + s[0] for s in kernels)

    @property
    def layout(self) -> list[Slot]:
        """The position of each array in θ [d], in order and without gaps."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, kernel in enumerate([] if self.front is None else self.front.shapes):
            shapes |= {f"conv.{i}.weight": kernel, f"conv.{i}.bias": kernel[:1]}
        for i, (a, b) in enumerate(pairwise(self.layer_sizes)):
            shapes |= {f"layers.{i}.weight": (b, a), f"layers.{i}.bias": (b,)}
        if isinstance(self.head, NormalDraws) and self.design.scale == "free":
            shapes["log_std"] = (self.head.m,)
        slots, at = [], 0
        for name, shape in shapes.items():
            slots.append(Slot(name, shape, at))
            at = slots[-1].end
        return slots

    @property
    def d(self) -> int:
        """The number of parameters."""
        return self.layout[-1].end

    def split(self, theta: Any) -> Parameters:
        """Return the parameter vector θ [d] as the arrays of each layer."""
        parts = {s.name: theta[s.offset : s.end].reshape(s.shape) for s in self.layout}
        layers = [(parts[f"layers.{i}.weight"], parts[f"layers.{i}.bias"]) for i in range(len(self.layer_sizes) - 1)]
        kernels = 0 if self.front is None else len(self.front.layers)
        conv = [(parts[f"conv.{i}.weight"], parts[f"conv.{i}.bias"]) for i in range(kernels)]
        return Parameters(layers, parts.get("log_std"), conv)

    def complete(self, y: Any, log_std: Any, xp: Any) -> Any:
        """Return the parameters of the action distribution, in the form that `ChoiceDraws` or `NormalDraws` reads.

        y are the outputs of the last layer. For normal distributions the result is (mean, log σ); `log_std` is log σ if
        it is a free parameter. `xp` is the array library: NumPy or JAX.
        """
        head, start = self.head, np.float32(np.log(self.design.std))
        if not isinstance(head, NormalDraws):
            return y
        mean = y[..., : head.m]
        if self.design.scale == "state":
            log_std = y[..., head.m :] + start
        elif self.design.scale == "fixed":
            log_std = xp.full_like(mean, start)
        return xp.concatenate([mean, xp.broadcast_to(xp.clip(log_std, *LOG_STD), mean.shape)], -1)

    def flat(self, obs: Any) -> Any:
        """Return observations [..., *obs_shape] as vectors [..., inputs]."""
        return obs.reshape(*obs.shape[: obs.ndim - len(self.obs_shape)], self.inputs)

    def plain(self, theta: Any, normaliser: Any, dtype: Any = np.float32) -> Callable[[Any], Any]:
        """Return a NumPy function from observations [n, …] to the parameters [n, size] of the action distribution.

        `normaliser` is (mean, var, count) of the observations. Use this function to take one step at a time: then a
        compiled call would take longer than the network itself.
        """
        parameters = self.split(np.asarray(theta).astype(dtype))
        layers = [(weight.T.copy(), bias) for weight, bias in parameters.layers]
        mean, var, count = (np.asarray(x) for x in normaliser)

        def out(obs: Any) -> Any:
            z = normalise(self.flat(np.asarray(obs, np.float32)), mean, var, count, np)
            if self.front is not None:
                z = apply_convolutions(z, self.front, parameters.conv)
            for weight, bias in layers[:-1]:
                z = np.tanh(z @ weight + bias)
            return self.complete(z @ layers[-1][0] + layers[-1][1], parameters.log_std, np)

        return out

    def description(self) -> str:
        """Return the policy's structure as JSON. Together with θ and the normaliser it determines the policy."""
        d = self.design
        design = {"kind": d.kind, "hidden": list(d.hidden), "scale": d.scale, "std": d.std, "normalise": d.normalise}
        design |= {"conv": [list(layer) for layer in d.conv]} if d.conv else {}
        more = {} if self.memory is None else {"memory": self.memory.describe()}
        said = {"obs_shape": list(self.obs_shape), "action": describe_space(self.space), "design": design}
        return json.dumps(said | more)

    @classmethod
    def from_description(cls, text: str) -> Self:
        try:
            data = parse_json(text)
            design = cls.architecture(**{"conv": (), **data["design"], "hidden": tuple(data["design"]["hidden"])})
            memory = CostMemory.restore(data["memory"]) if data.get("memory") is not None else None
            policy = cls(tuple(data["obs_shape"]), restore_space(data["action"]), design, memory=memory)
            if memory is not None and policy.inputs != memory.inputs:
                raise ValueError(f"{policy.inputs} inputs, its memory asks for {memory.inputs}")
            size = 8 * policy.weight_count
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            raise InputError(f"policy: its description cannot be read ({type(e).__name__}: {e})") from None
        if size > max_memory(0):
            raise InputError(f"policy: its description asks for a network of {size / 1e9:.3g} GB: see --max-memory")
        return policy


def explain_missing_rule(name: str, share: float) -> str:
    """Return an error message for a policy file that names a rule (a user's Python function) that was not given.

    `share` is the share of episodes that follow the rule.
    """
    part = "is" if share == 1 else f"follows, in {share:.3g} of its episodes,"
    return f"this policy {part} the rule {name}, whose code is not in the file: give it with load_policy(path, rule=…)"


def most_numbers(shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Return the largest allowed number of entries of each array in a policy file, by name.

    The numbers follow from the shape of the array "theta"; `shapes` holds the shapes of the arrays by name.
    """
    inputs, M = math.prod(shapes.get("theta", (0,))[-1:]), (shapes.get("theta") or (0,))[0]
    return {"obs_mean": inputs, "obs_var": inputs, "obs_count": 1, "weights": M + 1, "policy": 1, RULE_NAME: 1}


def normalise(obs: Any, mean: Any, var: Any, count: Any, xp: Any) -> Any:
    """Return (obs − mean)/√var, clipped to ±`CLIP`.

    `count` is the number of observations behind mean and var; if it is 0, nothing is clipped. `xp` is the array
    library: NumPy or JAX.
    """
    most = xp.where(count > 0, np.float32(CLIP), np.float32(np.inf))
    return xp.clip((obs - mean) / xp.sqrt(var), -most, most)
