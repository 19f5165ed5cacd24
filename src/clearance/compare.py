"""All methods on the same problems with the same budget of environment steps, with truth beside them.

One rule for all hyper-parameters. Every method sees the problem in units in which r and each g_i have range 1. It has
two settings that matter, x and y: x(1−γ)A is the move of the logits in one iteration, y(1−γ)(J_g − b) that of λ, or
what takes their place (`CONTESTANTS`). Each method runs once for all fifteen pairs of `LADDER`, on a seed that is not
reported, and the pair with the best output by exact values is taken: the same tuning budget for all, none picked by
hand. There are `ROUNDS` iterations, and as many samples in each as the budget allows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from clearance import methods as m
from clearance.direction import WeightedSGD
from clearance.errors import InputError
from clearance.executor import Executor, run_all
from clearance.methods.method import ranges
from clearance.network import two_layer
from clearance.oracle import Optimum, optimum
from clearance.policy import softmax
from clearance.problem import CMDP, Array
from clearance.sample import Critic, Generative, NetworkCritic, Sampler, Table, Trajectory
from clearance.selection import best_weights
from clearance.solving import solve

LADDER = tuple((x, y) for x in (0.3, 1.0, 3.0, 10.0, 30.0) for y in (0.3, 1.0, 3.0))
ROUNDS = 500
TUNING_SEED = 2**20  # no reported seed gets there
POINTS = 25  # of a curve
WIDTH = 32  # of the networks of neural CRPO
MOST_STATES = 2000  # every iterate is evaluated exactly

Made = tuple[m.Method, Sampler]


class Budget(NamedTuple):
    """What one run may spend, and how: environment steps, iterations, and the units of the problem."""

    steps: float
    K: int
    u: float  # 1 − γ

    def walks(self, each: float = 1.0) -> int:
        """Walks per iteration, where one sample takes `each` of them."""
        return max(1, int(self.steps * self.u / (each * self.K)))


# Algorithm 2 takes four walks for a sample: to (s, a), for Q, for V, for J.
def _primal_dual(kind: Any, cmdp: CMDP, at: Budget, x: float, y: float, **more: Any) -> Made:
    method = kind(K=at.K, N=at.walks(4), eta1=x * at.u**2, eta2=y * at.u, **more)
    return method, Table(cmdp, softmax(cmdp.S, cmdp.A, cmdp.available))


def _critic(cmdp: CMDP) -> Critic:
    return Critic(cmdp, softmax(cmdp.S, cmdp.A, cmdp.available))


def _regularised(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    return m.RegularisedCNPGPD(K=at.K, N=at.walks(), nu=min(1.0, 0.02 * x), eta2=60.0 * y), _critic(cmdp)


def _tolerance(at: Budget, y: float) -> float:
    """CRPO's η: like 1/√K, in the units of J."""
    return 0.1 * y / (at.u * np.sqrt(at.K))


def _crpo(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    return m.CRPO(K=at.K, N=at.walks(), alpha=x * at.u**2, tolerance=_tolerance(at, y)), _critic(cmdp)


def _neural_crpo(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    policy = two_layer(cmdp.S, cmdp.A, WIDTH, available=cmdp.available)
    method = m.CRPO(K=at.K, N=at.walks(), alpha=x * at.u**2, tolerance=_tolerance(at, y))
    return method, NetworkCritic(cmdp, policy, WIDTH)


def _pmdpd(cmdp: CMDP, at: Budget, x: float, y: float, kappa: Any = 0.0) -> Made:
    return m.PMDPD(K=at.K, N=at.walks(), alpha=1 / (x * at.u), eta=y * at.u, kappa=kappa), _critic(cmdp)


def _pdnac(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    """β ~ T^(−1/2) and ε ~ T^(−1/6) as in theirs, T the steps of the whole trajectory."""
    sampler = Trajectory(
        cmdp,
        softmax(cmdp.S, cmdp.A, cmdp.available),
        beta=min(0.5, 10 * at.steps**-0.5),
        explore=min(0.5, at.steps ** (-1 / 6)),
    )
    return m.PDNAC(K=at.K, N=max(1, int(at.steps / at.K)), alpha=x * at.u, eta=y * at.u), sampler


def _rpgpd(cmdp: CMDP, at: Budget, x: float, y: float) -> Made:
    return m.RPGPD(K=at.K, N=at.walks(), eta=x * at.u, tau=0.01 * y), _critic(cmdp)


def _opgpd(cmdp: CMDP, at: Budget, x: float, y: float, geometry: Any = "euclidean") -> Made:
    """One η for both players, fifteen of them; a table of probabilities moves in tenths where logits move in units."""
    eta = x * y ** (1 / 3) * at.u * (0.1 if geometry == "euclidean" else 1.0)
    return m.OPGPD(K=at.K, N=at.walks(), eta=eta, geometry=geometry), _critic(cmdp)


def _model_based(cmdp: CMDP, at: Budget, x: float, y: float, solver: Any = "primal-dual") -> Made:
    """x scales κ around what the noise of so many samples asks for, y the step of λ."""
    pairs = int(cmdp.available.sum())
    N = max(1, int(at.steps / pairs))
    kappa = 0.02 * x / (at.u * np.sqrt(N))
    K = 2 if solver == "lp" else at.K  # planning takes no samples
    method = m.ModelBased(K=K, N=N, eta=y * at.u, kappa=kappa, solver=solver)
    return method, Generative(cmdp, softmax(cmdp.S, cmdp.A, cmdp.available))


class Contestant(NamedTuple):
    """A method as it is run: how it is made, which output it is known for, and what people call it."""

    make: Callable[[CMDP, Budget, float, float], Made]
    output: Literal["average", "last"]
    label: str


CONTESTANTS: dict[str, Contestant] = {
    "regularised": Contestant(_regularised, "last", "regularised C-NPG-PD"),
    "cnpgpd": Contestant(partial(_primal_dual, m.CNPGPD), "average", "C-NPG-PD"),
    "npgpd": Contestant(partial(_primal_dual, m.NPGPD), "average", "NPG-PD"),
    "npgpd-weighted": Contestant(
        partial(_primal_dual, m.NPGPD, direction=WeightedSGD()), "average", "NPG-PD, weighted SGD"
    ),
    "pdanpg": Contestant(partial(_primal_dual, m.PDANPG), "average", "PD-ANPG"),
    "crpo": Contestant(_crpo, "average", "CRPO"),
    "crpo-neural": Contestant(_neural_crpo, "average", "CRPO, two-layer network"),
    "pmdpd": Contestant(_pmdpd, "average", "PMD-PD"),
    "pmdpd-zero": Contestant(partial(_pmdpd, kappa="auto"), "average", "PMD-PD-Zero"),
    "pdnac": Contestant(_pdnac, "average", "PD-NAC"),
    "rpgpd": Contestant(_rpgpd, "last", "RPG-PD"),
    "opgpd": Contestant(_opgpd, "last", "OPG-PD"),
    "omwupd": Contestant(partial(_opgpd, geometry="entropic"), "last", "OMWU-PD"),
    "modelbased": Contestant(_model_based, "average", "model-based, primal-dual"),
    "modelbased-lp": Contestant(partial(_model_based, solver="lp"), "average", "model-based, LP"),
}


class Curve(NamedTuple):
    """Exact values [POINTS, 1+I] after so many environment steps [POINTS]: average iterate, last, best mixture."""

    steps: Array
    average: Array
    last: Array
    best: Array


@dataclass(frozen=True, eq=False)
class Result:
    """One run of one method on one problem, in the units of the problem as it was given.

    feasible   share of the iterates that keep every limit
    regret     Σ over environment steps of the largest violation (0 where there is none), divided by the steps
    verdict    of the best mixture, from its exact certificate
    """

    problem: str
    method: str
    seed: int
    setting: tuple[float, float]
    curve: Curve
    feasible: float
    regret: float
    verdict: str
    seconds: float
    env_steps: int
    optimum: Optimum
    b: Array

    def gap(self, which: str) -> float:
        """J* − J_r of "average", "last" or "best", in the end."""
        return float(self.optimum.J_r - getattr(self.curve, which)[-1, 0])

    def violation(self, which: str) -> float:
        """max_i (b_i − J_gi) in the end: signed, so negative is slack; −inf without constraints."""
        return float(np.max(self.b - getattr(self.curve, which)[-1, 1:], initial=-np.inf))


def compare(
    problems: dict[str, CMDP],
    names: Sequence[str] = tuple(CONTESTANTS),
    *,
    seeds: int = 5,
    budget: float = 1e6,
    K: int = ROUNDS,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> list[Result]:
    """Tune every method on every problem, then run it with every seed; results by problem, method, seed."""
    for name in names:
        if name not in CONTESTANTS:
            raise InputError(f"methods: {name!r} is none of {', '.join(CONTESTANTS)}")
    cells = [(p, name) for p in problems for name in names]
    trials = [(p, name, x, y) for p, name in cells for x, y in LADDER]
    total = how_many(problems, names, seeds)

    def tried(job: tuple[str, str, float, float]) -> float:
        p, name, x, y = job
        return score(run(p, problems[p], name, (x, y), TUNING_SEED, budget, K), name)

    who: dict[str, Any] = {"threads": threads, "executor": executor}
    scores = run_all(tried, trials, progress=_shifted(progress, 0, total), **who)
    settings = dict(zip(cells, _best_settings(scores), strict=True))
    jobs = [(p, name, seed) for p, name in cells for seed in range(seeds)]

    def one(job: tuple[str, str, int]) -> Result:
        p, name, seed = job
        return run(p, problems[p], name, settings[p, name], seed, budget, K)

    return run_all(one, jobs, progress=_shifted(progress, len(trials), total), **who)


def how_many(problems: Iterable[str], names: Sequence[str], seeds: int) -> int:
    """The number of runs of a comparison, tuning included."""
    return len(list(problems)) * len(names) * (len(LADDER) + seeds)


def _best_settings(scores: list[float]) -> list[tuple[float, float]]:
    """The pair of the ladder with the best score, for each method on each problem."""
    return [LADDER[int(np.argmax(block))] for block in np.reshape(scores, (-1, len(LADDER)))]


def _shifted(progress: Callable[[int, int], None] | None, done: int, total: int) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda n, _: progress(done + n, total)


def score(result: Result, name: str) -> float:
    """J_r − 2 Σ_i (λ*_i + unit) (violation_i)₊ of the method's own output: an exact penalty, largest at the optimum."""
    J = getattr(result.curve, CONTESTANTS[name].output)[-1]
    price = result.optimum.lam + 0.1 * result.optimum.lam.max(initial=1e-3)
    return float(J[0] - 2 * price @ np.maximum(result.b - J[1:], 0.0))


def run(
    problem: str, cmdp: CMDP, name: str, setting: tuple[float, float], seed: int, budget: float, K: int = ROUNDS
) -> Result:
    """One run: solve in units, then measure in the problem's own."""
    unit, scale = in_units(cmdp)
    method, sampler = CONTESTANTS[name].make(unit, Budget(budget, K, 1 - cmdp.gamma), *setting)
    began = time.perf_counter()
    solution = solve(unit, method, sampler=sampler, seed=seed, exact_J=True)
    seconds = time.perf_counter() - began
    trace, best = solution.trace, optimum(cmdp)
    J = trace.J * scale
    worst = np.maximum(np.max(cmdp.b - J[:, 1:], axis=1, initial=0.0), 0.0)
    spent = np.maximum(trace.steps, 1e-300)  # planning on a learned model takes none
    return Result(
        problem,
        name,
        seed,
        setting,
        curve(trace.steps.astype(float), trace.counts, J, cmdp.b),
        feasible=float(np.mean(np.all(J[:, 1:] >= cmdp.b - 1e-12, axis=1))),
        regret=float(worst @ spent / spent.sum()),
        verdict=solution.certificate.verdict,
        seconds=seconds,
        env_steps=solution.env_steps,
        optimum=best,
        b=cmdp.b,
    )


def in_units(cmdp: CMDP) -> tuple[CMDP, Array]:
    """The problem with r and every g_i of range 1, and the scale [1+I] that leads back."""
    r, g = ranges(cmdp)
    scale = np.concatenate([[r], g])
    return cmdp.replace(h=cmdp.h / scale[:, None, None], b=cmdp.b / g), scale


def curve(steps: Array, counts: Array, J: Array, b: Array) -> Curve:
    """The three outputs as the run goes on, at about POINTS instants, even in the logarithm of the steps."""
    K = len(J)
    at = np.unique(np.round(np.geomspace(1, K, POINTS)).astype(int))
    counted = np.cumsum(counts)[:, None]
    average = np.cumsum(counts[:, None] * J, axis=0) / np.maximum(counted, 1.0)
    average = np.where(counted > 0, average, J)  # where nothing counts yet: the iterate itself
    best = np.array([_best(J[:k], b) for k in at])
    return Curve(np.cumsum(steps)[at - 1], average[at - 1], J[at - 1], best)


def _best(J: Array, b: Array) -> Array:
    """Values of the best mixture of the iterates that keeps every limit; of the least bad iterate if none does."""
    w = best_weights(J, b)
    return J[np.argmin(np.max(b - J[:, 1:], axis=1, initial=-np.inf))] if w is None else w @ J


def summary(results: Iterable[Result]) -> list[dict[str, Any]]:
    """One row for each problem and method: means over seeds, standard errors of the gap of the method's own output."""
    rows: dict[tuple[str, str], list[Result]] = {}
    for r in results:
        rows.setdefault((r.problem, r.method), []).append(r)
    return [_row(*key, found) for key, found in rows.items()]


def _row(problem: str, method: str, found: list[Result]) -> dict[str, Any]:
    def mean(f: Callable[[Result], float]) -> float:
        return float(np.mean([f(r) for r in found]))

    own = CONTESTANTS[method].output
    gaps = [r.gap(own) for r in found]
    row: dict[str, Any] = {"problem": problem, "method": method, "output": own}
    for which in ("average", "last", "best"):
        row[f"gap {which}"] = mean(lambda r, w=which: r.gap(w))
        row[f"violation {which}"] = mean(lambda r, w=which: r.violation(w))
        row[f"violation₊ {which}"] = mean(lambda r, w=which: max(r.violation(w), 0.0))
    return row | {
        "± gap": float(np.std(gaps, ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else float("nan"),
        "kept": mean(lambda r: r.violation(own) <= 1e-9),
        "certified": mean(lambda r: r.verdict == "CERTIFIED"),
        "feasible iterates": mean(lambda r: r.feasible),
        "regret of violation": mean(lambda r: r.regret),
        "x": found[0].setting[0],
        "y": found[0].setting[1],
        "env steps": mean(lambda r: r.env_steps),
        "seconds": mean(lambda r: r.seconds),
    }
