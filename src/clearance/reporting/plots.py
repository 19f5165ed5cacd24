"""Figures. Colours are Okabe and Ito's, which people with any colour vision can tell apart."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearance.core.atomic_files import write_whole
from clearance.core.errors import MissingExtraError

if TYPE_CHECKING:
    from clearance.studies.compare import Result
    from clearance.studies.frontier import Frontier
    from clearance.studies.reproduce import Published, Runs, Study

BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
)
COLOURS = (BLUE, SKY, GREEN, ORANGE, VERMILION)
PUBLISHED_COLOURS = {0.0: BLUE, 0.5: ORANGE, 1.0: VERMILION}


def _pyplot() -> Any:
    logging.getLogger("matplotlib").setLevel(
        logging.ERROR
    )  # without a home it uses a temporary folder, in two warnings
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    matplotlib.use("Agg")  # files only: works without a screen
    import matplotlib.pyplot as plt

    return plt


def reproduction(study: Study, published: list[Published], folder: Path) -> list[Path]:
    """The two figures of Bai et al. 2023, signed, with the published curves and the LP optimum in the same axes."""
    paths = [folder / "objective.png", folder / "violation.png"]
    for signal, path in enumerate(paths):
        plt = _pyplot()
        fig, ax = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
        for runs, colour in zip(study.runs, COLOURS, strict=False):
            _band(ax, runs, signal, colour)
        for curve in published:
            _published(ax, curve, signal, study.runs[0].J.shape[1])
        if signal == 0:
            _objective_axis(ax, study)
        else:
            _violation_axis(ax)
        ax.set_xlabel("iteration k")
        ax.set_xlim(0, study.runs[0].J.shape[1])
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.legend(fontsize=8, framealpha=0.9, loc="best" if signal else "lower right")
        fig.savefig(path, dpi=110)
        plt.close(fig)
    return paths


def _band(ax: Any, runs: Runs, signal: int, colour: str) -> None:
    """Mean ± sd over seeds of the running average."""
    sign = 1 if signal == 0 else -1
    x = sign * runs.averages[:, :, signal]
    k, mean, sd = np.arange(1, x.shape[1] + 1), x.mean(0), x.std(0)
    ax.plot(k, mean, color=colour, linewidth=1.6, label=runs.setting.label)
    ax.fill_between(k, mean - sd, mean + sd, color=colour, alpha=0.15, linewidth=0)


def _published(ax: Any, curve: Published, signal: int, K: int) -> None:
    keep = curve.k <= K
    y = (curve.J_r if signal == 0 else curve.violation)[keep]
    style = (0, (4, 2)) if curve.sd_J_r is not None else ":"
    label = f"κ = {curve.kappa:g}, {curve.label}"
    ax.plot(curve.k[keep], y, color=PUBLISHED_COLOURS[curve.kappa], linestyle=style, linewidth=1.1, label=label)


def _objective_axis(ax: Any, study: Study) -> None:
    ax.axhline(study.class_optimum, color=BLACK, linewidth=1.0)
    text = f"optimum of the class with $J_g \\geq 0$ (LP): {study.class_optimum:.4f}"
    ax.annotate(
        text, (0.99, study.class_optimum), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
    )
    ax.set_ylabel("running average of $J_r$")
    ax.set_title("Objective: mean ± sd over seeds", fontsize=11)


def _violation_axis(ax: Any) -> None:
    ax.axhline(0, color=BLACK, linewidth=1.0)
    at = {"xycoords": ("axes fraction", "data"), "fontsize": 8, "va": "top"}
    ax.annotate("limit met below this line", (0.01, -0.002), **at)
    ax.set_ylim(-0.06, 0.2)  # a log axis would hide all that is ≤ 0; the start, at 1.2, is cut instead
    ax.set_ylabel("running average of the violation $-J_g$")
    ax.set_title("Constraint violation, signed: mean ± sd over seeds", fontsize=11)


def frontier(curve: Frontier, path: str | Path, title: str = "") -> None:
    """The price of safety, as .png or .svg: the best reward over the limit, and below it what one unit more costs."""
    plt = _pyplot()
    fig, (top, below) = plt.subplots(
        2, 1, figsize=(7.2, 6.0), sharex=True, layout="constrained", gridspec_kw={"height_ratios": [3, 2]}
    )
    _rewards(top, curve)
    _prices(below, curve)
    what = "limit b" if curve.over == "b" else "κ"
    limits = f"limit b of “{_text(curve.name)}”: $J_g \\geq b$" if curve.over == "b" else "κ: every limit is b + κ"
    below.set_xlabel(f"{limits}   (a discounted sum; further right is stricter)")
    top.set_title(f"{_text(title)}: what the limit costs" if title else f"Reward against {what}", fontsize=11)
    for ax in (top, below):
        ax.grid(alpha=0.25, linewidth=0.5)
        ax.axvline(curve.own.limit, color=BLACK, linewidth=0.8, linestyle=":")
    with write_whole(path) as f:
        kind = Path(path).suffix[1:]
        fig.savefig(f, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
    plt.close(fig)


def _rewards(ax: Any, curve: Frontier) -> None:
    own, sure = curve.own, [p for p in curve.learned if p.verdict == "CERTIFIED"]
    ax.plot(curve.limit, curve.J_r, color=BLUE, linewidth=1.6, marker=".", markersize=5, label="optimum, exact")
    if own.limit < curve.limit[0]:
        flat = [own.limit, curve.limit[0]], [own.J_r, curve.J_r[0]]
        ax.plot(*flat, color=BLUE, linewidth=1.6, linestyle="--", label="the limit does not bind")
    label = f"the problem as it is: $J_r$ = {own.J_r:.6g}, λ = {own.lam:.4g}"
    ax.plot(own.limit, own.J_r, color=BLACK, marker="D", markersize=7, linestyle="none", label=label)
    for some, colour, marker, what in (
        (sure, GREEN, "o", "certified"),
        ([p for p in curve.learned if p not in sure], VERMILION, "X", "not certified"),
    ):
        if some:
            at = [p.limit for p in some], [p.J_r for p in some]
            ax.plot(*at, color=colour, marker=marker, markersize=8, linestyle="none", label=f"learned, {what}")
    ax.set_ylabel("$J_r$, discounted reward")
    # A falling concave curve leaves the lower left free; what was learned may lie there.
    ax.legend(fontsize=8, framealpha=0.9, loc="best" if curve.learned else "lower left")


def _prices(ax: Any, curve: Frontier) -> None:
    """λ as minus the slope between neighbours, which it is on a curve of straight pieces."""
    slopes = -np.diff(curve.J_r) / np.diff(curve.limit)
    if len(slopes):
        ax.stairs(slopes, curve.limit, baseline=None, color=ORANGE, linewidth=1.8, label="minus the slope above")
    ax.plot(curve.limit, curve.lam, color=BLUE, marker=".", markersize=6, linestyle="none", label="λ of each optimum")
    ax.plot(curve.own.limit, curve.own.lam, color=BLACK, marker="D", markersize=6, linestyle="none")
    seen = curve.lam[curve.lam > 0]
    if len(seen) and seen.max() > 50 * seen.min() and min(curve.lam.min(), curve.own.lam) > 0:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
    ax.set_ylabel("λ: $J_r$ lost per\nunit of limit")
    ax.legend(fontsize=8, framealpha=0.9, loc="upper left")


DASHES = ("-", (0, (4, 2)), (0, (1, 1)))
STYLES = tuple((c, dash) for dash in DASHES for c in (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, BLACK))


def comparison(results: list[Result], path: str | Path) -> None:
    """One problem: gap and violation of average iterate, last iterate and best mixture against environment steps.

    Means over seeds; both axes of values are signed, linear near 0 and logarithmic beyond.
    """
    plt = _pyplot()
    fig, axes = plt.subplots(2, 3, figsize=(11.5, 6.6), sharex=True, sharey="row", layout="constrained")
    names = list(dict.fromkeys(r.method for r in results))
    for name, (colour, dash) in zip(names, STYLES, strict=False):
        found = [r for r in results if r.method == name]
        for ax, which in zip(axes.T, ("average", "last", "best"), strict=True):
            gap, violation = (np.mean([c(r, which) for r in found], axis=0) for c in (_gaps, _violations))
            steps = np.mean([r.curve.steps for r in found], axis=0)
            lone = steps[0] == steps[-1]  # planned on a model that was drawn at once
            style = {"color": colour, "linewidth": 1.4, "linestyle": dash, "marker": "D" if lone else None}
            keep = slice(-1, None) if lone else slice(None)
            ax[0].plot(steps[keep], gap[keep], **style, label=_text(name))
            ax[1].plot(steps[keep], violation[keep], **style)
    _comparison_axes(axes, results[0])
    fig.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    fig.suptitle(f"{_text(results[0].problem)}: mean over {len({r.seed for r in results})} seeds", fontsize=11)
    with write_whole(path) as f:
        fig.savefig(f, format="png", dpi=100)
    plt.close(fig)


def _gaps(result: Result, which: str) -> Any:
    return result.optimum.J_r - getattr(result.curve, which)[:, 0]


def _violations(result: Result, which: str) -> Any:
    return np.max(result.b - getattr(result.curve, which)[:, 1:], axis=1, initial=-np.inf)


def _comparison_axes(axes: Any, result: Result) -> None:
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


def _text(name: str) -> str:
    """A name as it is: what matplotlib would take for mathematics, or cannot show, is escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return shown.replace("\\", "\\\\").replace("$", "\\$")
