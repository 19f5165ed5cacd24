"""The figure of a frontier: the best reward over the limit, and the reward lost if the limit is one unit stricter."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.certificates.verdict_words import as_written
from clearance.core.figures import BLACK, BLUE, GREEN, ORANGE, VERMILION, plain_text


def draw_frontier(plt: Any, curve: Any, title: str = "") -> Any:
    """Return a figure: above, the best reward over the limit; below, the reward lost if the limit is one unit stricter.

    `plt` is matplotlib.pyplot, and `curve` a `Frontier`.
    """
    fig, (top, below) = plt.subplots(
        2, 1, figsize=(7.2, 6.0), sharex=True, layout="constrained", gridspec_kw={"height_ratios": [3, 2]}
    )
    _rewards(top, curve)
    _prices(below, curve)
    what = "the limit" if curve.over == "b" else "κ"
    side = "left" if curve.cost else "right"
    limits = plain_text(curve.axis_name) if curve.over == "b" else "κ: every limit is tightened by κ"
    below.set_xlabel(f"{limits}   (further {side} is stricter)")
    top.set_title(f"{plain_text(title)}: what the limit costs" if title else f"Reward against {what}", fontsize=11)
    for ax in (top, below):
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.axvline(as_written(curve.own.b, cost=curve.cost), color=BLACK, linewidth=0.8, linestyle=":")
    return fig


def _rewards(ax: Any, curve: Any) -> None:
    own, sure = curve.own, [p for p in curve.learned if p.verdict == "CERTIFIED"]
    at_own = as_written(own.b, cost=curve.cost)
    ax.plot(curve.limit, curve.J_r, color=BLUE, linewidth=1.6, marker=".", markersize=5, label="optimum, exact")
    if own.b < curve.b[0]:
        flat = [at_own, curve.limit[0]], [own.J_r, curve.J_r[0]]
        ax.plot(*flat, color=BLUE, linewidth=1.6, linestyle="--", label="the limit does not bind")
    label = f"the problem as it is: $J_r$ = {own.J_r:.6g}, λ = {own.lam:.4g}"
    ax.plot(at_own, own.J_r, color=BLACK, marker="D", markersize=7, linestyle="none", label=label)
    for some, colour, marker, what in (
        (sure, GREEN, "o", "certified"),
        ([p for p in curve.learned if p not in sure], VERMILION, "X", "not certified"),
    ):
        if some:
            at = [as_written(p.b, cost=curve.cost) for p in some], [p.J_r for p in some]
            ax.plot(*at, color=colour, marker=marker, markersize=8, linestyle="none", label=f"learned, {what}")
    ax.set_ylabel("reward $J_r$")
    # A falling concave curve leaves the lower left corner free, and a rising one the lower right corner. Points of
    # learned policies may be there.
    free = "lower right" if curve.cost else "lower left"
    ax.legend(fontsize=8, framealpha=0.9, loc="best" if curve.learned else free)


def _prices(ax: Any, curve: Any) -> None:
    """Draw the prices λ as points, and minus the slope of the curve between neighbouring points as a step function.

    On straight pieces of the curve, points and step function agree.
    """
    slopes = -np.diff(curve.J_r) / np.diff(curve.b)
    if len(slopes):
        way = -1 if curve.cost else 1  # stairs go from left to right
        ax.stairs(
            slopes[::way],
            curve.limit[::way],
            baseline=None,
            color=ORANGE,
            linewidth=1.8,
            label="slope above" if curve.cost else "minus the slope above",
        )
    ax.plot(curve.limit, curve.lam, color=BLUE, marker=".", markersize=6, linestyle="none", label="λ of each optimum")
    ax.plot(
        as_written(curve.own.b, cost=curve.cost),
        curve.own.lam,
        color=BLACK,
        marker="D",
        markersize=6,
        linestyle="none",
    )
    seen = curve.lam[curve.lam > 0]
    if len(seen) and seen.max() > 50 * seen.min() and min(curve.lam.min(), curve.own.lam) > 0:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
    ax.set_ylabel("λ: $J_r$ lost per\nunit of limit")
    ax.legend(fontsize=8, framealpha=0.9, loc="upper right" if curve.cost else "upper left")
