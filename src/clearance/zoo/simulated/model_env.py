"""A finite model as a Gymnasium environment with known exact values, to test code that samples environments."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.core.errors import MissingExtraError
from clearance.finite.cmdp import CMDP

try:
    import gymnasium
except ImportError:
    raise MissingExtraError("gymnasium", "sim") from None


class ModelEnv(gymnasium.Env):
    """A Gymnasium environment with the states 0..S−1 and actions 0..A−1 of a CMDP; `info["g"]` holds the utilities [I].

    There is no time limit. The episode terminates when a state is entered that is absorbing with zero signals; this
    does not change any value J.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, cmdp: CMDP) -> None:
        self.cmdp, self.s = cmdp, 0
        self.observation_space = gymnasium.spaces.Discrete(cmdp.S)
        self.action_space = gymnasium.spaces.Discrete(cmdp.A)
        rows = cmdp.rows.toarray() if cmdp.is_sparse else cmdp.rows
        self.cumulated, self.start = np.cumsum(rows, 1), np.cumsum(cmdp.rho)
        stays = rows.reshape(cmdp.S, cmdp.A, cmdp.S)[np.arange(cmdp.S), :, np.arange(cmdp.S)] == 1
        self.ends = (stays | ~cmdp.available).all(1) & ~np.any(cmdp.h, axis=(0, 2))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.s = self._draw(self.start)
        return self.s, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        h = self.cmdp.h[:, self.s, action]
        self.s = self._draw(self.cumulated[self.s * self.cmdp.A + int(action)])
        return self.s, float(h[0]), bool(self.ends[self.s]), False, {"g": h[1:]}

    def _draw(self, cumulated: Any) -> int:
        """Draw a state by inversion of cumulative probabilities [S], whose last entry may differ from 1 by rounding."""
        return min(
            int(np.searchsorted(cumulated, self.np_random.random() * cumulated[-1], side="right")), self.cmdp.S - 1
        )
