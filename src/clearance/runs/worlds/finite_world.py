"""The adapter that gives the pipeline of `solve` its interface to finite models.

evidence="exact"     the model is known: the policy is learned from samples, but the margin, the choice among the
                     iterates and the certificate are exact
evidence="samples"   the model is a black box: everything comes from samples, within one budget of environment steps
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearance.certificates.best_mixture import Single, spread_evenly
from clearance.certificates.candidate_search import LOOK, SMALLEST, Search
from clearance.certificates.certificate import Certificate, EvidenceKind
from clearance.certificates.ledger import share_of
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest
from clearance.core.errors import InfeasibleError, InputError, round_up
from clearance.core.inside_folder import AnyPath
from clearance.core.random_streams import fold, key_of
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy, values_from_occupancy
from clearance.finite.long_run import scale_of
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.algorithm2 import Table
from clearance.finite.samplers.exact_sampler import Exact
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
from clearance.finite.samplers.finite_sampler import FiniteSampler
from clearance.finite.samplers.generative import Generative
from clearance.finite.samplers.network_critic import NetworkCritic
from clearance.finite.samplers.td_critic import Critic, Tables, state_values
from clearance.finite.samplers.trajectory import Trajectory
from clearance.finite.samplers.transition_counts import TransitionCounts
from clearance.finite.softmax_policy import check_fits, softmax
from clearance.finite.two_layer_policy import Policy, TwoLayer
from clearance.learning.direction import STOCHASTIC, Tabular
from clearance.learning.loop import Run
from clearance.learning.methods.method_base import Method
from clearance.learning.methods.regularised_cnpgpd import FADED, RegularisedCNPGPD
from clearance.learning.state import State
from clearance.runs import plain_data
from clearance.runs.worlds.explored_model import FiniteExplored, can_plan, count_transitions
from clearance.runs.worlds.finite_candidates import (
    Iterates,
    PolicyTables,
    averaged_occupancy,
    averaged_policy,
    best_single_iterate,
    evaluated_iterates,
    uniform_mixture,
)
from clearance.runs.worlds.finite_certify import certify_finite, certify_table, identify_table, sampled_scope
from clearance.runs.worlds.finite_kappa import bound_of_multipliers, fit_to_budget, with_kappa
from clearance.runs.worlds.finite_margin import FiniteMargin, exact_margin, sampled_margin
from clearance.runs.worlds.finite_start import FiniteSource, begin_finite, read_finite_source
from clearance.runs.worlds.planned_search import PlannedSearch
from clearance.runs.worlds.world import (
    Alternative,
    Choice,
    ExactValues,
    PolicyDescription,
    ProblemDescription,
    Settled,
    Start,
    Task,
    World,
)

# Up to this many states the exact J of every iterate is recorded as well as Ĵ, unless `exact_J` says otherwise.
EXACT_STATES = 300
# Default budget in environment steps: for learning alone (exact evidence), and for everything (samples).
BUDGET = {"exact": 2e6, "samples": 1e7}
# With samples, the share of the budget for learning: if policies can be planned on the estimated model, and if not.
LEARNING, LEARNING_ALONE = 0.06, 0.15
OTHERS = 2  # late iterates that are candidates in addition to the plans
CANDIDATES = 12  # largest number of iterates to choose from, by samples
TESTED = 0.3  # κ is computed as if one test had this share of the remaining budget
LONGEST_WALK = 1e8  # largest mean length of a walk, in steps: some ten seconds
# Random streams of the phases: larger than the number of any iteration.
MARGIN, LEARN = 2**40, 2**40 + 1

SAMPLERS = {"walks": Table, "critic": Critic, "trajectory": Trajectory, "generative": Generative}


@dataclass(frozen=True, eq=False)
class FiniteWorld(World):
    """The adapter between the pipeline of `solve` and a finite model with discounted sums."""

    problem: CMDP

    @property
    def statement(self) -> CMDP:
        return self.problem

    @property
    def model(self) -> CMDP:
        """The model that learning uses: the problem itself.

        `CriterionWorld` overrides this with its surrogate model.
        """
        return self.problem

    # ------------------------------------------------------------------------------------------------ before a run

    def evidence(self, asked: EvidenceKind | None, exact_J: bool | None) -> EvidenceKind:
        asked = asked or "exact"
        if asked not in BUDGET:
            raise InputError(f"evidence must be 'exact' or 'samples', got {asked!r}")
        return asked

    def default_method(self) -> Method:
        return RegularisedCNPGPD()

    def make_sampler(self, method: Method, policy: Any, sampler: Any, seed: int) -> FiniteSampler:
        """Return `sampler`; if it is None, return the sampler that the method needs. `policy` is the policy class.

        Raise InputError if method, policy class and sampler do not fit together.
        """
        cmdp, name = self.model, type(method).__name__
        kind = getattr(method, "draw_kind", "walks")
        if kind not in SAMPLERS:
            raise InputError(f"method {name} is for simulators: use RegularisedCNPGPD() or CNPGPD() on a finite model")
        kappa = getattr(method, "kappa", 0.0)
        if isinstance(kappa, tuple | list) and len(kappa) != cmdp.I:
            raise InputError(f"kappa has {len(kappa)} entries for {cmdp.I} constraints; give one number, or one each")
        if sampler is None:
            policy = softmax(cmdp.S, cmdp.A, cmdp.available) if policy is None else policy
            check_fits(cmdp, policy)
            network = isinstance(policy, TwoLayer)
            sampler = NetworkCritic(cmdp, policy, policy.m) if network else SAMPLERS[kind](cmdp, policy)
        elif not isinstance(sampler, FiniteSampler):
            raise InputError(f"sampler {type(sampler).__name__} is for simulators: leave it out")
        elif sampler.cmdp is not cmdp or (policy is not None and policy is not sampler.policy):
            raise InputError("sampler was made for another problem or policy: give the same objects to both")
        check_fits(cmdp, sampler.policy)
        _check_method(method, sampler)
        return sampler

    def read_init(self, init: Any) -> FiniteSource:
        return read_finite_source(init, self.model)

    def begin_from(self, source: FiniteSource, sampler: Any, seed: int, budget: float | None) -> Start:
        return begin_finite(source, self.model, sampler)

    def measure_margin(self, task: Task) -> FiniteMargin:
        cmdp, policy = self.model, task.sampler.policy
        if task.evidence == "exact":
            return exact_margin(cmdp, policy)
        key, budget = key_of(task.seed), task.budget or BUDGET["samples"]
        margin = sampled_margin(self.explored(policy), fold(key, MARGIN), budget, task.delta)
        if margin.verdict not in ("FEASIBLE", "LIKELY"):
            text = _no_margin(cmdp, margin, task.delta)
            raise InfeasibleError(text, margin.slater, proven=margin.verdict == "INFEASIBLE")
        return margin

    def settle(self, task: Task, margin: FiniteMargin) -> Settled:
        cmdp, key = self.model, key_of(task.seed)
        if task.evidence == "exact":
            method = fit_to_budget(task.method, cmdp, task.budget or BUDGET["exact"])
            method = with_kappa(method, cmdp, margin, (method.K or 1) * (getattr(method, "N", 1) or 1))
            lam_max = bound_of_multipliers(cmdp, method, margin.slater, exact=True)
            recorded = cmdp.S <= EXACT_STATES if task.exact_J is None else task.exact_J
            d_sum = np.zeros((cmdp.S, cmdp.A)) if recorded else None
            return Settled(task.sampler, method, lam_max, key, task.budget or np.inf, d_sum)
        left = (task.budget or BUDGET["samples"]) - margin.steps
        policy = task.sampler.policy
        learning = LEARNING if can_plan(cmdp, policy) else LEARNING_ALONE
        episode = MixtureEpisodes(cmdp, Mixture.single(policy.pi(policy.init()))).episode_steps
        method = fit_to_budget(task.method, cmdp, learning * left)
        method = with_kappa(
            method, cmdp, margin, (1 - learning) * TESTED * left / episode, share_of(1) * task.delta / 6
        )
        lam_max = bound_of_multipliers(cmdp, method, margin.slater, exact=False)
        return Settled(count_transitions(task.sampler), method, lam_max, fold(key, LEARN), learning * left)

    # ------------------------------------------------------------------------------------------------ after learning

    def search_budget(self, task: Task, spent: int) -> float:
        return (task.budget or BUDGET["samples"]) - spent

    def exact_choice(self, settled: Settled, run: Run, margin: FiniteMargin) -> tuple[Iterates, ExactValues]:
        """Return the stored iterates, with the safest policy as last candidate, and the exact values of all of them.

        If the exact J was not recorded during learning, up to 200 iterates are evaluated now.
        """
        cmdp, policy, trace = self.model, settled.sampler.policy, run.trace
        index, J = evaluated_iterates(cmdp, policy, trace)
        if margin.policy is not None:
            J = np.concatenate([J, values_from_occupancy(cmdp, occupancy(cmdp, margin.policy.pi))])
        size = np.maximum(np.abs(cmdp.g).max(axis=(1, 2)) * scale_of(cmdp), np.abs(cmdp.b))
        return Iterates(cmdp, policy, trace, index, margin.policy), ExactValues(J, 0.0, size)

    def sampled_choice(self, settled: Settled, run: Run, margin: FiniteMargin, budget: float) -> Choice:
        """Return the candidates for a choice by samples: late iterates, and the policies of a safe mixture.

        With a small budget, fewer iterates are candidates.
        """
        cmdp, policy, trace = self.model, settled.sampler.policy, run.trace
        pi_end = policy.pi(run.state.theta)
        few = LOOK * budget / SMALLEST / MixtureEpisodes(cmdp, Mixture.single(pi_end)).episode_steps
        index = trace.rows_of(spread_evenly(len(trace), int(np.clip(few, 1, CANDIDATES)), first=FADED))
        pi, fallback, reserve = policy.pi(trace.theta[index]), None, 0.0
        if margin.policy is not None:
            pi = np.concatenate([pi, margin.policy.pi])
            fallback = np.concatenate([np.zeros(len(index)), margin.policy.weights])
            reserve = min(max(3.0 * margin.tested, 0.02 * budget), 0.3 * budget)
        memory = run.state.sampler_memory
        base = state_values(pi_end, memory.Q) if isinstance(memory, Tables) else None
        return Choice(PolicyTables(cmdp, pi, base), fallback, reserve)

    def search(
        self,
        settled: Settled,
        run: Run,
        margin: FiniteMargin,
        key: np.uint64,
        budget: float,
        delta: float,
        single: Single,
    ) -> Search:
        """Return an object whose method `run` plans policies on an estimated model and tests them on samples.

        If policies of the class cannot be planned by a linear program, iterates are tested instead. The arguments are
        those of `World.search`.
        """
        cmdp, policy = self.model, settled.sampler.policy
        if not can_plan(cmdp, policy):
            return super().search(settled, run, margin, key, budget, delta, single)
        explored, memory = self.explored(policy), run.state.sampler_memory
        if margin.hits is not None and margin.starts is not None:
            explored.counts.add(margin.hits, margin.starts)
        if isinstance(memory, Tables):
            explored.counts.add(memory.hits, memory.starts)
        last = run.trace.rows_of(spread_evenly(len(run.trace), OTHERS, first=FADED))
        others = policy.pi(run.trace.theta[last])
        how: dict[str, Any] = {"b": cmdp.b, "key": key, "budget": budget, "delta": delta, "single": single}
        return self.planned_search(explored, others=others, fallback=margin.policy, **how)

    def planned_search(self, explored: FiniteExplored, **how: Any) -> PlannedSearch:
        """Return the search for a certified policy among plans; `how` are the other fields of `PlannedSearch`."""
        return PlannedSearch(explored, **how)

    def explored(self, policy: Policy) -> FiniteExplored:
        """Return the model as a simulator whose transitions are counted, with all counters at 0."""
        return FiniteExplored(self.model, policy, TransitionCounts.none(self.model), self.problem.horizon)

    def as_one_policy(self, settled: Settled, mixture: Mixture) -> Mixture | None:
        """Return the stationary policy with the mixture's averaged occupancy, which has the same values.

        A mixture of one policy is returned unchanged. Return None if the policy class is not tabular softmax.
        """
        if mixture.M == 1:
            return mixture
        return mixture.stationary(self.model) if settled.sampler.policy.tabular else None

    def uncertified(self, settled: Settled, run: Run, candidates: Iterates, exact: ExactValues) -> Mixture:
        """Return the policy to use if no mixture meets the limits.

        It is the stationary policy with the averaged occupancy of the iterates.
        """
        return averaged_policy(self.model, settled.sampler.policy, run.trace, averaged_occupancy(run))

    def certify(self, policy: Mixture, lam: Array | None = None, *, compare: bool = True) -> Certificate:
        return certify_table(self.problem, policy, compare=compare)

    def certify_policy(self, policy: Any, **how: Any) -> Certificate:
        return certify_finite(self.problem, policy, **how)

    def identify(self, policy: Mixture) -> str:
        return identify_table(self.problem, policy)

    def repeats(self) -> tuple[bool, str]:
        """Return (True, ""), since every sample of a finite model is determined by the seed."""
        return True, ""

    def scope(self, policy: Mixture) -> str:
        return sampled_scope(self.problem, policy)

    def last_policy(self, settled: Settled, state: State) -> Mixture:
        return Mixture.single(settled.sampler.policy.pi(state.theta))

    def alternatives(self, solution: Any) -> dict[str, Alternative]:
        """Return other policies of the run by name: π̄, the uniform mixture of the iterates.

        With exact evidence, the averaged-occupancy policy and the best certified iterate are returned too.
        """
        cmdp, policy, trace = self.model, solution.policy_class, solution.trace
        theorem = "Theorem 1: meets the limits in expectation, if κ and K are as it asks"
        found = {"mixture": Alternative(uniform_mixture(policy, trace), theorem)}
        if solution.evidence == "exact":  # the others need the model
            average = averaged_policy(cmdp, policy, trace, solution.d_bar)
            found["average"] = Alternative(average, "has exactly the values of the uniform mixture")
            single = best_single_iterate(cmdp, policy, trace)
            if single is not None:
                found["single"] = Alternative(single, "one iterate, meets every limit, proven")
        return found

    # ------------------------------------------------------------------------------------------------ the run folder

    def describe(self) -> ProblemDescription:
        return ProblemDescription(digest("CMDP", self.problem.arrays()), "problem.npz", self.problem.save)

    def describe_policy(self, policy: Policy) -> PolicyDescription:
        kind = plain_data.kind_of_policy(policy, self.model)
        files = {} if kind == "tabular" else {"features.npz": lambda path: plain_data.save_policy_class(path, policy)}
        return PolicyDescription({"kind": kind}, files)

    def describe_sampler(self, sampler: FiniteSampler) -> dict[str, Any]:
        return plain_data.describe(sampler, leave_out=("cmdp", "policy", "counting"))

    def restore_policy(self, folder: Path, data: dict[str, Any]) -> Policy:
        return plain_data.load_policy_class(folder, data, self.model)

    def restore_sampler(self, data: dict[str, Any], policy: Policy) -> FiniteSampler:
        kinds = (*SAMPLERS.values(), Exact, NetworkCritic)
        return plain_data.restore(data, kinds, self.model, policy)

    def read_margin(self, path: AnyPath) -> FiniteMargin:
        return FiniteMargin.load(path, self.model)


# ---------------------------------------------------------------------------------------------------- what it rests on


def _check_method(method: Method, sampler: FiniteSampler) -> None:
    """Raise InputError if the method and the sampler do not fit together, even if they would run without an error."""
    direction, name = getattr(method, "direction", None), type(method).__name__
    gamma = sampler.cmdp.gamma
    if isinstance(sampler, Table | Critic | NetworkCritic) and 1 / (1 - gamma) > LONGEST_WALK * (1 + 1e-6):
        raise InputError(
            f"gamma = {gamma!r} is too close to 1 to learn from walks, which take {1 / (1 - gamma):.3g} steps each: "
            "use optimum, or a smaller gamma"
        )
    if not isinstance(sampler, Table) and isinstance(direction, STOCHASTIC):
        kind, given = type(direction).__name__, type(sampler).__name__
        raise InputError(
            f"direction {kind} wants draws of equal weight, {given} weighs them: use Tabular() or LeastSquares()"
        )
    if isinstance(sampler, Table) and isinstance(sampler.policy, TwoLayer):
        raise InputError("sampler Table is for softmax over features: use NetworkCritic() or Exact() for a network")
    if getattr(method, "tabular_only", False) and not sampler.policy.tabular:  # said before anything is compiled
        raise InputError(f"{name} is for tabular softmax only: choose another method")
    if isinstance(direction, Tabular) and not sampler.policy.tabular:
        raise InputError("direction Tabular is for tabular softmax only: use SGD() or LeastSquares()")


def _no_margin(cmdp: CMDP, margin: FiniteMargin, delta: float) -> str:
    sure = f"with confidence {1 - delta:g}"
    if margin.verdict == "INFEASIBLE":
        assert margin.mu is not None
        conflict = ", ".join(cmdp.names[i] for i in np.flatnonzero(margin.mu > 0.01))
        return (
            f"no policy meets the limits, {sure}: max_π min_i (J_gi − b_i) ≤ {margin.bound:.6g} < 0 (in conflict: "
            f"{conflict}); to relax the limits by {-margin.bound:.6g} is needed, "
            f"by {round_up(-margin.slater):.6g} is enough"
        )
    return (
        f"no policy was found that keeps the limits {sure} (smallest slack of the best ≥ {margin.slater:.6g}, of any "
        f"policy ≤ {margin.bound:.6g}): give a larger budget, or relax the limits"
    )
