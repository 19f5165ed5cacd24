"""Apply Theorem 1 to a finite model: measure the constants of `theory` on the model and compute the plan."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from clearance.core.errors import InfeasibleError, InputError, infeasible_message, no_room_message
from clearance.core.validation import require_discounted
from clearance.exact import theory
from clearance.exact.feasibility import decide_feasibility
from clearance.exact.infeasibility import diagnose
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.exact_sampler import Exact
from clearance.finite.softmax_policy import SoftmaxPolicy, class_model
from clearance.learning.direction import fisher

# A plan that would take more years than this, at this many environment steps a second, is reported as impossible.
LONGEST_YEARS, STEPS_PER_SECOND = 100, 1e6


def constants_of(
    cmdp: CMDP, policy: SoftmaxPolicy, *, mu_F: float | None = None, eps_bias: float = 0.0, eps_bias2: float = 0.0
) -> theory.Constants:
    """Return the constants of Theorem 1 for a model and a policy class.

    mu_F                 the smallest eigenvalue of the Fisher matrix; by default it is computed at θ = 0
    eps_bias, eps_bias2  approximation errors of the policy class

    The other constants are computed from the model. The theory is about J_g − b ≥ 0, so the size of b is added to the
    size of the signals.
    """
    require_discounted(cmdp, "the theory")
    if cmdp.I == 0:
        raise InputError("the model has no constraints: Theorem 1 is about constrained problems, use optimum")
    if cmdp.A == 1:
        raise InputError("the model has one action only: there is nothing to choose")
    model = class_model(cmdp, policy)
    found = decide_feasibility(model)
    slater = found.slater
    if found.verdict == "infeasible":
        raise InfeasibleError(infeasible_message(slater, model.I), slater, model, diagnose=diagnose)
    if slater <= 0:
        raise InputError(no_room_message(slater))
    features = None if policy.tabular else policy.features
    h_max = max(float(np.abs(cmdp.h).max()), float(np.abs(cmdp.b).max()) * (1 - cmdp.gamma))
    return theory.Constants(
        gamma=cmdp.gamma,
        I=cmdp.I,
        d=policy.d,
        A=cmdp.A,
        G=theory.G(features),
        M=theory.M(features),
        mu_F=estimate_mu_F(cmdp, policy) if mu_F is None else mu_F,
        slater=slater,
        kappa=slater / 2,
        r_range=float(np.ptp(cmdp.r)) or 1.0,
        h_max=2 * h_max if np.any(cmdp.b) else h_max,
        eps_bias=eps_bias,
        eps_bias2=eps_bias2,
    )


def estimate_mu_F(cmdp: CMDP, policy: SoftmaxPolicy) -> float:
    """Return the smallest eigenvalue μ_F of the Fisher matrix at θ = 0; for softmax with one-hot features it is 0.

    Assumption 3 of the paper needs a μ_F that holds for all θ. The result is an upper bound on it.
    """
    draws = Exact(cmdp, policy).batch(np.uint64(0), None, policy.init(), 0)[0]
    return theory.mu_F(fisher(draws))


def plan_for(cmdp: CMDP, policy: SoftmaxPolicy, eps: float, **given: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the plan of Theorem 1 for a gap of ε as plain data, and its verdict in sentences.

    `given` are keyword arguments of `constants_of`.
    """
    if not eps > 0:
        raise InputError(f"epsilon must be a positive number, got {eps:g}")
    constants = constants_of(cmdp, policy, **given)
    # If μ_F = 0, no K is large enough. The explicit terms of κ are then computed for the K and N of the paper.
    published = {"K": 7000, "N": 100} if theory.why_infinite(constants) else {}
    plan = theory.plan(constants, eps, **published)
    data = dataclasses.asdict(plan)
    notes = data.pop("verdict")
    notes = notes if published else (*_impossible(plan.steps), *notes)
    return data | {"G": constants.G, "M": constants.M, "mu_F": constants.mu_F, "d": constants.d}, notes


def _impossible(steps: float) -> tuple[str, ...]:
    """Return a tuple with one sentence if `steps` environment steps would take too many years; else an empty tuple."""
    years = steps / STEPS_PER_SECOND / (365.25 * 24 * 3600)
    if years < LONGEST_YEARS:
        return ()
    how = f"{steps:.2g} environment steps, {years:.2g} years at {STEPS_PER_SECOND:.0e} steps a second"
    instead = "choose K, N and κ by hand, below the Slater margin, and have the policy certified"
    return (f"Theorem 1 asks the impossible of this problem: {how}; its bound holds but is no plan: {instead}",)
