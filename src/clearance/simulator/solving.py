"""solve and certify for simulators: learning, choice among the late iterates, certificate; all within one budget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from clearance.certificate import Certificate, by_samples
from clearance.errors import EnvironmentFault, InputError
from clearance.kernels import fold
from clearance.loop import Progress, Run, iterate
from clearance.methods import CNPGPD, State
from clearance.problem import Array
from clearance.sample.streams import key_of
from clearance.selection import best_weights, safest_weights, thinned
from clearance.simulator.choice import TESTS, Choice, least_episodes, slack_needed, slack_per_sd
from clearance.simulator.crpo import PracticalCRPO
from clearance.simulator.gym import Gym
from clearance.simulator.method import PracticalCNPGPD
from clearance.simulator.mixture import NetworkMixture
from clearance.simulator.policy import Design, NetworkPolicy
from clearance.simulator.practical import Practical
from clearance.simulator.problem import Simulator, Statement
from clearance.simulator.reset_free import ResetFree
from clearance.simulator.returns import Ruled, Simulated, episode_steps, longest, signal_bounds
from clearance.simulator.solution import SimulatorSolution
from clearance.simulator.spaces import describe
from clearance.simulator.steps import NaturalSteps
from clearance.simulator.unbiased import Algorithm2, Unbiased
from clearance.solution import Attempt
from clearance.statistical import gather
from clearance.store import Every, Store

BUDGET = 2e6  # environment steps for all, unless given
LEARNING = 0.5  # the share of them for learning
CANDIDATES = 10  # late iterates to choose from
LATE = 0.6  # they are among the last 40 %
WARM = 0.2  # share of the iterations over which the normaliser moves
TESTED, SPREAD = 0.7, 0.05  # what κ expects: a test with this share of the rest, and this spread, in widths
LEARN, CHOOSE, FRESH = 2**40 + 10, 2**40 + 11, 2**41  # streams
Chosen = TypeVar("Chosen", bound=NaturalSteps | CNPGPD)


def solve_simulator(
    simulator: Simulator,
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
) -> SimulatorSolution:
    """Learn a policy of a simulator that keeps its limits, and certify it; see `clearance.solve`.

    method   `CNPGPD` is Algorithm 1 as printed, on the unbiased draws of Algorithm 2 (γ < 1, no horizon)
    policy   `gaussian(…)` or `categorical(…)`; two layers of 64 with the head that fits the actions unless given
    budget   environment steps: half for learning, half for choice and certificate (2·10⁶ unless given)
    out      the run folder: written while the run goes on, so that `resume` can go on with it (docs/run_folder.md)
    """
    if method is not None and not isinstance(method, NaturalSteps | CNPGPD):
        told = "simulators take PracticalCNPGPD(), PracticalCRPO() or CNPGPD()"
        raise InputError(f"method {type(method).__name__} is for finite models; {told}")
    unbiased = isinstance(method, CNPGPD)
    sampler = _sampler(simulator, policy, seed, unbiased=unbiased) if sampler is None else sampler
    if isinstance(sampler, Algorithm2) != unbiased:
        raise InputError("CNPGPD goes with the samplers Unbiased and ResetFree: Algorithm 1 wants draws of Algorithm 2")
    key_of(seed)
    task = Task(sampler, method, budget, delta, int(seed))
    if out is None:
        return perform(task, progress)
    from clearance.simulator.folder import created

    with created(out, task, Every.of(checkpoint_every), asked) as store:
        return perform(task, progress, store)


class Task(NamedTuple):
    """What `solve` was asked for; a run is a function of it."""

    sampler: Practical | Algorithm2
    method: PracticalCNPGPD | PracticalCRPO | CNPGPD | None
    budget: float | None
    delta: float
    seed: int


def perform(task: Task, progress: Progress | None, store: Store | None = None) -> SimulatorSolution:
    """The run, or what is left of it; with a store, all of it is written there."""
    began = time.perf_counter() - (0.0 if store is None else store.seconds)
    sampler, method, budget = _decided(task)
    simulator, key = sampler.simulator, key_of(task.seed)
    if store is not None:
        from clearance.simulator.folder import ran

        store.decided(None, ran(method, simulator, task.seed), method.K or 0)
    with _kept(sampler, store) as keep:
        stream, lam_max = (
            np.uint64(fold(key, LEARN)),
            np.inf if not isinstance(method, CNPGPD) else method.lam_max or np.inf,
        )
        run = iterate(sampler, method, stream, lam_max, budget=LEARNING * budget, progress=progress, record=store)  # type: ignore[arg-type]
        keep.append(run.state)
        if store is not None and run.status == "interrupted":  # the rest is done when the run goes on
            raise KeyboardInterrupt
        mixture, certificate, attempts, steps = _chosen(simulator, sampler, run, key, budget - run.steps, task.delta)
    facts = run.status, task.seed, max(time.perf_counter() - began, 0.0), run.steps + steps, task.delta, attempts
    if store is not None:
        store.finish(mixture, certificate, run.status, run.steps + steps)
    return SimulatorSolution(simulator, method, sampler.policy, run.trace, run.state, mixture, certificate, *facts)


def _decided(task: Task) -> tuple[Practical | Algorithm2, PracticalCNPGPD | PracticalCRPO | CNPGPD, float]:
    """The sampler with its warm-up, the method with K, N and κ decided, and the budget."""
    sampler, budget = task.sampler, BUDGET if task.budget is None else task.budget
    method = PracticalCNPGPD() if task.method is None else task.method
    margin = partial(_with_kappa, statement=sampler.cmdp, budget=(1 - LEARNING) * budget, delta=task.delta)
    if isinstance(sampler, Algorithm2) or isinstance(method, CNPGPD):
        method = margin(method)
    else:
        method = margin(method.fitted(sampler.steps_per_lane, LEARNING * budget, sampler.smallest_batch))
        sampler = replace(sampler, warm=max(1, int(WARM * (method.K or 1))))
    if getattr(sampler.simulator, "exact", None) is None:
        signal_bounds(sampler.cmdp)
        _check_budget(sampler.cmdp, method, budget)
    return sampler, method, budget


def _check_budget(statement: Statement, method: NaturalSteps | CNPGPD, budget: float) -> None:
    """Learning is not begun where nothing would be left to certify it with."""
    candidates = len(thinned(method.K or CANDIDATES, CANDIDATES, first=max(LATE, WARM)))
    least = least_episodes(candidates) * episode_steps(statement)
    if (1 - LEARNING) * budget < least:
        why = f"choice and certificate need at least {least:.0f} steps, and have half of it"
        raise InputError(f"budget {budget:.6g} is too small: {why}: give {least / (1 - LEARNING):.0f} or more")


@contextmanager
def _kept(sampler: Practical | Algorithm2, store: Store | None) -> Iterator[list[State]]:
    """Whatever ends a run takes nothing with it: the last iterate goes into its folder, and along with a fault."""
    states: list[State] = []
    try:
        yield states
    except BaseException as e:
        fault = e if isinstance(e, EnvironmentFault) else None
        state = states[-1] if states else store.learned if store is not None else fault and fault.learned
        if state is None:
            raise
        last = NetworkMixture.single(sampler.policy, state.theta, sampler.normaliser(state.world))
        if fault is not None:
            fault.learned = last
        if store is not None and "certificate.json" not in store.files:  # else it is about the policy that is there
            with suppress(InputError):  # a full disk must not hide what went wrong before
                store.write("policy.npz", last.save)
        raise


def _sampler(
    simulator: Simulator, policy: Design | NetworkPolicy | None, seed: int, *, unbiased: bool
) -> Practical | Algorithm2:
    policy = Design() if policy is None else policy
    if isinstance(policy, Design):
        policy = replace(policy, normalise=policy.normalise and not unbiased)
        policy = policy.fitted(simulator.obs_shape, simulator.action, seed)
    if not isinstance(policy, NetworkPolicy):
        raise InputError(f"policy must be gaussian(…) or categorical(…), got {type(policy).__name__}")
    if not unbiased:
        return Practical(simulator, policy)
    return (ResetFree if isinstance(simulator, Gym) else Unbiased)(simulator, policy)  # type: ignore[arg-type]


def _with_kappa(method: Chosen, statement: Statement, budget: float, delta: float) -> Chosen:
    """κ as given; or what a certificate from the budget will ask for, at most half of the largest slack that there is.

    Without bounds there is no certificate from samples to prepare for: then one hundredth of the limit's size.
    """
    s = statement
    if not s.I:
        return replace(method, kappa=0.0)
    if method.kappa != "auto":
        return method
    if s.bounds is None or not np.all(np.isfinite([x[1:] for x in s.bounds])):
        return replace(method, kappa=tuple(0.01 * np.abs(s.b)))
    low, high = np.minimum(s.bounds[0][1:], 0.0), np.maximum(s.bounds[1][1:], 0.0)
    width = longest(s) * (high - low)
    episodes = TESTED * budget / episode_steps(s)
    need = slack_needed(SPREAD * width, width, episodes, TESTS[0] * delta)
    most = 0.5 * np.maximum(s.length * high - s.b, 0.0)
    kappa = tuple(np.minimum(need, most).tolist())
    if isinstance(method, CNPGPD) or np.any(need > most):
        return replace(method, kappa=kappa)
    return replace(method, kappa=kappa, kappa_sd=slack_per_sd(episodes, TESTS[0] * delta))


def _chosen(
    simulator: Simulator, sampler: Practical | Algorithm2, run: Run, key: np.uint64, budget: float, delta: float
) -> tuple[NetworkMixture, Certificate, tuple[Attempt, ...], int]:
    """The mixture to use, its certificate, what was tried, and the steps that took."""
    index = run.trace.rows_of(thinned(len(run.trace), CANDIDATES, first=max(LATE, WARM)))
    theta = run.trace.theta[index]
    normaliser = sampler.normaliser(run.state.world)
    late = NetworkMixture(sampler.policy, np.full(len(theta), 1 / len(theta)), theta, normaliser)
    lam = run.trace.lam[len(run.trace) // 2 :].mean(0)
    if getattr(simulator, "exact", None) is not None:
        mixture = _best_exact(simulator, late)
        return mixture, exact_certificate(simulator, mixture, lam), (), 0
    choice = Choice(simulator, late, np.uint64(fold(key, CHOOSE)), budget, delta)
    attempts = choice.run()
    best = next((a for a in attempts if a.evidence.verdict == "CERTIFIED"), attempts[-1])
    note = f"mixture {attempts.index(best) + 1} of {len(attempts)} tried, tested at level {best.delta:.3g}"
    mixture: Any = best.policy
    certificate = by_samples(simulator.statement, mixture, best.evidence, delta, lam=lam, note=note)  # type: ignore[arg-type]
    return mixture, _scoped(certificate, simulator.statement, mixture), attempts, choice.steps


def certify_simulator(
    simulator: Simulator, policy: Any, *, delta: float = 0.01, budget: float = 1e6, seed: int = 0
) -> Certificate:
    """Does this policy keep every limit of this simulator? Exact where the simulator can tell, else from samples.

    policy  a NetworkMixture; or, on a Gymnasium problem, any rule `observation -> action`
    """
    if callable(policy) and isinstance(simulator, Gym):
        source, mixture = Ruled(simulator, rule=policy), None
    else:
        mixture = check_fits(simulator, policy)
        if getattr(simulator, "exact", None) is not None:
            return exact_certificate(simulator, mixture, None)
        source = Simulated(simulator, mixture)
    seen = gather(source, simulator.statement.b, delta, np.uint64(fold(key_of(seed), FRESH)), budget)
    found = by_samples(simulator.statement, mixture, seen, delta)  # type: ignore[arg-type]
    return _scoped(found, simulator.statement, mixture)


def check_fits(simulator: Simulator, mixture: Any) -> NetworkMixture:
    """The mixture, if it is for these observations and actions."""
    if not isinstance(mixture, NetworkMixture):
        rule = " (a rule `observation -> action` is asked on Gymnasium problems alone)" if callable(mixture) else ""
        raise InputError(f"policy must be a NetworkMixture, got {type(mixture).__name__}{rule}")
    policy, actions = mixture.policy, describe(simulator.action)
    if policy.obs_shape != tuple(simulator.obs_shape) or describe(policy.space) != actions:
        raise InputError(
            f"policy is for observations {policy.obs_shape} and actions {describe(policy.space)}, "
            f"{simulator.statement.name} has {tuple(simulator.obs_shape)} and {actions}"
        )
    return mixture


def _scoped(certificate: Certificate, s: Statement, mixture: NetworkMixture | None) -> Certificate:
    """The certificate with what J means in its scope, and no bounds for a reward that declares none."""
    how = "a rule as it was asked"
    if mixture is not None:
        how = "one policy" if mixture.M == 1 else f"a mixture of {mixture.M}, drawn once per episode"
        how += ", with its actions drawn"
    scope = f"the simulator {s.name} as it was run, from its own resets; {s.meaning}; {how}"
    if s.bounds is None or not np.all(np.isfinite([x[0] for x in s.bounds])):
        lower, upper = [-np.inf, *certificate.J_lower[1:]], [np.inf, *certificate.J_upper[1:]]
        return replace(certificate, scope=scope, J_lower=lower, J_upper=upper, interval=None)
    return replace(certificate, scope=scope)


def _values(simulator: Any, mixture: NetworkMixture) -> tuple[Array, Array]:
    """Exact J [M, 1+I] of every component, and bounds of the errors."""
    found = [simulator.exact(mixture.policy, theta, mixture.normaliser) for theta in mixture.theta]
    return np.array([J for J, _ in found]), np.array([e for _, e in found])


def _best_exact(simulator: Simulator, late: NetworkMixture) -> NetworkMixture:
    """The best mixture by exact values; a hair inside the limits, because of rounding."""
    J, error = _values(simulator, late)
    stable = np.isfinite(J).all(1)
    if not stable.any():
        return late
    late, J, error, b = late.part(stable.astype(float)), J[stable], error[stable], simulator.statement.b
    w = best_weights(J - error, b, 1e-9 * np.maximum(np.abs(b), np.abs(J[:, 1:]).max(0)))
    return late.part(safest_weights(J, b) if w is None else w)


def exact_certificate(simulator: Simulator, mixture: NetworkMixture, lam: Array | None) -> Certificate:
    """CERTIFIED where the exact values, less the bound of their error, keep every limit."""
    parts, errors = _values(simulator, mixture)
    J, error, s = mixture.weights @ parts, mixture.weights @ errors, simulator.statement
    lower, upper, slack = J - error, J + error, J[1:] - s.b
    kept = "CERTIFIED" if np.all(lower[1:] >= s.b) else "VIOLATED" if np.any(upper[1:] < s.b) else "UNDECIDED"
    return Certificate(
        verdict=kept,
        J_r=float(J[0]),
        J_g=J[1:].tolist(),
        b=s.b.tolist(),
        slack=slack.tolist(),
        J_lower=lower.tolist(),
        J_upper=upper.tolist(),
        bound=None,
        gap=None,
        lam=None if lam is None else lam.tolist(),
        complementarity=None if lam is None else (lam * slack).tolist(),
        worst_slack=float(np.min(parts[:, 1:] - s.b)) if s.I else None,
        components=mixture.M,
        evidence="exact",
        message=f"{kept}: values computed from the model, with a bound of their error",
        scope=f"the model of {s.name} in real arithmetic, the policy's numbers as stored; {s.meaning}",
    )
