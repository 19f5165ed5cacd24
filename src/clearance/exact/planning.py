"""Plans on an estimated model: the best policy for given limits, the safest policy, and an exploring policy.

The linear programs are those of `optimum`, without its proofs: the value of a plan on the true model is not proven
here, but tested on fresh samples.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import SolverError
from clearance.exact import column_generation, linear_program
from clearance.exact.bellman import Operator
from clearance.exact.estimated_model import EstimatedModel
from clearance.exact.feasibility import Scaled, find_safest, snap, stationary_policy, uses_columns
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import policy_from_occupancy
from clearance.finite.softmax_policy import class_model, class_policy

GAP = 1e-6  # the proven gap of a plan, relative to the scale of J: far below the noise of any estimate


class Plan(NamedTuple):
    """A policy π [S, A], and the multipliers λ [I] of its limits.

    `room` is false if no policy was found that meets the limits.
    """

    pi: Array
    lam: Array
    room: bool


def plan_best(model: CMDP, b: Array, policy: Any = None) -> Plan:
    """Return the policy with the largest J_r subject to J_g ≥ b, or the safest policy if no policy meets the limits.

    With `policy`, a policy class, only policies of this class are considered.
    """
    within = model if policy is None or policy.tabular else class_model(model, policy)
    scaled = Scaled.of(within.replace(b=b))
    try:
        pi, lam = _by_columns(scaled) if uses_columns(within, "auto") else _by_program(scaled)
        found = Plan(pi, lam * scaled.r / scaled.g, True)
    except SolverError:  # no policy keeps the limits, or they leave no room
        safest = find_safest(scaled, "auto")
        found = Plan(safest.policy, np.zeros(model.I), False)
    pi = snap(found.pi)
    return found._replace(pi=pi if policy is None or policy.tabular else class_policy(policy, pi))


def plan_safest(model: CMDP, policy: Any = None) -> Plan:
    """Return the policy whose smallest slack is largest, with multipliers λ [I], Σλ = 1.

    λ_i > 0 marks the limits that keep this slack from being larger. With `policy`, a policy class, only policies of
    this class are considered.
    """
    within = model if policy is None or policy.tabular else class_model(model, policy)
    safest = find_safest(Scaled.of(within), "auto")
    pi = snap(safest.policy)
    return Plan(pi if policy is None or policy.tabular else class_policy(policy, pi), safest.lam, True)


def _by_program(scaled: Scaled) -> tuple[Array, Array]:
    x, lam = linear_program.richest(scaled.unit, scaled.unit.b)
    return policy_from_occupancy(x, scaled.cmdp.available), lam


def _by_columns(scaled: Scaled) -> tuple[Array, Array]:
    found, full = scaled.found, 1 / (1 - scaled.cmdp.gamma)
    if scaled.cmdp.I:
        start = column_generation.slater(found, np.ones(scaled.cmdp.I), GAP * full, enough=1e-9 * full)
        if start.value <= 0:
            raise SolverError("no policy keeps the limits of the plan")
    mixed = column_generation.best_mixture(found, GAP, full)
    return stationary_policy(*column_generation.mixture_of(found, mixed)), mixed.lam


def penalise(model: EstimatedModel, V: Array, errors: float) -> CMDP:
    """Return the model with every signal lowered by `errors` standard errors.

    The standard error at a pair is that of the estimated mean of γ V(s') over the next states s'. It comes from the
    finite number of visits of the pair. V [S, 1+I] are estimated values.
    """
    cmdp = model.cmdp
    error = cmdp.gamma * np.sqrt(model.noise(V) / np.maximum(model.n, 0.5)[:, None])
    return cmdp.replace(h=cmdp.h - errors * error.T.reshape(cmdp.h.shape))


def plan_exploration(model: EstimatedModel, V: Array, weights: Array, high: Array, errors: float = 1.0) -> Array:
    """Return a policy π [S, A] for exploration: the best one for the signal weights·h under optimistic assumptions.

    h are the signals of the model, with weights [1+I]. Each pair is assumed to be better than estimated.

    errors  the number of standard errors by which each pair is assumed to be better than estimated
    V       the values V̂ [S, 1+I] of a policy that is good for the signal weights·h
    high    the declared upper bounds of the signals [1+I]. A pair that was never seen is assumed to give them in every
            later step or, if 0 is better, to end the episode
    """
    cmdp = model.cmdp
    h, forever = weights @ cmdp.h.reshape(1 + cmdp.I, -1), float(weights @ high)
    value, unseen = V @ weights, max(forever, 0.0)
    bonus = cmdp.gamma * np.sqrt(model.noise(value[:, None])[:, 0] / np.maximum(model.n, 0.5))
    better = np.minimum(h + errors * bonus, unseen)
    hopeful = np.where(model.n > 0, better, unseen)
    act = np.argmax(cmdp.available, axis=1).astype(np.int64)
    tolerance = 1e-6 * max(float(np.abs(hopeful).max()), 1e-300)
    Operator.of(cmdp).maximise(hopeful, np.zeros(cmdp.S), act, tolerance)
    return np.eye(cmdp.A)[act]
