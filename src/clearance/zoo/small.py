"""Small models: two states solved by hand, and a controlled queue."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.finite.cmdp import CMDP
from clearance.finite.transition_rows import number_names


def two_state() -> CMDP:
    """Return a model with two states, solved by hand.

    State 0 ("work"): action 0 (risky) has reward 1 and utility 0, and action 1 (safe) has reward 0 and utility 1. State
    1 ("rest"): both actions have reward 0 and utility 1/2. Every action leads to the other state. The start is state 0,
    γ = 1/2, and the limit is J_g ≥ 1.

    Under every policy, the occupancy of state 0 is (1−γ)/(1−γ²) = 2/3, that of state 1 is 1/3. With p = π(risky | 0):
    J_r = 2 · (2/3) p = 4p/3,  J_g = 2 · ((2/3)(1−p) + (1/3)(1/2)) = 5/3 − 4p/3 ≥ 1  ⇔  p ≤ 1/2.
    So J_r* = 2/3 at p = 1/2, λ* = 1 (reward and utility trade one for one), and the Slater margin is 5/3 − 1 = 2/3.
    """
    P = np.zeros((2, 2, 2))
    P[0, :, 1] = P[1, :, 0] = 1.0
    r = [[1.0, 0.0], [0.0, 0.0]]
    g = [[[0.0, 1.0], [0.5, 0.5]]]
    labels: Any = {"states": ["work", "rest"], "actions": ["risky", "safe"], "names": ["utility"]}
    return CMDP(P, r, g, 1.0, rho=[1.0, 0.0], gamma=0.5, **labels)


def altman_queue() -> CMDP:
    """Return a single-server queue with service and flow control (Altman 1999, ch. 5; criterion: average).

    State: s = 0..4 customers. Action: a service probability a ∈ {.2, .4, .6, .8} and a flow (arrival) probability f ∈
    {.4, .5, .6, .7}; the action has the index 4·i_a + i_f. The queue grows by one with probability f(1−a), and shrinks
    by one with probability a(1−f). With 4 customers it can only shrink, with probability a; with 0 it can only grow.
    The reward is r = 5 − s. The utilities are g₁ = 3 − 10a (service is costly) and g₂ = 1.2 − 8(f−1)² (turning
    customers away is costly). b = 0, and ρ is uniform. The numbers are those of the CSPDA code.
    """
    return _controlled_queue(criterion="average")


def altman_queue_discounted() -> CMDP:
    """Return the queue of `altman_queue` with discounted sums, γ = 1/2, as the CSPDA code states it."""
    return _controlled_queue(gamma=0.5)


def _controlled_queue(**criterion: Any) -> CMDP:
    service, flow = np.repeat([0.2, 0.4, 0.6, 0.8], 4), np.tile([0.4, 0.5, 0.6, 0.7], 4)
    S, A = 5, 16
    P = np.zeros((S, A, S))
    for s in range(S):
        up = flow * (1 - service) if s < S - 1 else np.zeros(A)
        down = np.zeros(A) if s == 0 else service if s == S - 1 else service * (1 - flow)
        if s < S - 1:
            P[s, :, s + 1] = up
        if s > 0:
            P[s, :, s - 1] = down
        P[s, :, s] = 1 - up - down
    r = np.broadcast_to(5.0 - np.arange(S)[:, None], (S, A))
    g = np.stack([np.broadcast_to(3 - 10 * service, (S, A)), np.broadcast_to(1.2 - 8 * (flow - 1) ** 2, (S, A))])
    actions = [f"service-{a:g}-flow-{f:g}" for a, f in zip(service, flow, strict=True)]
    return CMDP(P, r, g, 0.0, names=["service", "flow"], states=number_names("queue", S), actions=actions, **criterion)
