"""Action spaces: what a policy may choose from. Plain NumPy, so that every engine can speak of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearance.errors import InputError
from clearance.problem import Array


@dataclass(frozen=True)
class Discrete:
    """One of n actions, 0 .. n−1."""

    n: int

    def __post_init__(self) -> None:
        _whole("n", self.n)

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def nvec(self) -> tuple[int, ...]:
        """The number of choices, as one part."""
        return (self.n,)


@dataclass(frozen=True)
class MultiDiscrete:
    """Several parts, each one of nvec[i] choices."""

    nvec: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "nvec", tuple(int(n) for n in self.nvec))
        if not self.nvec:
            raise InputError("nvec must name at least one part")
        for n in self.nvec:
            _whole("nvec", n)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)


@dataclass(frozen=True, eq=False)
class Box:
    """Real vectors between low and high [m], entry by entry; an entry without a bound has −∞ or ∞."""

    low: Array
    high: Array

    def __post_init__(self) -> None:
        low, high = np.broadcast_arrays(_reals("low", self.low), _reals("high", self.high))
        if low.ndim != 1 or not low.size:
            raise InputError(f"low and high of a Box must be vectors, got shape {low.shape}; flatten the actions")
        if not np.all(low < high):
            raise InputError(f"low must be below high in every entry, see entry {int(np.argmin(low < high))}")
        object.__setattr__(self, "low", low.copy())
        object.__setattr__(self, "high", high.copy())

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """Entries with both bounds [m]: there a policy is squashed."""
        return np.isfinite(self.low) & np.isfinite(self.high)


Space = Discrete | MultiDiscrete | Box


def describe(space: Space) -> dict[str, Any]:
    """The space as JSON holds it."""
    if isinstance(space, Box):
        bounds = {"low": space.low, "high": space.high}
        return {"kind": "box"} | {k: [float(x) if np.isfinite(x) else None for x in v] for k, v in bounds.items()}
    return {"kind": "discrete", "n": space.n} if isinstance(space, Discrete) else _parts(space)


def _parts(space: MultiDiscrete) -> dict[str, Any]:
    return {"kind": "multi-discrete", "nvec": list(space.nvec)}


def from_description(text: dict[str, Any]) -> Space:
    """The inverse of `describe`."""
    kind = text.get("kind")
    if kind == "box":
        low = [-np.inf if x is None else x for x in text["low"]]
        return Box(np.array(low, float), np.array([np.inf if x is None else x for x in text["high"]], float))
    if kind == "discrete":
        return Discrete(int(text["n"]))
    if kind == "multi-discrete":
        return MultiDiscrete(tuple(text["nvec"]))
    raise InputError(f"action space of kind {kind!r} is not known: discrete, multi-discrete or box")


def _whole(name: str, n: Any) -> None:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {n!r}")


def _reals(name: str, x: ArrayLike) -> Array:
    try:
        a = np.asarray(x, float)
    except (TypeError, ValueError):
        raise InputError(f"{name} of a Box must hold real numbers") from None
    if np.isnan(a).any():
        raise InputError(f"{name} of a Box has a NaN")
    return a
