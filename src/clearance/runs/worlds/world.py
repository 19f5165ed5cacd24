"""The `World` protocol: everything that the pipeline of `solve` needs from a kind of problem.

Each kind of problem has one adapter, which `dispatch.world_of(problem)` finds by the type of the problem:

    finite models    `finite_world.FiniteWorld`          simulators    `simulator_world.SimulatorWorld`
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from clearance.certificates.best_mixture import Single
from clearance.certificates.candidate_search import Candidates, CandidateSearch, Search
from clearance.certificates.certificate import Certificate, EvidenceKind
from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.inside_folder import AnyPath
from clearance.learning.loop import Run
from clearance.learning.methods.method_base import Method
from clearance.learning.sampler import Limits, Sampler
from clearance.learning.state import State

NO_EXACT = "the values of this problem are not known exactly: leave out evidence='exact'"


class NamedLimits(Limits, Protocol):
    """The limits of a problem, the names of its constraints, and whether the user wrote each of them as a cost."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def costs(self) -> tuple[bool, ...]: ...


class Margin(Protocol):
    """A measurement of the Slater margin φ = max_π min_i (J_gi(π) − b_i)."""

    @property
    def slater(self) -> float:
        """The Slater margin φ, or a lower confidence bound of it."""
        ...

    @property
    def steps(self) -> int:
        """The number of environment steps that the measurement took."""
        ...

    def save(self, path: AnyPath, /) -> None:
        """Write the margin to an .npz file of plain arrays."""
        ...


class Start(NamedTuple):
    """The point at which learning begins if the user gave `init`.

    theta, lam  the first θ [d] and λ [I]
    memory      the initial memory of the sampler, such as its critics
    candidates  θ [m, d] of further policies to choose from, in addition to the iterates
    steps       environment steps that were needed to find this start
    origin      a description of where the start comes from, for the certificate
    rule        the user's rule that was imitated, if any; it is a candidate too
    """

    theta: Array
    lam: Array
    memory: Any
    candidates: Array
    steps: int
    origin: str
    rule: Callable[[Any], Any] | None = None


class Task(NamedTuple):
    """All arguments of `solve`, which determine the run.

    With `budget` None, the default of the adapter `world` is used.
    """

    world: World
    sampler: Sampler
    method: Method
    evidence: EvidenceKind
    budget: float | None
    delta: float
    seed: int
    exact_J: bool | None = None
    single: Single = "prefer"
    start: Start | None = None


class Settled(NamedTuple):
    """The settings of a run that are decided once the Slater margin is known.

    method   the method with its final number K of iterations, number N of samples per iteration, and margin κ
    lam_max  the upper bound Λ of λ;  stream: the random key of learning;  budget: the steps for learning
    d_sum    zeros [S, A] if the exact J and the occupancies of the iterates are to be recorded; else None
    extra    θ [m, d] of further candidates, in addition to the iterates, if the run began from a policy
    rule     a rule of the user that is a candidate too; None if there is none
    """

    sampler: Sampler
    method: Method
    lam_max: float
    stream: np.uint64
    budget: float = np.inf
    d_sum: Array | None = None
    extra: Array | None = None
    rule: Callable[[Any], Any] | None = None


class Choice(NamedTuple):
    """The candidate policies from which one is chosen by samples.

    fallback  weights of a safe mixture of the candidates, tested last; None if there is none
    reserve   environment steps reserved for testing the fallback
    spent     environment steps that were used to prepare the choice
    """

    candidates: Candidates
    fallback: Array | None = None
    reserve: float = 0.0
    spent: int = 0


class ExactValues(NamedTuple):
    """Exact values J [n, 1+I] of n candidate policies.

    error  bounds on the errors of J
    size   the scale of each J_g [I]; limits are tightened by a share of this scale
    """

    J: Array
    error: Array | float
    size: Array


class Alternative(NamedTuple):
    """A policy of a run besides the selected one, and a text that says what is guaranteed about it."""

    policy: Any
    guarantee: str


class ProblemDescription(NamedTuple):
    """A problem as stored in a run folder: its digest, the name of its file, and the function that writes the file."""

    identity: str
    file: str
    save: Callable[[AnyPath], None]


class PolicyDescription(NamedTuple):
    """A policy class as stored in a run folder: plain data, and further files {name: function that writes the file}."""

    data: dict[str, Any]
    files: dict[str, Callable[[AnyPath], None]] = {}  # noqa: RUF012


class World(Protocol):
    """An adapter that gives the pipeline one interface to one kind of problem.

    A subclass inherits defaults for the optional methods: no margin is measured, there are no exact values, and there
    are no policies besides the selected one and the last one.
    """

    problem: Any

    @property
    def statement(self) -> Any:
        """The limits and names of the problem (`NamedLimits`)."""
        ...

    # ------------------------------------------------------------------------------------------------ before a run

    def evidence(self, asked: EvidenceKind | None, exact_J: bool | None) -> EvidenceKind:
        """Return the kind of evidence of this run; raise InputError if the requested kind `asked` is not possible."""
        ...

    def with_evidence(self, kind: EvidenceKind) -> World:
        """Return the adapter for a run with this kind of evidence; by default this one."""
        return self

    def default_method(self) -> Method: ...

    def make_sampler(self, method: Method, policy: Any, sampler: Any, seed: int) -> Sampler:
        """Return `sampler`; if it is None, return the sampler that the method needs. `policy` is the policy class.

        Raise InputError if method, policy class and sampler do not fit together.
        """
        ...

    def read_init(self, init: Any) -> Any:
        """Return the content of `init`, an argument of `solve`, as an object with the attribute `policy_class`.

        This attribute is the policy class to learn in; None means the default class.
        """
        raise InputError("init is for finite models and simulators: leave it out")

    def begin_from(self, source: Any, sampler: Sampler, seed: int, budget: float | None) -> Start:
        """Return the start of a run with this sampler; `source` is the result of `read_init`."""
        raise InputError("init is for finite models and simulators: leave it out")

    def measure_margin(self, task: Task) -> Margin | None:
        """Measure the Slater margin before learning and return it; None if this kind of problem does not need it."""
        return None

    def settle(self, task: Task, margin: Any) -> Settled:
        """Decide the settings that the user left open, and return all settings.

        The settings are the number K of iterations, the number N of samples per iteration, the margin κ, the upper
        bound Λ of λ, and the budget for learning.
        """
        ...

    # ------------------------------------------------------------------------------------------------ after learning

    def spent_before(self, margin: Any) -> int:
        """Return the number of environment steps that the run spent before learning, such as on the margin."""
        return 0 if margin is None else margin.steps

    def search_budget(self, task: Task, spent: int) -> float:
        """Return how many environment steps are left to choose and certify a policy, after `spent` steps were used."""
        ...

    def exact_choice(self, settled: Settled, run: Run, margin: Any) -> tuple[Any, ExactValues]:
        """Return the candidate policies and their exact values, for exact evidence."""
        raise InputError(NO_EXACT)

    def sampled_choice(self, settled: Settled, run: Run, margin: Any, budget: float) -> Choice:
        """Return the candidate policies for evidence from samples; a larger budget allows more candidates.

        An adapter that overrides `search` with its own candidates does not need this method.
        """
        raise TypeError(f"{type(self).__name__} has neither candidates nor a search of its own")

    def neighbours(self, search: Any, run: Run) -> dict[str, list[float]]:
        """Return estimated values J [1+I] of policies besides the selected one, by name.

        The values come from the search. The certificate shows them for comparison.
        """
        return {}

    def search(
        self, settled: Settled, run: Run, margin: Any, key: np.uint64, budget: float, delta: float, single: Single
    ) -> Search:
        """Return an object whose method `run` searches for the best certified policy, by testing policies on samples.

        This default searches among the candidates of `sampled_choice`; an adapter may override it.

        settled, run, margin  the settings of the run, its iterates, and the measured Slater margin (None: not measured)
        key, budget, delta    random key, environment steps and error probability of the search
        single                whether a single policy may or must replace a mixture, as in `solve`
        """
        choice = self.sampled_choice(settled, run, margin, budget)
        safe = {"fallback": choice.fallback, "reserve": choice.reserve, "spent": choice.spent}
        left = budget - choice.spent
        return CandidateSearch(choice.candidates, self.statement.b, key, left, delta, **safe, single=single)

    def as_one_policy(self, settled: Settled, mixture: Any) -> Any:
        """Return a single policy of the policy class with exactly the values of `mixture`; None if none is known."""
        return None

    def uncertified(self, settled: Settled, run: Run, candidates: Any, exact: ExactValues) -> Any:
        """Return the policy to use if, by exact values, no mixture of the candidates meets the limits."""
        raise InputError(NO_EXACT)

    def certify(self, policy: Any, lam: Array | None = None, *, compare: bool = True) -> Certificate:
        """Return the exact certificate of a policy.

        lam  the multipliers of the run, to be shown;  compare: whether to compute the gap to the optimum
        """
        raise InputError(NO_EXACT)

    def certify_policy(self, policy: Any, **how: Any) -> Certificate:
        """Certify any policy that this kind of problem accepts; the arguments are those of `clearance.certify`."""
        ...

    def identify(self, policy: Any) -> str | None:
        """Return a digest of problem and policy, by which the ledger recognises a repeated test; None: no digest."""
        return None

    def scope(self, policy: Any) -> str:
        """Return a sentence that says for which system and criterion a certificate of this policy holds."""
        ...

    def limits(self) -> dict[str, Any]:
        """Return fields of the certificate about the limits: the constraints' names, and which of them are costs."""
        s = self.statement
        return {"names": list(s.names), "costs": list(s.costs)}

    def complete(self, certificate: Certificate) -> Certificate:
        """Return a certificate from samples after removing the fields that cannot be known for this problem."""
        return certificate

    def last_policy(self, settled: Settled, state: State) -> Any:
        """Return the policy of the last iterate."""
        ...

    def give_code(self, policy: Any, start: Start | None) -> Any:
        """Return `policy`, which was loaded from a run folder, with the user's rule in `start` put in.

        A run folder does not store the rule, because it is code. A policy without a rule is returned unchanged.
        """
        return policy

    def alternatives(self, solution: Any) -> dict[str, Any]:
        """Return the policies of a run besides the selected one, by name, each with its guarantee."""
        return {}

    # ------------------------------------------------------------------------------------------------ the run folder

    def describe(self) -> ProblemDescription: ...

    def describe_policy(self, policy: Any) -> PolicyDescription: ...

    def describe_sampler(self, sampler: Any) -> dict[str, Any]:
        """Return the sampler as plain data, without the problem and the policy."""
        ...

    def restore_policy(self, folder: Path, data: dict[str, Any]) -> Any: ...

    def restore_sampler(self, data: dict[str, Any], policy: Any) -> Sampler: ...

    def read_margin(self, path: AnyPath) -> Margin | None:
        """Read the Slater margin from a file of the run folder; None if this kind of problem has none."""
        return None

    def repeats(self) -> tuple[bool | None, str]:
        """Return whether the problem is deterministic given its seed (None: unknown), and the reason if it is not."""
        return None, ""
