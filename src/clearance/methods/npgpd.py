"""NPG-PD: natural policy gradient primal-dual (Ding, Zhang, Başar, Jovanović, NeurIPS 2020; JMLR 2025).

The same steps as C-NPG-PD with κ = 0: C-NPG-PD is this method on the tightened limits. In the JMLR version the
regressions are weighted, one for each signal (`WeightedSGD`), and limits b + δ, δ = Θ(ε), give zero violation: δ is κ.

Guarantee (2020, Theorem 1): exact softmax, η₁ = 2 log|A|, η₂ = 2(1−γ)/√K: the *average* of gap and of violation over
the iterates is O(1/√K). The last iterate may circle for ever. Sampled: ε⁻² walks for softmax with a generative model,
ε⁻⁴ (JMLR; ε⁻⁶ in Table 1 of Bai et al.) for general parametrisation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.direction import SGD, Direction, check_direction
from clearance.methods.cnpgpd import primal_dual
from clearance.methods.method import Info, State, check, setting, start
from clearance.problem import Array
from clearance.sample import Sampler, Table


@dataclass(frozen=True)
class NPGPD:
    """Hyper-parameters; `direction=WeightedSGD()` for the JMLR version."""

    K: int = setting(1000, "iterations")
    N: int = setting(100, "samples per iteration, for the direction and again for Ĵ")
    eta1: float = setting(0.1, "η₁, the step of θ")
    eta2: float = setting(0.1, "η₂, the step of λ")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "δ of the JMLR version, added to the limits")
    lam_max: float | None = setting(None, "Λ, upper bound of λ: 2(r⁺−r⁻)/((1−γ)φ)")
    direction: Direction = field(default_factory=SGD, metadata={"help": "how ω is found from the draws"})

    sampler: ClassVar[Any] = Table

    def __post_init__(self) -> None:
        check(self, positives=("eta1", "eta2"))
        check_direction(self.direction)

    def init(self, theta: Array, I: int, world: Any = None) -> State:
        return start(theta, I, world)

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """θ ← θ + η₁ω,  λ ← P_[0,Λ](λ − η₂(Ĵ_g − b − δ))."""
        return primal_dual(self, key, sampler, state, lam_max)
