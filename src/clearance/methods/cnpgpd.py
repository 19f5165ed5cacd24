"""C-NPG-PD: the conservative natural policy gradient primal-dual algorithm (Bai, Bedi, Aggarwal, AAAI 2023, Alg. 1).

Guarantee (their Theorem 1): with κ below the Slater constant, the *uniform mixture of the iterates* violates no limit
and is ε-optimal, in expectation, up to the errors of the policy class. No single iterate is guaranteed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from clearance import dual
from clearance.direction import SGD, Direction, LeastSquares, Tabular
from clearance.errors import InputError
from clearance.problem import Array
from clearance.sample import Sampler


class State(NamedTuple):
    """What must be carried from one iteration to the next: θ [d], λ [I], k (iterations done)."""

    theta: Array
    lam: Array
    k: int


class Info(NamedTuple):
    """What may be watched of iteration k: Ĵ [1+I], ‖ω‖ and the environment steps taken."""

    J_hat: Array
    omega_norm: float
    steps: int


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class CNPGPD:
    """Hyper-parameters of Algorithm 1, with the paper's symbols; `kappa = 0` is NPG-PD (Ding et al. 2020)."""

    K: int = _setting(1000, "iterations")
    N: int = _setting(100, "samples per iteration, for the direction and again for Ĵ")
    eta1: float = _setting(0.1, "η₁, the step of θ")
    eta2: float = _setting(0.1, "η₂, the step of λ")
    kappa: float = _setting(0.0, "κ ≥ 0, the margin kept from the limits")
    lam_max: float | None = _setting(None, "Λ, upper bound of λ; from the Slater margin φ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")
    direction: Direction = field(default_factory=SGD, metadata={"help": "how ω is found from the draws"})

    def __post_init__(self) -> None:
        for name in ("K", "N"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name} must be a whole number ≥ 1, got {value!r}")
        for name in ("eta1", "eta2"):
            _positive(name, getattr(self, name))
        if not (_is_number(self.kappa) and self.kappa >= 0):
            raise InputError(f"kappa must be a number ≥ 0, got {self.kappa!r}")
        if not isinstance(self.direction, SGD | LeastSquares | Tabular):
            raise InputError(f"direction must be SGD(), LeastSquares() or Tabular(), got {self.direction!r}")
        if isinstance(self.direction, LeastSquares) and not (
            _is_number(self.direction.ridge) and self.direction.ridge >= 0
        ):
            raise InputError(f"ridge must be a number ≥ 0, got {self.direction.ridge!r}")
        if self.lam_max is not None:
            _positive("lam_max", self.lam_max)
        if isinstance(self.direction, SGD):
            _positive("alpha", self.direction.alpha)

    def init(self, theta: Array, I: int) -> State:
        """θ¹ as the policy starts (0 for softmax), λ¹ = 0 (l. 1)."""
        return State(theta, np.zeros(I), 0)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """One pass of the loop, lines 2–17."""
        cmdp = sampler.cmdp
        draws, J_hat, steps = sampler.batch(key, state.theta, self.N)  # lines 3–7 and 11–15
        omega = self.direction(draws, state.lam, cmdp.gamma)  # lines 8–10
        theta = state.theta + self.eta1 * omega  # line 16, θ
        lam = dual.step(state.lam, J_hat[1:] - cmdp.b, self.eta2, self.kappa, lam_max)  # line 16, λ
        return State(theta, lam, state.k + 1), Info(J_hat, float(np.linalg.norm(omega)), steps)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(float(value))


def _positive(name: str, value: float) -> None:
    if not (_is_number(value) and value > 0):
        raise InputError(f"{name} must be a positive number, got {value!r}")
