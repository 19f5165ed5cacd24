"""The model-based method of Vaswani, Yang and Szepesvári (NeurIPS 2022), with an optimal sample complexity.

    N samples of every pair (s, a) → the empirical model P̂;   on it, with limits b + κ, κ = Θ(ε(1−γ)φ):
    π_k = argmax_π Ĵ_r + λ_k Ĵ_g,     λ_{k+1} = P_[0,Λ](λ_k − η (Ĵ_g(π_k) − b − κ))          solver="primal-dual"

Here φ is the Slater margin and ε the accepted gap. The output is the uniform mixture of the π_k, or the solution of the
linear program on P̂ (solver="lp"). The method needs a generative model. Its guarantee: N|S||A| = Õ(|S||A|/((1−γ)⁵ε²φ²))
samples give zero violation, which no method can improve except for constants and logarithms. The paper rounds λ to a
grid, which only its proof needs; the rounding is left out here. Iteration 1 draws all samples, and the others only
plan. So the output uses the iterates π_k with k ≥ 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.exact.bellman import Operator
from clearance.exact.optimum import optimum
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import evaluate
from clearance.finite.samplers.generative import Generative
from clearance.learning import dual
from clearance.learning.methods.method_base import DrawKind, check_settings, first_state, kappa_value, setting
from clearance.learning.sampler import Sampler
from clearance.learning.state import Info, State

SURE = 700.0  # a logit so far above the others that their probabilities vanish: exp(−700) ≈ 1e-304


@dataclass(frozen=True)
class ModelBased:
    """The model-based method of Vaswani et al. (2022) with its settings, for tabular policies."""

    K: int = setting(200, "iterations of the primal-dual on the empirical model; 2 are enough for the program")
    N: int = setting(100, "samples of every pair (s, a)")
    eta: float = setting(0.1, "η, the step of λ")
    solver: Literal["lp", "primal-dual"] = setting("primal-dual", "how the empirical model is solved")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting("auto", "κ ≥ 0, the margin kept from the limits")
    lam_max: float | None = setting(None, "Λ, upper bound of λ: 2(r⁺−r⁻)/((1−γ)(φ−κ))")

    draw_kind: ClassVar[DrawKind] = "generative"
    tabular_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_settings(self, positives=("eta",))
        if self.solver not in ("lp", "primal-dual"):
            raise InputError(f"solver must be 'lp' or 'primal-dual', got {self.solver!r}")

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    def _plan(self, model: CMDP, state: State, lam: Array, V: Array) -> Array:
        """Return the logits of the next policy, planned on the empirical model.

        With the primal-dual solver, policy iteration continues from V [S], the value of the last policy under λ. With
        the linear program, the first plan is repeated.
        """
        if self.solver == "primal-dual":
            return _greedy(model, lam, V)
        return state.theta if state.k else _program(model, kappa_value(self.kappa))

    def step(self, key: np.uint64, sampler: Sampler, state: State, lam_max: float) -> tuple[State, Info]:
        """Make one iteration: draw the samples if it is the first one, then plan on the empirical model.

        Return the new state, and the information on the iteration, in which Ĵ is the value on the empirical model.
        """
        if not isinstance(sampler, Generative):
            raise InputError("ModelBased wants samples of every pair: use the sampler Generative")
        memory, steps = (state.sampler_memory, 0) if state.k else sampler.collect(key, state.sampler_memory, self.N)
        model = sampler.model(memory)
        at = evaluate(model, sampler.policy.pi(state.theta))
        J = at.J
        kappa = kappa_value(self.kappa)
        # λ is updated only after the first plan: the uniform policy at the beginning is not a plan.
        lam = dual.step(state.lam, J[1:] - model.b, self.eta, kappa, lam_max) if state.k else state.lam
        theta = self._plan(model, state, lam, at.V[0] + lam @ at.V[1:])
        info = Info(J, float(np.linalg.norm(theta - state.theta)), steps, float(state.k > 0))
        return State(theta, lam, state.k + 1, memory), info


def _program(model: CMDP, kappa: float | Array) -> Array:
    """Return the logits of the best policy of the empirical model with limits tightened by κ.

    If no policy meets these limits, return the logits of the safest policy.
    """
    best = optimum(model.tightened(kappa))
    return np.log(np.maximum(best.policy, np.exp(-SURE))).ravel()


def _greedy(model: CMDP, lam: Array, V: Array) -> Array:
    """Return the logits of the deterministic policy that maximises Ĵ_r + λ·Ĵ_g, by policy iteration from V [S]."""
    operator = Operator.of(model)
    h = operator.h[0] + lam @ operator.h[1:]
    act = np.argmax(model.available, axis=1).astype(np.int64)
    tol = 1e-10 * (float(np.abs(h).max()) + 1e-300)
    operator.maximise(h, V, act, tol)
    theta = np.zeros((model.S, model.A))
    theta[np.arange(model.S), act] = SURE
    return theta.ravel()
