"""A transmitter that harvests energy, with limits on the delay and the loss of its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearance.finite.cmdp import CMDP
from clearance.finite.transition_rows import transitions

ARRIVALS = (0.5, 0.3, 0.2)


def harvesting(
    battery: int = 8,
    buffer: int = 8,
    *,
    queue: float = 3.0,
    lost: float = 0.01,
    arrivals: Sequence[float] = ARRIVALS,
    harvest: int = 2,
    change: float = 0.2,
) -> CMDP:
    """Return a sensor with a battery, solar power and a fading channel that should buy little energy.

    In the long run (criterion: average), the delay and the loss of its packets are limited.

    State (e, q, c, w), index ((e · (Q+1) + q) · 2 + c) · 2 + w: energy e = 0..B (B = `battery`, 8), packets q = 0..Q (Q
    = `buffer`, 8), channel c (0 bad, 1 good), weather w (0 dark, 1 sun). Action a = 0, 1, 2: send u = min(a, q)
    packets. This needs k u(u+1)/2 units of energy, with k = 1 in a good channel and 2 in a bad one. Energy that the
    battery lacks is bought from the grid. The sun brings `harvest` (2) units per step; c and w each change with
    probability `change` (.2).

        e' = min((e − need)⁺ + 2w, B),   q' = min(q − u + arrived, Q)
        r = −(need − e)⁺ (bought),   cost = (q, (q − u + arrived − Q)⁺),   limit = (queue, lost)

    0, 1 or 2 packets arrive with the probabilities `arrivals` (.5, .3, .2). By Little's law, a mean queue of 3 means a
    mean delay of about 3/.7 = 4.3 steps. Without the limit on loss, a policy could shorten the queue by losing packets.
    ρ is uniform.

    Observed (not a theorem here): the mean number of packets sent does not decrease with the queue, the battery or the
    channel.

    Source: the form is that of delay-limited transmission over a fading channel (Berry and Gallager 2002), with a
    harvesting node (Sharma et al. 2010) that can also use the grid. Both sources limit long-run means. The numbers are
    choices of this library.
    """
    return _sensor(battery, buffer, [queue, lost], arrivals, harvest, change, criterion="average")


def harvesting_discounted(
    battery: int = 8,
    buffer: int = 8,
    *,
    queue: float = 3.0,
    lost: float = 0.01,
    arrivals: Sequence[float] = ARRIVALS,
    harvest: int = 2,
    change: float = 0.2,
    gamma: float = 0.95,
) -> CMDP:
    """Return the sensor of `harvesting` with discounted sums: limit = (queue, lost) / (1−γ).

    The first steps, from the uniform start, count most. So the long-run means of queue and loss may differ.
    """
    limits = [queue / (1 - gamma), lost / (1 - gamma)]
    return _sensor(battery, buffer, limits, arrivals, harvest, change, gamma=gamma)


def _sensor(
    battery: int,
    buffer: int,
    limits: list[float],
    arrivals: Sequence[float],
    harvest: int,
    change: float,
    **criterion: Any,
) -> CMDP:
    p, size = np.asarray(arrivals, float), (battery + 1, buffer + 1, 2, 2)
    e, q, c, w, a, c2, w2, n = np.ogrid[: size[0], : size[1], :2, :2, :3, :2, :2, : len(p)]
    sent = np.minimum(a, q)
    need = (2 - c) * sent * (sent + 1) // 2
    e2, q2 = np.minimum(np.maximum(e - need, 0) + harvest * w, battery), np.minimum(q - sent + n, buffer)
    prob = np.where(c2 == c, 1 - change, change) * np.where(w2 == w, 1 - change, change) * p
    S = int(np.prod(size))
    P = transitions(S, 3, _index(size, e, q, c, w), a, _index(size, e2, q2, c2, w2), prob)
    bought, overflow = np.maximum(need - e, 0), np.maximum(q - sent + n - buffer, 0) @ p
    r, waiting, lose = (
        np.broadcast_to(x, (*size, 3)).reshape(S, 3)
        for x in (-1.0 * bought[..., 0, 0, 0], 1.0 * q[..., 0, 0, 0], overflow[..., 0, 0])
    )
    labels: Any = {"states": _state_names(size), "actions": ["send-0", "send-1", "send-2"], "names": ["queue", "lost"]}
    return CMDP(P, r, cost=[waiting, lose], limit=limits, **labels, **criterion)


def _state_names(size: tuple[int, ...]) -> list[str]:
    channel, weather = ("bad", "good"), ("dark", "sun")
    return [f"energy {e}, queue {q}, {channel[c]} channel, {weather[w]}" for e, q, c, w in np.ndindex(size)]


def _index(size: tuple[int, ...], e, q, c, w):
    return ((e * size[1] + q) * 2 + c) * 2 + w
