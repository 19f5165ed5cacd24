"""Record episodes of a policy as a GIF or a video, from environments that can render."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clearance.core.atomic_files import write_whole
from clearance.core.errors import InputError, MissingExtraError
from clearance.simulator.gymnasium_envs import env_lanes

FRAMES = 10_000  # of one file, at most
SUFFIXES = (".gif", ".mp4")


def record_episodes(
    env: Any, policy: Any, path: str | os.PathLike[str], *, episodes: int = 1, seed: int = 0, most: int = 1000
) -> dict[str, Any]:
    """Record a policy in a Gymnasium environment with render_mode="rgb_array" as a GIF or a video.

    Return a dict with the number of frames, the frames per second, and the return and length of each episode.

    policy    a policy from `load_policy`, or a rule `observation -> action`
    path      .gif, or .mp4 (which needs the package moviepy)
    most      the largest number of steps of an episode
    """
    if Path(path).suffix not in SUFFIXES:
        raise InputError(f"{path}: give a name that ends with {' or '.join(SUFFIXES)}")
    if getattr(env, "render_mode", None) != "rgb_array":
        mode = getattr(env, "render_mode", None)
        raise InputError(f"the environment must be made with render_mode='rgb_array', its mode is {mode!r}")
    choose = _choose(env, policy)
    frames: list[Any] = []
    returns, lengths = [], []
    for episode in range(episodes):
        begin = getattr(policy, "reset", None)
        if begin is not None:
            begin()
        obs, _ = env.reset(seed=seed + episode)
        frames.append(_frame(env))
        total, t, over = 0.0, 0, False
        while not over and t < most and len(frames) < FRAMES:
            obs, reward, *_, terminated, truncated, _ = env.step(choose(obs))
            total, t, over = total + float(reward), t + 1, bool(terminated or truncated)
            frames.append(_frame(env))
        returns.append(total)
        lengths.append(t)
    fps = float(getattr(env, "metadata", {}).get("render_fps", 30) or 30)
    (_write_gif if Path(path).suffix == ".gif" else _write_video)(frames, path, fps)
    return {"frames": len(frames), "fps": fps, "returns": returns, "lengths": lengths}


def _choose(env: Any, policy: Any) -> Callable[[Any], Any]:
    """Return a function that maps an observation of the environment to an action.

    Policies of this library get encoded observations; a user's rule gets them as the environment returns them.
    """
    if not hasattr(policy, "act"):
        return policy
    encode, shape, _ = env_lanes.observation(env.observation_space)
    if tuple(policy.obs_shape) != tuple(shape):
        raise InputError(f"policy is for observations {policy.obs_shape}, the environment has {shape}")
    return lambda obs: policy.act(encode(obs))


def _frame(env: Any) -> Any:
    try:
        frame = np.asarray(env.render())
    except Exception as e:
        if not isinstance(e, ImportError) and type(e).__name__ != "DependencyNotInstalled":  # that of Gymnasium
            raise
        raise InputError(f"the environment cannot render: {e}") from None
    if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8:
        raise InputError(f"render must give an image [height, width, 3] of bytes, got {frame.dtype}{list(frame.shape)}")
    return frame


def _write_gif(frames: list[Any], path: Any, fps: float) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Pillow", "report") from None
    first, *rest = (Image.fromarray(frame) for frame in frames)
    with write_whole(path) as f:
        first.save(f, format="GIF", save_all=True, append_images=rest, duration=max(20, round(1000 / fps)), loop=0)


def _write_video(frames: list[Any], path: Any, fps: float) -> None:
    try:
        from moviepy import ImageSequenceClip  # type: ignore[import-not-found]
    except ImportError:
        raise InputError(f"{path}: .mp4 needs the package moviepy: install it, or write a .gif") from None
    clip = ImageSequenceClip(frames, fps=fps)
    clip.write_videofile(str(path), logger=None)
