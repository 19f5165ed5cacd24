"""A robot in a warehouse: the shortest way to the dock, if it may rarely enter the aisles where people work.

Data: warehouse.txt, a map: # wall, S start, G goal, x people. Should print CERTIFIED and write robot.csv and robot.png.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import clearance as cl

MOVES = {"north": (-1, 0), "south": (1, 0), "west": (0, -1), "east": (0, 1)}
SLIP, GAMMA = 0.1, 0.99

rows = (Path(__file__).parent / "data/warehouse.txt").read_text().split()
cells = {(i, j): mark for i, row in enumerate(rows) for j, mark in enumerate(row) if mark != "#"}
at = {mark: cell for cell, mark in cells.items()}


def after(cell, move):
    """It goes as it should, or slips to one side; at walls it stays."""
    sides = [m for m in MOVES if (m in ("north", "south")) != (move in ("north", "south"))]
    chances = {}
    for m, p in ((move, 1 - SLIP), *((m, SLIP / 2) for m in sides)):
        there = (cell[0] + MOVES[m][0], cell[1] + MOVES[m][1])
        there = there if there in cells else cell
        chances[there] = chances.get(there, 0.0) + p
    return chances


model = cl.model(
    initial=at["S"],
    states=list(cells),
    actions=lambda cell: [] if cell == at["G"] else list(MOVES),  # no actions: the process ends there
    transitions=after,
    reward=lambda cell, move: -1,
    costs={"seconds among people": lambda cell, move: cells[cell] == "x"},
    limits={"seconds among people": 0.5},
    gamma=GAMMA,
)
best = cl.optimum(model)
print(cl.certify(model, best))
cl.save_policy(best, "robot.csv", model)

fig, axes = plt.subplots(1, 2, figsize=(8.4, 3.6), layout="constrained")
free = cl.optimum(model.replace(limit=1000.0))
for ax, found, title in ((axes[0], free, "without the limit"), (axes[1], best, "at most 0.5 s among people")):
    image = np.full((len(rows), len(rows[0])), np.nan)
    for cell, d in zip(cells, found.d.sum(axis=1), strict=True):
        image[cell] = np.log10(max(d, 1e-4)) if cell != at["G"] else np.nan
    ax.imshow(image, cmap="viridis")
    for cell, mark in cells.items():
        ax.text(cell[1], cell[0], mark.strip("."), ha="center", va="center", color="tab:red")
    ax.set(xticks=[], yticks=[], title=f"{title}\n{-found.J_r:.1f} s, discounted")
fig.savefig("robot.png", dpi=90)
