"""clearance: constrained reinforcement learning with zero constraint violation, and a certificate.

>>> import clearance as cl
>>> best = cl.optimum(cl.zoo.two_state())
>>> round(best.J_r, 6), best.lam.round(6).tolist()
(0.666667, [1.0])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearance import run, theory, zoo
    from clearance.certificate import Certificate, certify
    from clearance.cluster import Ray
    from clearance.direction import SGD, AcceleratedSGD, LeastSquares, Tabular, WeightedSGD
    from clearance.errors import EnvironmentFault, InfeasibleError, InputError, MissingExtraError, SolverError
    from clearance.executor import Local, run_all
    from clearance.infeasible import Infeasibility, diagnose
    from clearance.methods import (
        CNPGPD,
        CRPO,
        NPGPD,
        OPGPD,
        PDANPG,
        PDNAC,
        PMDPD,
        RPGPD,
        ModelBased,
        RegularisedCNPGPD,
    )
    from clearance.mixture import Mixture
    from clearance.network import two_layer
    from clearance.oracle import Optimum, optimum, slater_margin
    from clearance.policy import class_model, linear_softmax, softmax
    from clearance.price import Frontier, frontier
    from clearance.problem import CMDP, evaluate, occupancy
    from clearance.reporting import report
    from clearance.resuming import resume
    from clearance.run import RunFolder
    from clearance.sample import Critic, Exact, Generative, NetworkCritic, Table, Trajectory
    from clearance.simulator.adapters import from_brax, from_gymnax
    from clearance.simulator.bridge import SideProcess
    from clearance.simulator.check import check_env
    from clearance.simulator.crpo import PracticalCRPO
    from clearance.simulator.environment import environment
    from clearance.simulator.fleet import Fleet
    from clearance.simulator.gym import gymnasium
    from clearance.simulator.method import PracticalCNPGPD
    from clearance.simulator.mixture import NetworkMixture
    from clearance.simulator.policy import categorical, gaussian
    from clearance.simulator.spaces import Box, Discrete, MultiDiscrete
    from clearance.solution import Solution
    from clearance.solving import ConservatismWarning, solve
    from clearance.store import DamagedRunWarning
    from clearance.sweeping import Sweep, sweep
    from clearance.trace import Trace

__version__ = "0.1.0"

# Where each public name lives: loaded when first used, so that `import clearance` costs next to nothing.
_HOME = {
    "AcceleratedSGD": "direction",
    "Box": "simulator.spaces",
    "CMDP": "problem",
    "CNPGPD": "methods",
    "CRPO": "methods",
    "Certificate": "certificate",
    "ConservatismWarning": "solving",
    "Critic": "sample",
    "DamagedRunWarning": "store",
    "Discrete": "simulator.spaces",
    "EnvironmentFault": "errors",
    "Exact": "sample",
    "Fleet": "simulator.fleet",
    "Frontier": "price",
    "Generative": "sample",
    "Infeasibility": "infeasible",
    "InfeasibleError": "errors",
    "InputError": "errors",
    "LeastSquares": "direction",
    "Local": "executor",
    "MissingExtraError": "errors",
    "Mixture": "mixture",
    "ModelBased": "methods",
    "MultiDiscrete": "simulator.spaces",
    "NPGPD": "methods",
    "NetworkCritic": "sample",
    "NetworkMixture": "simulator.mixture",
    "OPGPD": "methods",
    "Optimum": "oracle",
    "PDANPG": "methods",
    "PDNAC": "methods",
    "PMDPD": "methods",
    "PracticalCNPGPD": "simulator.method",
    "PracticalCRPO": "simulator.crpo",
    "RPGPD": "methods",
    "Ray": "cluster",
    "RegularisedCNPGPD": "methods",
    "RunFolder": "run",
    "SGD": "direction",
    "SideProcess": "simulator.bridge",
    "Solution": "solution",
    "SolverError": "errors",
    "Sweep": "sweeping",
    "Table": "sample",
    "Tabular": "direction",
    "Trace": "trace",
    "Trajectory": "sample",
    "WeightedSGD": "direction",
    "categorical": "simulator.policy",
    "certify": "certificate",
    "check_env": "simulator.check",
    "class_model": "policy",
    "diagnose": "infeasible",
    "environment": "simulator.environment",
    "evaluate": "problem",
    "from_brax": "simulator.adapters",
    "from_gymnax": "simulator.adapters",
    "frontier": "price",
    "gaussian": "simulator.policy",
    "gymnasium": "simulator.gym",
    "linear_softmax": "policy",
    "occupancy": "problem",
    "optimum": "oracle",
    "report": "reporting",
    "resume": "resuming",
    "run_all": "executor",
    "slater_margin": "oracle",
    "softmax": "policy",
    "solve": "solving",
    "sweep": "sweeping",
    "two_layer": "network",
}
_MODULES = ("run", "theory", "zoo")

__all__ = [
    "CMDP",
    "CNPGPD",
    "CRPO",
    "NPGPD",
    "OPGPD",
    "PDANPG",
    "PDNAC",
    "PMDPD",
    "RPGPD",
    "SGD",
    "AcceleratedSGD",
    "Box",
    "Certificate",
    "ConservatismWarning",
    "Critic",
    "DamagedRunWarning",
    "Discrete",
    "EnvironmentFault",
    "Exact",
    "Fleet",
    "Frontier",
    "Generative",
    "Infeasibility",
    "InfeasibleError",
    "InputError",
    "LeastSquares",
    "Local",
    "MissingExtraError",
    "Mixture",
    "ModelBased",
    "MultiDiscrete",
    "NetworkCritic",
    "NetworkMixture",
    "Optimum",
    "PracticalCNPGPD",
    "PracticalCRPO",
    "Ray",
    "RegularisedCNPGPD",
    "RunFolder",
    "SideProcess",
    "Solution",
    "SolverError",
    "Sweep",
    "Table",
    "Tabular",
    "Trace",
    "Trajectory",
    "WeightedSGD",
    "categorical",
    "certify",
    "check_env",
    "class_model",
    "diagnose",
    "environment",
    "evaluate",
    "from_brax",
    "from_gymnax",
    "frontier",
    "gaussian",
    "gymnasium",
    "linear_softmax",
    "occupancy",
    "optimum",
    "report",
    "resume",
    "run",
    "run_all",
    "slater_margin",
    "softmax",
    "solve",
    "sweep",
    "theory",
    "two_layer",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"clearance.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'clearance' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"clearance.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
