"""The protocol of methods and the functions that methods share: the first state, and checks of their settings.

A method is a frozen dataclass of its hyper-parameters that also has

    init(theta, I, memory) → State                           returns the state before the first iteration
    step(key, sampler, state, lam_max) → (State, Info)        runs one iteration
    draw_kind                                                the kind of draws it needs; it determines the sampler
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, Protocol

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import check_count, check_positive, is_number
from clearance.learning.direction import LeastSquares, Tabular
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State

Kappa = float | tuple[float, ...] | Literal["auto"]
DrawKind = Literal["walks", "critic", "trajectory", "generative", "actor-critic"]


class Method(Protocol):
    """A protocol for learning algorithms, built in or defined by the user.

    An algorithm is a frozen dataclass of hyper-parameters that provides `K`, `init` and `step`, and `draw_kind`, the
    kind of draws that it needs.
    """

    @property
    def K(self) -> int | None:
        """The number of iterations; None if the budget determines it."""
        ...

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        """Return the state before the first iteration.

        `theta` [d] are the first parameters of the policy, I is the number of constraints, and `memory` the first
        memory of the sampler.
        """
        ...

    def step(self, key: np.uint64, sampler: Any, state: State, lam_max: float) -> tuple[State, Info]:
        """Run one iteration with the random key `key`; return the new state and the `Info` of this iteration.

        `lam_max` is the upper bound Λ of the multipliers.
        """
        ...


def setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


def first_state(theta: Array, I: int, memory: Any = None) -> State:
    """Return the first state, with the given parameters θ¹ (0 for softmax) and λ¹ = 0 [I].

    `memory` is the sampler's memory.
    """
    return State(theta, np.zeros(I), 0, memory)


def exact_direction(sampler: Sampler) -> Tabular | LeastSquares:
    """Return the object that computes ω without SGD: `Tabular` for tabular policies, else `LeastSquares`."""
    return Tabular() if sampler.policy.tabular else LeastSquares()


def check_settings(method: Any, *, counts: tuple[str, ...] = ("K", "N"), positives: tuple[str, ...] = ()) -> None:
    """Raise InputError if a setting of the method is invalid.

    The settings named in `counts` must be whole numbers ≥ 1, and those in `positives` must be positive numbers. κ and Λ
    are also checked.
    """
    for name in counts:
        check_count(name, getattr(method, name))
    for name in positives:
        check_positive(name, getattr(method, name))
    check_kappa(method.kappa)
    if getattr(method, "lam_max", None) is not None:
        check_positive("lam_max", method.lam_max)


def check_kappa(kappa: Kappa) -> None:
    """Raise InputError unless κ is "auto", a number ≥ 0, or one such number for each constraint."""
    many = kappa if isinstance(kappa, tuple | list) else [kappa]
    if kappa != "auto" and not (many and all(is_number(k) and float(k) >= 0 for k in many)):
        raise InputError(f"kappa must be 'auto', a number ≥ 0 or one for each constraint, got {kappa!r}")


def kappa_value(kappa: Kappa) -> float | Array:
    """Return κ as a number or an array [I]; raise InputError if it is still "auto"."""
    if isinstance(kappa, str):
        raise InputError("kappa is still 'auto': `solve` decides it, a step needs a number")
    return np.asarray(kappa, float) if isinstance(kappa, tuple | list) else float(kappa)
