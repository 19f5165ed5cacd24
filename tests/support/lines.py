"""A walk on a line that renders: a fast Gymnasium environment whose episodes are known by hand."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Line(gymnasium.Env):
    """Positions 0..9 from 0, actions stay or go: reward 1 and cost 1 per step forwards, the end after position 9."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    observation_space = gymnasium.spaces.Box(0.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = "rgb_array") -> None:
        self.render_mode, self.at = render_mode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at = 0
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.at += int(action)
        return (
            self._obs(),
            float(action),
            self.at >= 10,
            False,
            {"cost": float(action), "toll": {"road": float(action)}},
        )

    def render(self) -> Any:
        image = np.zeros((16, 40, 3), np.uint8)
        image[:, 4 * min(self.at, 9) : 4 * min(self.at, 9) + 4] = 255
        return image

    def _obs(self) -> Any:
        return np.array([self.at], np.float32)


def go(obs: Any) -> int:
    return 1


def silent() -> Line:
    return Line(render_mode=None)
