"""solve: margin, learning, choice, certificate.

evidence="exact"     a finite model is known: the policy is learned from samples, but the margin, the choice among the
                     iterates and the certificate are exact, because they can be
evidence="samples"   the model is a black box: everything is from samples, within one budget of environment steps
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from clearance import dual
from clearance.direction import STOCHASTIC, Tabular
from clearance.errors import InfeasibleError, InputError
from clearance.inputs import check_problem
from clearance.kernels import fold
from clearance.loop import Progress, Run, iterate
from clearance.margin import Margin, conservative_margin, exact_margin, kappa_of, sampled_margin
from clearance.methods import CNPGPD, OPGPD, Method, ModelBased, RegularisedCNPGPD, State
from clearance.methods.method import margin_of
from clearance.methods.regularised import FADED
from clearance.mixture import Mixture
from clearance.network import Policy, TwoLayer
from clearance.policy import check_fits, softmax
from clearance.problem import CMDP, Array
from clearance.sample import NetworkCritic, Returns, Sampler, Table
from clearance.sample.critic import Tables, values_of
from clearance.sample.streams import key_of
from clearance.selection import Candidates, thinned
from clearance.settings import described
from clearance.solution import EvidenceKind, Solution
from clearance.store import Every, Store
from clearance.trials import FEW, LOOK, Trials

if TYPE_CHECKING:
    from clearance.simulator.crpo import PracticalCRPO
    from clearance.simulator.method import PracticalCNPGPD
    from clearance.simulator.policy import Design, NetworkPolicy
    from clearance.simulator.practical import Practical
    from clearance.simulator.problem import Simulator
    from clearance.simulator.solution import SimulatorSolution
    from clearance.simulator.unbiased import Algorithm2

# Up to this many states the exact J of every iterate is recorded beside Ĵ, unless asked otherwise.
EXACT_STATES = 300
# Environment steps, unless given: for learning alone (exact evidence), and for everything (samples).
BUDGET = {"exact": 2e6, "samples": 1e7}
# Of a budget of samples, after the margin: learning.
LEARNING = 0.15
# Iterates to choose from.
CANDIDATES = 12

# The streams of the phases; learning alone has the root, and no iteration gets as far as these.
MARGIN, LEARN, CHOOSE, CERTIFY = range(2**40, 2**40 + 4)


class ConservatismWarning(UserWarning):
    """κ is not below the Slater margin: the conservative problem has no solution and λ will run into its bound."""


@overload
def solve(
    cmdp: CMDP,
    method: Method | None = None,
    *,
    policy: Policy | None = None,
    sampler: Sampler | None = None,
    evidence: EvidenceKind = "exact",
    budget: float | None = None,
    delta: float = 0.01,
    seed: int = 0,
    exact_J: bool | None = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    checkpoint_every: str | int = "30s",
    asked: dict[str, Any] | None = None,
) -> Solution: ...


@overload
def solve(
    cmdp: Simulator,
    method: PracticalCNPGPD | PracticalCRPO | CNPGPD | None = None,
    *,
    policy: Design | NetworkPolicy | None = None,
    sampler: Practical | Algorithm2 | None = None,
    budget: float | None = None,
    delta: float = 0.01,
    seed: int = 0,
    progress: Progress | None = None,
    out: str | Path | None = None,
    checkpoint_every: str | int = "30s",
    asked: dict[str, Any] | None = None,
) -> SimulatorSolution: ...


def solve(
    cmdp: Any,
    method: Any = None,
    *,
    policy: Any = None,
    sampler: Any = None,
    evidence: EvidenceKind = "exact",
    budget: float | None = None,
    delta: float = 0.01,
    seed: int = 0,
    exact_J: bool | None = None,
    progress: Progress | None = None,
    out: str | Path | None = None,
    checkpoint_every: str | int = "30s",
    asked: dict[str, Any] | None = None,
) -> Any:
    """Learn a policy that earns most among those that break no limit, and certify it.

    The problem is a finite model, or a simulator (`environment`, `gymnasium`): then see
    `clearance.simulator.solving.solve_simulator` for method, policy and budget.

    method    `RegularisedCNPGPD` unless given, with as many walks per iteration as the budget allows; or `CNPGPD`
    policy    the class π_θ; tabular softmax unless given
    sampler   where draws come from; the one that goes with the method unless given
    evidence  "exact", or "samples": see the head of this module. To show from samples that no policy meets the limits,
              the simulator is put into every pair (s, a)
    budget    environment steps: for learning (exact evidence, 2·10⁶ unless K and N are given), or for all (10⁷)
    delta     level of the certificate from samples: P(a policy that breaks a limit is called CERTIFIED) ≤ δ
    exact_J   record the exact J of every iterate beside Ĵ; by default for models of up to 300 states
    out       the run folder: written while the run goes on, so that `resume` can go on with it (docs/run_folder.md)
    checkpoint_every  how often: a time as "30s", or a number of iterations
    asked     flags and command line, to be noted in the run folder
    Raises `InfeasibleError` when no policy of the class meets the limits.
    """
    if evidence not in BUDGET:
        raise InputError(f"evidence must be 'exact' or 'samples', got {evidence!r}")
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta!r}")
    if budget is not None and not budget >= 1:
        raise InputError(f"budget must be at least 1 step, got {budget!r}")
    if not isinstance(cmdp, CMDP):
        given = {"policy": policy, "sampler": sampler, "budget": budget, "delta": delta, "seed": seed}
        folder = {"out": out, "checkpoint_every": checkpoint_every, "asked": asked}
        return _on_simulator(cmdp, method, progress=progress, **given, **folder)
    if method is not None and isinstance(method.kappa, tuple | list) and len(method.kappa) != cmdp.I:
        raise InputError(
            f"kappa has {len(method.kappa)} entries for {cmdp.I} constraints; give one number, or one each"
        )
    sampler = _sampler(cmdp, method, policy, sampler)
    key_of(seed)
    task = Task(sampler, method, evidence, budget, delta, int(seed), exact_J)
    if out is None:
        return perform(task, progress)
    from clearance import resuming

    with resuming.created(out, task, Every.of(checkpoint_every), asked) as store:
        return perform(task, progress, store)


class Task(NamedTuple):
    """What `solve` was asked for; a run is a function of it."""

    sampler: Sampler
    method: Method | None
    evidence: EvidenceKind
    budget: float | None
    delta: float
    seed: int
    exact_J: bool | None


def perform(task: Task, progress: Progress | None, store: Store | None = None) -> Solution:
    """The run, or what is left of it; with a store, all of it is written there."""
    began = time.perf_counter() - (0.0 if store is None else store.seconds)
    solution = (_by_samples if task.evidence == "samples" else _by_model)(task, progress, store)
    solution = replace(solution, seconds=max(time.perf_counter() - began, 0.0))
    if store is not None:
        store.finish(solution.policy, solution.certificate, solution.status, solution.env_steps)
    return solution


def _by_model(task: Task, progress: Progress | None, store: Store | None) -> Solution:
    """Margin, choice and certificate exact; `Solution` makes the latter two."""
    sampler, budget = task.sampler, task.budget
    cmdp = sampler.cmdp
    margin = (None if store is None else store.margin) or exact_margin(cmdp, sampler.policy)
    method = _fitted(task.method, cmdp, budget or BUDGET["exact"])
    method = _with_kappa(method, cmdp, margin, (method.K or 1) * (method.N or 1))
    lam_max = _bound_of_multipliers(cmdp, method, margin.slater, exact=True)
    _decided(store, task, margin, method, lam_max)
    exact = cmdp.S <= EXACT_STATES if task.exact_J is None else task.exact_J
    limit = np.inf if budget is None else budget
    run = iterate(
        sampler, method, key_of(task.seed), lam_max, exact=exact, budget=limit, progress=progress, record=store
    )
    counted = float(run.trace.counts.sum())
    d_bar = None if run.d_sum is None or counted == 0 else run.d_sum / counted
    facts = (margin, lam_max, run.status, task.seed, 0.0, d_bar, "exact", (), run.steps)
    return Solution(cmdp, method, sampler.policy, run.trace, run.state, *facts)


def _on_simulator(simulator: Any, method: Any, **settings: Any) -> Any:
    """The same for a JAX environment or a Gymnasium problem, which needs the extra `sim`."""
    check_problem(simulator)
    from clearance.simulator.solving import solve_simulator

    return solve_simulator(simulator, method, **settings)


def _decided(store: Store | None, task: Task, margin: Margin, method: Method, lam_max: float) -> None:
    """What follows from the margin, for the run folder."""
    if store is not None:
        slater = margin.slater if np.isfinite(margin.slater) else None
        data = {"method": described(method), "lam_max": lam_max, "slater": slater}
        store.decided(margin, data | {"seed": task.seed, "evidence": task.evidence}, method.K or 0)


def _by_samples(task: Task, progress: Progress | None, store: Store | None) -> Solution:
    """The same without the model: every phase from samples, all within the budget."""
    cmdp, policy = task.sampler.cmdp, task.sampler.policy
    key, budget, delta = key_of(task.seed), task.budget or BUDGET["samples"], task.delta
    margin = None if store is None else store.margin
    margin = margin or sampled_margin(cmdp, policy, np.uint64(fold(key, MARGIN)), budget, delta)
    if margin.verdict != "FEASIBLE":
        text = _no_margin(cmdp, margin, delta)
        raise InfeasibleError(text, margin.slater, proven=margin.verdict == "INFEASIBLE")
    left = budget - margin.steps
    episode = Returns(cmdp, Mixture.single(policy.pi(policy.init()))).episode_steps
    method = _fitted(task.method, cmdp, LEARNING * left)
    method = _with_kappa(method, cmdp, margin, (1 - LEARNING) * 0.3 * left / episode, delta / 6)
    lam_max = _bound_of_multipliers(cmdp, method, margin.slater, exact=False)
    _decided(store, task, margin, method, lam_max)
    stream = np.uint64(fold(key, LEARN))
    run = iterate(task.sampler, method, stream, lam_max, budget=LEARNING * left, progress=progress, record=store)
    if store is not None and run.status == "interrupted":  # the rest is done when the run goes on
        raise KeyboardInterrupt
    spent = margin.steps + run.steps
    trials = _trials(cmdp, policy, run, margin, key, budget - spent, delta)
    attempts = trials.run()
    facts = (margin, lam_max, run.status, task.seed, 0.0, None, "samples", attempts, spent + trials.steps, delta)
    return Solution(cmdp, method, policy, run.trace, run.state, *facts)


def _trials(
    cmdp: CMDP, policy: Policy, run: Run, margin: Margin, key: np.uint64, budget: float, delta: float
) -> Trials:
    """The late iterates as candidates, fewer of them where the budget is small; and the safest policy's components."""
    few = LOOK * budget / FEW / Returns(cmdp, Mixture.single(policy.pi(run.state.theta))).episode_steps
    index = run.trace.rows_of(thinned(len(run.trace), int(np.clip(few, 1, CANDIDATES)), first=FADED))
    pi = policy.pi(run.trace.theta[index])
    pi = pi if margin.policy is None else np.concatenate([pi, margin.policy.pi])
    candidates = Candidates(cmdp, pi, _baseline(policy, run.state), np.uint64(fold(key, CHOOSE)))
    return Trials(cmdp, candidates, margin, np.uint64(fold(key, CERTIFY)), budget, delta)


def _baseline(policy: Policy, state: State) -> Array | None:
    """V̂ [S, 1+I] as control variate: the critic's, where there is one."""
    return values_of(policy.pi(state.theta), state.world.Q) if isinstance(state.world, Tables) else None


def _no_margin(cmdp: CMDP, margin: Margin, delta: float) -> str:
    sure = f"with confidence {1 - delta:g}"
    if margin.verdict == "INFEASIBLE":
        assert margin.mu is not None
        conflict = ", ".join(cmdp.names[i] for i in np.flatnonzero(margin.mu > 0.01))
        return (
            f"no policy meets the limits, {sure}: max_π min_i (J_gi − b_i) ≤ {margin.bound:.6g} < 0 (in conflict: "
            f"{conflict}); to lower b by {-margin.bound:.6g} is needed, by {-margin.slater:.6g} is enough"
        )
    return (
        f"no policy was found that keeps the limits {sure} (smallest slack of the best ≥ {margin.slater:.6g}, of any "
        f"policy ≤ {margin.bound:.6g}): give a larger budget, or lower b"
    )


def _fitted(method: Method | None, cmdp: CMDP, budget: float) -> Method:
    """The method with its K and N decided."""
    method = RegularisedCNPGPD() if method is None else method
    return method.fitted(cmdp.gamma, budget) if isinstance(method, RegularisedCNPGPD) else method


def _with_kappa(method: Method, cmdp: CMDP, margin: Margin, samples: float, delta: float | None = None) -> Method:
    """The method with its κ decided."""
    if method.kappa != "auto" or not cmdp.I:
        return replace(method, kappa=0.0) if method.kappa == "auto" else method
    decided = replace(method, kappa=kappa_of(cmdp, margin, samples, delta))
    if isinstance(decided, RegularisedCNPGPD) and decided.kappa_first is None and cmdp.I:
        return replace(decided, kappa_first=0.5 * max(margin.slater, 0.0))
    return decided


def _sampler(cmdp: CMDP, method: Method | None, policy: Policy | None, sampler: Sampler | None) -> Sampler:
    """The sampler given, or the method's own on the policy given; refuses what would run and mean something else."""
    if sampler is None:
        policy = softmax(cmdp.S, cmdp.A, cmdp.available) if policy is None else policy
        check_fits(cmdp, policy)
        sampler = _own_sampler(cmdp, method, policy)
    elif sampler.cmdp is not cmdp or (policy is not None and policy is not sampler.policy):
        raise InputError("sampler was made for another problem or policy: give the same objects to both")
    check_fits(cmdp, sampler.policy)
    direction = getattr(method, "direction", None)
    if not isinstance(sampler, Table) and isinstance(direction, STOCHASTIC):
        name, kind = type(sampler).__name__, type(direction).__name__
        raise InputError(
            f"direction {kind} wants draws of equal weight, {name} weighs them: use Tabular() or LeastSquares()"
        )
    if isinstance(sampler, Table) and isinstance(sampler.policy, TwoLayer):
        raise InputError("sampler Table is for softmax over features: use NetworkCritic() or Exact() for a network")
    if isinstance(method, OPGPD | ModelBased) and not sampler.policy.tabular:  # said before anything is compiled
        raise InputError(f"{type(method).__name__} is for tabular softmax only: choose another method")
    if isinstance(direction, Tabular) and not sampler.policy.tabular:
        raise InputError("direction Tabular is for tabular softmax only: use SGD() or LeastSquares()")
    return sampler


def _own_sampler(cmdp: CMDP, method: Method | None, policy: Policy) -> Sampler:
    """The one that goes with the method; a critic of the same kind for a policy that is a network."""
    if isinstance(policy, TwoLayer):
        return NetworkCritic(cmdp, policy, policy.m)
    return (RegularisedCNPGPD() if method is None else method).sampler(cmdp, policy)


def _bound_of_multipliers(cmdp: CMDP, method: Method, slater: float, *, exact: bool) -> float:
    """Λ as given, or from the margin; says before time is spent if κ is not below it."""
    kappa, bound = margin_of(method.kappa), getattr(method, "lam_max", None)
    room = conservative_margin(cmdp, kappa, slater, exact=exact) if cmdp.I else np.inf
    if room <= 1e-9 * float(np.abs(cmdp.g).max(initial=0.0)) / (1 - cmdp.gamma):
        text = f"kappa = {np.max(kappa):g} is not below the Slater margin {slater:.6g}, so no policy keeps it"
        if bound is None:
            remedy = f"choose kappa < {slater:.6g}" if slater > 0 else "lower b"
            raise InputError(f"{text}; {remedy}, or give lam_max to run it all the same")
        warnings.warn(f"{text} and lam will run into lam_max = {bound:g}", ConservatismWarning, stacklevel=3)
    if bound is not None:
        return float(bound)
    return dual.lam_max_of(cmdp.gamma, room, 0.0, float(np.ptp(cmdp.r))) if cmdp.I else 1.0
