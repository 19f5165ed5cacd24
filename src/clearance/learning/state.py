"""The state carried from one iteration to the next, and the information that an iteration reports."""

from __future__ import annotations

from typing import Any, NamedTuple

from clearance.core.arrays import Array


class State(NamedTuple):
    """The state that one iteration passes to the next.

    It holds θ [d], λ [I], the number k of iterations done, the sampler's memory, and the method's own memory. Both
    memories are nested tuples of arrays and numbers.
    """

    theta: Array
    lam: Array
    k: int
    sampler_memory: Any = None
    method_memory: Any = None

    def __repr__(self) -> str:
        lam = ", ".join(f"{x:.6g}" for x in self.lam[:8]) + (", …" if len(self.lam) > 8 else "")
        return f"<State: after {self.k:,} iterations, lam = ({lam}), {self.theta.size:,} parameters>"


class Info(NamedTuple):
    """The information that iteration k reports to the trace.

    J_hat       the estimated values Ĵ [1+I]
    omega_norm  the norm of the update direction ω of θ
    steps       environment steps taken in this iteration
    counts      the weight of θ^k in the mixture that the method returns: 1, or 0 if the method leaves this iterate out
    """

    J_hat: Array
    omega_norm: float
    steps: int
    counts: float = 1.0
