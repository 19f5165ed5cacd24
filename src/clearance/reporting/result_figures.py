"""`plot`: one matplotlib figure of a solution, a frontier or a comparison, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clearance.certificates.verdict_words import as_written, bound_words
from clearance.core.arrays import Array
from clearance.core.atomic_files import write_whole
from clearance.core.errors import InputError, MissingExtraError
from clearance.learning.trace import running_average
from clearance.reporting import plots
from clearance.runs.evaluate import EpisodeStatistics
from clearance.runs.solution import Solution
from clearance.studies.compare import Result
from clearance.studies.frontier import Frontier
from clearance.studies.simulator_frontier import LearnedFrontier

MOST_LIMITS = 4  # constraints with axes of their own


def plot(thing: Solution | Frontier | LearnedFrontier | EpisodeStatistics | Result | Sequence[Result]) -> Any:
    """Return a figure, which is not shown yet: the last line of a cell shows it, `savefig` writes it.

    A solution: the values of the iterates and of the chosen policy, with the limits. A frontier: reward over the limit,
    and its price; on a simulator, the reward of the learned policies. Episodes by `evaluate`: histograms of their
    returns and costs, with the limits. Results of `compare` on one problem: gap and violation of every method.
    """
    plt = _user_pyplot()
    fig = _draw(plt, thing)
    plt.close(fig)  # or a notebook would show it twice
    return fig


def _draw(plt: Any, thing: Any) -> Any:
    if isinstance(thing, Solution):
        return draw_solution(plt, thing)
    if isinstance(thing, Frontier):
        return plots.draw_frontier(plt, thing)
    if isinstance(thing, EpisodeStatistics):
        return draw_episodes(plt, thing)
    if isinstance(thing, LearnedFrontier):
        return draw_learned(plt, thing)
    results = [thing] if isinstance(thing, Result) else thing
    if isinstance(results, Sequence) and results and all(isinstance(r, Result) for r in results):
        problems = sorted({r.problem for r in results})
        if len(problems) > 1:
            raise InputError(f"plot: one figure is about one problem, these results are about {', '.join(problems)}")
        return plots.draw_comparison(plt, results)
    raise InputError(f"plot takes a Solution, a Frontier, episodes, or results of compare, got {type(thing).__name__}")


def draw_solution(plt: Any, solution: Solution) -> Any:
    """The values of the iterates, their average so far, and the chosen policy: the reward, then each constraint."""
    trace, certificate, asked = solution.trace, solution.certificate, solution.statement
    J = trace.J if len(trace.J) else trace.J_hat
    n = min(len(asked.names), MOST_LIMITS)
    size = {"figsize": (7.2, 2.6 + 2.0 * n), "sharex": True, "squeeze": False, "layout": "constrained"}
    fig, axes = plt.subplots(1 + n, 1, **size)
    _values(axes[0, 0], J[:, 0], certificate.J_r)
    axes[0, 0].set_ylabel("$J_r$")
    axes[0, 0].set_title(f"{certificate.verdict}: $J_r$ = {certificate.J_r:.6g}", fontsize=11)
    for i in range(n):
        ax, cost = axes[1 + i, 0], (certificate.costs or [False] * n)[i]
        sign = -1.0 if cost else 1.0
        _values(ax, sign * J[:, 1 + i], as_written(certificate.J_g[i], cost=cost))
        limit = bound_words(asked.names[i], float(asked.b[i]), cost=cost)
        ax.axhline(sign * asked.b[i], color=plots.BLACK, linewidth=1.0, label=plots._text(limit))
        ax.set_ylabel(plots._text(asked.names[i]))
    for ax in axes[:, 0]:
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.legend(fontsize=8, framealpha=0.9)
    axes[-1, 0].set_xlabel("iteration k")
    return fig


def draw_episodes(plt: Any, seen: EpisodeStatistics) -> Any:
    """Histograms over the episodes: the return, then each constraint with its limit and how often it is passed."""
    n = min(len(seen.names), MOST_LIMITS)
    fig, axes = plt.subplots(1, 1 + n, figsize=(3.6 * (1 + n), 3.2), squeeze=False, layout="constrained")
    _histogram(axes[0, 0], seen.returns, "return")
    for i in range(n):
        ax = axes[0, 1 + i]
        _histogram(ax, seen.values[:, i], seen.names[i])
        limit = bound_words(seen.names[i], float(seen.b[i]), cost=seen.costs[i])
        ax.axvline(seen.limits[i], color=plots.VERMILION, linewidth=1.6, label=plots._text(limit))
        ax.set_title(f"{100 * seen.beyond[i]:.3g} % of the episodes beyond the limit", fontsize=9)
    for ax in axes[0]:
        ax.legend(fontsize=8, framealpha=0.9)
    axes[0, 0].set_ylabel(f"episodes, of {seen.episodes:,}")
    return fig


def _histogram(ax: Any, x: Array, name: str) -> None:
    ax.hist(x, bins=min(40, max(5, int(np.sqrt(len(x))))), color=plots.SKY)
    ax.axvline(x.mean(), color=plots.BLACK, linewidth=1.2, linestyle="--", label=f"mean {x.mean():.4g}")
    ax.set_xlabel(plots._text(name))


def draw_learned(plt: Any, curve: LearnedFrontier) -> Any:
    """The reward of the learned policies over the limit; those that are not certified are hollow."""
    fig, ax = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
    ax.plot(curve.limit, curve.J_r, color=plots.SKY, linewidth=1.2)
    for certified, face in ((True, plots.GREEN), (False, "none")):
        at = curve.certified == certified
        label = "certified" if certified else "not certified"
        style = {"marker": "o", "linestyle": "none", "color": plots.GREEN, "markerfacecolor": face}
        if at.any():
            ax.plot(curve.limit[at], curve.J_r[at], label=label, **style)
    ax.set_xlabel(plots._text(f"limit of {curve.name}"))
    ax.set_ylabel("$J_r$")
    ax.legend(fontsize=8, framealpha=0.9)
    ax.grid(alpha=0.25, linewidth=0.5)
    return fig


def save_figure(thing: Any, path: str | Path) -> None:
    """Write the figure of a result to a file (.png, .svg), without a screen."""
    plt = plots._pyplot()
    fig = _draw(plt, thing)
    with write_whole(path) as f:
        fig.savefig(f, format=Path(path).suffix[1:], dpi=150)
    plt.close(fig)


def _values(ax: Any, x: Array, chosen: float) -> None:
    k = np.arange(1, 1 + len(x))
    ax.plot(k, x, color=plots.SKY, linewidth=0.8, label="iterates")
    ax.plot(k, running_average(x), color=plots.BLUE, linewidth=1.6, label="average so far")
    ax.plot(len(x), chosen, color=plots.GREEN, marker="o", markersize=7, linestyle="none", label="chosen policy")


def _user_pyplot() -> Any:
    """Return pyplot with the backend that the user has: in a notebook, the one that shows figures inline."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    return plt
