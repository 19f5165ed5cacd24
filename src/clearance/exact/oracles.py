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
    """A protocol for objects that solve a model under one criterion; a deterministic policy is `act`, [S] or [H, S]."""

    cmdp: CMDP

    def best(self, weights: Array, accuracy: float = 0.0, start: Any = None) -> tuple[Any, float, Array]:
        """Return a policy that maximises weights·J up to `accuracy`, an upper bound of the maximum up to rounding,
        and J [1+I] of the policy. The search may begin with the policy `start`.
        """
        ...

    def dual(self, lam: Array, reward: float = 1.0, start: Any = None) -> tuple[float, Array, Any]:
        """Return max_π reward·J_r + Σ_i λ_i (J_gi − b_i) rounded up, vectors that prove it, and a greedy policy.

        The search may begin with the policy `start`.
        """
        ...


ORACLES: dict[str, Any] = {"horizon": HorizonOracle, "total": TotalOracle, "average": AverageOracle}
BOUNDS: dict[str, Any] = {"horizon": horizon_oracle, "total": total_oracle, "average": average_bounds}


def oracle_of(cmdp: CMDP) -> Oracle:
    """Return the oracle for the model's criterion, which must not be the discounted one."""
    return ORACLES[cmdp.kind](cmdp)


def accuracy_for(gap: float, tol: float) -> float:
    """Return how accurate a bound must be while the gap is `gap`, if the last gap may be `tol`."""
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
        """Find max_π weights·(J_r, J_g − b), add the policy to the columns, and return an upper bound up to rounding.

        The bound is only as accurate as the current `gap` and the final one, `tol`, require.
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
