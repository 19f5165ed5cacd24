"""Load a policy that the user gives as the path of a file or run folder."""

from __future__ import annotations

import os
from typing import Any

from clearance.finite.cmdp import CMDP
from clearance.finite.mixture import Mixture
from clearance.simulator.simulator import Simulator


def load_problem_policy(problem: Any, path: str | os.PathLike[str]) -> Any:
    """Return the policy in a file or run folder, for the given problem.

    The file is an .npz file; for a finite model it may also be a .csv or .json file.
    """
    path = os.path.join(path, "policy.npz") if os.path.isdir(path) else os.fspath(path)
    if not isinstance(problem, Simulator):
        return Mixture.load(path, problem if isinstance(problem, CMDP) else None)
    from clearance.simulator.policies.rule_mixture import load_mixture

    return load_mixture(path)
