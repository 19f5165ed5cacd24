"""Network policies π_θ on simulators: a network (or linear map) from observations to an action distribution.

    z = (obs − mean)/sd of the frozen normaliser,     out = network_θ(z),     u ~ head(out),     action = head.action(u)

A head is a family of action distributions. The network is an Equinox module, and the flat vector θ [d] contains its
leaves in order. θ is float64 between iterations; inside JAX it has JAX's float type (default: float32).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jax.flatten_util import ravel_pytree

from clearance.core.arrays import Array
from clearance.core.convolution import Front, Layer, apply_convolutions, choose_layers
from clearance.core.cost_memory import CostMemory
from clearance.core.errors import InputError
from clearance.core.network_form import Architecture, NetworkForm, Scale, normalise
from clearance.core.spaces import Discrete, Space
from clearance.simulator.jax_backend import eqx, jax, jnp, real
from clearance.simulator.policies.action_heads import Gaussian, Head, head_of

STILL, END, SURE = 0.01, 3.0, 12.0  # constant policies: σ, the latent of an end of the box, the logit of an action
FEW = 5  # up to this many discrete actions, there is one constant policy for each action


class Normaliser(NamedTuple):
    """Mean and variance of each entry of the observation, and the number of observations seen (0: no normalisation)."""

    mean: Any
    var: Any
    count: Any

    @classmethod
    def identity(cls, size: int) -> Normaliser:
        return cls(np.zeros(size, np.float32), np.ones(size, np.float32), np.zeros((), np.float32))

    def __call__(self, obs: Any, xp: Any = jnp) -> Any:
        return normalise(obs, *self, xp)

    def joined(self, obs: Any, weight: Any) -> Normaliser:
        """Return the normaliser after it has seen more observations [N, size] (Chan 1979).

        weight  an array [N]: 1 for the rows that count, 0 for the others
        """
        n = jnp.sum(weight)
        mean = weight @ obs / n
        var = weight @ (obs - mean) ** 2 / n
        total = self.count + n
        apart = mean - self.mean
        spread = (self.count * self.var + n * var + apart**2 * self.count * n / total) / total
        return Normaliser(self.mean + apart * n / total, jnp.maximum(spread, 1e-8), total)


class Net(eqx.Module):
    """A network: optional convolutions, then linear layers with tanh between them.

    It also holds log σ if the policy's standard deviation σ is learned and the same in all states.
    """

    conv: list[Any]
    layers: list[Any]
    log_std: Any
    front: Front | None = eqx.field(static=True, default=None)

    def features(self, z: Any) -> Any:
        """Return the inputs of the first linear layer [n, features] for normalised observations z [n, inputs].

        These are the outputs of the convolutions, or z itself without convolutions.
        """
        if self.front is None:
            return z
        return apply_convolutions(z, self.front, self.conv, jnp)

    def __call__(self, z: Any) -> Any:
        z = z if self.front is None else self.features(z[None])[0]
        for layer in self.layers[:-1]:
            z = jnp.tanh(layer(z))
        return self.layers[-1](z)


def network(key: Any, sizes: Sequence[int], last: float) -> list[Any]:
    """Return linear layers; `sizes` lists the numbers of inputs, of hidden units in each layer, and of outputs.

    The weights are orthogonal, with the gain `last` in the last layer and √2 in all other layers. The biases are 0.
    """
    layers = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        gain = last if i == len(sizes) - 2 else 2**0.5
        weight = jax.nn.initializers.orthogonal(gain)(jax.random.fold_in(key, i), (b, a))
        layer = eqx.filter_eval_shape(eqx.nn.Linear, a, b, key=key)  # no initial weights are drawn: they are replaced
        layers.append(eqx.tree_at(lambda x: (x.weight, x.bias), layer, (weight, jnp.zeros(b))))
    return layers


def kernels(key: Any, front: Front | None) -> list[Any]:
    """Return initial (weights, biases) for each of the convolutions `front`; an empty list if `front` is None.

    The weights are orthogonal with gain √2, and the biases are 0.
    """
    found = []
    for i, shape in enumerate([] if front is None else front.shapes):
        rows = shape[0], int(np.prod(shape[1:]))
        weight = jax.nn.initializers.orthogonal(2**0.5)(jax.random.fold_in(key, 1000 + i), rows)
        found.append((weight.reshape(shape), jnp.zeros(shape[0])))
    return found


class Design(Architecture):
    """The architecture of a policy before its simulator is known; made by `categorical` and `gaussian`."""

    def fitted(
        self, obs_shape: tuple[int, ...], space: Space, seed: int = 0, memory: CostMemory | None = None
    ) -> NetworkPolicy:
        """Return the policy with this architecture for a shape of observations and an action space.

        If policies see the costs so far, `memory` says where these are in the observations; else it is None.
        """
        kind = "gaussian" if isinstance(head_of(space), Gaussian) else "categorical"
        if self.kind not in ("auto", kind):
            raise InputError(f"policy is {self.kind}, the actions are {type(space).__name__}: use {kind}()")
        conv = (
            choose_layers(tuple(obs_shape) if memory is None else memory.obs_shape) if self.conv is None else self.conv
        )
        design = replace(self, kind=kind, conv=conv)
        return NetworkPolicy(tuple(obs_shape), space, design, int(seed), memory=memory)


def categorical(
    hidden: Sequence[int] = (64, 64), normalise: bool | None = None, conv: Sequence[Layer] | None = None
) -> Design:
    """Return a softmax policy class for discrete or multi-discrete actions.

    hidden     the sizes of the hidden layers; () makes the network a linear map of the observation
    normalise  whether observations are normalised (default: yes, except for linear policies)
    conv       convolutions (channels, kernel, stride) for images. Default: two small layers for observations [height,
               width, channels] or [frames, height, width] of 8 pixels or more, none for others. () means none
    """
    layers = None if conv is None and hidden else tuple(conv or ())
    return Design("categorical", tuple(hidden), normalise=bool(hidden) if normalise is None else normalise, conv=layers)


def gaussian(
    hidden: Sequence[int] = (64, 64),
    scale: Scale = "free",
    std: float = 0.6,
    normalise: bool | None = None,
    conv: Sequence[Layer] | None = None,
) -> Design:
    """Return a Gaussian policy class for real actions; bounded actions are squashed into their bounds by tanh.

    hidden     the sizes of the hidden layers; () makes the network a linear map of the observation
    scale      "free": σ is learned and the same in all states;  "state": σ is a second output of the network;
               "fixed": σ stays at `std`
    std        initial σ, in units of half the width of the box, or of the action if it is not bounded
    normalise  whether observations are normalised (default: yes, except for linear policies)
    conv       convolutions for images, as in `categorical`
    """
    layers = None if conv is None and hidden else tuple(conv or ())
    return Design("gaussian", tuple(hidden), scale, std, bool(hidden) if normalise is None else normalise, layers)


@dataclass(frozen=True, eq=False)
class NetworkPolicy(NetworkForm):
    """A family of policies π_θ for one shape of observations and one action space; θ are a network's parameters."""

    design: Design
    seed: int = 0
    architecture = Design

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the policy by its description and seed.

        So each process has one copy of the policy, and compiles its programs once.
        """
        return _restore, (self.description(), self.seed)

    @cached_property
    def head(self) -> Head:
        return head_of(self.space)

    @property
    def _template(self) -> Net:
        """The network with its initial parameters; the last layer is near 0, so that no action is preferred."""
        d, head = self.design, self.head
        layers = network(jax.random.key(self.seed), self.layer_sizes, 0.01 if d.hidden else 0.0)
        free = isinstance(head, Gaussian) and d.scale == "free"
        log_std = jnp.full(head.m, np.log(d.std)) if free else None  # type: ignore[union-attr]
        return Net(kernels(jax.random.key(self.seed), self.front), layers, log_std, self.front)

    @cached_property
    def _ravelled(self) -> tuple[Array, Callable[[Any], Net]]:
        with jax.ensure_compile_time_eval():  # the first access may happen while a program is being compiled
            flat, back = ravel_pytree(self._template)
            return np.asarray(flat, float), back

    def init(self) -> Array:
        """Return the initial θ [d], drawn with the policy's seed."""
        return self._ravelled[0].copy()

    def constants(self) -> dict[str, Array]:
        """Return the parameters θ of policies that take nearly the same action in every state, by name.

        For bounded real actions, this action is 0, the lowest or the highest one. For discrete actions, there is one
        policy for each action. The dict is empty if the standard deviation σ is no part of θ, if real actions are
        not bounded, or if there are many discrete actions.
        """
        head, d = self.head, self.design
        if isinstance(head, Gaussian):
            if d.scale != "free" or not head.box.bounded.all():
                return {}
            low, high = head.box.low, head.box.high
            zero = {"doing nothing": np.arctanh(-(low + high) / (high - low))} if np.all((low < 0) & (high > 0)) else {}
            ends = {f"always the {word} action": np.full(head.m, x) for word, x in (("lowest", -END), ("highest", END))}
            return {name: self._constant(u) for name, u in (zero | ends).items()}
        n = head.size if isinstance(self.space, Discrete) else FEW + 1
        return {f"always action {a}": self._constant(SURE * np.eye(n)[a]) for a in range(n)} if n <= FEW else {}

    def _constant(self, bias: Array) -> Array:
        """Return θ of a policy with network outputs `bias` in every state; a learned standard deviation is near 0."""
        net = self.net(self.init())
        last = net.layers[-1]
        net = eqx.tree_at(
            lambda x: (x.layers[-1].weight, x.layers[-1].bias), net, (jnp.zeros_like(last.weight), real(bias))
        )
        if net.log_std is not None:
            net = eqx.tree_at(lambda x: x.log_std, net, jnp.full_like(net.log_std, np.log(STILL)))
        return np.asarray(ravel_pytree(net)[0], float)

    def renormalised(self, theta: Array, old: Normaliser, new: Normaliser) -> Array:
        """Return parameters that give, with the normaliser `new`, the same policy as `theta` with the normaliser `old`.

        Only the first layer changes.
        """
        net = self.net(theta)
        first = net.layers[0]
        ratio, shift = jnp.sqrt(new.var / old.var), (new.mean - old.mean) / jnp.sqrt(old.var)
        moved = (first.weight * ratio, first.bias + first.weight @ shift)
        net = eqx.tree_at(lambda x: (x.layers[0].weight, x.layers[0].bias), net, moved)
        return np.asarray(ravel_pytree(net)[0], float)

    def with_noise(self, theta: Array, least: float, most: float) -> Array:
        """Return θ with the standard deviation σ of actions clipped to [least, most] times its initial value.

        If σ is fixed or depends on the state, or if actions are discrete, θ is returned unchanged.
        """
        head, d = self.head, self.design
        if not isinstance(head, Gaussian) or d.scale != "free":
            return theta
        rest, log_std = np.split(theta, [-head.m])  # the network's last leaf
        return np.concatenate([rest, np.clip(log_std, np.log(least * d.std), np.log(most * d.std))])

    def net(self, theta: Any) -> Net:
        return self._ravelled[1](real(theta))

    def out(self, net: Net, z: Any) -> Any:
        """Return the parameters of the action distribution [size] at one normalised observation [inputs]."""
        return self.complete(net(z), net.log_std, jnp)

    def plain(self, theta: Any, normaliser: Any, dtype: Any = None) -> Callable[[Any], Any]:
        """Return a NumPy function obs [n, …] → parameters of the action distribution [n, size].

        It computes in the float type `dtype` (default: JAX's float type).
        """
        return super().plain(theta, normaliser, real(0.0).dtype if dtype is None else dtype)


@cache
def _restore(description: str, seed: int) -> NetworkPolicy:
    return replace(NetworkPolicy.from_description(description), seed=seed)
