"""What the pipeline asks of a kind of problem: the `World` protocol, one small adapter for each kind.

    finite models    `finite_world.FiniteWorld`          simulators    `simulator_world.SimulatorWorld`

`dispatch.world_of(problem)` finds the adapter by the type of the problem.
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
    """What is asked of a problem, with the names of its constraints, and which of them were written as costs."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def costs(self) -> tuple[bool, ...]: ...


class Margin(Protocol):
    """What was measured of the Slater margin φ = max_π min_i (J_gi(π) − b_i)."""

    @property
    def slater(self) -> float:
        """φ, or a lower confidence bound of it."""
        ...

    @property
    def steps(self) -> int:
        """Environment steps that measuring it took."""
        ...

    def save(self, path: AnyPath, /) -> None:
        """Write it as plain arrays."""
        ...


class Start(NamedTuple):
    """Where a run begins that does not begin from nothing: `init` of `solve`.

    theta, lam  θ¹ [d] and λ¹ [I]
    memory      what the sampler carries from batch to batch, critics for example
    candidates  θ [m, d] of policies to choose from beside the iterates
    steps       environment steps that it took to find it
    origin      where it comes from, in words, for the certificate
    rule        the rule of the user's own that was imitated; it is a candidate too
    """

    theta: Array
    lam: Array
    memory: Any
    candidates: Array
    steps: int
    origin: str
    rule: Callable[[Any], Any] | None = None


class Task(NamedTuple):
    """What `solve` was asked for; a run is a function of it. `budget` None: the world's own."""

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
    """What follows from the margin: the method with K, N and κ decided, Λ, and what learning may spend.

    d_sum  zeros [S, A] where the exact J and the occupancies of the iterates are recorded
    extra  θ [m, d] of policies to choose from beside the iterates, of a run that began from them
    """

    sampler: Sampler
    method: Method
    lam_max: float
    stream: np.uint64
    budget: float = np.inf
    d_sum: Array | None = None
    extra: Array | None = None


class Choice(NamedTuple):
    """The policies to choose from, and the safe one to fall back to: its weights among them, and steps kept for it;
    spent: environment steps that preparing the choice took.
    """

    candidates: Candidates
    fallback: Array | None = None
    reserve: float = 0.0
    spent: int = 0


class ExactValues(NamedTuple):
    """Exact values J [n, 1+I] of candidates, bounds of their errors, and the scale of each J_g [I]."""

    J: Array
    error: Array | float
    size: Array


class Alternative(NamedTuple):
    """Another policy of a run, and what is guaranteed of it."""

    policy: Any
    guarantee: str


class ProblemDescription(NamedTuple):
    """The problem of a run as its folder holds it: its sha256, the name of its file, and what writes that."""

    identity: str
    file: str
    save: Callable[[AnyPath], None]


class PolicyDescription(NamedTuple):
    """The policy class of a run as its folder holds it: plain data, and further files with what writes them."""

    data: dict[str, Any]
    files: dict[str, Callable[[AnyPath], None]] = {}  # noqa: RUF012


class World(Protocol):
    """One kind of problem, as the pipeline sees it. A class that inherits from it gets defaults for what is optional:
    no margin to measure, no exact values, no other policies than the chosen one and the last.
    """

    problem: Any

    @property
    def statement(self) -> Any:
        """What is asked: `NamedLimits`."""
        ...

    # ------------------------------------------------------------------------------------------------ before a run

    def evidence(self, asked: EvidenceKind | None, exact_J: bool | None) -> EvidenceKind:
        """Return the kind of evidence there will be; an error where what is asked for cannot be had."""
        ...

    def default_method(self) -> Method: ...

    def make_sampler(self, method: Method, policy: Any, sampler: Any, seed: int) -> Sampler:
        """Return the sampler given, or the one that the method needs; an error where they do not fit together."""
        ...

    def read_init(self, init: Any) -> Any:
        """Return what `init` of `solve` holds; its `policy_class` is the class to learn in, None: the world's own."""
        raise InputError("init is for finite models and simulators: leave it out")

    def begin_from(self, source: Any, sampler: Sampler, seed: int, budget: float | None) -> Start:
        """Return where a run with this sampler begins; `source` is what `read_init` gave."""
        raise InputError("init is for finite models and simulators: leave it out")

    def measure_margin(self, task: Task) -> Margin | None:
        """Return the Slater margin, if this kind of problem has one to measure before learning."""
        return None

    def settle(self, task: Task, margin: Any) -> Settled:
        """Decide what was left open: K, N, κ, Λ, and what learning may spend."""
        ...

    # ------------------------------------------------------------------------------------------------ after learning

    def spent_before(self, margin: Any) -> int:
        """Return the environment steps that were spent before learning."""
        return 0 if margin is None else margin.steps

    def search_budget(self, task: Task, spent: int) -> float:
        """Return the environment steps that are left for choice and certificate."""
        ...

    def exact_choice(self, settled: Settled, run: Run, margin: Any) -> tuple[Any, ExactValues]:
        """Return the policies to choose from with their exact values, where the evidence is exact."""
        raise InputError(NO_EXACT)

    def sampled_choice(self, settled: Settled, run: Run, margin: Any, budget: float) -> Choice:
        """Return the policies to choose from, as many as so many environment steps can tell apart.

        A world whose `search` makes its own candidates has none.
        """
        raise TypeError(f"{type(self).__name__} has neither candidates nor a search of its own")

    def neighbours(self, search: Any, run: Run) -> dict[str, list[float]]:
        """Return what other policies are worth, J [1+I] by name, by the estimates of a search, for comparison."""
        return {}

    def search(
        self, settled: Settled, run: Run, margin: Any, key: np.uint64, budget: float, delta: float, single: Single
    ) -> Search:
        """Return the search for the best certified policy by samples: among `sampled_choice`, unless there is more."""
        choice = self.sampled_choice(settled, run, margin, budget)
        safe = {"fallback": choice.fallback, "reserve": choice.reserve, "spent": choice.spent}
        left = budget - choice.spent
        return CandidateSearch(choice.candidates, self.statement.b, key, left, delta, **safe, single=single)

    def as_one_policy(self, settled: Settled, mixture: Any) -> Any:
        """Return the one policy of the class with exactly the values of a mixture; None where none is known."""
        return None

    def uncertified(self, settled: Settled, run: Run, candidates: Any, exact: ExactValues) -> Any:
        """Return the policy to give back where no mixture of the candidates meets the limits by exact values."""
        raise InputError(NO_EXACT)

    def certify(self, policy: Any, lam: Array | None = None, *, compare: bool = True) -> Certificate:
        """Return the exact certificate of a policy."""
        raise InputError(NO_EXACT)

    def certify_policy(self, policy: Any, **how: Any) -> Certificate:
        """Certify any policy that this kind of problem can be given; see `clearance.certify` for the arguments."""
        ...

    def identify(self, policy: Any) -> str | None:
        """Return a digest of problem and policy, by which a ledger of tests finds them again; None if there is none."""
        return None

    def scope(self, policy: Any) -> str:
        """Return what a certificate of this policy holds for, in words."""
        ...

    def limits(self) -> dict[str, Any]:
        """Return what a certificate says of the limits beside b: their names, and which of them are costs."""
        s = self.statement
        return {"names": list(s.names), "costs": list(s.costs)}

    def complete(self, certificate: Certificate) -> Certificate:
        """Return a certificate from samples without what this problem cannot know."""
        return certificate

    def last_policy(self, settled: Settled, state: State) -> Any:
        """Return the policy of the last iterate."""
        ...

    def alternatives(self, solution: Any) -> dict[str, Any]:
        """Return the other policies of a run, with what is guaranteed of each."""
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
        """Return the margin that was written to the run folder, where there is one."""
        return None

    def repeats(self) -> tuple[bool | None, str]:
        """Return whether the problem is deterministic given its seed (None: not known), and a sentence if it is not."""
        return None, ""
