"""What `solve` gives back for a simulator: the policy to use with its certificate, and the run behind it."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clearance.certificate import Certificate
from clearance.errors import InputError
from clearance.files import save_json
from clearance.methods import State
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
    method: NaturalSteps
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
    def lam(self) -> Array:
        """λ of the last iterate [I]."""
        return self.state.lam

    @property
    def learning_steps(self) -> int:
        return int(self.trace.steps.sum())

    @property
    def last(self) -> NetworkMixture:
        """The last iterate: nothing is guaranteed of it."""
        return NetworkMixture.single(self.policy_class, self.state.theta, self.state.world.normaliser)

    def settings(self) -> dict[str, object]:
        """What was run, as plain data."""
        method = {"name": type(self.method).__name__, **asdict(self.method)}
        return {"method": method, "seed": self.seed, "status": self.status, "delta": self.delta}

    def save(self, folder: str | Path) -> None:
        """Write the run folder: problem, method, trace, policy and certificate."""
        folder = Path(folder).absolute()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"{folder}: exists and is not an empty folder; choose another --out")
        partial = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        try:
            (partial / "trace").mkdir(parents=True)
            self.trace.save(partial / "trace" / "000001.npz")
            self.policy.save(partial / "policy.npz")
            save_json(partial / "problem.json", described(self.simulator.statement))
            save_json(partial / "method.json", finite(self.settings()))
            save_json(partial / "certificate.json", finite(self.certificate.asdict()))
            partial.replace(folder)
        except OSError as e:
            shutil.rmtree(partial, ignore_errors=True)
            raise InputError(f"{folder}: cannot write: {e.strerror or e}") from None


def described(s: Statement) -> dict[str, Any]:
    """The statement as plain data."""
    bounds = None if s.bounds is None else [x.tolist() for x in s.bounds]
    data = {"name": s.name, "gamma": s.gamma, "b": s.b.tolist(), "names": list(s.names), "horizon": s.horizon}
    return finite(data | {"bounds": bounds, "meaning": s.meaning})


def finite(x: Any) -> Any:
    """The same with null for numbers that JSON has no word for."""
    if isinstance(x, dict):
        return {k: finite(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [finite(v) for v in x]
    return None if isinstance(x, float) and not np.isfinite(x) else x
