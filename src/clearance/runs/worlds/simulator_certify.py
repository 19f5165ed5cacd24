"""Helpers for certificates on simulators: checks that a policy fits, sources of episodes, scope and bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from clearance.certificates.assumptions import FRESH_RESETS, RULE, STEADY, assume
from clearance.certificates.certificate import Certificate
from clearance.certificates.episode_source import Episodes
from clearance.certificates.steady_episodes import SteadyEpisodes
from clearance.certificates.verdict_words import policy_words, scope_words
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.spaces import describe_space
from clearance.runs.worlds.simulator_candidates import AnyMixture
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import NetworkPolicy
from clearance.simulator.policies.rule_mixture import RuleMixture, describe_rule
from clearance.simulator.samplers.rule_episodes import OwnRuleEpisodes, RuleMixtureEpisodes, describe_lanes
from clearance.simulator.samplers.simulator_episodes import NetworkEpisodes
from clearance.simulator.samplers.tail_quantiles import cost_range
from clearance.simulator.simulator import Simulator


def check_memory(simulator: Simulator, policy: NetworkPolicy) -> None:
    """Raise InputError unless the simulator shows policies the accumulated costs that this policy expects.

    Otherwise the policy would get other inputs when it is certified than when it is used.
    """
    if policy.memory != simulator.memory:
        kinds = ["observations alone" if x is None else f"{x.describe()}" for x in (policy.memory, simulator.memory)]
        told = f"policy sees {kinds[0]}, {simulator.statement.name} shows {kinds[1]}"
        raise InputError(f"{told}: give problem.remembering(policy.memory), or a policy for this problem")


def check_fits(simulator: Simulator, mixture: Any) -> NetworkMixture:
    """Return the mixture unchanged; raise InputError if it does not fit the simulator's observations and actions."""
    if not isinstance(mixture, NetworkMixture):
        where = "run in this process: leave out a fleet or an executor"
        rule = f" (rules `observation -> action` are {where})" if callable(mixture) else ""
        raise InputError(f"policy must be a NetworkMixture, got {type(mixture).__name__}{rule}")
    policy, actions = mixture.policy, describe_space(simulator.action)
    check_memory(simulator, policy)
    if policy.obs_shape != tuple(simulator.obs_shape) or describe_space(policy.space) != actions:
        raise InputError(
            f"policy is for observations {policy.obs_shape} and actions {describe_space(policy.space)}, "
            f"{simulator.statement.name} has {tuple(simulator.obs_shape)} and {actions}"
        )
    return mixture


def compare_early_and_late(simulator: Simulator, source: NetworkEpisodes) -> Episodes:
    """Return a source of the same episodes that also warns if early and late episodes differ.

    Network policies on JAX environments need no check; for them the source is returned unchanged.
    """
    pure = isinstance(getattr(simulator, "near", simulator), Environment)
    if pure and not isinstance(source, OwnRuleEpisodes | RuleMixtureEpisodes):
        return source
    return SteadyEpisodes(source, simulator.statement.name, ("the reward", *simulator.statement.names))


def exact_values(simulator: Simulator, mixture: NetworkMixture) -> tuple[Array, Array, Array]:
    """Return the exact J of the M policies in a mixture, its lower bounds and its upper bounds, each [M, 1+I]."""
    assert simulator.exact is not None
    found = [simulator.exact(mixture.policy, theta, mixture.normaliser) for theta in mixture.theta]
    J, lower, upper = (np.array(x) for x in zip(*found, strict=True))
    return J, lower, upper


def explain_values(J: Array) -> str:
    """Return a phrase on how the exact values J [1+I] were found, or why there are none."""
    if np.isnan(J).any():
        return "the policy's numbers are not finite in float32, so it has no values"
    if np.isinf(J).any():
        return "an expected sum is infinite, since the policy does not stabilise the system"
    return "values computed from the model in rational arithmetic, rounded outward"


def _replaced(values: list[float], i: int, value: float) -> list[float]:
    return [*values[:i], value, *values[i + 1 :]]


def simulator_scope(simulator: Simulator, policy: AnyMixture | None, subject: str | None = None) -> str:
    """Return a text that says what a verdict on a policy holds for, and what it assumes.

    `policy` is None for a rule. `subject` replaces the usual phrase about the simulator.
    """
    s, how = simulator.statement, "a rule, called as given"
    if isinstance(policy, RuleMixture):
        how = f"{policy_words(policy.M, 'one policy')}: {describe_rule(policy)}"
    elif policy is not None:
        how = f"{policy_words(policy.M, 'one network')}; its actions are sampled"
    subject = subject or f"the simulator {s.name} as it was run, from its own resets"
    words = scope_words(f"{subject}; nothing is added after termination", s.full_criterion, how, _tails(simulator))
    return words + assume(*_assumptions(simulator, policy))


def _assumptions(simulator: Simulator, policy: AnyMixture | None) -> list[str]:
    """Return a list of phrases: what a verdict assumes about the simulator and about a rule.

    The list is empty for network policies in JAX environments.
    """
    near: Any = getattr(simulator, "near", simulator)
    rule = [] if isinstance(policy, NetworkMixture) else [RULE]
    if isinstance(near, Environment):
        return rule
    many = policy is not None and (simulator.n > 1 or near is not simulator)
    return [FRESH_RESETS, STEADY, *([describe_lanes(simulator)] if many else []), *rule]


def _tails(simulator: Simulator) -> list[str]:
    """Return phrases that explain the limits on single episodes (P(…), CVaR), for the scope of the certificate."""
    s, slip = simulator.statement, f"a share of {simulator.slip:g}"
    rounding = [f"sums that exceed by less than {slip} count as equal"] if any(s.tails) else []
    nu = ["CVaR is bounded from above, by excess over a level that is fixed before the test"] * any(s.one_sided)
    return [*s.tail_words, *rounding, *nu]


def without_unknown_bounds(simulator: Simulator, certificate: Certificate) -> Certificate:
    """Return the certificate without bounds that cannot be known.

    These are the bounds of a reward without declared bounds, and the lower bounds of CVaR.
    """
    s = simulator.statement
    for i in np.flatnonzero(s.one_sided).tolist():
        least = -cost_range(simulator, i)[0]
        certificate = replace(certificate, J_upper=_replaced(certificate.J_upper, 1 + i, least))
        if certificate.interval is not None:
            low, high = certificate.interval
            certificate = replace(certificate, interval=(low, _replaced(high, 1 + i, least)))
    if s.bounds is not None and np.all(np.isfinite([x[0] for x in s.bounds])):
        return certificate
    lower, upper = [-np.inf, *certificate.J_lower[1:]], [np.inf, *certificate.J_upper[1:]]
    return replace(certificate, J_lower=lower, J_upper=upper, interval=None)
