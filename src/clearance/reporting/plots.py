"""Write the figures of the command line to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clearance.core.figures import BLACK, BLUE, GREEN, ORANGE, SKY, VERMILION, pyplot_for_files, save_figure
from clearance.studies.frontier_figure import draw_frontier

if TYPE_CHECKING:
    from clearance.studies.frontier import Frontier
    from clearance.studies.reproduce import Published, Runs, Study

COLOURS = (BLUE, SKY, GREEN, ORANGE, VERMILION)
PUBLISHED_COLOURS = {0.0: BLUE, 0.5: ORANGE, 1.0: VERMILION}


def reproduction(study: Study, published: list[Published], folder: Path) -> list[Path]:
    """Write the two figures of Bai et al. 2023 (reward, violation; both over iterations), and return their paths.

    They show the runs of `study`, the published curves and, for the reward, the optimum by linear programming.
    """
    paths = [folder / "objective.png", folder / "violation.png"]
    for signal, path in enumerate(paths):
        plt = pyplot_for_files()
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
    """Plot the running average of J_r (signal 0) or of the violation −J_g (signal 1) in the axes `ax`.

    The line is the mean over seeds, the band ± one standard deviation.
    """
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
    """Write the figure of the frontier `curve` (the best reward over one limit) as .png or .svg."""
    plt = pyplot_for_files()
    fig = draw_frontier(plt, curve, title)
    save_figure(fig, path)
    plt.close(fig)
