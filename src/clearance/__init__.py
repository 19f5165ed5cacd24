"""Constrained reinforcement learning and MDP solving, with certificates.

Policies are proven, or statistically certified, to meet their limits in expectation.

>>> import clearance as cl
>>> best = cl.optimum(cl.zoo.two_state())
>>> round(best.J_r, 6), best.lam.round(6).tolist()
(0.666667, [1.0])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearance import zoo
    from clearance.certificates.certificate import Certificate
    from clearance.cluster.executor import Local, run_all
    from clearance.cluster.ray_executor import Ray
    from clearance.core.errors import EnvironmentFault, InfeasibleError, InputError, MissingExtraError, SolverError
    from clearance.core.spaces import Box, Discrete, MultiDiscrete
    from clearance.core.tail_limits import Chance, CVaR
    from clearance.deploy.export import export_policy
    from clearance.deploy.monitor import LimitAlarm, Monitor
    from clearance.deploy.policy_file import load_policy
    from clearance.deploy.running_policy import NotCertifiedWarning
    from clearance.exact import theory
    from clearance.exact.episode_optimum import EpisodeOptimum, episode_optimum, limit_episodes
    from clearance.exact.feasibility import slater_margin
    from clearance.exact.infeasibility import Infeasibility, diagnose
    from clearance.exact.model_based import ModelBased
    from clearance.exact.optimum import Optimum, optimum
    from clearance.exchange.env_tables import from_toy_text
    from clearance.exchange.function_model import model
    from clearance.exchange.matrices import from_matrices, from_quantecon
    from clearance.exchange.model_files import load_model, save_model
    from clearance.exchange.policy_files import actions_at, save_policy
    from clearance.exchange.table_format import from_table
    from clearance.finite.cmdp import CMDP
    from clearance.finite.evaluation import occupancy
    from clearance.finite.mixture import Mixture
    from clearance.finite.reachability import limit_reach
    from clearance.finite.samplers.algorithm2 import Table
    from clearance.finite.samplers.exact_sampler import Exact
    from clearance.finite.samplers.generative import Generative
    from clearance.finite.samplers.network_critic import NetworkCritic
    from clearance.finite.samplers.td_critic import Critic
    from clearance.finite.samplers.trajectory import Trajectory
    from clearance.finite.softmax_policy import class_model, linear_softmax, softmax
    from clearance.finite.two_layer_policy import two_layer
    from clearance.learning.direction import SGD, AcceleratedSGD, LeastSquares, Tabular, WeightedSGD
    from clearance.learning.methods.cnpgpd import CNPGPD
    from clearance.learning.methods.crpo import CRPO
    from clearance.learning.methods.npgpd import NPGPD
    from clearance.learning.methods.opgpd import OPGPD
    from clearance.learning.methods.pdanpg import PDANPG
    from clearance.learning.methods.pdnac import PDNAC
    from clearance.learning.methods.pmdpd import PMDPD
    from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
    from clearance.learning.methods.practical_crpo import PracticalCRPO
    from clearance.learning.methods.regularised_cnpgpd import RegularisedCNPGPD
    from clearance.learning.methods.rpgpd import RPGPD
    from clearance.learning.trace import Trace
    from clearance.reporting.report import report
    from clearance.runs import run_reader as run
    from clearance.runs.certificate_check import CheckedCertificate, check_certificate
    from clearance.runs.certify import certify
    from clearance.runs.evaluate import EpisodeStatistics, evaluate
    from clearance.runs.resume import resume
    from clearance.runs.run_reader import RunFolder
    from clearance.runs.run_writer import DamagedRunWarning
    from clearance.runs.solution import Solution
    from clearance.runs.solve import solve
    from clearance.runs.worlds.finite_kappa import ConservatismWarning
    from clearance.simulator.gymnasium_envs.env_check import check_env
    from clearance.simulator.gymnasium_envs.env_client import SideProcess
    from clearance.simulator.gymnasium_envs.gymnasium_problem import gymnasium
    from clearance.simulator.gymnasium_envs.tabular_problem import tabular
    from clearance.simulator.jax_envs.jax_adapters import from_brax, from_gymnax
    from clearance.simulator.jax_envs.jax_environment import environment
    from clearance.simulator.policies.network_mixture import NetworkMixture
    from clearance.simulator.policies.network_policy import categorical, gaussian
    from clearance.simulator.remote_lanes import Fleet
    from clearance.studies.compare import Comparison, compare
    from clearance.studies.frontier import Frontier, frontier
    from clearance.studies.sweep import Sweep, sweep

__version__ = "0.2.0.dev0"

# Where each public name lives: loaded when first used, so that `import clearance` costs next to nothing.
_HOME = {
    "AcceleratedSGD": "learning.direction",
    "Box": "core.spaces",
    "CMDP": "finite.cmdp",
    "CNPGPD": "learning.methods.cnpgpd",
    "CRPO": "learning.methods.crpo",
    "CVaR": "core.tail_limits",
    "Certificate": "certificates.certificate",
    "Chance": "core.tail_limits",
    "CheckedCertificate": "runs.certificate_check",
    "Comparison": "studies.compare",
    "ConservatismWarning": "runs.worlds.finite_kappa",
    "Critic": "finite.samplers.td_critic",
    "DamagedRunWarning": "runs.run_writer",
    "Discrete": "core.spaces",
    "EnvironmentFault": "core.errors",
    "EpisodeOptimum": "exact.episode_optimum",
    "EpisodeStatistics": "runs.evaluate",
    "Exact": "finite.samplers.exact_sampler",
    "Fleet": "simulator.remote_lanes",
    "Frontier": "studies.frontier",
    "Generative": "finite.samplers.generative",
    "Infeasibility": "exact.infeasibility",
    "InfeasibleError": "core.errors",
    "InputError": "core.errors",
    "LeastSquares": "learning.direction",
    "LimitAlarm": "deploy.monitor",
    "Local": "cluster.executor",
    "MissingExtraError": "core.errors",
    "Mixture": "finite.mixture",
    "ModelBased": "exact.model_based",
    "Monitor": "deploy.monitor",
    "MultiDiscrete": "core.spaces",
    "NPGPD": "learning.methods.npgpd",
    "NetworkCritic": "finite.samplers.network_critic",
    "NetworkMixture": "simulator.policies.network_mixture",
    "NotCertifiedWarning": "deploy.running_policy",
    "OPGPD": "learning.methods.opgpd",
    "Optimum": "exact.optimum",
    "PDANPG": "learning.methods.pdanpg",
    "PDNAC": "learning.methods.pdnac",
    "PMDPD": "learning.methods.pmdpd",
    "PracticalCNPGPD": "learning.methods.practical_cnpgpd",
    "PracticalCRPO": "learning.methods.practical_crpo",
    "RPGPD": "learning.methods.rpgpd",
    "Ray": "cluster.ray_executor",
    "RegularisedCNPGPD": "learning.methods.regularised_cnpgpd",
    "RunFolder": "runs.run_reader",
    "SGD": "learning.direction",
    "SideProcess": "simulator.gymnasium_envs.env_client",
    "Solution": "runs.solution",
    "SolverError": "core.errors",
    "Sweep": "studies.sweep",
    "Table": "finite.samplers.algorithm2",
    "Tabular": "learning.direction",
    "Trace": "learning.trace",
    "Trajectory": "finite.samplers.trajectory",
    "WeightedSGD": "learning.direction",
    "actions_at": "exchange.policy_files",
    "categorical": "simulator.policies.network_policy",
    "certify": "runs.certify",
    "check_certificate": "runs.certificate_check",
    "check_env": "simulator.gymnasium_envs.env_check",
    "class_model": "finite.softmax_policy",
    "compare": "studies.compare",
    "diagnose": "exact.infeasibility",
    "environment": "simulator.jax_envs.jax_environment",
    "episode_optimum": "exact.episode_optimum",
    "evaluate": "runs.evaluate",
    "export_policy": "deploy.export",
    "from_brax": "simulator.jax_envs.jax_adapters",
    "from_gymnax": "simulator.jax_envs.jax_adapters",
    "from_matrices": "exchange.matrices",
    "from_quantecon": "exchange.matrices",
    "from_table": "exchange.table_format",
    "from_toy_text": "exchange.env_tables",
    "frontier": "studies.frontier",
    "gaussian": "simulator.policies.network_policy",
    "gymnasium": "simulator.gymnasium_envs.gymnasium_problem",
    "tabular": "simulator.gymnasium_envs.tabular_problem",
    "limit_episodes": "exact.episode_optimum",
    "limit_reach": "finite.reachability",
    "linear_softmax": "finite.softmax_policy",
    "load_model": "exchange.model_files",
    "load_policy": "deploy.policy_file",
    "model": "exchange.function_model",
    "occupancy": "finite.evaluation",
    "optimum": "exact.optimum",
    "report": "reporting.report",
    "resume": "runs.resume",
    "run_all": "cluster.executor",
    "save_model": "exchange.model_files",
    "save_policy": "exchange.policy_files",
    "slater_margin": "exact.feasibility",
    "softmax": "finite.softmax_policy",
    "solve": "runs.solve",
    "sweep": "studies.sweep",
    "two_layer": "finite.two_layer_policy",
}
_MODULES = {"run": "runs.run_reader", "theory": "exact.theory", "zoo": "zoo"}

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
    "CVaR",
    "Certificate",
    "Chance",
    "CheckedCertificate",
    "Comparison",
    "ConservatismWarning",
    "Critic",
    "DamagedRunWarning",
    "Discrete",
    "EnvironmentFault",
    "EpisodeOptimum",
    "EpisodeStatistics",
    "Exact",
    "Fleet",
    "Frontier",
    "Generative",
    "Infeasibility",
    "InfeasibleError",
    "InputError",
    "LeastSquares",
    "LimitAlarm",
    "Local",
    "MissingExtraError",
    "Mixture",
    "ModelBased",
    "Monitor",
    "MultiDiscrete",
    "NetworkCritic",
    "NetworkMixture",
    "NotCertifiedWarning",
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
    "actions_at",
    "categorical",
    "certify",
    "check_certificate",
    "check_env",
    "class_model",
    "compare",
    "diagnose",
    "environment",
    "episode_optimum",
    "evaluate",
    "export_policy",
    "from_brax",
    "from_gymnax",
    "from_matrices",
    "from_quantecon",
    "from_table",
    "from_toy_text",
    "frontier",
    "gaussian",
    "gymnasium",
    "limit_episodes",
    "limit_reach",
    "linear_softmax",
    "load_model",
    "load_policy",
    "model",
    "occupancy",
    "optimum",
    "report",
    "resume",
    "run",
    "run_all",
    "save_model",
    "save_policy",
    "slater_margin",
    "softmax",
    "solve",
    "sweep",
    "tabular",
    "theory",
    "two_layer",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"clearance.{_MODULES[name]}")
    if name not in _HOME:
        raise AttributeError(f"module 'clearance' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"clearance.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
