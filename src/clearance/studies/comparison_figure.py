"""The figure of a comparison on one problem: gap and violation of every method against environment steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearance.core.figures import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, plain_text

DASHES = ("-", (0, (4, 2)), (0, (1, 1)))
STYLES = tuple((c, dash) for dash in DASHES for c in (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK))
ROUNDING = 1e-12  # the error of a value, relative to the largest limit or 1


def draw_comparison(plt: Any, results: Sequence[Any]) -> Any:
    """Return a figure for one problem: gap and violation of every method against environment steps.

    There is one column each for average iterate, last iterate and best mixture. The curves are means over seeds. The
    vertical axes are linear near 0 and logarithmic beyond, with sign. `plt` is matplotlib.pyplot.
    """
    fig, axes = plt.subplots(2, 3, figsize=(11.5, 6.6), sharex=True, sharey="row", layout="constrained")
    names = list(dict.fromkeys(r.method for r in results))
    for name, (colour, dash) in zip(names, STYLES, strict=False):
        found = [r for r in results if r.method == name]
        for ax, which in zip(axes.T, ("average", "last", "best"), strict=True):
            gap, violation = (np.mean([c(r, which) for r in found], axis=0) for c in (gaps_of, violations_of))
            steps = np.mean([r.curve.steps for r in found], axis=0)
            lone = steps[0] == steps[-1]  # planned on a model that was drawn at once
            style = {"color": colour, "linewidth": 1.4, "linestyle": dash, "marker": "D" if lone else None}
            keep = slice(-1, None) if lone else slice(None)
            ax[0].plot(steps[keep], gap[keep], **style, label=plain_text(name))
            ax[1].plot(steps[keep], violation[keep], **style)
    _comparison_axes(axes, results[0])
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    fig.suptitle(f"{plain_text(results[0].problem)}: mean over {len({r.seed for r in results})} seeds", fontsize=11)
    return fig


def gaps_of(result: Any, which: str) -> Any:
    return result.optimum.J_r - getattr(result.curve, which)[:, 0]


def violations_of(result: Any, which: str) -> Any:
    """Return the largest violation max_i (b_i − J_gi) at each point of the curve.

    The policy at the end of the curve "best" has a certificate. If it is CERTIFIED, rounding errors above 0 are set to
    0 there.
    """
    found = np.max(result.b - getattr(result.curve, which)[:, 1:], axis=1, initial=-np.inf)
    rounding = ROUNDING * max(1.0, float(np.abs(result.b).max(initial=0.0)))
    if which == "best" and result.verdict == "CERTIFIED" and 0 < found[-1] <= rounding:
        found[-1] = 0.0
    return found


def _comparison_axes(axes: Any, result: Any) -> None:
    size = max(abs(result.optimum.J_r), 1e-9)
    for ax in axes.ravel():
        ax.axhline(0.0, color=BLACK, linewidth=0.8)
        ax.set_xscale("log")
        ax.set_yscale("symlog", linthresh=1e-3 * size)
        ax.grid(alpha=0.25, linewidth=0.5)
    for ax, title in zip(axes[0], ("average iterate", "last iterate", "best mixture so far"), strict=True):
        ax.set_title(title, fontsize=10)
    for ax in axes[1]:
        ax.set_xlabel("environment steps")
    axes[0, 0].set_ylabel("gap $J^* - J_r$")
    axes[1, 0].set_ylabel("violation $\\max_i (b_i - J_{g_i})$, signed")
