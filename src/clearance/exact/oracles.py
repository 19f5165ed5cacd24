"""Oracles for the criteria other than the discounted one, behind one protocol: find the best policy and prove a bound.

For every criterion, the values J of all policies form the convex hull of the values of deterministic policies. So
column generation (`column_generation`) works for all criteria. For each criterion, an oracle finds the best
deterministic policy for given weights of the signals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.exact import average_bounds, horizon_oracle, total_oracle
from clearance.exact.average_oracle import AverageOracle
from clearance.exact.horizon_oracle import HorizonOracle
from clearance.exact.total_oracle import TotalOracle
from clearance.finite.cmdp import CMDP


class Oracle(Protocol):
    """A protocol for objects that find the best deterministic policies of a model under its criterion.

    A policy `act` holds the action in each state [S] or, with a horizon, at each step [H, S].
    """

    cmdp: CMDP

    def best(self, weights: Array, accuracy: float = 0.0, start: Any = None) -> tuple[Any, float, Array]:
        """Maximise weights·J over policies; return (act, bound, J).

        The policy `act` attains the maximum up to `accuracy`, `bound` is an upper bound on the maximum that holds up to
        rounding, and J [1+I] are the values of `act`. The search may begin with the policy `start`.
        """
        ...

    def dual(self, lam: Array, reward: float = 1.0, start: Any = None) -> tuple[float, Array, Any]:
        """Bound the maximum over policies of reward·J_r + Σ_i λ_i (J_gi − b_i); return (bound, proof, act).

        `bound` is the maximum rounded up, `proof` holds the vectors that prove the bound, and `act` is a greedy policy.
        The search may begin with the policy `start`.
        """
        ...


ORACLES: dict[str, Any] = {"horizon": HorizonOracle, "total": TotalOracle, "average": AverageOracle}
BOUNDS: dict[str, Any] = {"horizon": horizon_oracle, "total": total_oracle, "average": average_bounds}


def oracle_of(cmdp: CMDP) -> Oracle:
    """Return the oracle for the model's criterion, which must not be the discounted one."""
    return ORACLES[cmdp.kind](cmdp)


def accuracy_for(gap: float, tol: float) -> float:
    """Return the accuracy needed of a bound while the present gap is `gap`, if the final gap is to be `tol`."""
    return max(0.1 * tol, min(0.02 * gap, 1e5 * tol))


@dataclass(eq=False)
class OracleColumns:
    """The deterministic policies found so far, each with its actions `act` and its values J [1+I].

    This class does for other criteria what `column_generation.Columns` does for the discounted one.
    """

    oracle: Oracle
    b: Array
    act: list[Any] = field(default_factory=list)
    J: list[Array] = field(default_factory=list)
    V: None = None

    def price(self, weights: Array, gap: float, tol: float) -> float:
        """Maximise weights·(J_r, J_g − b) over policies, add the policy to the columns, and return an upper bound.

        The bound is on the maximum and holds up to rounding. It is only as accurate as the current `gap` and the final
        gap `tol` require.
        """
        accuracy = accuracy_for(gap, tol)
        act, most, J = self.oracle.best(weights, accuracy, self._nearly_best(weights, accuracy))
        self.act.append(act)
        self.J.append(J)
        return most - float(weights[1:] @ self.b)

    def _nearly_best(self, weights: Array, accuracy: float) -> Any:
        """Return the last of the policies that maximise weights·J up to `accuracy`; None if there are no policies."""
        if not self.act:
            return None
        values = np.array(self.J) @ weights
        return self.act[int(np.flatnonzero(values >= values.max() - accuracy)[-1])]

    def tables(self, used: NDArray[np.intp]) -> Array:
        """Return the M policies with the indices `used` [M] as tables [M, S, A] or [M, H, S, A]."""
        return np.stack([np.eye(self.oracle.cmdp.A)[self.act[j]] for j in used])
