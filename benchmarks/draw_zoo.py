"""Draws the figures of docs/reference/zoo.md: the optimal policy of every model, and what its limit costs.

    python benchmarks/draw_zoo.py [NAME ...]        writes docs/figures/zoo/NAME.png

Colours are Okabe and Ito's for actions and shades of one colour for amounts: told apart with any colour vision.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

import clearance as cl
from clearance import zoo
from clearance.zoo.grid_worlds import MOVES, obstacles

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures" / "zoo"
SKY, BLUE, ORANGE, VERMILION, GREEN = "#56B4E9", "#0072B2", "#E69F00", "#D55E00", "#009E73"
SEEN = 1e-8  # occupancy below which a state is never visited for any practical purpose


@cache
def best_of(name: str) -> cl.Optimum:
    return cl.optimum(zoo.MODELS[name]())


@cache
def free_of(name: str) -> cl.Optimum:
    """The optimum of the model without its limits."""
    cmdp = zoo.MODELS[name]()
    return cl.optimum(cmdp.replace(h=cmdp.h[:1], b=[], names=[]))


# ---------------------------------------------------------------------------------------------------------- the limit


@dataclass(frozen=True)
class Frontier:
    """How the optimum moves with one limit: the model as a function of it, the values to try, the one it has."""

    build: Callable[[float], cl.CMDP]
    limits: list[float]
    default: float
    label: str


FRONTIERS = {
    "inventory": Frontier(
        lambda x: zoo.inventory(fill_rate=1 - x),
        [0.002, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.0913, 0.1, 0.12],
        0.05,
        "share of demand lost, at most",
    ),
    "queue-power": Frontier(
        lambda x: zoo.queue_power(power=x), list(np.linspace(0.02, 0.25, 24)), 0.1, "mean power q³, at most"
    ),
    "lazar": Frontier(lambda x: zoo.lazar(holding=x), list(np.linspace(0.2, 8, 27)), 3.0, "mean queue, at most"),
    "streaming": Frontier(
        lambda x: zoo.streaming(fast_share=x), list(np.linspace(0.02, 1, 15)), 0.5, "share of time fast, at most"
    ),
    "maintenance": Frontier(
        lambda x: zoo.maintenance(breakdowns=x),
        [0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.012, 0.014, 0.016, 0.018, 0.02, 0.022],
        0.01,
        "breakdowns per step, at most",
    ),
    "harvesting": Frontier(lambda x: zoo.harvesting(queue=x), list(np.linspace(1.2, 6, 9)), 3.0, "mean queue, at most"),
    "cliff": Frontier(
        lambda x: zoo.cliff(falls=x), [0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.2627, 0.3], 0.1, "falls, at most"
    ),
    "grid-obstacles": Frontier(
        lambda x: zoo.grid_obstacles(limit=x), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 5.0, "obstacles, at most"
    ),
    "taxi": Frontier(
        lambda x: zoo.taxi(crossings=x), [0.01, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], 0.3, "crossings per trip, at most"
    ),
}


def draw_frontier(ax: Any, name: str) -> None:
    """The optimum over the limit, with the default and its slope λ*, in the limit's own units."""
    f = FRONTIERS[name]
    J = [cl.optimum(f.build(x)).J_r for x in f.limits]
    best = best_of(name)
    ax.plot(f.limits, J, color=BLUE, marker=".", markersize=4)
    ax.plot([f.default], [best.J_r], "o", color=VERMILION, markersize=7, label="the model")
    ax.axhline(free_of(name).J_r, color="0.4", linewidth=1, linestyle=":", label="without limits")
    ax.set_xlabel(f.label)
    ax.set_ylabel("optimum J_r*")
    ax.grid(alpha=0.25, linewidth=0.5)
    ax.legend(fontsize=8, loc="lower right", framealpha=0.9)


# ------------------------------------------------------------------------------------------------------------- chains


@dataclass(frozen=True)
class Chain:
    """A model whose state is one number: what the actions and the state are called, and how many states to show."""

    actions: list[str]
    state: str
    shown: int


CHAINS = {
    "inventory": Chain([f"order {a}" for a in range(6)], "stock", 6),
    "queue-power": Chain(["q = .2", "q = .4", "q = .6", "q = .8"], "customers", 26),
    "lazar": Chain(["refuse", "admit"], "customers", 12),
    "streaming": Chain(["slow", "fast"], "packets in the buffer", 10),
    "maintenance": Chain(["run", "replace"], "condition (10 = broken)", 11),
}
ACTIONS = {2: [SKY, ORANGE], 4: [SKY, BLUE, ORANGE, VERMILION], 6: [SKY, "#999999", GREEN, BLUE, ORANGE, VERMILION]}


def draw_chain(name: str) -> Any:
    chain, best = CHAINS[name], best_of(name)
    fig, (left, right) = plt.subplots(1, 2, figsize=(8.2, 2.9), layout="constrained", width_ratios=[1.25, 1])
    states, bottom = np.arange(chain.shown), np.zeros(chain.shown)
    pi, seen = best.policy[: chain.shown], best.d[: chain.shown].sum(1) > SEEN
    for a, (label, colour) in enumerate(zip(chain.actions, ACTIONS[pi.shape[1]], strict=True)):
        height = np.where(seen, pi[:, a], 0.0)
        if height.any():
            left.bar(states, height, 0.86, bottom, color=colour, label=label, edgecolor="white", linewidth=0.5)
        bottom += height
    if not seen.all():
        left.bar(
            states[~seen], 1.0, 0.86, color="white", edgecolor="0.7", hatch="////", linewidth=0, label="never there"
        )
    left.set(xlabel=chain.state, ylabel="π(action | state)", ylim=(0, 1))
    left.xaxis.set_major_locator(MaxNLocator(12, integer=True))
    left.legend(fontsize=8, ncols=6, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, handlelength=1.2)
    draw_frontier(right, name)
    return fig


def draw_harvesting(name: str) -> Any:
    best, fig = best_of(name), plt.figure(figsize=(8.6, 4.2), layout="constrained")
    parts: Any = fig.subfigures(1, 2, width_ratios=[1.25, 1])
    left, right = parts
    packets = np.arange(len(best.d)) // 4 % 9
    sent = np.sum(best.policy * np.minimum(np.arange(3), packets[:, None]), axis=1).reshape(9, 9, 2, 2)
    axes, image = left.subplots(2, 2, sharex=True, sharey=True).ravel(), None
    for n, ax in enumerate(axes):
        channel, weather = divmod(n, 2)
        image = ax.imshow(sent[:, :, channel, weather].T, origin="lower", cmap="Blues", vmin=0, vmax=2)
        ax.set_title(f"{('bad', 'good')[channel]} channel, {('dark', 'sun')[weather]}", fontsize=8)
        ax.set(xticks=range(0, 9, 2), yticks=range(0, 9, 2))
    left.supxlabel("battery", fontsize=10)
    left.supylabel("packets waiting", fontsize=10)
    left.colorbar(image, ax=axes, label="packets sent (mean)", ticks=[0, 1, 2], shrink=0.7)
    draw_frontier(right.subplots(), name)
    return fig


# --------------------------------------------------------------------------------------------------------------- maps


def draw_map(ax: Any, visits: np.ndarray, title: str, low: float, high: float) -> Any:
    """Expected discounted visits per cell; logarithmic, and white below `low`, unless that is 0."""
    scale = {"norm": LogNorm(low, high)} if low else {"vmin": 0, "vmax": high}
    image = ax.imshow(np.ma.masked_less(visits, low), cmap="Blues", **scale)
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize=9)
    return image


ARROW = {"arrowstyle": "-|>,head_width=0.18,head_length=0.3", "color": VERMILION, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}


def draw_arrows(ax: Any, d: np.ndarray, shape: tuple[int, int]) -> None:
    """π(a|s) as arrows of that length, where the state is visited."""
    pi = d / np.maximum(d.sum(1, keepdims=True), 1e-300)
    for s in np.flatnonzero(d.sum(1) > 1e-6):
        y, x = divmod(int(s), shape[1])
        for a in np.flatnonzero(pi[s] > 0.02):
            dy, dx = 0.42 * pi[s, a] * MOVES[a]
            ax.annotate("", (x + dx, y + dy), (x, y), arrowprops=ARROW)


def draw_grid(name: str) -> Any:
    size, cmdp = 25, zoo.grid_obstacles()
    fig = plt.figure(figsize=(10.4, 3.2), layout="constrained")
    parts: Any = fig.subfigures(1, 2, width_ratios=[2.1, 1])
    left, right = parts
    axes = left.subplots(1, 2)
    blocked = obstacles(size, 0.3, 0).reshape(size, size)
    image: Any = None
    for ax, best, title in zip(axes, (free_of(name), best_of(name)), ("without limit", "limit 5"), strict=True):
        visits = best.d.sum(1) / (1 - cmdp.gamma)
        visits[size - 1] = 0.0  # the goal is where it stays for ever
        hits = float(best.d.ravel() @ -cmdp.g[0].ravel()) / (1 - cmdp.gamma)
        image = draw_map(ax, visits.reshape(size, size), f"{title}: {hits:.1f} obstacles hit", 1e-3, 1.0)
        ax.scatter(*np.argwhere(blocked)[:, ::-1].T, marker="s", s=5, color=VERMILION, linewidths=0)
        ax.set_xlabel("S bottom left, G top right; squares: obstacles", fontsize=8)
    left.colorbar(image, ax=axes, label="visits (discounted)", shrink=0.9)
    draw_frontier(right.subplots(), name)
    return fig


def draw_cliff(name: str) -> Any:
    fig = plt.figure(figsize=(9.2, 3.1), layout="constrained")
    parts: Any = fig.subfigures(1, 2, width_ratios=[1.45, 1])
    left, right = parts
    axes, image = left.subplots(2, 1), None
    for ax, best, title in zip(axes, (free_of(name), best_of(name)), ("without limit", "0.1 falls"), strict=True):
        d = best.d.copy()
        d[47] = 0
        image = draw_map(ax, d.sum(1).reshape(4, 12) * 100, title, 1e-2, 2.0)
        draw_arrows(ax, d, (4, 12))
        ax.add_patch(Rectangle((0.5, 2.5), 10, 1, color="0.25"))
        ax.text(5.5, 3, "cliff", ha="center", va="center", color="white", fontsize=9)
        ax.text(11, 3, "G", ha="center", va="center", fontsize=9, fontweight="bold")
    left.colorbar(image, ax=axes, label="visits", shrink=0.8)
    draw_frontier(right.subplots(), name)
    return fig


def draw_sutton_barto(name: str) -> Any:
    fig, axes = plt.subplots(1, 2, figsize=(7.0, 3.5), layout="constrained")
    image: Any = None
    for ax, best, title in zip(axes, (free_of(name), best_of(name)), ("without limits", "three limits"), strict=True):
        image = draw_map(ax, best.d.sum(1).reshape(5, 5) * 10, f"{title}: J_r = {best.J_r:.2f}", 0.03, 3.0)
        draw_arrows(ax, best.d, (5, 5))
        for s, text in {1: "A", 3: "B", 21: "A'", 13: "B'"}.items():
            ax.text(s % 5 - 0.46, s // 5 - 0.3, text, color="white", fontsize=9, fontweight="bold",
                    bbox={"facecolor": "0.2", "pad": 1.2, "linewidth": 0})  # fmt: skip
    fig.colorbar(image, ax=axes, label="visits (discounted)", shrink=0.8)
    return fig


def draw_taxi(name: str) -> Any:
    fig = plt.figure(figsize=(10.4, 3.1), layout="constrained")
    parts: Any = fig.subfigures(1, 2, width_ratios=[2.1, 1])
    left, right = parts
    axes, image = left.subplots(1, 2), None
    for ax, best, title in zip(axes, (free_of(name), best_of(name)), ("without limit", "0.3 crossings"), strict=True):
        visits = (best.d[:500].sum(1).reshape(5, 5, 20).sum(-1)) * 100
        image = draw_map(ax, visits, title, 0.0, 1.3)
        for y, x, stand in ((0, 0, "R"), (0, 4, "G"), (4, 0, "Y"), (4, 3, "B")):
            ax.text(x, y, stand, ha="center", va="center", fontsize=11, fontweight="bold")
        for x, y in ((1, 0), (1, 1), (0, 3), (0, 4), (2, 3), (2, 4)):
            ax.plot([x + 0.5] * 2, [y - 0.5, y + 0.5], color="white", linewidth=4)
            ax.plot([x + 0.5] * 2, [y - 0.5, y + 0.5], color="black", linewidth=2)
        ax.add_patch(Rectangle((2.55, 1.55), 0.9, 0.9, fill=False, color=VERMILION, linewidth=2))
        ax.set_xlabel("framed: the quiet street", fontsize=8)
    left.colorbar(image, ax=axes, label="visits per trip (discounted)", shrink=0.9)
    draw_frontier(right.subplots(), name)
    return fig


DRAWINGS: dict[str, Callable[[str], Any]] = dict.fromkeys(CHAINS, draw_chain) | {
    "cliff": draw_cliff,
    "grid-obstacles": draw_grid,
    "harvesting": draw_harvesting,
    "sutton-barto": draw_sutton_barto,
    "taxi": draw_taxi,
}


def main(names: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or DRAWINGS:
        fig = DRAWINGS[name](name)
        path = FOLDER / f"{name}.png"
        fig.savefig(path, dpi=100)
        plt.close(fig)
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
