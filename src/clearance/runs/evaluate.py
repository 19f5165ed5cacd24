"""evaluate: compute the exact values of a policy on a finite model, or measure its episodes on a simulator.

A certificate is about expected values. The functions here measure how single episodes vary around them, and how often a
single episode breaks a limit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from clearance.certificates.verdict_words import bound_words
from clearance.core.arrays import Array
from clearance.core.csv_files import write_csv
from clearance.core.errors import InputError
from clearance.core.figures import finish_figure, load_pyplot
from clearance.core.html_card import html_card
from clearance.core.random_streams import fold, key_of
from clearance.core.text import visible
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import Evaluation
from clearance.finite.evaluation import evaluate as evaluate_exactly
from clearance.runs.episode_figure import draw_episodes
from clearance.simulator.table_problem import TableProblem

EPISODES = 1000
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
STREAM = 2**43  # random stream of these episodes, other than those of learning and of tests
HEADS = ("", "mean", "interval", *(f"{q:.0%}" for q in QUANTILES), "worst", "limit", "episodes beyond it")


@dataclass(frozen=True, eq=False, repr=False)
class EpisodeStatistics:
    """Statistics of n episodes of one policy on a simulator.

    name      the name of the problem
    names     the names of the constraints;  costs: whether each of them is a cost
    b         the limits, as lower limits of utilities: a cost limit has the opposite sign
    returns   [n] discounted return Σ γ^t r_t of each episode, up to the horizon
    values    [n, I] discounted sum of each constraint in each episode; costs have the sign that the user gave them
    lengths   [n] number of steps until the episode ended or reached the horizon
    delta     each confidence interval covers the true value with probability 1 − delta; for means this holds only
              approximately (Student's t)
    """

    name: str
    names: tuple[str, ...]
    costs: tuple[bool, ...]
    b: Array
    returns: Array
    values: Array
    lengths: NDArray[np.int64]
    delta: float = 0.05

    @property
    def episodes(self) -> int:
        return len(self.returns)

    @property
    def limits(self) -> Array:
        """The limits [I], with the sign that the user gave them: upper limits of costs, lower limits of utilities."""
        return np.where(self.costs, 0.0 - self.b, self.b)

    @property
    def mean(self) -> Array:
        """The mean return, followed by the mean of each constraint [1+I]."""
        return np.append(self.returns.mean(), self.values.mean(0))

    @cached_property
    def interval(self) -> tuple[Array, Array]:
        """Approximate confidence bounds (low, high) of the means [1+I] by Student's t; not used by certificates."""
        X = np.column_stack([self.returns, self.values])
        width = stats.t.ppf(1 - self.delta / 2, len(X) - 1) * X.std(0, ddof=1) / np.sqrt(len(X))
        return self.mean - width, self.mean + width

    def quantiles(self, q: Any = QUANTILES) -> Array:
        """Return quantiles of the return and of each constraint over the episodes [len(q), 1+I].

        `q` are the probabilities of the quantiles, in [0, 1].
        """
        return np.quantile(np.column_stack([self.returns, self.values]), np.atleast_1d(q), axis=0)

    @property
    def beyond(self) -> Array:
        """For each limit, the share of the episodes that break it [I]. Certificates are about means over episodes."""
        return self._passed.mean(0)

    @property
    def beyond_interval(self) -> tuple[Array, Array]:
        """Confidence bounds (low, high) [I] of the probability that an episode breaks a limit (Clopper and Pearson)."""
        k, n = self._passed.sum(0), self.episodes
        low = np.where(k > 0, stats.beta.ppf(self.delta / 2, np.maximum(k, 1), n - k + 1), 0.0)
        high = np.where(k < n, stats.beta.ppf(1 - self.delta / 2, k + 1, np.maximum(n - k, 1)), 1.0)
        return low, high

    @property
    def _passed(self) -> NDArray[np.bool_]:
        sign = np.where(self.costs, 1.0, -1.0)
        return sign * self.values > sign * self.limits

    def table(self) -> list[dict[str, Any]]:
        """Return one row of statistics for the return, one for each constraint, and one for the episode length."""
        columns = [("return", self.returns), *zip(self.names, self.values.T, strict=True), ("length", self.lengths)]
        low, high = self.interval
        rows = []
        for j, (name, x) in enumerate(columns):
            row: dict[str, Any] = {"name": name, "mean": float(x.mean()), "sd": float(x.std(ddof=1))}
            if j < len(low):
                row["interval"] = [float(low[j]), float(high[j])]
            row["quantiles"] = {f"{q:g}": float(v) for q, v in zip(QUANTILES, np.quantile(x, QUANTILES), strict=True)}
            row |= {"least": float(x.min()), "most": float(x.max())}
            if 1 <= j <= len(self.names):
                bounds = [float(b[j - 1]) for b in self.beyond_interval]
                row |= {
                    "limit": float(self.limits[j - 1]),
                    "beyond": float(self.beyond[j - 1]),
                    "beyond_interval": bounds,
                }
            rows.append(row)
        return rows

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows of `table` as texts, in the columns of `HEADS`."""
        found = []
        for j, row in enumerate(self.table()):
            interval = "{:.6g} to {:.6g}".format(*row["interval"]) if "interval" in row else ""
            utility = j == 0 or (1 <= j <= len(self.names) and not self.costs[j - 1])
            ends = [f"{x:.6g}" for x in row["quantiles"].values()] + [f"{row['least' if utility else 'most']:.6g}"]
            limit, share = "", ""
            if "limit" in row:
                limit = bound_words("", float(self.b[j - 1]), cost=self.costs[j - 1]).strip()
                share = "{:.3g} % ({:.3g} to {:.3g})".format(
                    *(100 * x for x in (row["beyond"], *row["beyond_interval"]))
                )
            found.append((visible(row["name"]), f"{row['mean']:.6g}", interval, *ends, limit, share))
        return found

    def __repr__(self) -> str:
        parts = [f"return {self.mean[0]:.6g}"]
        parts += [f"{visible(n)} {v:.6g}" for n, v in zip(self.names, self.mean[1:], strict=True)]
        return f"<EpisodeStatistics: {self.episodes:,} episodes of {visible(self.name)}; on average {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        return html_card(f"{self.episodes:,} episodes of {self.name}", [], HEADS, self.cells())

    def plot(self) -> Any:
        """Return a matplotlib figure: histograms of returns and costs over the episodes, with the limits."""
        return finish_figure(draw_episodes(load_pyplot(), self))

    def save(self, path: str | Path) -> None:
        """Write a CSV file with one row per episode."""
        rows = np.column_stack([self.returns, self.values, self.lengths]).tolist()
        write_csv(path, ("return", *self.names, "length"), rows)


def evaluate(problem: Any, policy: Any, *, episodes: int | None = None, seed: int = 0, delta: float = 0.05) -> Any:
    """Evaluate a policy: exactly on a finite model, from episodes on a simulator.

    Finite model: returns an `Evaluation` with the exact V, Q, A, occupancy d and J of the stationary policy π [S, A].
    Simulator: returns `EpisodeStatistics` of `episodes` episodes (default: 1,000): returns, costs, lengths, their
    quantiles, and how often a single episode breaks a limit.

    policy   on a simulator: a `NetworkMixture`, a policy from `load_policy`, a `Solution`, a run folder or policy file,
             or a rule `observation -> action`, whose method `reset`, if it has one, is called before every episode
    seed     random seed of the episodes; they are independent of those used for learning and for certificates
    delta    each confidence interval covers the true value with probability 1 − delta
    """
    if isinstance(problem, CMDP):
        if episodes is not None:
            raise InputError("episodes is for simulators: a finite model is evaluated exactly; leave it out")
        return evaluate_exactly(problem, policy)
    if isinstance(problem, TableProblem):
        if not callable(policy):
            ways = "use cl.certify, or give a rule `observation -> action`"
            raise InputError(f"single episodes of a table of a cl.tabular problem cannot be shown: {ways}")
        problem = problem.gym  # type: ignore[attr-defined]
    n = EPISODES if episodes is None else episodes
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 2 <= n <= 10**7:
        raise InputError(f"episodes must be a whole number from 2 to 10⁷, got {n!r}")
    if not 0 < delta < 1:
        raise InputError(f"delta must be in (0, 1), got {delta!r}")
    from clearance.simulator.samplers.observed_episodes import observe_episodes  # needs JAX

    policy, s = runnable(problem, policy), problem.statement
    problem = problem.remembering(None if callable(policy) else policy.policy.memory)
    found = observe_episodes(problem, policy, int(n), fold(key_of(seed), STREAM))
    values = np.where(s.costs, -1.0, 1.0) * found.X[:, 1:] + 0.0
    return EpisodeStatistics(s.name, s.names, s.costs, s.b, found.X[:, 0], values, found.length, delta)


def runnable(simulator: Any, policy: Any) -> Any:
    """Return the policy as a mixture of networks that fits the simulator; a rule is returned unchanged.

    `policy` may also be a path, a `Solution`, or a policy from `load_policy`.
    """
    from clearance.deploy.rule_runner import RuleRunner
    from clearance.deploy.running_policy import NetworkRunner
    from clearance.runs import run_reader
    from clearance.runs.solution import Solution
    from clearance.runs.worlds.simulator_certify import check_fits
    from clearance.runs.worlds.simulator_start import as_mixture
    from clearance.simulator.policies.rule_mixture import load_mixture

    if isinstance(policy, str | Path):
        folder = os.path.isdir(policy)
        policy = run_reader.load(policy).policy if folder else load_mixture(policy)
    policy = policy.policy if isinstance(policy, Solution) else policy
    policy = as_mixture(policy) if isinstance(policy, NetworkRunner | RuleRunner) else policy
    if callable(policy):
        return policy
    memory = getattr(getattr(policy, "policy", None), "memory", simulator.memory)
    return check_fits(simulator.remembering(memory), policy)


__all__ = ["EpisodeStatistics", "Evaluation", "evaluate"]
