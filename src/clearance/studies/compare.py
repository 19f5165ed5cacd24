"""Compare all methods on the same problems with the same budget of environment steps, against the exact optimum.

All hyper-parameters are set by one rule. Every method sees the problem in units in which r and each g_i have range 1.
Every method has two important settings, x and y. In one iteration the logits move by x(1−γ)A, and λ by y(1−γ)(J_g − b);
in methods with other updates, x and y scale the corresponding settings (`CONTESTANTS`). Each method runs once with each
of the fifteen pairs of `LADDER`, on a seed that is not reported, and the pair with the best score by exact values is
used. So all methods have the same tuning budget, and none is tuned by hand. There are `ROUNDS` iterations, and as many
samples in each as the budget allows.

A method of your own takes part with its defaults and is not tuned. If you pass its class, K and N are set if the class
has such fields; an instance runs unchanged. Its output is the average iterate, or the last one if the class has
`output = "last"`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from clearance.certificates.best_mixture import best_weights
from clearance.cluster.executor import Executor, run_all
from clearance.core.arrays import Array
from clearance.core.data_frames import make_frame
from clearance.core.errors import InputError
from clearance.core.figures import finish_figure, load_pyplot
from clearance.core.text import visible
from clearance.core.validation import require_discounted
from clearance.exact.optimum import Optimum, optimum
from clearance.finite.cmdp import CMDP
from clearance.runs.problem_text import load_model
from clearance.runs.solve import solve
from clearance.studies.comparison_figure import draw_comparison, violations_of
from clearance.studies.contestants import CONTESTANTS, Budget, Contestant, find_contestants

LADDER = tuple((x, y) for x in (0.3, 1.0, 3.0, 10.0, 30.0) for y in (0.3, 1.0, 3.0))
ROUNDS = 500
TUNING_SEED = 2**20  # larger than every reported seed
POINTS = 25  # of a curve
MOST_STATES = 2000  # every iterate is evaluated exactly
MOST_LINES = 10  # of a comparison that is shown
OTHER_HEADS = (
    "problem",
    "method",
    "seed",
    "± gap",
)  # columns of `summary` that a table of single runs puts first, or leaves out

SettingPair = tuple[float, float]


class Curve(NamedTuple):
    """Exact values at n iterations of a run: those of average iterate, last iterate and best mixture, each [n, 1+I].

    `steps` [n] are the environment steps up to these iterations.
    """

    steps: Array
    average: Array
    last: Array
    best: Array


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The result of one run of one method on one problem, in the units of the given problem.

    setting    the pair (x, y) of hyper-parameters from `LADDER`; None if the method is not tuned
    feasible   share of the iterates that meet every limit
    regret     the largest violation (0 if there is none), averaged over environment steps
    verdict    the verdict of the exact certificate of the best mixture
    output     the output by which the method is judged: the average iterate or the last one
    """

    problem: str
    method: str
    seed: int
    setting: SettingPair | None  # of the ladder; None where the method is not tuned
    curve: Curve
    feasible: float
    regret: float
    verdict: str
    seconds: float
    env_steps: int
    optimum: Optimum
    b: Array
    output: Literal["average", "last"]

    def __repr__(self) -> str:
        found = f"gap {self.gap(self.output):.4g}, violation {self.violation(self.output):+.4g} ({self.output} iterate)"
        of = f"{visible(self.method)} on {visible(self.problem)}, seed {self.seed}"
        return f"<Result: {of}: {found}, best mixture {self.verdict}>"

    def gap(self, which: str) -> float:
        """Return the gap J* − J_r to the optimum at the end of the run.

        `which` names the output: "average", "last" or "best".
        """
        return float(self.optimum.J_r - getattr(self.curve, which)[-1, 0])

    def violation(self, which: str) -> float:
        """Return the largest violation max_i (b_i − J_gi) at the end of the run; negative if all limits are met.

        `which` names the output: "average", "last" or "best". Without constraints the result is −inf.
        """
        return float(violations_of(self, which)[-1])


class Comparison(list[Result]):
    """The results of `compare`: a list ordered by problem, method and seed, with `plot` and `to_frame`."""

    def __repr__(self) -> str:
        lines = [repr(result) for result in self[:MOST_LINES]]
        more = [f"… and {len(self) - MOST_LINES:,} more"] if len(self) > MOST_LINES else []
        return "\n".join([f"<Comparison: {len(self):,} runs>", *lines, *more])

    def plot(self, problem: str | None = None) -> Any:
        """Return a matplotlib figure for one problem: gap and violation of every method against environment steps."""
        known = list(dict.fromkeys(r.problem for r in self))
        if problem is None and len(known) > 1:
            raise InputError(f"problem is missing: one figure is about one problem; there are {', '.join(known)}")
        found = [r for r in self if r.problem == (known[0] if problem is None and known else problem)]
        if not found:
            raise InputError(f"problem {problem!r} is none of {', '.join(known) or 'those compared, there are none'}")
        return finish_figure(draw_comparison(load_pyplot(), found))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row for each run.

        Its columns include the gap and the violation of each output at the end of the run.
        """
        rows = [row for result in self for row in summary([result])]
        for row, result in zip(rows, self, strict=True):
            row |= {"seed": result.seed, "certified": result.verdict == "CERTIFIED", "kept": bool(row["kept"])}
        heads = ["problem", "method", "seed", *(h for h in (rows[0] if rows else {}) if h not in OTHER_HEADS)]
        return make_frame({head: [row[head] for row in rows] for head in heads})


def compare(
    problems: CMDP | Mapping[str, CMDP] | Sequence[str],
    methods: Sequence[Any] = tuple(CONTESTANTS),
    *,
    seeds: int = 5,
    budget: float = 1e6,
    K: int = ROUNDS,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Tune every method on every problem, then run it with every seed; return the results by problem, method and seed.

    problems  a finite model, models by name, or texts as on the command line (zoo names, files)
    methods   names as for `clearance compare`, `package.module:Class`, classes or instances (see the top of the module)
    seeds     number of seeds;  budget: environment steps of one run;  K: iterations of one run
    progress  a callback progress(runs done, runs in all), called whenever a run has finished
    executor  where the runs are computed (default: `threads` threads of this process)
    """
    models, who = _models(problems), find_contestants(methods)
    cells = [(p, name) for p in models for name in who]
    trials = [(p, name, x, y) for p, name in cells if who[name].tuned for x, y in LADDER]
    total = len(trials) + len(cells) * seeds

    def tried(job: tuple[str, str, float, float]) -> float:
        p, name, x, y = job
        return score(run(p, models[p], name, (x, y), TUNING_SEED, budget, K))

    how: dict[str, Any] = {"threads": threads, "executor": executor}
    scores = run_all(tried, trials, progress=_shifted(progress, 0, total), **how)
    tuned = [cell for cell in cells if who[cell[1]].tuned]
    settings = dict(zip(tuned, _best_settings(scores), strict=True))
    jobs = [(p, name, seed) for p, name in cells for seed in range(seeds)]

    def one(job: tuple[str, str, int]) -> Result:
        p, name, seed = job
        return run(p, models[p], name, settings.get((p, name)), seed, budget, K, who[name])

    return Comparison(run_all(one, jobs, progress=_shifted(progress, len(trials), total), **how))


def _models(problems: CMDP | Mapping[str, CMDP] | Sequence[str]) -> dict[str, CMDP]:
    if isinstance(problems, CMDP):
        found = {"problem": problems}
    elif isinstance(problems, Mapping):
        found = dict(problems)
    else:
        found = {text: load_model(text) for text in ([problems] if isinstance(problems, str) else problems)}
    for cmdp in found.values():
        require_discounted(cmdp, "compare")
    return found


def how_many(problems: Iterable[str], methods: Sequence[Any], seeds: int) -> int:
    """Return the number of runs in a comparison, including the runs for tuning."""
    runs = [seeds + (len(LADDER) if c.tuned else 0) for c in find_contestants(methods).values()]
    return len(list(problems)) * sum(runs)


def _best_settings(scores: list[float]) -> list[SettingPair]:
    """Return, for each method on each problem, the pair of settings in `LADDER` with the best score.

    `scores` lists the scores of all pairs for the first method and problem, then those for the next, and so on.
    """
    return [LADDER[int(np.argmax(block))] for block in np.reshape(scores, (-1, len(LADDER)))]


def _shifted(progress: Callable[[int, int], None] | None, done: int, total: int) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda n, _: progress(done + n, total)


def score(result: Result) -> float:
    """Return the score by which settings are tuned: J_r − 2 Σ_i p_i (violation_i)₊ of the method's output.

    The penalty p_i is slightly above the optimal price λ*_i. So no policy has a larger score than the optimum.
    """
    J = getattr(result.curve, result.output)[-1]
    price = result.optimum.lam + 0.1 * result.optimum.lam.max(initial=1e-3)
    return float(J[0] - 2 * price @ np.maximum(result.b - J[1:], 0.0))


def run(
    problem: str,
    cmdp: CMDP,
    name: str,
    setting: SettingPair | None,
    seed: int,
    budget: float,
    K: int = ROUNDS,
    contestant: Contestant | None = None,
) -> Result:
    """Run one method once and return the result.

    The method sees the problem in units in which every signal has range 1. The result is in the problem's own units.

    setting     the pair (x, y) of hyper-parameters, which the module's head explains
    contestant  the method, if it is not one of `CONTESTANTS`
    """
    unit, scale = in_units(cmdp)
    who = CONTESTANTS[name] if contestant is None else contestant
    method, sampler = who.make(unit, Budget(budget, K, 1 - cmdp.gamma), *(setting or (1.0, 1.0)))
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
        output=who.output,
    )


def in_units(cmdp: CMDP) -> tuple[CMDP, Array]:
    """Return the problem with r and every g_i scaled to range 1, and the factors [1+I] that convert values back."""
    r, g = cmdp.signal_ranges
    scale = np.concatenate([[r], g])
    return cmdp.replace(h=cmdp.h / scale[:, None, None], b=cmdp.b / g), scale


def curve(steps: Array, counts: Array, J: Array, b: Array) -> Curve:
    """Return the values of average iterate, last iterate and best mixture at about POINTS iterations of a run.

    The iterations are evenly spaced on a logarithmic scale. `J` [K, 1+I] are the values of the iterates, `steps` [K]
    their environment steps, and `counts` [K] their weights in the average.
    """
    K = len(J)
    at = np.unique(np.round(np.geomspace(1, K, POINTS)).astype(int))
    counted = np.cumsum(counts)[:, None]
    average = np.cumsum(counts[:, None] * J, axis=0) / np.maximum(counted, 1.0)
    average = np.where(counted > 0, average, J)  # the iterate itself, as long as no iterate counts
    best = np.array([_best(J[:k], b) for k in at])
    return Curve(np.cumsum(steps)[at - 1], average[at - 1], J[at - 1], best)


def _best(J: Array, b: Array) -> Array:
    """Return the values [1+I] of the best mixture of iterates that meets every limit.

    `J` [k, 1+I] are the values of the iterates, and `b` [I] the limits. If no mixture meets them, return the values of
    the iterate with the smallest violation.
    """
    w = best_weights(J, b)
    return J[np.argmin(np.max(b - J[:, 1:], axis=1, initial=-np.inf))] if w is None else w @ J


def summary(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return one row for each problem and method, with means over seeds.

    A row also has the standard error of the gap of the method's output.
    """
    rows: dict[tuple[str, str], list[Result]] = {}
    for r in results:
        rows.setdefault((r.problem, r.method), []).append(r)
    return [_row(*key, found) for key, found in rows.items()]


def _row(problem: str, method: str, found: list[Result]) -> dict[str, Any]:
    def mean(f: Callable[[Result], float]) -> float:
        return float(np.mean([f(r) for r in found]))

    own, setting = found[0].output, found[0].setting or (None, None)
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
        "x": setting[0],
        "y": setting[1],
        "env steps": mean(lambda r: r.env_steps),
        "seconds": mean(lambda r: r.seconds),
    }
