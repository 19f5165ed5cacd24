"""The adapter for environments with finitely many observations. Policies are tables, and they are tested by samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from clearance.certificates.assumptions import FRESH_RESETS, STEADY, assume
from clearance.certificates.best_mixture import Single
from clearance.certificates.candidate_search import Search
from clearance.certificates.certificate import Certificate, EvidenceKind
from clearance.certificates.ledger import run_test
from clearance.certificates.statistical_certificate import certificate_from
from clearance.certificates.steady_episodes import SteadyEpisodes
from clearance.certificates.verdict_words import policy_words, scope_words
from clearance.core.arrays import Array
from clearance.core.atomic_files import digest, save_json
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.core.random_streams import fold, key_of
from clearance.core.statement import PROBLEM, Statement, describe_statement
from clearance.exact.tabular_exploration import TabularExploration
from clearance.finite.mixture import Mixture
from clearance.finite.softmax_policy import SoftmaxPolicy, softmax
from clearance.learning.draws import Draws
from clearance.learning.loop import Run
from clearance.learning.methods.method_base import Method
from clearance.learning.sampler import Sampler
from clearance.learning.state import State
from clearance.runs.worlds.explored_table import ExploredTable, TableMemory
from clearance.runs.worlds.finite_certify import is_action_vector
from clearance.runs.worlds.planned_search import PlannedSearch
from clearance.runs.worlds.simulator_world import SimulatorWorld
from clearance.runs.worlds.world import PolicyDescription, ProblemDescription, Settled, Task, World
from clearance.simulator.gymnasium_envs.tabular_problem import TabularProblem

BUDGET = 1e6  # environment steps for everything, unless given
LEARNING = 0.6  # largest share of the budget for learning; half of this share if little is left to learn
LEARN, FRESH = 2**40 + 30, 2**41


@dataclass(frozen=True, eq=False)
class TableSampler(Sampler):
    """A sampler that only gives the method `TabularExploration` access to the environment; it draws no batches."""

    problem: TabularProblem
    policy: SoftmaxPolicy
    explored: ExploredTable = field(repr=False)

    @property
    def statement(self) -> Statement:
        return self.problem.statement

    def begin(self) -> TableMemory:
        return ExploredTable(self.problem, self.policy).memory

    def batch(self, key: np.uint64, memory: Any, theta: Array, N: int) -> tuple[Draws, Array, Any, int]:
        raise InputError("a table is learned by TabularExploration: leave out method")


@dataclass(frozen=True, eq=False)
class TabularWorld(World):
    """The adapter between the pipeline of `solve` and a black-box environment with finitely many observations."""

    problem: TabularProblem

    @property
    def statement(self) -> Statement:
        return self.problem.statement

    def evidence(self, asked: EvidenceKind | None, exact_J: bool | None) -> EvidenceKind:
        if asked not in (None, "samples") or exact_J is not None:
            raise InputError("a table has evidence from samples only: leave out evidence and exact_J")
        return "samples"

    def default_method(self) -> Method:
        return TabularExploration()

    def make_sampler(self, method: Method, policy: Any, sampler: Any, seed: int) -> TableSampler:
        if not isinstance(method, TabularExploration) or policy is not None or sampler is not None:
            raise InputError("a table is learned by TabularExploration: leave out method, policy and sampler")
        own = softmax(self.problem.S, self.problem.A)
        return TableSampler(self.problem, own, ExploredTable(self.problem, own))

    def settle(self, task: Task, margin: Any) -> Settled:
        method: Any = task.method
        learning = LEARNING * (task.budget or BUDGET)
        method = replace(method, N=max(1, int(learning / method.K))) if method.N is None else method
        return Settled(task.sampler, method, np.inf, fold(key_of(task.seed), LEARN), 2 * learning)

    def search_budget(self, task: Task, spent: int) -> float:
        return (task.budget or BUDGET) - spent

    def search(
        self, settled: Settled, run: Run, margin: Any, key: np.uint64, budget: float, delta: float, single: Single
    ) -> Search:
        sampler: Any = settled.sampler
        sampler.explored.recall(run.state.sampler_memory)
        none = np.zeros((0, self.problem.S, self.problem.A))
        return PlannedSearch(sampler.explored, self.statement.b, key, budget, delta, none, single=single)

    def scope(self, policy: Mixture) -> str:
        subject = f"the simulator {self.statement.name} as it was run, from its own resets"
        what = f"{subject}; nothing is added after termination", self.statement.full_criterion
        return scope_words(*what, policy_words(policy.M)) + assume(FRESH_RESETS, STEADY)

    def last_policy(self, settled: Settled, state: State) -> Mixture:
        return Mixture.single(settled.sampler.policy.pi(state.theta))

    def certify_policy(self, policy: Any, **how: Any) -> Certificate:
        """Certify a policy: a table [S, A], a mixture of tables, one action per observation, or a rule.

        A rule gets the environment's own observations. `how` are arguments of `certify`.
        """
        self.evidence(how["evidence"], None)
        for name in ("best", "compare", "bounds", "base"):
            if how.get(name) is not None:
                raise InputError(f"{name} is for finite models; the bounds of a table are part of its problem")
        if callable(policy):
            return SimulatorWorld(self.problem.gym).certify_policy(policy, **how)
        mixture = self._as_tables(policy)
        explored, delta = ExploredTable(self.problem, softmax(self.problem.S, self.problem.A)), how["delta"]
        names = "the reward", *self.statement.names
        source = SteadyEpisodes(explored.episodes(mixture, None, 0.5), self.statement.name, names)
        key = fold(key_of(how["seed"]), FRESH)
        seen, spent, note = run_test(source, self.statement.b, delta, key, how["budget"], None, how.get("ledger"))
        facts: dict[str, Any] = {"components": mixture.M, "scope": self.scope(mixture), "note": note, "spent": spent}
        return certificate_from(seen, self.statement.b, delta, **facts, **self.limits())

    def _as_tables(self, policy: Any) -> Mixture:
        """Return the policy as a mixture of tables; the row for the end may be left out, for nothing counts there.

        Raise InputError if the policy does not fit, with the ways to give one.
        """
        S, A = self.problem.S, self.problem.A
        try:
            if is_action_vector(policy):
                return Mixture.of_actions(policy if len(policy) == S else np.append(policy, 0), S, A)
            mixture = policy if isinstance(policy, Mixture) else Mixture.single(policy)
        except InputError as e:
            raise InputError(f"{e}; {self._ways}") from None
        if mixture.pi.shape[1:] == (S - 1, A):
            end = np.broadcast_to(np.eye(A)[0], (mixture.M, 1, A))
            return Mixture(mixture.weights, np.concatenate([mixture.pi, end], axis=1))
        if mixture.pi.shape[1:] != (S, A):
            raise InputError(f"policy has tables of shape {list(mixture.pi.shape[1:])}; {self._ways}")
        return mixture

    @property
    def _ways(self) -> str:
        S, A = self.problem.S, self.problem.A
        table = f"a table [{S}, {A}], one row per observation and a last one for the end"
        return f"give {table}; or one action for each of the {S - 1} observations, or a rule `observation -> action`"

    def describe(self) -> ProblemDescription:
        shapes = {"states": self.problem.S, "actions": self.problem.A}
        data, totals = {"schema": PROBLEM, **describe_statement(self.statement), **shapes}, self.problem.totals
        if totals is not None:
            data = data | {"totals": [[x if np.isfinite(x) else None for x in end.tolist()] for end in totals]}
        return ProblemDescription(digest(["table", data], {}), "problem.json", lambda path: save_json(path, data))

    def describe_policy(self, policy: SoftmaxPolicy) -> PolicyDescription:
        return PolicyDescription({"kind": "table", "S": self.problem.S, "A": self.problem.A})

    def describe_sampler(self, sampler: Any) -> dict[str, Any]:
        return {"name": "TableSampler"}

    def restore_policy(self, folder: Path, data: dict[str, Any]) -> SoftmaxPolicy:
        return softmax(self.problem.S, self.problem.A)

    def restore_sampler(self, data: dict[str, Any], policy: Any) -> Sampler:
        return TableSampler(self.problem, policy, ExploredTable(self.problem, policy))

    def read_margin(self, path: AnyPath) -> None:
        return None
