"""The figure of episodes: histograms of returns and costs, with the limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.certificates.verdict_words import bound_words
from clearance.core.arrays import Array
from clearance.core.figures import BLACK, SKY, VERMILION, plain_text

MOST_LIMITS = 4  # largest number of constraints that are drawn


def draw_episodes(plt: Any, seen: Any) -> Any:
    """Return a figure of histograms: one of the returns, and one with the limit for each of the first four constraints.

    plt   the module matplotlib.pyplot
    seen  the `EpisodeStatistics` of the episodes to draw
    """
    n = min(len(seen.names), MOST_LIMITS)
    fig, axes = plt.subplots(1, 1 + n, figsize=(3.6 * (1 + n), 3.2), squeeze=False, layout="constrained")
    _histogram(axes[0, 0], seen.returns, "return")
    for i in range(n):
        ax = axes[0, 1 + i]
        _histogram(ax, seen.values[:, i], seen.names[i])
        limit = bound_words(seen.names[i], float(seen.b[i]), cost=seen.costs[i])
        ax.axvline(seen.limits[i], color=VERMILION, linewidth=1.6, label=plain_text(limit))
        ax.set_title(f"{100 * seen.beyond[i]:.3g} % of the episodes beyond the limit", fontsize=9)
    for ax in axes[0]:
        ax.legend(fontsize=8, framealpha=0.9)
    axes[0, 0].set_ylabel(f"episodes, of {seen.episodes:,}")
    return fig


def _histogram(ax: Any, x: Array, name: str) -> None:
    ax.hist(x, bins=min(40, max(5, int(np.sqrt(len(x))))), color=SKY)
    ax.axvline(x.mean(), color=BLACK, linewidth=1.2, linestyle="--", label=f"mean {x.mean():.4g}")
    ax.set_xlabel(plain_text(name))
