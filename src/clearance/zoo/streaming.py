"""A media player whose buffer is filled by a fast or a slow server."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.finite.cmdp import CMDP
from clearance.finite.transition_rows import number_names, start_at, transitions


def streaming(
    buffer: int = 9,
    *,
    fast_share: float = 0.5,
    fast: float = 0.9,
    slow: float = 0.1,
    playback: float = 0.8,
) -> CMDP:
    """Return a media player that should stall rarely (criterion: average).

    Its buffer is filled by an expensive fast server or a cheap slow one. State: the number of packets in the buffer, x
    = 0..N (N = `buffer`, 9). Action: 0 slow, 1 fast. In each step a packet arrives with probability `slow` (.1) or
    `fast` (.9) and, independently, one is played with probability `playback` (.8): x' = min(max(x + arrived − played,
    0), N).

        r = −1{x = 0} (a stall),   cost = 1{fast},   limit = fast_share (of the time)

    The buffer is empty at the start.

    Known: in the long run, a policy is optimal if it is slow at an empty buffer, is fast for the share `fast_share` of
    the time, and never has a full buffer. On average .5 packets per step arrive and .8 could be played. So the buffer
    is empty for the share (1 − .5/.8)/.9 of the time, apart from the rare packets that a full buffer loses.

    Source: Bura et al. 2022 (DOPE), with the same rule at both ends of the buffer and the same limit (fast for half of
    the time), but over a finite horizon.
    """
    return _player(buffer, fast, slow, playback, fast_share, criterion="average")


def streaming_discounted(
    buffer: int = 9,
    *,
    fast_share: float = 0.5,
    fast: float = 0.9,
    slow: float = 0.1,
    playback: float = 0.8,
    gamma: float = 0.95,
) -> CMDP:
    """Return the player of `streaming` with discounted sums: limit = fast_share / (1−γ).

    The first steps, from an empty buffer, count most. So in the long run the best policy is fast more often than
    `fast_share`.

    Known: the optimum is fast in a band of buffer levels, slow above it, and randomised in at most one state. The band
    need not include 0, because a packet that arrives at an empty buffer is usually played at once. The fast server
    raises an empty buffer with probability .18 only, but keeps a buffer of one packet from becoming empty with
    probability .92.
    """
    return _player(buffer, fast, slow, playback, fast_share / (1 - gamma), gamma=gamma)


def _player(buffer: int, fast: float, slow: float, playback: float, limit: float, **criterion: Any) -> CMDP:
    S, rate = buffer + 1, np.array([slow, fast])[:, None, None]
    x, a, arrived, played = np.ogrid[:S, :2, :2, :2]
    prob = np.where(arrived, rate, 1 - rate) * np.where(played, playback, 1 - playback)
    P = transitions(S, 2, x, a, np.clip(x + arrived - played, 0, buffer), prob)
    r, cost = np.broadcast_arrays(-1.0 * (x == 0)[:, :, 0, 0], 1.0 * a[:, :, 0, 0])
    labels: Any = {"states": number_names("buffer", S), "actions": ["slow", "fast"], "names": ["fast"]}
    return CMDP(P, r, rho=start_at(S, 0), cost=cost, limit=limit, **labels, **criterion)
