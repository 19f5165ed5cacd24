"""Action spaces: the sets from which a policy chooses its actions. They need only NumPy, so every package can use them.

A policy numbers discrete actions from 0 and returns continuous ones as flat vectors. `native` converts an action to the
form that the environment expects: numbered from `start`, and with the shape `form`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError


@dataclass(frozen=True)
class Discrete:
    """The space of n actions. A policy numbers them 0 .. n−1, and the environment start .. start + n − 1."""

    n: int
    start: int = 0

    def __post_init__(self) -> None:
        _whole("n", self.n)

    def native(self, a: Any) -> int:
        return int(a) + self.start

    def native_rows(self, a: Any) -> NDArray[np.int64]:
        """Convert many actions [n] to the environment's form."""
        return np.asarray(a, np.int64) + self.start

    def own(self, a: Any) -> NDArray[np.int64]:
        """Convert an action of the environment to the policy's form, the inverse of `native`."""
        return _choices(a, 1).reshape(()) - self.start

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def nvec(self) -> tuple[int, ...]:
        """The number of actions in the form that `MultiDiscrete` has: a tuple, here with one entry."""
        return (self.n,)


@dataclass(frozen=True)
class MultiDiscrete:
    """Several discrete choices at once; choice i has nvec[i] options."""

    nvec: tuple[int, ...]
    start: tuple[int, ...] = ()
    form: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("nvec", "start", "form"):
            object.__setattr__(self, name, tuple(int(n) for n in getattr(self, name)))
        if not self.nvec:
            raise InputError("nvec must name at least one part")
        for n in self.nvec:
            _whole("nvec", n)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def native(self, a: Any) -> NDArray[np.int64]:
        return self.native_rows(np.asarray(a)[None])[0]

    def native_rows(self, a: Any) -> NDArray[np.int64]:
        """Convert many actions [n, parts] to the environment's form."""
        return (np.asarray(a, np.int64) + (self.start or 0)).reshape(-1, *(self.form or self.shape))

    def own(self, a: Any) -> NDArray[np.int64]:
        """Convert an action of the environment to the policy's form, the inverse of `native`."""
        return _choices(a, len(self.nvec)) - np.asarray(self.start or 0)


@dataclass(frozen=True, eq=False)
class Box:
    """Real vectors between low and high [m], entry by entry. If an entry has no bound, its low or high is −∞ or ∞."""

    low: Array
    high: Array
    form: tuple[int, ...] = ()

    if TYPE_CHECKING:  # for type checkers: lists are accepted as well as arrays

        def __init__(self, low: ArrayLike, high: ArrayLike, form: tuple[int, ...] = ()) -> None: ...

    def __post_init__(self) -> None:
        low, high = np.broadcast_arrays(_reals("low", self.low), _reals("high", self.high))
        if low.ndim != 1 or not low.size:
            raise InputError(f"low and high of a Box must be vectors, got shape {low.shape}; flatten the actions")
        if not np.all(low < high):
            raise InputError(f"low must be below high in every entry, see entry {int(np.argmin(low < high))}")
        object.__setattr__(self, "low", low.copy())
        object.__setattr__(self, "high", high.copy())
        object.__setattr__(self, "form", tuple(int(n) for n in self.form))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    def native(self, a: Any) -> NDArray[np.float32]:
        return self.native_rows(np.asarray(a)[None])[0]

    def native_rows(self, a: Any) -> NDArray[np.float32]:
        """Convert many actions [n, m] to the environment's form, clipped to the bounds."""
        return np.clip(a, self.low, self.high).astype(np.float32).reshape(-1, *(self.form or self.shape))

    def own(self, a: Any) -> NDArray[np.float64]:
        """Convert an action of the environment to the policy's form: a flat vector of floats."""
        return np.ravel(np.asarray(a, float))

    @property
    def bounded(self) -> NDArray[np.bool_]:
        """A mask [m] of the entries with two finite bounds; for these, a policy squashes its actions with tanh."""
        return np.isfinite(self.low) & np.isfinite(self.high)


Space = Discrete | MultiDiscrete | Box


def describe_space(space: Space) -> dict[str, Any]:
    """Return the space as JSON data; `start` and `form` are left out if they have their default values."""
    if isinstance(space, Box):
        bounds = {"low": space.low, "high": space.high}
        text = {"kind": "box"} | {k: [float(x) if np.isfinite(x) else None for x in v] for k, v in bounds.items()}
    elif isinstance(space, Discrete):
        text = {"kind": "discrete", "n": space.n}
    else:
        text = {"kind": "multi-discrete", "nvec": list(space.nvec)}
    native = {name: getattr(space, name, None) for name in ("start", "form")}
    return text | {name: list(x) if isinstance(x, tuple) else x for name, x in native.items() if x}


def restore_space(text: dict[str, Any]) -> Space:
    """Return the action space from JSON data that `describe_space` returned."""
    kind = text.get("kind")
    if kind == "box":
        low = [-np.inf if x is None else x for x in text["low"]]
        high = [np.inf if x is None else x for x in text["high"]]
        return Box(np.array(low, float), np.array(high, float), tuple(text.get("form", ())))
    if kind == "discrete":
        return Discrete(int(text["n"]), int(text.get("start", 0)))
    if kind == "multi-discrete":
        return MultiDiscrete(tuple(text["nvec"]), tuple(text.get("start", ())), tuple(text.get("form", ())))
    raise InputError(f"action space of kind {kind!r} is not known: discrete, multi-discrete or box")


def _choices(a: Any, n: int) -> NDArray[np.int64]:
    x = np.ravel(a)
    if x.shape != (n,) or x.dtype.kind not in "iub":
        raise InputError(f"the policy gave {a!r}, an action is {n} whole number{'s' if n > 1 else ''}")
    return x.astype(np.int64)


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
