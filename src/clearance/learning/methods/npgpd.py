"""NPG-PD: natural policy gradient primal-dual (Ding, Zhang, Başar, Jovanović, NeurIPS 2020; JMLR 2025).

Its steps are those of C-NPG-PD with κ = 0; in other words, C-NPG-PD is NPG-PD with tightened limits. The JMLR version
uses weighted regressions, one for each signal (`WeightedSGD`). It also shows that limits b + δ with δ = Θ(ε) give zero
violation; here δ is the setting `kappa`.

Guarantee (2020, Theorem 1): for softmax with exact gradients, η₁ = 2 log|A| and η₂ = 2(1−γ)/√K, the *averages* of gap
and of violation over the iterates are O(1/√K). The last iterate may oscillate for ever. Number of walks for accuracy ε
with sampling: ε⁻² for softmax with a generative model, ε⁻⁴ (JMLR; ε⁻⁶ in Table 1 of Bai et al.) for general
parametrisation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clearance.learning.methods.cnpgpd import CNPGPD
from clearance.learning.methods.method_base import setting


@dataclass(frozen=True)
class NPGPD(CNPGPD):
    """NPG-PD (Ding et al. 2020) with its settings; `direction=WeightedSGD()` gives the JMLR version."""

    kappa: float | tuple[float, ...] | Literal["auto"] = setting(0.0, "δ of the JMLR version, added to the limits")
    lam_max: float | None = setting(None, "Λ, upper bound of λ: 2(r⁺−r⁻)/((1−γ)φ)")
