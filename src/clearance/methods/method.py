"""What the methods share: the state that is carried, what may be watched, and the checks of their settings.

A method is a frozen dataclass of its hyper-parameters with

    init(theta, I, world) → State                            before the first iteration
    step(key, sampler, state, lam_max) → (State, Info)        one iteration
    sampler                                                  where its draws come from unless told otherwise
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, NamedTuple

import numpy as np

from clearance.direction import LeastSquares, Tabular
from clearance.errors import InputError
from clearance.inputs import counted, is_number, positive
from clearance.problem import CMDP, Array
from clearance.sample import Sampler

Kappa = float | tuple[float, ...] | Literal["auto"]


class State(NamedTuple):
    """What must be carried from one iteration to the next: θ [d], λ [I], k iterations done, the sampler's own world,
    and what a method remembers beside θ and λ: nested tuples of arrays and numbers.
    """

    theta: Array
    lam: Array
    k: int
    world: Any = None
    memory: Any = None


class Info(NamedTuple):
    """What may be watched of iteration k: Ĵ [1+I], ‖ω‖ and the environment steps taken.

    counts  the weight of θ^k in the mixture that the method gives out: 1 unless it leaves some iterates out
    """

    J_hat: Array
    omega_norm: float
    steps: int
    counts: float = 1.0


def setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


def start(theta: Array, I: int, world: Any = None) -> State:
    """θ¹ as the policy starts (0 for softmax), λ¹ = 0."""
    return State(theta, np.zeros(I), 0, world)


def natural(sampler: Sampler) -> Tabular | LeastSquares:
    """The natural direction itself, in closed form where there is one."""
    return Tabular() if sampler.policy.tabular else LeastSquares()


def ranges(cmdp: CMDP) -> tuple[float, Array]:
    """The ranges of r and of each g_i [I]: the units of the problem; 1 where a signal is constant."""
    r, g = float(np.ptp(cmdp.r)), np.ptp(cmdp.g, axis=(1, 2))
    return r or 1.0, np.where(g > 0, g, 1.0)


def check(method: Any, *, counts: tuple[str, ...] = ("K", "N"), positives: tuple[str, ...] = ()) -> None:
    """Settings that every method has, and those that must be positive numbers."""
    for name in counts:
        counted(name, getattr(method, name))
    for name in positives:
        positive(name, getattr(method, name))
    check_kappa(method.kappa)
    if getattr(method, "lam_max", None) is not None:
        positive("lam_max", method.lam_max)


def check_kappa(kappa: Kappa) -> None:
    """κ is "auto", a number ≥ 0, or one for each constraint."""
    many = kappa if isinstance(kappa, tuple | list) else [kappa]
    if kappa != "auto" and not (many and all(is_number(k) and float(k) >= 0 for k in many)):
        raise InputError(f"kappa must be 'auto', a number ≥ 0 or one for each constraint, got {kappa!r}")


def margin_of(kappa: Kappa) -> float | Array:
    """κ as a number or an array [I]; "auto" must have been decided before a run begins."""
    if isinstance(kappa, str):
        raise InputError("kappa is still 'auto': `solve` decides it, a step needs a number")
    return np.asarray(kappa, float) if isinstance(kappa, tuple | list) else float(kappa)
