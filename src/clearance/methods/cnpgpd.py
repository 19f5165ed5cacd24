"""C-NPG-PD: the conservative natural policy gradient primal-dual algorithm (Bai, Bedi, Aggarwal, AAAI 2023, Alg. 1).

Guarantee (their Theorem 1): with κ below the Slater constant, the *uniform mixture of the iterates* violates no limit
and is ε-optimal, in expectation, up to the errors of the policy class. No single iterate is guaranteed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np

from clearance import dual
from clearance.direction import SGD, Direction, LeastSquares, Tabular
from clearance.errors import InputError
from clearance.problem import Array
from clearance.sample import Sampler

Kappa = float | tuple[float, ...] | Literal["auto"]


class State(NamedTuple):
    """What must be carried from one iteration to the next: θ [d], λ [I], k iterations done, the sampler's own world."""

    theta: Array
    lam: Array
    k: int
    world: Any = None


class Info(NamedTuple):
    """What may be watched of iteration k: Ĵ [1+I], ‖ω‖ and the environment steps taken."""

    J_hat: Array
    omega_norm: float
    steps: int


def setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class CNPGPD:
    """Hyper-parameters of Algorithm 1, with the paper's symbols; `kappa = 0` is NPG-PD (Ding et al. 2020)."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "samples per iteration, for the direction and again for Ĵ")
    eta1: float = setting(0.1, "η₁, the step of θ")
    eta2: float = setting(0.1, "η₂, the step of λ")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(
        "auto", "κ ≥ 0, the margin kept from the limits, one or one each"
    )
    lam_max: float | None = setting(None, "Λ, upper bound of λ; from the Slater margin φ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")
    direction: Direction = field(default_factory=SGD, metadata={"help": "how ω is found from the draws"})

    def __post_init__(self) -> None:
        for name in ("K", "N"):
            counted(name, getattr(self, name))
        for name in ("eta1", "eta2"):
            positive(name, getattr(self, name))
        check_kappa(self.kappa)
        if not isinstance(self.direction, SGD | LeastSquares | Tabular):
            raise InputError(f"direction must be SGD(), LeastSquares() or Tabular(), got {self.direction!r}")
        if isinstance(self.direction, LeastSquares) and not (
            is_number(self.direction.ridge) and self.direction.ridge >= 0
        ):
            raise InputError(f"ridge must be a number ≥ 0, got {self.direction.ridge!r}")
        if self.lam_max is not None:
            positive("lam_max", self.lam_max)
        if isinstance(self.direction, SGD):
            positive("alpha", self.direction.alpha)

    def init(self, theta: Array, I: int, world: Any = None) -> State:
        """θ¹ as the policy starts (0 for softmax), λ¹ = 0 (l. 1)."""
        return State(theta, np.zeros(I), 0, world)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """One pass of the loop, lines 2–17."""
        cmdp = sampler.cmdp
        draws, J_hat, world, steps = sampler.batch(key, state.world, state.theta, self.N)  # lines 3–7 and 11–15
        omega = self.direction(draws, state.lam, cmdp.gamma)  # lines 8–10
        theta = state.theta + self.eta1 * omega  # line 16, θ
        lam = dual.step(state.lam, J_hat[1:] - cmdp.b, self.eta2, margin_of(self.kappa), lam_max)  # line 16, λ
        return State(theta, lam, state.k + 1, world), Info(J_hat, float(np.linalg.norm(omega)), steps)


def counted(name: str, value: object) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise InputError(f"{name} must be a whole number ≥ 1, got {value!r}")


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


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def positive(name: str, value: float) -> None:
    if not (is_number(value) and value > 0):
        raise InputError(f"{name} must be a positive number, got {value!r}")
