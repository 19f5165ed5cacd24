"""A transmitter that harvests its energy and must not let its data wait."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearance.problem import CMDP
from clearance.zoo.rows import transitions

ARRIVALS = (0.5, 0.3, 0.2)


def harvesting(
    battery: int = 8,
    buffer: int = 8,
    *,
    queue: float = 2.0,
    arrivals: Sequence[float] = ARRIVALS,
    harvest: int = 2,
    change: float = 0.2,
    gamma: float = 0.95,
) -> CMDP:
    """A sensor with a battery, a sun and a fading channel: buy as little energy as possible, but let data not wait.

    State (e, q, c, w), index ((e · (Q+1) + q) · 2 + c) · 2 + w: energy e = 0..B (B = `battery`, 8), packets
    q = 0..Q (Q = `buffer`, 8), channel c (0 bad, 1 good), weather w (0 dark, 1 sun). Action: packets to send,
    u = min(a, q) for a = 0, 1, 2. Sending u needs k u(u+1)/2 units of energy, k = 1 in a good channel and 2 in a bad
    one; what the battery lacks is bought from the grid.

        e' = min((e − need)⁺ + 2w, B),   q' = min(q − u + arrived, Q);   c and w each change with probability .2
        r = −(need − e)⁺ (bought),   cost = q,   limit = queue / (1−γ)

    0, 1 or 2 packets arrive with probability (.5, .3, .2); by Little's law a mean queue is a mean delay times the
    arrival rate. ρ uniform.

    Known (observed, not a theorem here): the mean number sent does not decrease with the queue, nor with the battery.

    Source: the form is that of delay-limited transmission over a fading channel (Berry and Gallager 2002) with a
    harvesting node (Sharma et al. 2010) that has the grid behind it. The numbers are this library's.
    """
    p, size = np.asarray(arrivals, float), (battery + 1, buffer + 1, 2, 2)
    e, q, c, w, a, c2, w2, n = np.ogrid[: size[0], : size[1], :2, :2, :3, :2, :2, : len(p)]
    sent = np.minimum(a, q)
    need = (2 - c) * sent * (sent + 1) // 2
    e2, q2 = np.minimum(np.maximum(e - need, 0) + harvest * w, battery), np.minimum(q - sent + n, buffer)
    prob = np.where(c2 == c, 1 - change, change) * np.where(w2 == w, 1 - change, change) * p
    S = int(np.prod(size))
    P = transitions(S, 3, _index(size, e, q, c, w), a, _index(size, e2, q2, c2, w2), prob)
    bought, waiting = (np.broadcast_to(x[..., 0, 0, 0], (*size, 3)) for x in (np.maximum(need - e, 0), q))
    r, cost = -1.0 * bought.reshape(S, 3), 1.0 * waiting.reshape(S, 3)
    return CMDP(P, r, gamma=gamma, cost=cost, limit=queue / (1 - gamma), names=["queue"])


def _index(size: tuple[int, ...], e, q, c, w):
    return ((e * size[1] + q) * 2 + c) * 2 + w
