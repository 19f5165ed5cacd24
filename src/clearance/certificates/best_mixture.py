"""The best mixture of given policies: a small linear program over their values (J_r, J_g).

    max Σ_m w_m J_r(m)    subject to   Σ_m w_m J_gi(m) ≥ b_i + margin_i,   w on the simplex

The solution is a vertex, which mixes at most I + 1 policies. If the uniform mixture of all policies meets the same
limits, the solution has at least the same reward. Values estimated from samples are noisy, and the program would prefer
policies that were lucky. So `candidate_search` measures the chosen policies again and solves again, until the choice is
based on enough samples. Certificates use fresh samples.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

from clearance.core.arrays import Array

# Whether to return a single policy instead of a mixture: if it loses little reward, always, or never.
Single = Literal["prefer", "require", "never"]
SINGLE = ("prefer", "require", "never")
MOST_LOST = 0.01  # the loss of reward to accept, as a share of the reward that the mixture has beyond the safest one


def choose_weights(J: Array, b: Array, margin: Array | float, single: Single) -> Array | None:
    """Return the weights w [n] of the best mixture of policies with values J [n, 1+I] subject to J_g ≥ b + margin.

    single  "never": return any mixture. "prefer": return a single policy if its reward is only a little less than that
            of the mixture. "require": return a single policy only

    Return None if no such mixture or policy exists.
    """
    w = best_weights(J, b, margin)
    if w is None or single == "never" or np.count_nonzero(w) == 1:
        return w
    least = -np.inf if single == "require" else float(w @ J[:, 0]) - tolerated_loss(J, b, float(w @ J[:, 0]))
    able = np.flatnonzero(np.all(J[:, 1:] >= b + margin, axis=1) & (J[:, 0] >= least))
    if len(able):
        return np.eye(len(J))[able[np.argmax(J[able, 0])]]
    return None if single == "require" else w


def tolerated_loss(J: Array, b: Array, J_r: float) -> float:
    """Return the largest loss of reward with which a single policy is still preferred to a mixture with reward J_r.

    The loss is a fixed share of the difference between J_r and the reward of the safest mixture. The mixtures are of
    policies with values J [n, 1+I], under the limits b [I].
    """
    return MOST_LOST * max(J_r - float(safest_weights(J, b) @ J[:, 0]), 0.0) if len(b) else 0.0


def safest_single(J: Array, b: Array) -> Array:
    """Return weights w [n] that select one policy: the one with the largest smallest slack min_i (J_gi − b_i)."""
    return np.eye(len(J))[int(np.argmax(np.min(J[:, 1:] - b, axis=1, initial=np.inf)))]


def best_weights(J: Array, b: Array, margin: Array | float = 0.0) -> Array | None:
    """Return the weights w [n] of the best mixture of policies with values J [n, 1+I] subject to J_g ≥ b + margin.

    At most I + 1 weights are positive. Return None if no mixture has J_g ≥ b + margin.
    """
    slack = _in_units(J[:, 1:] - b - margin)
    answer = linprog(
        -_in_units(J[:, 0]),
        A_ub=-slack.T if len(b) else None,
        b_ub=np.zeros(len(b)) if len(b) else None,
        A_eq=np.ones((1, len(J))),
        b_eq=[1.0],
        method="highs-ds",
    )
    if answer.status != 0:
        return None
    w = np.where(answer.x > 1e-12, answer.x, 0.0)
    return w / w.sum()


def safest_weights(J: Array, b: Array) -> Array:
    """Return the weights w [n] of the safest mixture, whose smallest slack is as large as possible.

    J [n, 1+I] are the values of the policies, and b [I] are the limits.
    """
    n, slack = J.shape[0], J[:, 1:] - b
    size = max(float(np.abs(slack).max(initial=0.0)), 1e-300)
    answer = linprog(
        np.append(np.zeros(n), -1.0),
        A_ub=np.column_stack([-slack.T / size, np.ones(len(b))]),
        b_ub=np.zeros(len(b)),
        A_eq=[[1.0] * n + [0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
        method="highs-ds",
    )
    w = np.where(answer.x[:n] > 1e-12, answer.x[:n], 0.0)
    return w / w.sum()


def _in_units(x: Array) -> Array:
    """Return x with each column divided by its largest absolute value, since the solver's tolerances are absolute."""
    size = np.abs(x).max(0)
    return x / np.where(size > 0, size, 1.0)


def spread_evenly(n: int, most: int, first: float = 0.0) -> NDArray[np.int64]:
    """Return at most `most` evenly spaced indices from 0 to n−1; the last index is always among them.

    `first` is a share from 0 to 1: the first n·first indices are left out.
    """
    begin = min(int(first * n), n - 1)
    return np.unique(np.linspace(begin, n - 1, min(most, n - begin)).round().astype(np.int64))
