"""The adapter that gives the pipeline of `solve` its interface to simulators.

Learning, the choice among the late iterates, and the certificate share one budget of environment steps.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from clearance.certificates.assumptions import CONSTANT
from clearance.certificates.best_mixture import safest_weights
from clearance.certificates.certificate import Certificate, EvidenceKind, build_certificate, verdict_of
from clearance.certificates.ledger import run_test, share_of
from clearance.certificates.statistical_certificate import certificate_from
from clearance.certificates.steady_episodes import SteadyEpisodes
from clearance.certificates.verdict_words import MEANING
from clearance.cluster.executor import Executor
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest, save_json
from clearance.core.errors import InputError
from clearance.core.random_streams import fold, key_of
from clearance.core.rational_algebra import average_down, average_up
from clearance.core.spaces import describe_space
from clearance.core.statement import PROBLEM, Statement, describe_statement
from clearance.deploy.rule_runner import RuleRunner
from clearance.deploy.running_policy import NetworkRunner
from clearance.learning.loop import Run
from clearance.learning.methods.method_base import Method
from clearance.learning.methods.natural_step import NaturalSteps
from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
from clearance.learning.state import State
from clearance.runs import plain_data
from clearance.runs.worlds.simulator_candidates import WARM, AnyMixture, LateIterates, gather_candidates
from clearance.runs.worlds.simulator_certify import (
    check_fits,
    check_memory,
    compare_early_and_late,
    exact_values,
    explain_values,
    simulator_scope,
    without_unknown_bounds,
)
from clearance.runs.worlds.simulator_plan import (
    check_budget,
    check_limits,
    kept_batches,
    learning_share,
    rarity,
    with_kappa,
)
from clearance.runs.worlds.simulator_start import Source, as_mixture, begin_at, begin_by_imitation, read_source
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
from clearance.simulator.behaviour import digest_behaviour
from clearance.simulator.gymnasium_envs.env_check import repeats
from clearance.simulator.gymnasium_envs.gymnasium_problem import Gym
from clearance.simulator.jax_envs.jax_environment import Environment
from clearance.simulator.policies.network_mixture import NetworkMixture
from clearance.simulator.policies.network_policy import Design, NetworkPolicy
from clearance.simulator.policies.rule_mixture import RuleMixture
from clearance.simulator.remote_lanes import Fleet
from clearance.simulator.samplers.actor_critic import Practical
from clearance.simulator.samplers.gymnasium_algorithm2 import ResetFree
from clearance.simulator.samplers.jax_algorithm2 import Algorithm2, Unbiased
from clearance.simulator.samplers.rule_episodes import (
    OwnRuleEpisodes,
    any_episodes,
    network_episodes,
    sees_what_networks_see,
)
from clearance.simulator.samplers.simulator_episodes import (
    NetworkEpisodes,
    signal_bounds,
)
from clearance.simulator.samplers.tail_quantiles import fit_nu
from clearance.simulator.simulator import Simulator

BUDGET = 2e6  # environment steps for everything, unless given
IMITATE = 2**40 + 9  # random stream of the rollouts of a rule
ROLLOUTS = 0.05  # largest share of the budget for these rollouts
FROZEN = -1  # the normaliser of a start policy is not updated: the policy would become another one
LEARN, FRESH, PILOT = 2**40 + 10, 2**41, 2**43  # random streams
TABLES = "critic", "trajectory", "generative"  # draws that need a table of states and actions


@dataclass(frozen=True, eq=False)
class SimulatorWorld(World):
    """The adapter for a JAX environment, a Gymnasium problem, or a fleet of workers that run one of these."""

    problem: Simulator

    @property
    def statement(self) -> Statement:
        return self.problem.statement

    # ------------------------------------------------------------------------------------------------ before a run

    def evidence(self, asked: EvidenceKind | None, exact_J: bool | None) -> EvidenceKind:
        """Return "exact" if the simulator can compute its exact values, else "samples".

        Raise InputError if the user asked for the other kind, or gave `exact_J`, which is for finite models only.
        """
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
            policy = policy.fitted(simulator.obs_shape, simulator.action, seed, simulator.memory)
        if not isinstance(policy, NetworkPolicy):
            raise InputError(f"policy must be gaussian(…) or categorical(…), got {type(policy).__name__}")
        check_memory(simulator, policy)
        if not unbiased:
            return Practical(simulator.for_learning(), policy)
        own: Any = simulator  # `Unbiased` refuses what is no JAX environment
        return ResetFree(simulator, policy) if isinstance(simulator, Gym) else Unbiased(own, policy)

    def read_init(self, init: Any) -> Source:
        return read_source(init)

    def begin_from(self, source: Source, sampler: Any, seed: int, budget: float | None) -> Start:
        if source.rule is not None:
            most = ROLLOUTS * (BUDGET if budget is None else budget)
            return begin_by_imitation(source, self.problem, sampler, fold(key_of(seed), IMITATE), most)
        check_fits(self.problem, source.mixture)
        return begin_at(source, sampler, self.statement.names)

    def settle(self, task: Task, margin: None) -> Settled:
        """Return the final settings: iterations K, samples N, margin κ and learning budget. `margin` is not used."""
        sampler: Any = task.sampler
        budget, s = BUDGET if task.budget is None else task.budget, self.statement
        share = learning_share(s, budget, share_of(1) * task.delta)
        decide = partial(with_kappa, statement=s, budget=(1 - share) * budget, delta=share_of(1) * task.delta)
        practical = isinstance(task.method, NaturalSteps)
        if isinstance(task.method, NaturalSteps):
            least = max(sampler.smallest_batch, s.telling_episodes * sampler.steps_per_lane)
            fitted = task.method.fitted(sampler.steps_per_lane, share * budget, least, rarity(s))
            warm = max(1, int(WARM * (fitted.K or 1))) if task.start is None else FROZEN
            sampler = replace(sampler, warm=warm, kept=max(sampler.kept, kept_batches(s)))
        else:
            fitted = task.method
        method: Any = decide(fitted)
        if task.evidence == "samples":
            signal_bounds(s)
            check_limits(s)
            check_budget(s, method, budget)
        lam_max = np.inf if practical else getattr(method, "lam_max", None) or np.inf
        extra, rule = (None, None) if task.start is None else (task.start.candidates, task.start.rule)
        if rule is not None and (
            task.evidence == "exact" or not sees_what_networks_see(getattr(self.problem, "near", self.problem))
        ):
            rule = None  # its imitation alone is a candidate
        stream = fold(key_of(task.seed), LEARN)
        return Settled(sampler, method, lam_max, stream, share * budget, extra=extra, rule=rule)

    # ------------------------------------------------------------------------------------------------ after learning

    def spent_before(self, margin: None) -> int:
        """Return the environment steps that were spent before learning.

        They were used to check that parallel environments are independent.
        """
        return self.problem.lane_check.steps if self.problem.exact is None else 0

    def search_budget(self, task: Task, spent: int) -> float:
        return (BUDGET if task.budget is None else task.budget) - spent

    def _late(self, settled: Settled, run: Run) -> tuple[NetworkMixture, dict[str, int]]:
        method, memory = settled.method, run.state.sampler_memory
        known = isinstance(method, NaturalSteps)
        kappa = method.margin(method.K or 0, memory) if known else np.zeros(self.statement.I)
        return gather_candidates(settled.sampler, run, self.statement.b, kappa, settled.extra)

    def _candidates(
        self, problem: Simulator, late: NetworkMixture, named: dict[str, int], rule: Any = None
    ) -> LateIterates:
        named = named if rule is None else named | {"the rule": late.M}
        return LateIterates(
            late, lambda mixture: compare_early_and_late(problem, any_episodes(problem, mixture)), named, rule
        )

    def exact_choice(self, settled: Settled, run: Run, margin: None) -> tuple[LateIterates, ExactValues]:
        """Return the late iterates whose exact values are finite, and these values.

        If no iterate has finite values, return all late iterates and no values.
        """
        late, _ = self._late(settled, run)
        J, lower, upper = exact_values(self.problem, late)
        stable = np.isfinite([J, lower, upper]).all((0, 2))
        if not stable.any():
            return self._candidates(self.problem, late, {}), ExactValues(J[:0], 0.0, np.abs(self.statement.b))
        J, error = J[stable], J[stable] - lower[stable]
        size = np.maximum(np.abs(self.statement.b), np.abs(J[:, 1:]).max(0))
        return self._candidates(self.problem, late.part(stable.astype(float)), {}), ExactValues(J, error, size)

    def sampled_choice(self, settled: Settled, run: Run, margin: None, budget: float) -> Choice:
        late, named = self._late(settled, run)
        problem, spent = fit_nu(
            self.problem, lambda problem: network_episodes(problem, late), fold(settled.stream, PILOT), budget
        )
        return Choice(self._candidates(problem, late, named, settled.rule), spent=spent)

    def neighbours(self, search: Any, run: Run) -> dict[str, list[float]]:
        """Return the values J [1+I] of policies besides the selected one, by name, for comparison.

        They are the policy before learning, the safest policy found, constant policies, and the user's rule, as far as
        they exist.
        """
        first = {"before learning": run.trace.J_hat[0].tolist()} if len(run.trace) else {}
        return first | {name: search.J[m].tolist() for name, m in search.candidates.named.items()}

    def uncertified(self, settled: Settled, run: Run, candidates: LateIterates, exact: ExactValues) -> NetworkMixture:
        """Return the mixture of candidates whose smallest slack is largest, by their exact values.

        Without exact values, return the mixture of all candidates.
        """
        return candidates.late if not len(exact.J) else candidates.late.part(safest_weights(exact.J, self.statement.b))

    def certify(self, policy: NetworkMixture, lam: Array | None = None, *, compare: bool = True) -> Certificate:
        """Return the exact certificate: CERTIFIED if the proven lower bounds of the values meet every limit."""
        used, s = policy.weights > 0, self.statement
        w, (parts, low, high) = policy.weights[used], (x[used] for x in exact_values(self.problem, policy))
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
            message=f"{MEANING[verdict]}: {explain_values(J)}",
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
        policy = as_mixture(policy) if isinstance(policy, NetworkRunner | RuleRunner) else policy
        networks = policy.networks if isinstance(policy, RuleMixture) else policy
        memory = networks.policy.memory if isinstance(networks, NetworkMixture) else self.problem.memory
        if callable(policy) and isinstance(self.problem, Environment):
            memory = None  # a rule sees the environment's own observations
        problem = self.problem.remembering(memory)
        if executor is not None:
            with Fleet(problem, executor) as fleet:
                return SimulatorWorld(fleet)._certify_any(policy, delta, budget, seed, ledger)
        return SimulatorWorld(problem)._certify_any(policy, delta, budget, seed, ledger)

    def _certify_any(self, policy: Any, delta: float, budget: float, seed: int, ledger: Any) -> Certificate:
        mixture = self._fitting(policy)
        if self.problem.exact is not None:
            if ledger is not None:
                raise InputError("out keeps the tests by samples; exact evidence is a proof, not a test: leave it out")
            return self.certify(cast(NetworkMixture, mixture))

        def episodes(problem: Any) -> NetworkEpisodes:
            return OwnRuleEpisodes(problem, rule=policy) if mixture is None else any_episodes(problem, mixture)

        b, identity = self.statement.b, None if mixture is None or ledger is None else self.identify(mixture)
        problem, tried = fit_nu(self.problem, episodes, fold(key_of(seed), PILOT), budget)
        drawn = compare_early_and_late(problem, episodes(problem))
        checked = tried + (0 if mixture is None else self.problem.lane_check.steps)
        seen, spent, note = run_test(drawn, b, delta, fold(key_of(seed), FRESH), budget - tried, identity, ledger)
        constant = isinstance(drawn, SteadyEpisodes) and drawn.constant
        scope = self.scope(mixture) + (f" {CONSTANT}." if constant else "")
        facts = {"components": 1 if mixture is None else mixture.M, "scope": scope, **self.limits()}
        found = certificate_from(seen, b, delta, **facts, note=note, spent=spent)
        return self.complete(replace(found, env_steps=seen.steps + checked))

    def _fitting(self, policy: Any) -> AnyMixture | None:
        """Return the policy if it is a mixture, after checking that it fits the simulator; None if it is a rule."""
        if isinstance(policy, RuleMixture):
            check_fits(self.problem, policy.networks)
            return policy
        own = callable(policy) and isinstance(self.problem, Gym | Environment)
        return None if own else check_fits(self.problem, policy)

    @cached_property
    def _behaviour(self) -> str:
        return digest_behaviour(self.problem)

    def identify(self, policy: AnyMixture) -> str | None:
        """Return a digest of the problem's statement, shapes and number of parallel environments, and of the policy.

        The simulator's code is not known; a digest of its behaviour stands for it. Return None if the policy contains a
        rule, since a rule's behaviour is not known.
        """
        if isinstance(policy, RuleMixture):
            return None
        own, norm = policy.policy.description(), policy.normaliser._asdict()
        arrays = {"weights": policy.weights, "theta": policy.theta, **norm}
        return digest(["simulator", self.describe().identity, self._behaviour, own], arrays)

    def scope(self, policy: AnyMixture | None, subject: str | None = None) -> str:
        return simulator_scope(self.problem, policy, subject)

    def complete(self, certificate: Certificate) -> Certificate:
        return without_unknown_bounds(self.problem, certificate)

    def last_policy(self, settled: Settled, state: State) -> NetworkMixture:
        sampler: Any = settled.sampler
        return NetworkMixture.single(sampler.policy, state.theta, sampler.normaliser(state.sampler_memory))

    def give_code(self, policy: Any, start: Start | None) -> Any:
        rule = None if start is None else start.rule
        return policy if rule is None or not isinstance(policy, RuleMixture) else policy.with_rule(rule)

    # ------------------------------------------------------------------------------------------------ the run folder

    def describe(self) -> ProblemDescription:
        """Return the description of the problem for the run folder: statement, shapes, number of parallel environments.

        The code of the simulator is not part of it.
        """
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
        return plain_data.restore(data, (Practical, Unbiased, ResetFree), self.problem.for_learning(), policy)

    def repeats(self) -> tuple[bool | None, str]:
        same, where = repeats(self.problem)
        return same, f"{self.statement.name} is not deterministic given its seed ({where})"
