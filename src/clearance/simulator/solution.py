"""What `solve` gives back for a simulator: the policy to use with its certificate, and the run behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from clearance.certificate import Certificate
from clearance.methods import CNPGPD, State
from clearance.problem import Array
from clearance.simulator.mixture import NetworkMixture
from clearance.simulator.policy import NetworkPolicy
from clearance.simulator.problem import Simulator, Statement
from clearance.simulator.steps import NaturalSteps
from clearance.solution import Attempt
from clearance.trace import Trace


@dataclass(frozen=True, eq=False)
class SimulatorSolution:
    """`policy` is the one to use, `certificate` what is known of it; trace and state are those of the learning."""

    simulator: Simulator
    method: NaturalSteps | CNPGPD
    policy_class: NetworkPolicy
    trace: Trace
    state: State
    policy: NetworkMixture
    certificate: Certificate
    status: Literal["done", "interrupted"]
    seed: int
    seconds: float
    env_steps: int
    delta: float
    attempts: tuple[Attempt, ...] = ()

    @property
    def cmdp(self) -> Statement:
        """The problem, as far as it can be told: γ, b, names and what J means."""
        return self.simulator.statement

    @property
    def lam(self) -> Array:
        """λ of the last iterate [I]."""
        return self.state.lam

    @property
    def learning_steps(self) -> int:
        return int(self.trace.steps.sum())

    @property
    def last(self) -> NetworkMixture:
        """The last iterate: nothing is guaranteed of it."""
        return NetworkMixture.single(self.policy_class, self.state.theta, self.policy.normaliser)

    @property
    def kappa(self) -> Any:
        """The margin that the method kept from the limits."""
        return getattr(self.method, "kappa", None)

    def save(self, folder: str | Path) -> None:
        """Write the run folder, as `solve(…, out=…)` does while it goes on: this one cannot be resumed."""
        from clearance.simulator.folder import write_solution

        write_solution(self, folder)
