"""Queue models: service rates under a power budget, and admission control under a holding cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearance.finite.cmdp import CMDP
from clearance.finite.transition_rows import number_names, start_at, transitions

RATES = (0.2, 0.4, 0.6, 0.8)


def queue_power(
    buffer: int = 50,
    *,
    power: float = 0.1,
    arrival: float = 0.2,
    rates: Sequence[float] = RATES,
    gamma: float = 0.98,
) -> CMDP:
    """Return a queue whose server needs more power at higher speed: keep it short within a (discounted) power budget.

    State: the number of customers x = 0..L (L = `buffer`, 50). Action: a service probability q from `rates` (.2, .4,
    .6, .8). In each step there is at most one event, since p + q ≤ 1: a customer arrives with probability p = `arrival`
    (.2), and is lost if x = L; or, if x > 0, a customer leaves with probability q.

        r = −x,   cost = q³,   limit = power / (1−γ):  (1−γ) E Σγ^t q_t³ ≤ power

    The server also draws power when the queue is empty. The number of customers at the start is x with probability ∝
    .9^x.

    Known: for a fixed price λ of power, the best rate does not decrease with x. So the constrained optimum is a
    staircase in x, randomised in at most one state. (At a full buffer the rate may differ: there, an arriving customer
    is lost, which keeps the queue from growing at no cost.)

    Source: de Farias and Van Roy 2003, where the price is given, r = −x − 60 q³, and the buffer is 49,999. The budget,
    L = 50 and the start are choices of this library.
    """
    q, S = np.asarray(rates, float), buffer + 1
    x, a = np.ogrid[:S, : len(q)]
    up, down = arrival * (x < buffer), q * (x > 0)
    moves = [(np.minimum(x + 1, buffer), up + 0 * q), (np.maximum(x - 1, 0), down), (x, 1 - up - down)]
    s_next, prob = (np.stack(np.broadcast_arrays(*part)) for part in zip(*moves, strict=True))
    P = transitions(S, len(q), x, a, s_next, prob)
    r, cost = np.broadcast_arrays(-1.0 * x, q**3)
    rho = 0.9 ** np.arange(S)
    labels: Any = {"states": number_names("queue", S), "actions": [f"rate-{x:g}" for x in q], "names": ["power"]}
    return CMDP(P, r, rho=rho / rho.sum(), gamma=gamma, cost=cost, limit=power / (1 - gamma), **labels)


def lazar(buffer: int = 20, *, holding: float = 3.0, arrival: float = 0.7, service: float = 0.6) -> CMDP:
    """Return a queue with admission control: the largest throughput with a short mean queue (criterion: average).

    State: the number of customers x = 0..L (L = `buffer`, 20). Action: 0 refuse, 1 admit. In each step two independent
    events are possible: a customer arrives with probability p = .7, and joins if admitted and x < L; and, if x > 0, a
    customer is served and leaves with probability μ = .6.

        r = p 1{admit, x < L} (customers admitted),   cost = x,   limit = holding

    The queue is empty at the start.

    Known: there is one threshold; the optimum admits below it, refuses above it, and is randomised at most at the
    threshold itself. If admitting everybody would break the limit, the optimum meets the limit with equality.

    Source: Lazar 1983 (continuous time, networks); Ma 1988 (thesis with Makowski) for discrete time, with a proof by
    Lagrangian arguments from the discounted problem. The numbers are choices of this library.
    """
    return _flow_control(buffer, arrival, service, holding, criterion="average")


def lazar_discounted(
    buffer: int = 20, *, holding: float = 3.0, arrival: float = 0.7, service: float = 0.6, gamma: float = 0.98
) -> CMDP:
    """Return the queue of `lazar`, with the same arguments, but with discounted sums: limit = holding / (1−γ).

    The queue is empty at the start, and the first steps count most. So in the long run, the mean queue may be longer
    than `holding`.
    """
    return _flow_control(buffer, arrival, service, holding / (1 - gamma), gamma=gamma)


def _flow_control(buffer: int, arrival: float, service: float, limit: float, **criterion: Any) -> CMDP:
    S = buffer + 1
    x, a, came, served = np.ogrid[:S, :2, :2, :2]
    joins = came * a * (x < buffer)
    prob = np.where(came, arrival, 1 - arrival) * np.where(served, service, 1 - service)
    P = transitions(S, 2, x, a, x + joins - served * (x > 0), prob)
    r, cost = np.broadcast_arrays(arrival * (a * (x < buffer))[:, :, 0, 0], 1.0 * x[:, :, 0, 0])
    labels: Any = {"states": number_names("queue", S), "actions": ["refuse", "admit"], "names": ["holding"]}
    return CMDP(P, r, rho=start_at(S, 0), cost=cost, limit=limit, **labels, **criterion)
