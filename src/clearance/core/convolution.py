"""Convolutional layers in front of a policy network: finding image axes, choosing layers, and outputs in NumPy or JAX.

    x ← tanh(conv(x) + b) for each layer, without padding; then all channels of all pixels, row by row, as one vector

An image is [height, width, channels]. In stacked frames, [frames, height, width] or [frames, height, width, channels],
the frames become channels. Other inputs of the policy, such as the costs so far, are appended to the vector.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from clearance.core.errors import InputError

Layer = tuple[int, int, int]  # channels, width of the kernel, stride
LEAST = 8  # an observation with three axes counts as an image if it has at least this many pixels on each side
FRAMES = 16  # a first axis of at most this size that is smaller than the last one holds stacked frames or channels
SMALL: tuple[Layer, ...] = ((16, 3, 2), (32, 3, 2))
LARGE: tuple[Layer, ...] = ((16, 8, 4), (32, 4, 2))  # for images with 40 pixels or more on each side


class Image(NamedTuple):
    """The image axes of observations of one shape: `axes` lists height, width, then the axes that become channels."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def pixels(self) -> tuple[int, int, int]:
        """The shape (height, width, channels) of the image."""
        height, width, *rest = (self.shape[a] for a in self.axes)
        return height, width, math.prod(rest)


class Front(NamedTuple):
    """Convolutional layers for flat observations that consist of an image and `rest` further numbers after it."""

    image: Image
    layers: tuple[Layer, ...]
    rest: int

    @property
    def shapes(self) -> list[tuple[int, int, int, int]]:
        """The shape [output channels, width, width, input channels] of each layer's kernels."""
        inputs = (self.image.pixels[2], *(c for c, _, _ in self.layers))
        return [(c, k, k, i) for (c, k, _), i in zip(self.layers, inputs, strict=False)]

    @property
    def features(self) -> int:
        """The length of the vector after the convolutions, including the `rest` numbers that are appended."""
        height, width, _ = self.image.pixels
        for _, kernel, stride in self.layers:
            height, width = ((n - kernel) // stride + 1 for n in (height, width))
            if min(height, width) < 1:
                raise InputError(f"conv {self.layers} does not fit images of {self.image.pixels[:2]} pixels")
        return height * width * self.layers[-1][0] + self.rest


def read_layers(conv: Any) -> tuple[Layer, ...] | None:
    """Return the user's convolutional layers as tuples (channels, kernel, stride) of whole numbers.

    Raise InputError if they are invalid. If `conv` is None, return None.
    """
    if conv is None:
        return None
    try:
        layers = tuple((int(c), int(k), int(s)) for c, k, s in conv)
    except (TypeError, ValueError):
        raise InputError(f"conv must be layers (channels, kernel, stride), got {conv!r}") from None
    if any(n < 1 for layer in layers for n in layer):
        raise InputError(f"conv must hold numbers of at least 1, got {conv!r}")
    return layers


def choose_layers(shape: tuple[int, ...]) -> tuple[Layer, ...]:
    """Return default convolutional layers for images of this shape; () for small images and other observations."""
    if len(shape) not in (3, 4):
        return ()
    least = min(find_image(shape).pixels[:2])
    return () if least < LEAST else LARGE if least >= 40 else SMALL


def find_image(shape: tuple[int, ...]) -> Image:
    """Return which axes of an observation of this shape are height, width and channels."""
    shape = tuple(int(n) for n in shape)
    if len(shape) == 2:
        return Image(shape, (0, 1))
    if len(shape) == 3:
        first = shape[0] <= FRAMES and shape[0] < shape[2]
        return Image(shape, (1, 2, 0) if first else (0, 1, 2))
    if len(shape) == 4:
        return Image(shape, (1, 2, 0, 3))
    raise InputError(f"conv is for images: observations of shape {shape} have neither two, three nor four axes")


def split_image(z: Any, image: Image, xp: Any) -> tuple[Any, Any]:
    """Split observations z [n, inputs] into images [n, height, width, channels] and the other numbers [n, rest].

    `image` says which axes are height, width and channels. `xp` is the array library: NumPy or JAX.
    """
    x = z[..., : image.size].reshape(-1, *image.shape)
    x = xp.transpose(x, (0, *(a + 1 for a in image.axes)))
    return x.reshape(-1, *image.pixels), z[..., image.size :].reshape(len(x), -1)


def apply_convolutions(z: Any, front: Front, parameters: list[Any], xp: Any = np) -> Any:
    """Return the outputs [n, features] of the convolutional layers `front` for flat observations z [n, inputs].

    `parameters` lists (kernels, biases) of each layer; `xp` is the array library, NumPy or JAX. Each convolution is
    computed as one matrix product of patches and kernels. JAX's own convolutions would take a hundred times as long on
    a CPU, inside the loop that trains the critics.
    """
    x, rest = split_image(z, front.image, xp)
    for (weight, bias), (_, k, stride) in zip(parameters, front.layers, strict=True):
        height, width = ((n - k) // stride + 1 for n in x.shape[1:3])
        ends = stride * (height - 1) + 1, stride * (width - 1) + 1
        parts = [
            x[:, a : a + ends[0] : stride, b : b + ends[1] : stride] for a in range(k) for b in range(k)
        ]  # in the order of the entries of a kernel
        x = xp.tanh(xp.concatenate(parts, -1) @ weight.reshape(len(weight), -1).T + bias)
    return xp.concatenate([x.reshape(len(x), -1), rest], -1)
