"""Certificates: the policy is measured again, from nothing but the problem and the policy; never read from a trace.

For a finite model the values are enclosed in real arithmetic for the stored numbers (`enclosure`): CERTIFIED means
proven. From samples (`statistical`) CERTIFIED means: if the policy broke a limit, this verdict would have had a chance
of at most δ, whenever the sampling stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from clearance.enclosure import enclose, mix
from clearance.errors import InputError, SolverError, infeasible_message
from clearance.inputs import check_problem, numbers
from clearance.kernels import fold
from clearance.mixture import Mixture
from clearance.oracle import Optimum, optimum
from clearance.problem import CMDP, Array
from clearance.sample.returns import Acted, Returns
from clearance.sample.spread import spread
from clearance.sample.streams import key_of
from clearance.statistical import Evidence, Verdict, gather

if TYPE_CHECKING:
    from clearance.executor import Executor
    from clearance.simulator.mixture import NetworkMixture
    from clearance.simulator.problem import Simulator

Rule = Callable[[int], Any]
FRESH = 2**41  # the streams of certificates: no iteration of a run with the same seed gets there
MODE_STATES = 10**5  # beyond, a second enclosure takes as long as all the rest


@dataclass(frozen=True)
class Certificate:
    """What is proven of one policy of one problem, or holds with confidence.

    verdict          CERTIFIED: J_gi ≥ b_i for all i. VIOLATED: J_gi < b_i for some i. UNDECIDED: neither is shown
    J_r, J_g, slack  values, and J_g − b
    J_lower, J_upper the enclosure [1+I]; from samples bounds at level δ, each on its own
    bound, gap       proven upper bound on the reward of every feasible policy, and bound − J_r; None if not known
    lam, complementarity  λ of the problem and λ_i · slack_i: one unit less of limit i would earn λ_i more
    worst_slack      the smallest slack of any single component of a mixture: one episode follows one component, which
                     may break a limit on its own
    scope            what the statement is about
    interval         bounds (low, high) of J [1+I] that hold together at level δ (samples)
    mode             the verdict on the most likely actions alone, where the policy is stochastic and was looked at
    """

    verdict: Verdict
    J_r: float
    J_g: list[float]
    b: list[float]
    slack: list[float]
    J_lower: list[float]
    J_upper: list[float]
    bound: float | None
    gap: float | None
    lam: list[float] | None
    complementarity: list[float] | None
    worst_slack: float | None
    components: int
    evidence: Literal["exact", "samples"]
    message: str
    scope: str
    delta: float | None = None
    interval: tuple[list[float], list[float]] | None = None
    episodes: int = 0
    env_steps: int = 0
    mode: Verdict | None = None

    @property
    def J_r_lower(self) -> float:
        return self.J_lower[0]

    @property
    def J_g_lower(self) -> list[float]:
        return self.J_lower[1:]

    def asdict(self) -> dict[str, Any]:
        return asdict(self) | {"J_r_lower": self.J_r_lower, "J_g_lower": self.J_g_lower}


def certify(
    cmdp: CMDP | Simulator,
    policy: Mixture | ArrayLike | Rule | NetworkMixture,
    *,
    evidence: Literal["exact", "samples"] | None = None,
    best: Optimum | None = None,
    compare: bool = True,
    delta: float = 0.01,
    budget: float = 1e6,
    seed: int = 0,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    base: ArrayLike | None = None,
    executor: Executor | None = None,
) -> Certificate:
    """Does this policy meet every limit of this finite model, or of this simulator (then a `NetworkMixture`)?

    policy    a table [S, A], a `Mixture`, or any rule `state -> action` (then only samples can tell; a method `reset`
              of the rule is called at the beginning of every episode); on a Gymnasium problem, any rule
              `observation -> action`, as the environment has them
    evidence  "exact": proven, with the distance from the optimum (`best`, if it is at hand; none with compare=False).
              "samples": the model is only simulated, for at most `budget` steps, and the verdict holds at level `delta`
    bounds    declared (low, high) of the signals (r, g_1, …), [1+I] each; checked at every step (samples)
    base      V̂ [S, 1+I], a guess of the values as control variate: any keeps the verdict valid (samples)
    executor  who draws the episodes (samples): the evidence is the same, bit for bit, whoever it is
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta!r}")
    if not budget >= 1:
        raise InputError(f"budget must be at least 1 step, got {budget!r}")
    if not isinstance(cmdp, CMDP):
        for name, given in (("best", best), ("bounds", bounds), ("base", base)):
            if given is not None:
                raise InputError(f"{name} is for finite models; a simulator's bounds are part of its problem")
        return _of_simulator(cmdp, policy, evidence, executor, delta=delta, budget=budget, seed=seed)
    rule = policy if callable(policy) and not isinstance(policy, Mixture) else None
    evidence = evidence or ("exact" if rule is None else "samples")
    if evidence not in ("exact", "samples"):
        raise InputError(f"evidence must be 'exact' or 'samples', got {evidence!r}")
    if rule is not None and evidence == "exact":
        raise InputError("a rule `state -> action` can only be sampled: use evidence='samples', or give a table [S, A]")
    mixture = None if rule is not None else policy if isinstance(policy, Mixture) else Mixture.single(policy)  # type: ignore[arg-type]
    if mixture is not None:
        mixture.check(cmdp)
    if evidence == "exact":
        assert mixture is not None
        found = _exact(cmdp, mixture, best, compare)
        look = found.verdict == "CERTIFIED" and cmdp.S <= MODE_STATES and _stochastic(mixture)
        mode = _exact(cmdp, most_likely(mixture), best, False).verdict if look else None
    else:
        declared = None if bounds is None else _declared(cmdp, bounds)
        V = None if base is None else _table(cmdp, base)
        sources: list[Any] = [Acted(cmdp, rule, declared)] if rule is not None else []
        if mixture is not None:
            sources = [Returns(cmdp, m, V, declared) for m in (mixture, most_likely(mixture))]
        elif executor is not None:
            raise InputError("a rule `state -> action` is asked in this process: leave out executor (--cluster)")
        with spread(sources, executor) as drawn:
            found, mode = _sampled(cmdp, mixture, drawn, key_of(seed), delta, budget)
    if found.verdict == "CERTIFIED" and mode not in (None, "CERTIFIED"):
        text = f"{found.message}; draw its actions: the most likely ones alone are {mode}"
        return replace(found, mode=mode, message=text)
    return replace(found, mode=mode)


def _of_simulator(
    simulator: Simulator, policy: Any, evidence: str | None, executor: Executor | None, **how: Any
) -> Certificate:
    check_problem(simulator)
    from clearance.simulator import folder
    from clearance.simulator.fleet import Fleet
    from clearance.simulator.solving import certify_simulator

    there = folder.evidence(simulator)
    if evidence not in (None, there):
        raise InputError(f"evidence of {simulator.statement.name} is {there!r}, got {evidence!r}: leave it out")
    if executor is None:
        return certify_simulator(simulator, policy, **how)
    with Fleet(simulator, executor) as fleet:
        return certify_simulator(fleet, policy, **how)


def _sampled(
    cmdp: CMDP, mixture: Mixture | None, sources: list[Any], key: np.uint64, delta: float, budget: float
) -> tuple[Certificate, Verdict | None]:
    """What samples say of the policy, and of its most likely actions, with fresh ones."""
    seen = gather(sources[0], cmdp.b, delta, np.uint64(fold(key, FRESH)), budget)
    found = by_samples(cmdp, mixture, seen, delta)
    if mixture is None or not _stochastic(mixture) or found.verdict != "CERTIFIED":
        return found, None
    left = min(budget - seen.steps, seen.steps)
    again = gather(sources[1], cmdp.b, delta, np.uint64(fold(key, FRESH + 1)), left)
    return replace(found, env_steps=seen.steps + again.steps), again.verdict


def _exact(cmdp: CMDP, mixture: Mixture, best: Optimum | None, compare: bool) -> Certificate:
    J, lower, upper = enclose(cmdp, mixture.pi)
    J_lower, J_upper = mix(mixture.weights, lower, upper)
    J_mean = mixture.weights @ J
    verdict = _verdict(J_lower[1:], J_upper[1:], cmdp.b)
    best = _best(cmdp) if best is None and compare else best
    known = best if best is not None and best.status == "optimal" else None
    slack = J_mean[1:] - cmdp.b
    return Certificate(
        verdict=verdict,
        J_r=float(J_mean[0]),
        J_g=J_mean[1:].tolist(),
        b=cmdp.b.tolist(),
        slack=slack.tolist(),
        J_lower=J_lower.tolist(),
        J_upper=J_upper.tolist(),
        bound=None if known is None else known.bound,
        gap=None if known is None else known.bound - float(J_mean[0]),
        lam=None if known is None else known.lam.tolist(),
        complementarity=None if known is None else (known.lam * slack).tolist(),
        worst_slack=float(np.min(J[:, 1:] - cmdp.b)) if cmdp.I else None,
        components=mixture.M,
        evidence="exact",
        message=_message(cmdp, verdict, J_lower, J_upper, best),
        scope=_scope(cmdp, mixture, "this model as stored"),
    )


def by_samples(
    cmdp: CMDP, mixture: Mixture | None, seen: Evidence, delta: float, *, lam: Array | None = None, note: str = ""
) -> Certificate:
    """The certificate that the episodes `seen` support; δ is the level of everything that was tried to get it."""
    slack = seen.mean[1:] - cmdp.b
    said = {
        "CERTIFIED": f"every limit is met, with confidence {1 - delta:g}",
        "VIOLATED": f"a limit is broken, with confidence {1 - delta:g}",
        "UNDECIDED": "the samples do not tell: give a larger budget, or a policy with more slack",
    }[seen.verdict]
    return Certificate(
        verdict=seen.verdict,
        J_r=float(seen.mean[0]),
        J_g=seen.mean[1:].tolist(),
        b=cmdp.b.tolist(),
        slack=slack.tolist(),
        J_lower=seen.lower.tolist(),
        J_upper=seen.upper.tolist(),
        bound=None,
        gap=None,
        lam=None if lam is None else lam.tolist(),
        complementarity=None if lam is None else (lam * slack).tolist(),
        worst_slack=min((float(np.min(c.mean[1:] - cmdp.b)) for c in seen.components.values()), default=None)
        if cmdp.I
        else None,
        components=1 if mixture is None else mixture.M,
        evidence="samples",
        message=f"{said}; {note}" if note else said,
        scope=_scope(cmdp, mixture, "this simulator"),
        delta=delta,
        interval=(seen.interval[0].tolist(), seen.interval[1].tolist()),
        episodes=seen.episodes,
        env_steps=seen.steps,
    )


def most_likely(mixture: Mixture) -> Mixture:
    """Every component with its most likely actions alone."""
    S, A = mixture.pi.shape[1:]
    return Mixture(mixture.weights, np.eye(A)[mixture.pi.argmax(-1)].reshape(-1, S, A))


def _stochastic(mixture: Mixture) -> bool:
    return bool(np.any(mixture.pi.max(-1) < 1))


def _declared(cmdp: CMDP, bounds: tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    low, high = (np.asarray(x, float) for x in bounds)
    right = low.shape == high.shape == (1 + cmdp.I,) and np.all(np.isfinite([low, high])) and np.all(low <= high)
    if not right:
        raise InputError(f"bounds must be (low, high) with {1 + cmdp.I} finite numbers each, reward first, low ≤ high")
    return low, high


def _table(cmdp: CMDP, base: ArrayLike) -> Array:
    V = numbers("base", base, ndim=2)
    if V.shape != (cmdp.S, 1 + cmdp.I):
        raise InputError(f"base has shape {V.shape}, the model needs [S, 1+I] = {(cmdp.S, 1 + cmdp.I)}")
    return V


def _scope(cmdp: CMDP, mixture: Mixture | None, world: str) -> str:
    how = "one policy" if mixture is None or mixture.M == 1 else f"a mixture of {mixture.M}, drawn once per episode"
    return f"{world}, its initial distribution, discounted by {cmdp.gamma:g} without horizon; {how}"


def _best(cmdp: CMDP) -> Optimum | None:
    """The optimum to compare with; the verdict does not need it, so a solver that gives up costs only the gap."""
    try:
        return optimum(cmdp)
    except SolverError:
        return None


def _verdict(lower: Array, upper: Array, b: Array) -> Verdict:
    if np.all(lower >= b):
        return "CERTIFIED"
    return "VIOLATED" if np.any(upper < b) else "UNDECIDED"


def _message(cmdp: CMDP, verdict: Verdict, lower: Array, upper: Array, best: Optimum | None) -> str:
    if verdict == "CERTIFIED":
        return "every limit is met, proven for the numbers as stored"
    if best is not None and best.status == "infeasible":
        return infeasible_message(best.slater)
    if verdict == "VIOLATED":
        broken = [f"{cmdp.names[i]} by {cmdp.b[i] - upper[1 + i]:.3g}" for i in np.flatnonzero(upper[1:] < cmdp.b)]
        return "limits broken: " + ", ".join(broken)
    i = int(np.argmin(lower[1:] - cmdp.b))
    width = upper[1 + i] - lower[1 + i]
    return f"{cmdp.names[i]} lies within {width:.1e} of its limit: tighten b a little and solve again"
