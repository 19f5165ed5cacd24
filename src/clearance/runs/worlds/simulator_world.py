"""Simulators as the pipeline sees them: learning, choice among the late iterates, certificate, within one budget."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from jax.flatten_util import ravel_pytree

from clearance.certificates.assumptions import CONSTANT, FRESH_RESETS, RULE, STEADY, assume
from clearance.certificates.best_mixture import best_weights, safest_weights, spread_evenly
from clearance.certificates.candidate_search import LEVELS, least_episodes
from clearance.certificates.certificate import Certificate, EvidenceKind, build_certificate, verdict_of
from clearance.certificates.episode_source import Episodes
from clearance.certificates.ledger import run_test, share_of
from clearance.certificates.sequential_test import slack_needed, slack_per_sd
from clearance.certificates.statistical_certificate import certificate_from
from clearance.certificates.steady_episodes import SteadyEpisodes
from clearance.certificates.verdict_words import MEANING, policy_words, scope_words
from clearance.cluster.executor import Executor
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest, save_json
from clearance.core.errors import InputError
from clearance.core.random_streams import fold, key_of
from clearance.core.rational_algebra import average_down, average_up
from clearance.core.spaces import Box, describe_space
from clearance.core.statement import PROBLEM, Statement, describe_statement
from clearance.learning.loop import Run
from clearance.learning.methods.method_base import Method
from clearance.learning.methods.natural_step import NaturalSteps
from clearance.learning.methods.practical_cnpgpd import Course, PracticalCNPGPD
from clearance.learning.state import State
from clearance.runs import plain_data
from clearance.runs.worlds.simulator_start import Source, begin_at, read_source
from clearance.runs.worlds.world import (
    Choice,
    ExactValues,
    PolicyDescription,
    ProblemDescription,
    Settled,
    Start,
    Task,
    World,
)
from clearance.simulator.gymnasium_envs.env_check import repeats
from clearance.simulator.gymnasium_envs.gymnasium_problem import Gym
from clearance.simulator.jax_backend import eqx, real
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Design, NetworkPolicy, Normaliser
from clearance.simulator.remote_lanes import Fleet
from clearance.simulator.samplers.actor_critic import Practical
from clearance.simulator.samplers.gymnasium_algorithm2 import ResetFree
from clearance.simulator.samplers.jax_algorithm2 import Algorithm2, Unbiased
from clearance.simulator.samplers.rule_episodes import OwnRuleEpisodes, describe_lanes, network_episodes
from clearance.simulator.samplers.simulator_episodes import (
    NetworkEpisodes,
    episode_steps,
    signal_bounds,
    total_weight,
)
from clearance.simulator.simulator import Simulator

BUDGET = 2e6  # environment steps for everything, unless given
LEARNING = 0.5, 0.45, 0.4, 0.35, 0.3  # the share of them for learning: the first whose rest can certify, see `ROOM`
ROOM, TIGHTEST = 0.5, 0.85  # κ is at most this share of the largest slack there is: as planned, and where it must be
CANDIDATES = 10  # late iterates to choose from
SMOOTH = 5  # iterations whose Ĵ is averaged to find further candidates
LATE = 0.6  # they are among the last 40 %
WARM = 0.2  # share of the iterations over which the normaliser moves
FROZEN = -1  # the normaliser of a policy that a run begins from does not move, or it would be another policy
TESTED, SPREAD = 0.7, 0.05  # what κ expects: a test with this share of the rest, and this spread, in widths
LEARN, FRESH = 2**40 + 10, 2**41  # streams
STILL, STILL_STREAM = 16, 2**41 + 1  # episodes that show what doing nothing earns, and their stream
TABLES = "critic", "trajectory", "generative"  # draws that need a table of states and actions


@dataclass(frozen=True, eq=False)
class LateIterates:
    """Late iterates of a run on a simulator as candidates."""

    simulator: Simulator
    late: NetworkMixture
    safe: int | None = None  # which of them is the safest policy of the run

    @property
    def count(self) -> int:
        return self.late.M

    def mixture(self, weights: Array) -> NetworkMixture:
        return self.late.part(weights)

    def episodes(self, mixture: NetworkMixture) -> Episodes:
        return _compared(self.simulator, network_episodes(self.simulator, mixture))


@dataclass(frozen=True, eq=False)
class SimulatorWorld(World):
    """A JAX environment, a Gymnasium problem, or a fleet of either."""

    problem: Simulator

    @property
    def statement(self) -> Statement:
        return self.problem.statement

    # ------------------------------------------------------------------------------------------------ before a run

    def evidence(self, asked: EvidenceKind | None, exact_J: bool | None) -> EvidenceKind:
        """A simulator knows its values, or it is sampled: there is nothing to choose."""
        kind: EvidenceKind = "samples" if self.problem.exact is None else "exact"
        if asked not in (None, kind):
            raise InputError(f"evidence of {self.statement.name} is {kind!r}, got {asked!r}: leave it out")
        if exact_J is not None:
            raise InputError("exact_J is for finite models: leave it out")
        return kind

    def default_method(self) -> Method:
        return PracticalCNPGPD()

    def make_sampler(self, method: Method, policy: Any, sampler: Any, seed: int) -> Any:
        kind = getattr(method, "draw_kind", "actor-critic")
        if kind in TABLES:
            take = "simulators take PracticalCNPGPD(), PracticalCRPO() or CNPGPD()"
            raise InputError(f"method {type(method).__name__} is for finite models; {take}")
        unbiased = kind == "walks"
        sampler = self._own_sampler(policy, seed, unbiased=unbiased) if sampler is None else sampler
        if not isinstance(sampler, Practical | Algorithm2):
            raise InputError(f"sampler {type(sampler).__name__} is for finite models: leave it out")
        if isinstance(sampler, Algorithm2) != unbiased:
            raise InputError(
                "CNPGPD goes with the samplers Unbiased and ResetFree: Algorithm 1 wants draws of Algorithm 2"
            )
        return sampler

    def _own_sampler(self, policy: Any, seed: int, *, unbiased: bool) -> Practical | Algorithm2:
        simulator, policy = self.problem, Design() if policy is None else policy
        if isinstance(policy, Design):
            policy = replace(policy, normalise=policy.normalise and not unbiased)
            policy = policy.fitted(simulator.obs_shape, simulator.action, seed)
        if not isinstance(policy, NetworkPolicy):
            raise InputError(f"policy must be gaussian(…) or categorical(…), got {type(policy).__name__}")
        if not unbiased:
            return Practical(simulator, policy)
        own: Any = simulator  # `Unbiased` refuses what is no JAX environment
        return ResetFree(simulator, policy) if isinstance(simulator, Gym) else Unbiased(own, policy)

    def read_init(self, init: Any) -> Source:
        return read_source(init)

    def begin_from(self, source: Source, sampler: Any, seed: int) -> Start:
        check_fits(self.problem, source.mixture)
        return begin_at(source, sampler, self.statement.names)

    def settle(self, task: Task, margin: None) -> Settled:
        """No margin is measured on a simulator: κ follows from the budget."""
        sampler: Any = task.sampler
        budget, s = BUDGET if task.budget is None else task.budget, self.statement
        share = _learning_share(s, budget, share_of(1) * task.delta)
        decide = partial(_with_kappa, statement=s, budget=(1 - share) * budget, delta=share_of(1) * task.delta)
        practical = isinstance(task.method, NaturalSteps)
        if isinstance(task.method, NaturalSteps):
            fitted = task.method.fitted(sampler.steps_per_lane, share * budget, sampler.smallest_batch, _rarity(s))
            warm = max(1, int(WARM * (fitted.K or 1))) if task.start is None else FROZEN
            sampler = replace(sampler, warm=warm)
        else:
            fitted = task.method
        method: Any = decide(fitted)
        if task.evidence == "samples":
            signal_bounds(s)
            _check_budget(s, method, budget)
        lam_max = np.inf if practical else getattr(method, "lam_max", None) or np.inf
        extra = None if task.start is None else task.start.candidates
        return Settled(sampler, method, lam_max, fold(key_of(task.seed), LEARN), share * budget, extra=extra)

    # ------------------------------------------------------------------------------------------------ after learning

    def spent_before(self, margin: None) -> int:
        """The steps that compare lanes with each other, before the first episode that counts."""
        return self.problem.lane_check.steps if self.problem.exact is None else 0

    def search_budget(self, task: Task, spent: int) -> float:
        return (BUDGET if task.budget is None else task.budget) - spent

    def _late(self, settled: Settled, run: Run) -> NetworkMixture:
        """Late iterates, those that mix best by what the run has seen of them, and the safest policy of the run."""
        sampler, K = cast(Practical | Algorithm2, settled.sampler), len(run.trace)
        late = spread_evenly(K, CANDIDATES, first=max(LATE, WARM))
        index = run.trace.rows_of(np.union1d(late, _promising(run.trace.J_hat, int(WARM * K), self.statement.b)))
        theta = [run.trace.theta[index]]
        if isinstance(run.state.method_memory, Course):
            theta.append(run.state.method_memory.safe[None])
        theta = np.concatenate([*theta, *_extra(settled)])
        normaliser = sampler.normaliser(run.state.sampler_memory)
        return NetworkMixture(sampler.policy, np.full(len(theta), 1 / len(theta)), theta, normaliser)

    def exact_choice(self, settled: Settled, run: Run, margin: None) -> tuple[LateIterates, ExactValues]:
        """The late iterates whose values are finite, or all of them where none is."""
        late = self._late(settled, run)
        J, lower, upper = _exact_values(self.problem, late)
        stable = np.isfinite([J, lower, upper]).all((0, 2))
        if not stable.any():
            return LateIterates(self.problem, late), ExactValues(J[:0], 0.0, np.abs(self.statement.b))
        J, error = J[stable], J[stable] - lower[stable]
        size = np.maximum(np.abs(self.statement.b), np.abs(J[:, 1:]).max(0))
        return LateIterates(self.problem, late.part(stable.astype(float))), ExactValues(J, error, size)

    def sampled_choice(self, settled: Settled, run: Run, margin: None, budget: float) -> Choice:
        late = self._late(settled, run)
        own = isinstance(run.state.method_memory, Course)
        return Choice(LateIterates(self.problem, late, late.M - 1 - len(_extra(settled)) if own else None))

    def neighbours(
        self, candidates: LateIterates, run: Run, J: Array, budget: float
    ) -> tuple[dict[str, list[float]], int]:
        """What the first policy earned, what the safest one does, and doing nothing, where 0 is an action."""
        found = {"before learning": run.trace.J_hat[0].tolist()} if len(run.trace) else {}
        if candidates.safe is not None:
            found["the safest policy found"] = J[candidates.safe].tolist()
        still, steps = still_policy(candidates.late.policy), 0
        if still is not None and budget >= STILL * episode_steps(self.statement):
            X, _, steps = network_episodes(self.problem, still).draw(fold(key_of(0), STILL_STREAM), 0, STILL)
            found["doing nothing"] = X.mean(0).tolist()
        return found, steps

    def uncertified(self, settled: Settled, run: Run, candidates: LateIterates, exact: ExactValues) -> NetworkMixture:
        """The safest mixture."""
        return candidates.late if not len(exact.J) else candidates.late.part(safest_weights(exact.J, self.statement.b))

    def certify(self, policy: NetworkMixture, lam: Array | None = None, *, compare: bool = True) -> Certificate:
        """CERTIFIED where the proven lower bounds of the exact values keep every limit."""
        used, s = policy.weights > 0, self.statement
        w, (parts, low, high) = policy.weights[used], (x[used] for x in _exact_values(self.problem, policy))
        lower = np.array([average_down(w, x) for x in low.T])
        upper = np.array([average_up(w, x) for x in high.T])
        J = np.clip(w @ parts / w.sum(), lower, upper)
        verdict = verdict_of(lower[1:], upper[1:], s.b)
        return build_certificate(
            verdict,
            J,
            (lower, upper),
            s.b,
            evidence="exact",
            parts=list(parts),
            components=policy.M,
            message=f"{MEANING[verdict]}: {_explain(J)}",
            scope=self.scope(policy, f"the model of {s.name} in real arithmetic, for the policy's numbers as stored"),
            lam=lam if np.isfinite(J).all() else None,
            **self.limits(),
        )

    def certify_policy(
        self,
        policy: Any,
        *,
        evidence: EvidenceKind | None,
        delta: float,
        budget: float,
        seed: int,
        executor: Executor | None,
        ledger: Any = None,
        **options: Any,
    ) -> Certificate:
        for name, given in options.items():
            if given is not None:
                raise InputError(f"{name} is for finite models; a simulator's bounds are part of its problem")
        self.evidence(evidence, None)
        if executor is not None:
            with Fleet(self.problem, executor) as fleet:
                return SimulatorWorld(fleet)._certify_any(policy, delta, budget, seed, ledger)
        return self._certify_any(policy, delta, budget, seed, ledger)

    def _certify_any(self, policy: Any, delta: float, budget: float, seed: int, ledger: Any) -> Certificate:
        source: NetworkEpisodes
        if callable(policy) and isinstance(self.problem, Gym):
            source, mixture = OwnRuleEpisodes(self.problem, rule=policy), None
        else:
            mixture = check_fits(self.problem, policy)
            if self.problem.exact is not None and ledger is not None:
                raise InputError("out keeps the tests by samples; exact evidence is a proof, not a test: leave it out")
            if self.problem.exact is not None:
                return self.certify(mixture)
            source = network_episodes(self.problem, mixture)
        b, identity = self.statement.b, None if mixture is None else self.identify(mixture)
        drawn = _compared(self.problem, source)
        checked = 0 if mixture is None else self.problem.lane_check.steps
        seen, spent, note = run_test(drawn, b, delta, fold(key_of(seed), FRESH), budget, identity, ledger)
        constant = isinstance(drawn, SteadyEpisodes) and drawn.constant
        scope = self.scope(mixture) + (f" {CONSTANT}." if constant else "")
        facts = {"components": 1 if mixture is None else mixture.M, "scope": scope, **self.limits()}
        found = certificate_from(seen, b, delta, **facts, note=note, spent=spent)
        return self.complete(replace(found, env_steps=seen.steps + checked))

    def identify(self, policy: NetworkMixture) -> str:
        """What is asked of the simulator, its shapes and lanes, and the policy; the simulator's code is not known."""
        own, norm = policy.policy.description(), policy.normaliser._asdict()
        arrays = {"weights": policy.weights, "theta": policy.theta, **norm}
        return digest(["simulator", self.describe().identity, own], arrays)

    def scope(self, policy: NetworkMixture | None, subject: str | None = None) -> str:
        s, how = self.statement, "a rule, called as given"
        if policy is not None:
            how = f"{policy_words(policy.M, 'one network')}; its actions are sampled"
        subject = subject or f"the simulator {s.name} as it was run, from its own resets"
        words = scope_words(f"{subject}; nothing is added after termination", s.gamma, s.horizon, how)
        return words + assume(*self.assumptions(policy))

    def assumptions(self, policy: NetworkMixture | None) -> list[str]:
        """What the verdict rests on beside the samples; nothing where all randomness is ours, as with JAX."""
        near: Any = getattr(self.problem, "near", self.problem)
        if isinstance(near, Environment):
            return []
        if policy is None:
            return [FRESH_RESETS, STEADY, RULE]
        many = self.problem.n > 1 or near is not self.problem
        return [FRESH_RESETS, STEADY, describe_lanes(self.problem)] if many else [FRESH_RESETS, STEADY]

    def complete(self, certificate: Certificate) -> Certificate:
        """A reward that declares no bounds has none in the certificate."""
        s = self.statement
        if s.bounds is not None and np.all(np.isfinite([x[0] for x in s.bounds])):
            return certificate
        lower, upper = [-np.inf, *certificate.J_lower[1:]], [np.inf, *certificate.J_upper[1:]]
        return replace(certificate, J_lower=lower, J_upper=upper, interval=None)

    def last_policy(self, settled: Settled, state: State) -> NetworkMixture:
        sampler: Any = settled.sampler
        return NetworkMixture.single(sampler.policy, state.theta, sampler.normaliser(state.sampler_memory))

    # ------------------------------------------------------------------------------------------------ the run folder

    def describe(self) -> ProblemDescription:
        """The statement, and all that the bits of a run depend on beside the simulator's code."""
        sim = self.problem
        shapes = {"observation": list(sim.obs_shape), "action": describe_space(sim.action), "lanes": sim.n}
        data = {"schema": PROBLEM, **describe_statement(self.statement), **shapes}
        return ProblemDescription(digest(data), "problem.json", lambda path: save_json(path, data))

    def describe_policy(self, policy: NetworkPolicy) -> PolicyDescription:
        return PolicyDescription({"kind": "design", "seed": policy.seed, **json.loads(policy.description())})

    def describe_sampler(self, sampler: Any) -> dict[str, Any]:
        return plain_data.describe(sampler, leave_out=("simulator", "policy"))

    def restore_policy(self, folder: Path, data: dict[str, Any]) -> NetworkPolicy:
        return replace(NetworkPolicy.from_description(json.dumps(data)), seed=data["seed"])

    def restore_sampler(self, data: dict[str, Any], policy: NetworkPolicy) -> Any:
        return plain_data.restore(data, (Practical, Unbiased, ResetFree), self.problem, policy)

    def repeats(self) -> tuple[bool | None, str]:
        same, where = repeats(self.problem)
        return same, f"{self.statement.name} is not deterministic given its seed ({where})"


# ---------------------------------------------------------------------------------------------------- what it rests on


def check_fits(simulator: Simulator, mixture: Any) -> NetworkMixture:
    """Return the mixture, if it is for these observations and actions."""
    if not isinstance(mixture, NetworkMixture):
        where = "for Gymnasium problems only, and run in this process: leave out a fleet or an executor"
        rule = f" (rules `observation -> action` are {where})" if callable(mixture) else ""
        raise InputError(f"policy must be a NetworkMixture, got {type(mixture).__name__}{rule}")
    policy, actions = mixture.policy, describe_space(simulator.action)
    if policy.obs_shape != tuple(simulator.obs_shape) or describe_space(policy.space) != actions:
        raise InputError(
            f"policy is for observations {policy.obs_shape} and actions {describe_space(policy.space)}, "
            f"{simulator.statement.name} has {tuple(simulator.obs_shape)} and {actions}"
        )
    return mixture


def _compared(simulator: Simulator, source: NetworkEpisodes) -> Episodes:
    """The episodes, early compared with late; pure functions of JAX are taken at their word."""
    if isinstance(getattr(simulator, "near", simulator), Environment):
        return source
    return SteadyEpisodes(source, simulator.statement.name, ("the reward", *simulator.statement.names))


def _exact_values(simulator: Simulator, mixture: NetworkMixture) -> tuple[Array, Array, Array]:
    """Exact J of every component with its lower and upper bounds, each [M, 1+I]."""
    assert simulator.exact is not None
    found = [simulator.exact(mixture.policy, theta, mixture.normaliser) for theta in mixture.theta]
    J, lower, upper = (np.array(x) for x in zip(*found, strict=True))
    return J, lower, upper


def _explain(J: Array) -> str:
    """Say how exact values J [1+I] were found, or why there are none."""
    if np.isnan(J).any():
        return "the policy's numbers are not finite in float32, so it has no values"
    if np.isinf(J).any():
        return "an expected sum is infinite, since the policy does not stabilise the system"
    return "values computed from the model in rational arithmetic, rounded outward"


def _extra(settled: Settled) -> list[Array]:
    """Candidates that the run began from, each as [1, d]."""
    return [] if settled.extra is None else [theta[None] for theta in settled.extra]


def still_policy(policy: NetworkPolicy) -> NetworkMixture | None:
    """The policy whose action is 0 but for a hair, where the action space is a box with 0 inside; else None."""
    box = policy.space
    if not isinstance(box, Box) or not np.all((box.low < 0) & (box.high > 0)):
        return None
    still = NetworkPolicy(policy.obs_shape, box, Design("gaussian", (), "fixed", 0.01, normalise=False))
    net, squash = still.net(still.init()), box.bounded
    middle, half = (np.where(squash, x, 1.0) for x in (0.5 * (box.low + box.high), 0.5 * (box.high - box.low)))
    bias = np.where(squash, np.arctanh(np.clip(-middle / half, -0.999, 0.999)), 0.0)
    net = eqx.tree_at(lambda x: x.layers[-1].bias, net, real(bias))
    theta = np.asarray(ravel_pytree(net)[0], float)
    return NetworkMixture.single(still, theta, Normaliser.identity(still.inputs))


def _promising(J_hat: Array, first: int, b: Array) -> Array:
    """The iterates from `first` on, at most I + 1, that a mixture would use by running means of Ĵ [K, 1+I]."""
    width = min(SMOOTH, len(J_hat) - first)
    if width < 1 or not len(b):
        return np.zeros(0, np.int64)
    sums = np.cumsum(np.concatenate([np.zeros((1, J_hat.shape[1])), J_hat[first:]]), axis=0)
    J = (sums[width:] - sums[:-width]) / width
    w = best_weights(J, b)
    return np.flatnonzero(safest_weights(J, b) if w is None else w) + first + width // 2


def _check_budget(statement: Statement, method: Any, budget: float) -> None:
    """Refuse to learn where nothing would be left to certify with."""
    candidates = len(spread_evenly(method.K or CANDIDATES, CANDIDATES, first=max(LATE, WARM)))
    least = least_episodes(candidates) * episode_steps(statement)
    if (1 - LEARNING[0]) * budget < least:
        why = f"choice and certificate need at least {least:.0f} steps, and have half of it"
        raise InputError(f"budget {budget:.6g} is too small: {why}: give {least / (1 - LEARNING[0]):.0f} or more")


def _learning_share(s: Statement, budget: float, delta: float) -> float:
    """The share of the budget for learning: half of it, or less where the rest would ask for most of the slack."""
    if not s.I or s.bounds is None or not np.all(np.isfinite([x[1:] for x in s.bounds])):
        return LEARNING[0]
    enough = (x for x in LEARNING if np.all(np.less_equal(*_slack_planned(s, (1 - x) * budget, delta))))
    return next(enough, LEARNING[-1])


def _rarity(s: Statement) -> float:
    """The largest slack that there is as a share of the range of an episode's sum; the least over all limits."""
    if not s.I or s.bounds is None or not np.all(np.isfinite([x[1:] for x in s.bounds])):
        return 1.0
    low, high = np.minimum(s.bounds[0][1:], 0.0), np.maximum(s.bounds[1][1:], 0.0)
    return float(np.min((s.length * high - s.b) / np.maximum(s.length * (high - low), 1e-300)))


def _slack_planned(s: Statement, budget: float, delta: float) -> tuple[Array, Array]:
    """The slack [I] that a certificate from so many steps will need, and what there should be room for."""
    assert s.bounds is not None
    low, high = np.minimum(s.bounds[0][1:], 0.0), np.maximum(s.bounds[1][1:], 0.0)
    width = total_weight(s) * (high - low)
    need = slack_needed(SPREAD * width, width, TESTED * budget / episode_steps(s), LEVELS[0] * delta)
    return need, ROOM * np.maximum(s.length * high - s.b, 0.0)


def _with_kappa(method: Any, statement: Statement, budget: float, delta: float) -> Any:
    """κ as given; or what a certificate from the budget will need, at most .85 of the largest slack that there is.

    Without bounds there is no certificate from samples to prepare for: then one hundredth of the limit's size.
    """
    s, given = statement, getattr(method, "kappa", 0.0)
    if not s.I or given != "auto":
        return method if given != "auto" else replace(method, kappa=0.0)
    if s.bounds is None or not np.all(np.isfinite([x[1:] for x in s.bounds])):
        return replace(method, kappa=tuple(0.01 * np.abs(s.b)))
    need, most = _slack_planned(s, budget, delta)
    kappa = tuple(np.minimum(need, TIGHTEST / ROOM * most).tolist())
    if not isinstance(method, NaturalSteps) or np.any(need > most):
        return replace(method, kappa=kappa)
    episodes = TESTED * budget / episode_steps(s)
    return replace(method, kappa=kappa, kappa_sd=slack_per_sd(episodes, LEVELS[0] * delta))
