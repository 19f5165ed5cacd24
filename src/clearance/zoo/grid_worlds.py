"""Grid worlds: grids of any size with obstacles on the way to a goal, and the grid of Sutton and Barto."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearance.finite.cmdp import CMDP
from clearance.finite.transition_rows import start_at, transitions

UP, RIGHT, DOWN, LEFT = range(4)
DIRECTIONS = ("up", "right", "down", "left")
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])


def grid_obstacles(
    size: int = 25,
    *,
    density: float = 0.3,
    limit: float = 5.0,
    slip: float = 0.05,
    seed: int = 0,
    gamma: float = 0.99,
) -> CMDP:
    """Return a grid to cross from one corner to another, with a limit on the number of obstacles hit.

    P is sparse, so `size` may be in the hundreds.

    State: a cell, row · size + column. Actions 0..3: up, right, down, left. With probability `slip` the step goes in
    one of the other three directions. A step off the grid stays in place. The start is bottom left. The goal, top
    right, ends the episode (absorbing, zero signals). Each cell is an obstacle with probability `density`, drawn once
    from `seed`; obstacles can be crossed. Start and goal are free of obstacles.

        r = −1 per step, + 1000 on reaching the goal,   cost = 1 per step that ends on an obstacle

    Source: Chow, Nachum, Duenez-Guzman and Ghavamzadeh 2018, section 5: 25 × 25, density 0.3, limit 5. The corners,
    the effect of a slip, γ = 0.99 and seed 0 are choices of this library.
    """
    S, goal, start = size**2, size - 1, size * (size - 1)
    blocked = obstacles(size, density, seed)
    s, a, m = np.ogrid[:S, :4, :4]
    prob = np.where(a == m, 1 - slip, slip / 3) + 0.0 * s
    s_next = np.where(s == goal, goal, step(size, size)[:, None, :])
    P = transitions(S, 4, s, a, s_next, prob)
    r = 1000.0 * (prob * (s_next == goal)).sum(-1) - 1
    cost = (prob * blocked[s_next]).sum(-1)
    r[goal], cost[goal] = 0.0, 0.0
    labels: Any = {"states": cell_names(size, size), "actions": DIRECTIONS, "names": ["obstacles"]}
    return CMDP(P, r, rho=start_at(S, start), gamma=gamma, cost=cost, limit=limit, **labels)


def obstacles(size: int, density: float, seed: int) -> NDArray[np.float64]:
    """Return a vector [size²] with 1 for each cell with an obstacle, else 0.

    A cell has an obstacle with probability `density`; start and goal are always free.
    """
    blocked = (np.random.default_rng(seed).random((size, size)) < density).astype(float)
    blocked[-1, 0] = blocked[0, -1] = 0.0
    return blocked.ravel()


def sutton_barto(b: Any = (1.5, 0.85, 2.7)) -> CMDP:
    """Return the grid of Sutton and Barto, example 3.5, with three utilities that conflict with the reward.

    There are 5 × 5 cells, s = 5 · row + column, and actions 0..3: up, right, down, left. A step off the grid stays in
    place, with r = −1. Every action in cell 1 (A in the book) leads to cell 21 with r = 10, and every action in cell 3
    (B) to cell 13 with r = 5. Otherwise r = 0. γ = 0.9, and ρ is uniform. The utilities u depend on the cell, and b are
    their lower limits:

        u₁ = 1 at 3, .1 at 1;   u₂ = .7 at 0, .2 at 4;   u₃ = .5 at 21, 1.5 at 13;   b = (1.5, .85, 2.7)

    Known: without limits the optimal values are the book's table, with 22.0 24.4 22.0 19.4 17.5 in its first row.

    Source: Sutton and Barto 2018, examples 3.5 and 3.8; the utilities and limits: Jain et al. 2022.
    """
    S, jump, gain = 25, {1: 21, 3: 13}, {1: 10.0, 3: 5.0}
    s_next = step(5, 5)
    r = -1.0 * (s_next == np.arange(S)[:, None])
    for s in jump:
        s_next[s], r[s] = jump[s], gain[s]
    u = np.zeros((3, S))
    u[0, [3, 1]], u[1, [0, 4]], u[2, [21, 13]] = (1, 0.1), (0.7, 0.2), (0.5, 1.5)
    P = transitions(S, 4, np.arange(S)[:, None], np.arange(4), s_next, 1.0)
    labels: Any = {"states": cell_names(5, 5), "actions": DIRECTIONS, "names": ["u1", "u2", "u3"]}
    return CMDP(P, r, np.repeat(u[:, :, None], 4, axis=2), b, gamma=0.9, **labels)


def cell_names(rows: int, columns: int) -> list[str]:
    """Return the names of all cells of a grid with the given numbers of rows and columns, row by row."""
    return [f"row {i}, column {j}" for i in range(rows) for j in range(columns)]


def step(rows: int, columns: int) -> NDArray[np.int64]:
    """Return the cell [rows · columns, 4] to which a move up, right, down or left leads; moves off the grid stay."""
    at = np.indices((rows, columns)).reshape(2, -1, 1) + MOVES.T[:, None, :]
    return np.clip(at[0], 0, rows - 1) * columns + np.clip(at[1], 0, columns - 1)
