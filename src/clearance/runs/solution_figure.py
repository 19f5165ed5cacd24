"""The figure of a solution: the values of the iterates and of the chosen policy, with the limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.certificates.certificate import Certificate
from clearance.certificates.verdict_words import as_written, bound_words
from clearance.core.arrays import Array
from clearance.core.figures import BLACK, BLUE, GREEN, SKY, plain_text
from clearance.learning.trace import Trace, running_average
from clearance.runs.worlds.world import NamedLimits

MOST_LIMITS = 4  # largest number of constraints that are drawn


def draw_solution(plt: Any, trace: Trace, certificate: Certificate, asked: NamedLimits) -> Any:
    """Return a figure with one panel for the reward and one for each of the first four constraints.

    Each panel shows the values of the iterates, their running average and the chosen policy. `plt` is
    matplotlib.pyplot, and `asked` holds the limits and names of the constraints.
    """
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
        ax.axhline(sign * asked.b[i], color=BLACK, linewidth=1.0, label=plain_text(limit))
        ax.set_ylabel(plain_text(asked.names[i]))
    for ax in axes[:, 0]:
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.legend(fontsize=8, framealpha=0.9)
    axes[-1, 0].set_xlabel("iteration k")
    return fig


def _values(ax: Any, x: Array, chosen: float) -> None:
    k = np.arange(1, 1 + len(x))
    ax.plot(k, x, color=SKY, linewidth=0.8, label="iterates")
    ax.plot(k, running_average(x), color=BLUE, linewidth=1.6, label="average so far")
    ax.plot(len(x), chosen, color=GREEN, marker="o", markersize=7, linestyle="none", label="chosen policy")
