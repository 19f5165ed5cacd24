"""The methods that `compare` runs: how each is made from two settings x and y, and which of its outputs is reported.

In one iteration the logits move by x(1−γ)A, and λ by y(1−γ)(J_g − b); in methods with other updates, x and y scale the
corresponding settings. A user's own method is not tuned: its class gets K and N if it has such fields, and an instance
runs unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from clearance.core.errors import InputError
from clearance.exact.model_based import ModelBased
from clearance.finite.cmdp import CMDP
from clearance.finite.samplers.algorithm2 import Table
from clearance.finite.samplers.generative import Generative
from clearance.finite.samplers.network_critic import NetworkCritic
from clearance.finite.samplers.td_critic import Critic
from clearance.finite.samplers.trajectory import Trajectory
from clearance.finite.softmax_policy import softmax
from clearance.finite.two_layer_policy import two_layer
from clearance.learning.direction import WeightedSGD
from clearance.learning.methods.cnpgpd import CNPGPD
from clearance.learning.methods.crpo import CRPO
from clearance.learning.methods.method_base import Method
from clearance.learning.methods.npgpd import NPGPD
from clearance.learning.methods.opgpd import OPGPD
from clearance.learning.methods.pdanpg import PDANPG
from clearance.learning.methods.pdnac import PDNAC
from clearance.learning.methods.pmdpd import PMDPD
from clearance.learning.methods.regularised_cnpgpd import RegularisedCNPGPD
from clearance.learning.methods.rpgpd import RPGPD
from clearance.learning.sampler import Sampler
from clearance.runs.field_values import is_code
from clearance.runs.method_settings import method_class
from clearance.runs.method_table import METHODS

WIDTH = 32  # of the networks of neural CRPO

Made = tuple[Method, Sampler | None]  # None: the sampler that the method needs


class Budget(NamedTuple):
    """The budget of one run: environment steps, iterations K, and u = 1 − γ with the problem's discount factor γ."""

    steps: float
    K: int
    u: float  # 1 − γ

    def walks(self, each: float = 1.0) -> int:
        """Return how many samples per iteration fit into the step budget, but at least 1.

        One sample takes `each` rollouts of 1/(1 − γ) steps.
        """
        return max(1, int(self.steps * self.u / (each * self.K)))


# Algorithm 2 takes four walks for a sample: to (s, a), for Q, for V, for J.
def _primal_dual(kind: Any, cmdp: CMDP, at: Budget, x: float, y: float, **more: Any) -> Made:
    method = kind(K=at.K, N=at.walks(4), eta1=x * at.u**2, eta2=y * at.u, **more)
    return method, Table(cmdp, softmax(cmdp.S, cmdp.A, cmdp.available))


def _critic(cmdp: CMDP) -> Critic:
    return Critic(cmdp, softmax(cmdp.S, cmdp.A, cmdp.available))


def _regularised(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    return RegularisedCNPGPD(K=at.K, N=at.walks(), nu=min(1.0, 0.02 * x), eta2=60.0 * y), _critic(cmdp)


def _tolerance(at: Budget, y: float) -> float:
    """Return CRPO's tolerance η in the units of J: proportional to the setting y and to 1/√K, for K iterations."""
    return 0.1 * y / (at.u * np.sqrt(at.K))


def _crpo(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    return CRPO(K=at.K, N=at.walks(), alpha=x * at.u**2, tolerance=_tolerance(at, y)), _critic(cmdp)


def _neural_crpo(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    policy = two_layer(cmdp.S, cmdp.A, WIDTH, available=cmdp.available)
    method = CRPO(K=at.K, N=at.walks(), alpha=x * at.u**2, tolerance=_tolerance(at, y))
    return method, NetworkCritic(cmdp, policy, WIDTH)


def _pmdpd(cmdp: CMDP, at: Budget, x: float, y: float, kappa: Any = 0.0) -> Made:
    return PMDPD(K=at.K, N=at.walks(), alpha=1 / (x * at.u), eta=y * at.u, kappa=kappa), _critic(cmdp)


def _pdnac(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    """Make the method PD-NAC and its sampler for the budget `at`; x and y scale the steps of the logits and of λ.

    As in the paper, the critic's step size is β ~ T^(−1/2) and the exploration is ε ~ T^(−1/6), where T is the number
    of steps of the trajectory.
    """
    sampler = Trajectory(
        cmdp,
        softmax(cmdp.S, cmdp.A, cmdp.available),
        beta=min(0.5, 10 * at.steps**-0.5),
        explore=min(0.5, at.steps ** (-1 / 6)),
    )
    return PDNAC(K=at.K, N=max(1, int(at.steps / at.K)), alpha=x * at.u, eta=y * at.u), sampler


def _rpgpd(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    return RPGPD(K=at.K, N=at.walks(), eta=x * at.u, tau=0.01 * y), _critic(cmdp)


def _opgpd(cmdp: CMDP, at: Budget, x: float, y: float, geometry: Any = "euclidean") -> Made:
    """Make the method OPG-PD, or OMWU-PD if the geometry is "entropic", and its sampler, for the budget `at`.

    Both have a single step size η for π and λ. It is computed from x and y, so that the fifteen pairs (x, y) that are
    tried give fifteen values. With the geometry "euclidean", where π is a table of probabilities, η is ten times
    smaller.
    """
    eta = x * y ** (1 / 3) * at.u * (0.1 if geometry == "euclidean" else 1.0)
    return OPGPD(K=at.K, N=at.walks(), eta=eta, geometry=geometry), _critic(cmdp)


def _model_based(cmdp: CMDP, at: Budget, x: float, y: float, solver: Any = "primal-dual") -> Made:
    """Make the model-based method and its sampler for the budget `at`.

    x scales the margin κ relative to the sampling noise, and y scales the step of λ. `solver` is the planner on the
    estimated model.
    """
    pairs = int(cmdp.available.sum())
    N = max(1, int(at.steps / pairs))
    kappa = 0.02 * x / (at.u * np.sqrt(N))
    K = 2 if solver == "lp" else at.K  # planning takes no samples
    method = ModelBased(K=K, N=N, eta=y * at.u, kappa=kappa, solver=solver)
    return method, Generative(cmdp, softmax(cmdp.S, cmdp.A, cmdp.available))


def _with_defaults(kind: Any, cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    """Make an instance of a user's class `kind` with its defaults; x and y are not used.

    If the class has fields K (iterations) and N (samples per iteration), they are set from the budget `at`.
    """
    pairs = int(cmdp.available.sum())
    samples = {"walks": at.walks(4), "trajectory": int(at.steps / at.K), "generative": int(at.steps / pairs)}
    given = {"K": at.K, "N": max(1, samples.get(getattr(kind, "draw_kind", "walks"), at.walks()))}
    return kind(**{f.name: given[f.name] for f in fields(kind) if f.name in given}), None


class Contestant(NamedTuple):
    """A method in a comparison.

    make    function (model, budget, x, y) that makes the method and its sampler; x and y are its two main settings
    output  the iterate by which the method is judged;  label: the method's name in tables
    tuned   whether x and y are tuned
    """

    make: Callable[[CMDP, Budget, float, float], Made]
    output: Literal["average", "last"]
    label: str
    tuned: bool = True


CONTESTANTS: dict[str, Contestant] = {
    "regularised": Contestant(_regularised, "last", "regularised C-NPG-PD"),
    "cnpgpd": Contestant(partial(_primal_dual, CNPGPD), "average", "C-NPG-PD"),
    "npgpd": Contestant(partial(_primal_dual, NPGPD), "average", "NPG-PD"),
    "npgpd-weighted": Contestant(
        partial(_primal_dual, NPGPD, direction=WeightedSGD()), "average", "NPG-PD, weighted SGD"
    ),
    "pdanpg": Contestant(partial(_primal_dual, PDANPG), "average", "PD-ANPG"),
    "crpo": Contestant(_crpo, "average", "CRPO"),
    "crpo-neural": Contestant(_neural_crpo, "average", "CRPO, two-layer network"),
    "pmdpd": Contestant(_pmdpd, "average", "PMD-PD"),
    "pmdpd-zero": Contestant(partial(_pmdpd, kappa="auto"), "average", "PMD-PD-Zero"),
    "pdnac": Contestant(_pdnac, "average", "PD-NAC"),
    "rpgpd": Contestant(_rpgpd, "last", "RPG-PD"),
    "opgpd": Contestant(_opgpd, "last", "OPG-PD"),
    "omwupd": Contestant(partial(_opgpd, geometry="entropic"), "last", "OMWU-PD"),
    "modelbased": Contestant(_model_based, "average", "model-based, primal-dual"),
    "modelbased-lp": Contestant(partial(_model_based, solver="lp"), "average", "model-based, LP"),
}


def find_contestants(methods: Sequence[Any]) -> dict[str, Contestant]:
    """Return the methods to compare as a dict {name: method}.

    `methods` may contain names of built-in methods, texts `package.module:Class`, classes and instances.

    >>> list(find_contestants(["crpo", NPGPD, CNPGPD(K=10)]))
    ['crpo', 'npgpd', 'CNPGPD']
    """
    found: dict[str, Contestant] = {}
    for method in methods:
        name, contestant = _contestant(method)
        if name in found:
            raise InputError(f"methods: {name} is given twice")
        found[name] = contestant
    return found


def _contestant(method: Any) -> tuple[str, Contestant]:
    own = {METHODS[name]: name for name in CONTESTANTS if name in METHODS}
    name = own.get(method, method) if isinstance(method, type) else method
    if isinstance(name, str):
        if name in CONTESTANTS:
            return name, CONTESTANTS[name]
        if not is_code(name):
            raise InputError(f"methods: {name!r} is none of {', '.join(CONTESTANTS)}, nor package.module:Class")
        return name, _contestant(method_class(name))[1]
    kind = name if isinstance(name, type) else type(name)
    if not (hasattr(kind, "init") and hasattr(kind, "step")):
        raise InputError(f"methods: {kind.__name__} is no method: it needs init and step")
    make = partial(_with_defaults, kind) if isinstance(name, type) else lambda *_: (name, None)
    return kind.__name__, Contestant(make, getattr(kind, "output", "average"), kind.__name__, tuned=False)
