"""Models built from Gymnasium's own transition tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.core.errors import InputError, MissingExtraError
from clearance.finite.cmdp import CMDP
from clearance.finite.gymnasium_tables import gymnasium_signal, gymnasium_table, gymnasium_varies
from clearance.zoo.grid_worlds import DIRECTIONS, cell_names

DRIVING = ("south", "north", "east", "west", "pick-up", "drop-off")


def frozen_lake(size: int = 4, *, budget: float = 0.1, gamma: float = 0.99) -> CMDP:
    """Return FrozenLake (slippery, `size` 4 or 8) with a budget on falls: E Σγ^t 1{enter a hole at t} ≤ budget.

    The reward is 1 for entering the goal. The holes and the goal are absorbing with zero signals. The start is state 0.
    """
    if size not in (4, 8):
        raise InputError(f"size must be 4 or 8, got {size!r}")
    env = _make("FrozenLake", map_name=f"{size}x{size}", is_slippery=True)
    holes = env.desc.ravel() == b"H"
    P, r, rho = gymnasium_table(env)

    def gain(s: int, a: int, s_next: int, reward: float, over: bool) -> float:
        return reward

    def fall(s: int, a: int, s_next: int, reward: float, over: bool) -> float:
        return float(holes[s_next])

    cost = gymnasium_signal(env, fall)
    labels: Any = {"states": cell_names(size, size), "actions": ["left", "down", "right", "up"], "names": ["holes"]}
    found = CMDP(P, r, rho=rho, gamma=gamma, cost=cost, limit=budget, **labels)
    return found.with_averaged([gymnasium_varies(env, f) for f in (gain, fall)])


def cliff(*, falls: float = 0.1, slip: float = 0.05, gamma: float = 0.99) -> CMDP:
    """Return CliffWalking on slippery ground, with a budget on falls off the cliff: E Σγ^t 1{fall at t} ≤ falls.

    There are 4 × 12 cells, and actions 0..3: up, right, down, left. With probability `slip`, the step goes to one side
    of the chosen direction, left or right with equal probability. A fall leads back to the start. The goal ends the
    episode.

        r = −1 per step,   cost = P(fall | s, a)

    Gymnasium's reward of −100 for a fall is replaced by a cost with an explicit limit.

    Known: without a limit, the best path leads along the edge (the "optimal path" of the book); the limit moves it up,
    towards the "safe path". At slip 0 there are no falls. At slip 2/3, which Gymnasium calls slippery, the safe path
    takes no more steps than the other one. In both cases the limit costs no reward.

    Source: Sutton and Barto 2018, example 6.6; Gymnasium's CliffWalking. The budget, slip .05 and γ = 0.99 are choices
    of this library.
    """
    env = _make("CliffWalking")
    P, r, rho = gymnasium_table(env, dense=True)
    fall = gymnasium_signal(env, lambda s, a, s_next, reward, over: float(reward < -1))
    turn = np.array([-1, 0, 1])[:, None] + np.arange(4)  # left of, along and right of each direction
    weight = np.array([slip / 2, 1 - slip, slip / 2])
    P = np.einsum("w,swat->sat", weight, P[:, turn % 4])
    r, cost = (np.einsum("w,swa->sa", weight, x[:, turn % 4]) for x in (np.maximum(r, -1.0), fall))
    labels: Any = {"states": cell_names(4, 12), "actions": DIRECTIONS, "names": ["falls"]}
    found = CMDP(P, r, rho=rho, gamma=gamma, cost=cost, limit=falls, **labels)
    return found.with_averaged([np.zeros_like(cost, bool), (cost > 0) & (cost < 1)])  # whether one falls is chance


def taxi(*, crossings: float = 0.3, gamma: float = 0.99) -> CMDP:
    """Return Taxi with a quiet street: a limit on how often, on average, a trip enters the cell in row 2, column 3.

    Rewards are those of Gymnasium: −1 per step, +20 for delivering the passenger, −10 for a wrong pick-up or drop-off.
    The cost is 1 for driving into the cell, and the limit is `crossings` per (discounted) trip. The cell is on the
    shortest way to the stand B; a detour around it takes four more steps. S = 501, and P is sparse. Trips end in one
    extra state. Gymnasium's own final states cannot be used for this, because other transitions in its table lead there
    without ending a trip.

    Source: Dietterich 2000; Gymnasium's Taxi. The quiet street and γ = 0.99 are choices of this library.
    """
    env = _make("Taxi")
    P, r, rho = gymnasium_table(env)
    cell = [tuple(int(x) for x in env.decode(s))[:2] for s in range(len(env.P))]

    def enters(s: int, a: int, s_next: int, reward: float, over: bool) -> float:
        return float(cell[s_next] == (2, 3) != cell[s])

    cost = gymnasium_signal(env, enters)
    labels: Any = {"states": _trip_names(env, len(r)), "actions": DRIVING, "names": ["quiet street"]}
    return CMDP(P, r, rho=rho, gamma=gamma, cost=cost, limit=crossings, **labels)


def _trip_names(env: Any, S: int) -> list[str]:
    """Return the names of the S states: the places of taxi, passenger and destination; the last one is "trip over"."""
    stands = ("R", "G", "Y", "B", "the taxi")
    trips = (tuple(int(x) for x in env.decode(s)) for s in range(len(env.P)))
    found = [f"taxi at row {i}, column {j}, passenger in {stands[p]}, to {stands[d]}" for i, j, p, d in trips]
    return found + ["trip over"] * (S - len(found))


def _make(name: str, **kwargs: Any) -> Any:
    """Make the newest version of an environment; which versions exist depends on the version of Gymnasium."""
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError("gymnasium", "sim") from None
    versions = [spec.version or 0 for spec in gymnasium.registry.values() if spec.name == name]
    return gymnasium.make(f"{name}-v{max(versions)}", **kwargs).unwrapped
