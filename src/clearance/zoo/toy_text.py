"""Models from Gymnasium's own transition tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.errors import InputError, MissingExtraError
from clearance.problem import CMDP


def frozen_lake(size: int = 4, *, budget: float = 0.1, gamma: float = 0.99) -> CMDP:
    """FrozenLake (4×4 or 8×8, slippery) with a budget on falling into holes: E Σγ^t 1{enter a hole at t} ≤ budget.

    Reward 1 for entering the goal; holes and goal are absorbing with zero signals; the start is state 0.
    """
    if size not in (4, 8):
        raise InputError(f"size must be 4 or 8, got {size!r}")
    env = _make("FrozenLake-v1", map_name=f"{size}x{size}", is_slippery=True)
    holes = (env.desc.ravel() == b"H").astype(float)
    P, r, rho = gymnasium_table(env)
    cost = np.einsum("sat,t->sa", P, holes) * (1 - holes)[:, None]  # a hole is entered once
    return CMDP(P, r, rho=rho, gamma=gamma, cost=cost, limit=budget, names=["holes"])


def gymnasium_table(env: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """P [S, A, S], r [S, A] and ρ [S] of an environment with a table `P[s][a] = [(prob, next, reward, terminated), …]`.

    States in which an episode ends are absorbing with zero reward.
    """
    table = getattr(env, "P", None)
    if not isinstance(table, dict):
        raise InputError("the environment has no transition table: `env.unwrapped.P` is what FrozenLake, Taxi, … have")
    S, A = len(table), len(table[0])
    P, r, over = np.zeros((S, A, S)), np.zeros((S, A)), np.zeros(S, bool)
    for s in range(S):
        for a in range(A):
            for prob, s_next, reward, terminated in table[s][a]:
                P[s, a, s_next] += prob
                r[s, a] += prob * float(reward)
                over[s_next] |= bool(terminated)
    ends = np.flatnonzero(over)
    P[ends], r[ends] = 0.0, 0.0
    P[ends, :, ends] = 1.0
    rho = getattr(env, "initial_state_distrib", None)
    return P, r, np.full(S, 1 / S) if rho is None else np.asarray(rho, float)


def _make(env_id: str, **kwargs: Any) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError("gymnasium", "sim") from None
    return gymnasium.make(env_id, **kwargs).unwrapped
