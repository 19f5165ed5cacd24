"""The start of a run on a simulator if the user gave `init`: another run, a policy, or a rule that is imitated."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clearance.certificates.certificate import Certificate
from clearance.certificates.certificate_fields import read_certificate_text
from clearance.core.array_files import read_arrays
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest
from clearance.core.errors import InputError
from clearance.core.network_form import ARRAYS
from clearance.deploy.rule_runner import RuleRunner
from clearance.deploy.running_policy import NetworkRunner
from clearance.learning.sampler import Sampler
from clearance.learning.state import State
from clearance.runs import run_reader
from clearance.runs.run_reader import RunFolder
from clearance.runs.solution import Solution
from clearance.runs.start_file import BY_RULE, describe_run, describe_verdict, last_state, same_shapes
from clearance.runs.worlds.world import Start
from clearance.simulator.jax_backend import real
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import NetworkPolicy, Normaliser
from clearance.simulator.policies.rule_mixture import RuleMixture, load_mixture, rule_name
from clearance.simulator.samplers.actor_critic import Practical
from clearance.simulator.samplers.imitation import imitate
from clearance.simulator.simulator import Simulator

KINDS = "a run folder, a policy file, a Solution, a NetworkMixture, a policy by load_policy or a rule"


@dataclass(frozen=True, eq=False)
class Source:
    """The start that the user gave to `solve` as `init`: a policy, a rule, or an earlier run.

    mixture, rule  the policy or the rule; None if there is none;  origin: a description for the certificate
    lam            the multipliers of the earlier run, by the names of the constraints
    state          function from a sampler to the last state of the earlier run, or None
    """

    mixture: NetworkMixture | None
    origin: str
    lam: dict[str, float] = field(default_factory=dict)
    state: Callable[[Sampler], State | None] = lambda sampler: None
    rule: Callable[[Any], Any] | None = None

    @property
    def policy_class(self) -> NetworkPolicy | None:
        return None if self.mixture is None else self.mixture.policy


def read_source(init: Any) -> Source:
    """Read `init`, an argument of `solve`: a run, a policy, the path of a file, or a rule."""
    if isinstance(init, str | Path) and os.path.isdir(init):
        return _from_run(run_reader.load(init))
    if isinstance(init, RunFolder):
        return _from_run(init)
    if isinstance(init, str | Path):
        text = read_arrays(init, ("certificate",)).get("certificate")
        seen = None if text is None else read_certificate_text(init, str(text))
        return _from_policy(_network(load_mixture(init)), seen)
    if isinstance(init, Solution):
        lam = dict(zip(init.statement.names, init.lam.tolist(), strict=True))
        origin = f"a run of seed {init.seed}{describe_verdict(init.certificate)}"
        return Source(_network(init.policy), origin, lam, lambda sampler: init.state)
    if isinstance(init, NetworkRunner | RuleRunner):
        return _from_policy(_network(as_mixture(init)), init.certificate)
    if callable(init) and not isinstance(init, RuleMixture):
        return Source(None, f"{BY_RULE}{rule_name(init)}, imitated", rule=init)
    return _from_policy(_network(init), None)


def as_mixture(policy: NetworkRunner | RuleRunner) -> NetworkMixture | RuleMixture:
    """Convert a policy from `load_policy` to the mixture that is stored in its file."""
    if isinstance(policy, RuleRunner):
        networks, share = policy.weights[:-1], float(policy.weights[-1] / policy.weights.sum())
        networks = networks if networks.any() else np.ones(len(networks))
        own = _network(as_mixture(policy.networks))
        return RuleMixture(own.part(networks), share, policy.rule, policy.name, policy.rng)
    form = NetworkPolicy.from_description(policy.form.description())
    return NetworkMixture(form, policy.weights, policy.theta.astype(float), Normaliser(*policy.normaliser))


def _network(policy: Any) -> NetworkMixture:
    """Return the networks of a policy as a mixture; a rule in the policy is left out.

    A user who wants to begin from a rule gives the rule itself as `init`.
    """
    policy = policy.networks if isinstance(policy, RuleMixture) else policy
    if not isinstance(policy, NetworkMixture):
        raise InputError(f"init must be {KINDS}, got {type(policy).__name__}")
    return policy


def _from_run(run: RunFolder) -> Source:
    if not run.on_simulator:
        raise InputError(f"init: {run.folder} is a run on a finite model, this problem is a simulator")
    if run.policy is None:
        raise InputError(f"init: {run.folder} has no policy yet: finish it with clearance solve --resume")
    seen = run.certificate
    lam = {} if seen is None or seen.lam is None else dict(zip(run.problem.names, seen.lam, strict=True))
    return Source(_network(run.policy), describe_run(run), lam, lambda sampler: last_state(run, sampler))


def _from_policy(mixture: NetworkMixture, seen: Certificate | None) -> Source:
    arrays = {name: x for name, x in mixture.arrays().items() if name in ARRAYS and name != "policy"}
    origin = f"policy {digest(mixture.policy.description(), arrays)[:12]}{describe_verdict(seen)}"
    lam = {} if seen is None or seen.lam is None or seen.names is None else dict(zip(seen.names, seen.lam, strict=True))
    return Source(mixture, origin, lam)


def begin_by_imitation(source: Source, simulator: Simulator, sampler: Any, key: np.uint64, most: float) -> Start:
    """Return the start of a run at a network that is trained to imitate the rule of `source`.

    This network is also a candidate for the final policy.

    most  the largest number of environment steps for the episodes of the rule
    """
    assert source.rule is not None
    near = getattr(simulator, "near", simulator)
    theta, normaliser, steps = imitate(near, sampler.policy, source.rule, key, most)
    lam = np.zeros(simulator.statement.I)
    return Start(theta, lam, _begin_memory(sampler, normaliser), theta[None], steps, source.origin, source.rule)


def begin_at(source: Source, sampler: Any, names: tuple[str, ...]) -> Start:
    """Return the start of a run from `source`: θ, λ and critics of an earlier run's last iterate, as far as they fit.

    If `source` has no such run, θ is that of the policy with the largest weight in its mixture. Multipliers λ are
    matched by the names of their constraints; `names` are the constraints of the new problem.
    """
    mixture = source.mixture
    assert mixture is not None
    if sampler.policy.description() != mixture.policy.description():
        raise InputError("policy is not the class that init was learned in: leave it out")
    memory, state = _begin_memory(sampler, mixture.normaliser), source.state(sampler)
    theta, lam = mixture.theta[np.argmax(mixture.weights)], source.lam
    if state is not None and len(state.theta) == sampler.policy.d:
        theta = np.asarray(state.theta, float)
        if tuple(lam) == names and len(state.lam) == len(names):
            lam = dict(zip(names, np.asarray(state.lam, float).tolist(), strict=True))
        # The stored samples of the critics belong to the old problem and are dropped; the critics themselves are kept.
        carried = state.sampler_memory
        if isinstance(sampler, Practical):
            carried = carried._replace(past=memory.past)
        if tuple(source.lam) == names and same_shapes(carried, memory):
            memory = carried
    multipliers: Array = np.array([max(lam.get(name, 0.0), 0.0) for name in names])
    return Start(theta, multipliers, memory, mixture.theta, 0, source.origin)


def _begin_memory(sampler: Any, normaliser: Normaliser) -> Any:
    """Return the sampler's initial memory. It contains `normaliser`, the normaliser of observations used to learn θ.

    Raise InputError if the sampler does not normalise observations, but θ was learned with normalised observations.
    """
    memory = sampler.begin()
    if isinstance(sampler, Practical):
        return memory._replace(normaliser=Normaliser(*(real(x) for x in normaliser)))
    if normaliser.count > 0:
        raise InputError("init was learned with normalised observations, which Algorithm 1 does not have: use "
                         "PracticalCNPGPD, or learn it with normalise=False")  # fmt: skip
    return memory
