"""Certify policies of finite models: exactly, or from samples of the model used as a simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from clearance.certificates.assumptions import RULE, assume
from clearance.certificates.certificate import Certificate, EvidenceKind
from clearance.certificates.distributed_episodes import distribute
from clearance.certificates.episode_source import Episodes
from clearance.certificates.ledger import run_test
from clearance.certificates.sequential_test import gather
from clearance.certificates.statistical_certificate import certificate_from
from clearance.certificates.steady_episodes import SteadyEpisodes
from clearance.cluster.executor import Executor
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest
from clearance.core.errors import InputError
from clearance.core.random_streams import fold, key_of
from clearance.core.validation import read_numbers
from clearance.deploy.running_policy import RunningPolicy
from clearance.exact.exact_certificate import certify_exactly, scope_of
from clearance.exact.optimum import Optimum
from clearance.exact.stand_ins import with_time
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy
from clearance.finite.mixture import Mixture
from clearance.finite.named_policy import policy_by_names
from clearance.finite.samplers.finite_episodes import MixtureEpisodes, RuleEpisodes
from clearance.finite.samplers.total_episodes import PROOF, RuleSums, SumEpisodes, check_range

Rule = Callable[[int], Any]
AS_SIMULATOR = "this model, used as a simulator"  # in the scope of certificates from samples
# The same for horizons and totals: the range of an episode's sum is found from the possible transitions.
WITH_PATHS = f"{AS_SIMULATOR} (its possible transitions bound the sum of an episode)"
AS_TABLE = "give the rule as a table, with one action for each state"
FRESH = 2**41  # random streams of certificates: larger than the number of any iteration
GREEDY_STATES = 10**5  # beyond, certifying the greedy policy too takes as long as everything else together
# A policy counts as random only if it takes actions other than the most likely one more often than this: in this share
# of its steps if the model is known, otherwise with this probability in some state.
HAIR = 1e-6


def certify_finite(
    cmdp: CMDP,
    policy: Mixture | ArrayLike | Rule,
    *,
    evidence: EvidenceKind | None,
    delta: float,
    budget: float,
    seed: int,
    executor: Executor | None,
    ledger: Any = None,
    best: Optimum | None = None,
    compare: bool = True,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    base: ArrayLike | None = None,
) -> Certificate:
    """Certify a policy, or a rule `state -> action`, on a finite model; see `clearance.certify` for the arguments."""
    mixture = _as_mixture(cmdp, policy)
    evidence = evidence or ("samples" if mixture is None else "exact")
    if evidence not in ("exact", "samples"):
        raise InputError(f"evidence must be 'exact' or 'samples', got {evidence!r}")
    if mixture is not None:
        mixture.check(cmdp)
    if evidence == "exact":
        if mixture is None and cmdp.kind == "average":
            check_samples(cmdp, None, AS_TABLE)
        if mixture is None:
            raise InputError(
                "a rule `state -> action` can only be sampled: use evidence='samples', or give a table [S, A]"
            )
        if ledger is not None:
            raise InputError("out keeps the tests by samples; exact evidence is a proof, not a test: leave it out")
        _check_best(cmdp, best)
        return certify_table(cmdp, mixture, best, compare=compare)
    check_samples(cmdp, mixture, AS_TABLE if mixture is None else PROOF)
    declared = None if bounds is None else _read_bounds(cmdp, bounds)
    if mixture is None and executor is not None:
        raise InputError("a rule `state -> action` is asked in this process: leave out executor (--cluster)")
    if cmdp.kind != "discounted":
        if declared is not None or base is not None:
            raise InputError("bounds and base are for discounted sums: leave them out")
        sources: list[Episodes] = (_horizon_sources if cmdp.kind == "horizon" else _total_sources)(
            cmdp, mixture, policy
        )
    elif mixture is None:
        rule: Any = policy
        own = RuleEpisodes(cmdp, rule, declared)
        sources = [SteadyEpisodes(own, "the model", ("the reward", *cmdp.names))]
    else:
        V = None if base is None else _read_values(cmdp, base)
        sources = [MixtureEpisodes(cmdp, m, V, declared) for m in (mixture, most_likely(mixture))]
    with distribute(sources, executor) as drawn:
        return _certify_by_samples(cmdp, mixture, drawn, key_of(seed), delta, budget, ledger)


def _check_best(cmdp: CMDP, best: Optimum | None) -> None:
    """Raise InputError if `best` is the optimum of another model, since the gap to that optimum would prove nothing."""
    if best is None or best.model is cmdp:
        return
    if best.model is None or identify_model(best.model) != identify_model(cmdp):
        raise InputError("best is not the optimum of this model: leave it out, or give clearance.optimum(model)")


def identify_model(cmdp: CMDP) -> str:
    """Return a digest of a finite model."""
    return digest("CMDP", cmdp.arrays())


def check_samples(cmdp: CMDP, mixture: Mixture | None = None, way_out: str = PROOF) -> None:
    """Raise InputError if samples cannot certify the criterion of the model, because its estimates have no known range.

    This holds for long-run means, and for sums until absorption that can grow without bound on a cycle. With a mixture,
    only the state-action pairs that it can take count. `way_out` says how to do without samples.
    """
    if cmdp.kind == "average":
        raise InputError(
            "long-run means cannot be certified from samples without a bound on the time between visits of a state: "
            f"{way_out}, or use horizon=H for the first H steps"
        )
    if cmdp.kind == "total":
        every = Mixture.single(cmdp.available / cmdp.available.sum(1, keepdims=True))
        check_range(cmdp, SumEpisodes(cmdp, mixture or every).bounds, way_out)


def _total_sources(cmdp: CMDP, mixture: Mixture | None, policy: Any) -> list[Episodes]:
    """Return sources of episodes until absorption: of the policy and, for a mixture, of its greedy policy.

    `mixture` is None if `policy` is a rule.
    """
    if mixture is None:
        return [SteadyEpisodes(RuleSums(cmdp, policy), "the model", ("the reward", *cmdp.names))]
    return [SumEpisodes(cmdp, m) for m in (mixture, most_likely(mixture))]


def _horizon_sources(cmdp: CMDP, mixture: Mixture | None, policy: Any) -> list[Episodes]:
    """Return sources of episodes for a model with a horizon: of the policy and, for a mixture, of its greedy policy.

    `mixture` is None if `policy` is a rule. Episodes run on an equivalent model whose state includes the time.
    """
    timed = with_time(cmdp)
    if mixture is None:
        own = RuleEpisodes(timed.model, policy, untimed=cmdp)
        return [SteadyEpisodes(own, "the model", ("the reward", *cmdp.names))]
    return [MixtureEpisodes(timed.model, timed.forward(m)) for m in (mixture, most_likely(mixture))]


def sampled_scope(cmdp: CMDP, mixture: Mixture | None) -> str:
    """Return the scope of a certificate from samples of a policy; `mixture` is None if the policy is a rule."""
    return scope_of(cmdp, mixture, AS_SIMULATOR if cmdp.kind == "discounted" else WITH_PATHS)


def identify_table(cmdp: CMDP, mixture: Mixture) -> str:
    """Return a digest of a finite model and a policy."""
    return digest(["finite", identify_model(cmdp)], {"weights": mixture.weights, "pi": mixture.pi})


def certify_table(cmdp: CMDP, mixture: Mixture, best: Optimum | None = None, *, compare: bool = True) -> Certificate:
    """Return the exact certificate of a mixture of tables. With `compare`, it contains the gap to the optimum.

    `best` is the optimum, if it is known already. If a policy with random actions is CERTIFIED, the certificate also
    has the verdict on its greedy policy, except on large models.
    """
    found = certify_exactly(cmdp, mixture, best, compare=compare)
    if found.verdict != "CERTIFIED" or cmdp.S > GREEDY_STATES or _share_of_other_actions(cmdp, mixture) <= HAIR:
        return found
    greedy = certify_exactly(cmdp, most_likely(mixture), compare=False)
    return replace(found, greedy_verdict=greedy.verdict)


def _certify_by_samples(
    cmdp: CMDP,
    mixture: Mixture | None,
    sources: list[Episodes],
    key: np.uint64,
    delta: float,
    budget: float,
    ledger: Any,
) -> Certificate:
    """Test the policy on fresh samples and return its certificate.

    Without a ledger, the greedy policy of a certified policy is tested too. With a ledger it is not, because this test
    would use a further share of δ.

    mixture  the policy; None if it is a rule
    sources  the sources of episodes of the policy and of its greedy policy
    """
    identity = None if mixture is None or ledger is None else identify_table(cmdp, mixture)
    seen, spent, note = run_test(sources[0], cmdp.b, delta, fold(key, FRESH), budget, identity, ledger)
    facts: dict[str, Any] = {"note": note, "spent": spent, "names": list(cmdp.names), "costs": list(cmdp.costs)}
    scope = sampled_scope(cmdp, mixture) + (assume(RULE) if mixture is None else "")
    facts |= {"components": 1 if mixture is None else mixture.M, "scope": scope}
    found = certificate_from(seen, cmdp.b, delta, **facts)
    certain = mixture is None or not cmdp.I or np.all(mixture.pi.max(-1) >= 1 - HAIR)
    if ledger is not None or certain or found.verdict != "CERTIFIED":
        return found
    again = gather(sources[1], cmdp.b, delta, fold(key, FRESH + 1), min(budget - seen.steps, seen.steps))
    return replace(found, env_steps=seen.steps + again.steps, greedy_verdict=again.verdict)


def _as_mixture(cmdp: CMDP, policy: Any) -> Mixture | None:
    """Return the policy as a mixture; None if it is a rule, i.e. a function of the state."""
    if isinstance(policy, Mixture):
        return policy
    if isinstance(policy, RunningPolicy):
        raise InputError("policy was loaded to act: give the path of its file, certify(model, 'policy.csv')")
    if callable(policy):
        return None
    named = policy_by_names(policy, cmdp)
    if named is not None:
        return named
    return Mixture.of_actions(policy, cmdp.S, cmdp.A) if is_action_vector(policy) else Mixture.single(policy)


def is_action_vector(policy: Any) -> bool:
    """Return whether the policy is given as a vector of whole numbers, one action per state."""
    try:
        found = np.asarray(policy)
    except ValueError:  # rows of different lengths
        return False
    return found.ndim == 1 and found.dtype.kind in "iu"


def most_likely(mixture: Mixture) -> Mixture:
    """Return the mixture with each policy replaced by its greedy policy, which always takes the most likely action."""
    A = mixture.pi.shape[-1]
    return Mixture(mixture.weights, np.eye(A)[mixture.pi.argmax(-1)])


def _share_of_other_actions(cmdp: CMDP, mixture: Mixture) -> float:
    """Return the share of steps in which the policy does not take its most likely action."""
    other = 1 - mixture.tables(cmdp).max(-1)
    if not np.any(other > 0):
        return 0.0
    visits = occupancy(cmdp, mixture.tables(cmdp)).sum(-1) + np.finfo(float).tiny
    share = np.sum(visits * other, axis=tuple(range(1, other.ndim))) / visits.reshape(mixture.M, -1).sum(1)
    return float(mixture.weights @ share)


def _read_bounds(cmdp: CMDP, bounds: tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    low, high = (np.asarray(x, float) for x in bounds)
    right = low.shape == high.shape == (1 + cmdp.I,) and np.all(np.isfinite([low, high])) and np.all(low <= high)
    if not right:
        raise InputError(f"bounds must be (low, high) with {1 + cmdp.I} finite numbers each, reward first, low ≤ high")
    return low, high


def _read_values(cmdp: CMDP, base: ArrayLike) -> Array:
    V = read_numbers("base", base, ndim=2)
    if V.shape != (cmdp.S, 1 + cmdp.I):
        raise InputError(f"base has shape {V.shape}, the model needs [S, 1+I] = {(cmdp.S, 1 + cmdp.I)}")
    return V
