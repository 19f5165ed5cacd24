"""Tasks on Gymnasium's own environments: robots with a speed limit, and CRPO's CartPole and Acrobot.

They do not need Safety-Gymnasium. Signals are per step; limits are per episode and undiscounted:

    maximise E Σ_{t<H} r_t   subject to   E Σ_{t<H} cost_i,t ≤ limit_i
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clearance.core.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from clearance.simulator.gymnasium_envs.gymnasium_problem import Gym


class Robot(NamedTuple):
    """A robot's Gymnasium id, and the speed (`threshold`) above which a step costs 1.

    If `planar`, the speed is that in the plane, else that along x.
    """

    id: str
    threshold: float
    planar: bool = False


# The thresholds of Safety-Gymnasium's velocity tasks (Ji et al. 2023): half the speed of an unconstrained agent.
ROBOTS = {
    "ant": Robot("Ant-v5", 2.6222, planar=True),
    "half-cheetah": Robot("HalfCheetah-v5", 3.2096),
    "hopper": Robot("Hopper-v5", 0.7402),
    "humanoid": Robot("Humanoid-v5", 1.4149, planar=True),
    "swimmer": Robot("Swimmer-v5", 0.2282),
    "walker2d": Robot("Walker2d-v5", 2.3415),
}

ZONES = np.array([[-2.4, -2.2], [-1.3, -1.1], [-0.1, 0.1], [1.1, 1.3], [2.2, 2.4]], np.float32)
TILT = np.float32(6 * np.pi / 180)
STILL = 1  # Acrobot's action without torque


def velocity(robot: str, *, limit: float = 25.0, horizon: int = 1000, num_envs: int = 8, processes: int = 0) -> Gym:
    """Return the task of running with a speed limit: on average, at most `limit` of `horizon` steps may be too fast.

    robot      ant, half-cheetah, hopper, humanoid, swimmer or walker2d; each has its own speed threshold
    num_envs   number of environments that run in parallel
    processes  number of side processes that run the environments; 0 runs all of them in this process
    """
    from clearance.simulator.gymnasium_envs.env_client import SideProcess
    from clearance.simulator.gymnasium_envs.gymnasium_problem import gymnasium

    task = _robot(robot)
    if processes:
        far = SideProcess("clearance.zoo.robots:robot_env", robot, processes=processes)
        env, f = far, None
    else:
        env, f = task.id, too_fast(task.threshold, planar=task.planar)
    with _quiet():
        return gymnasium(env, constraints=f, limits={"speed": limit}, horizon=horizon, num_envs=num_envs,
                         bounds=(0.0, 1.0), name=f"velocity-{robot}")  # fmt: skip


def too_fast(threshold: float, *, planar: bool = False) -> Callable[[Any, Any, Any, Any], float]:
    """Return a cost function that is 1 for a step faster than the threshold, else 0.

    If `planar`, the speed is that in the plane, else that along x.
    """

    def cost(obs: Any, action: Any, after: Any, info: Any) -> float:
        speed = info["x_velocity"]
        if planar:
            speed = np.hypot(speed, info["y_velocity"])
        return 1.0 if speed > threshold else 0.0

    return cost


def robot_env(robot: str) -> Any:
    """Return the robot's environment with `info["cost"]` = {"speed": 0 or 1}, for other libraries or processes."""
    import gymnasium

    task = _robot(robot)
    cost = too_fast(task.threshold, planar=task.planar)

    class Costly(gymnasium.Wrapper):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, info = self.env.step(action)
            info["cost"] = {"speed": cost(None, action, obs, info)}
            return obs, reward, terminated, truncated, info

    with _quiet():
        return Costly(gymnasium.make(task.id, disable_env_checker=True))


def crpo_cartpole(*, limits: tuple[float, float] = (50.0, 50.0), horizon: int = 500, num_envs: int = 8) -> Gym:
    """Return CartPole with two costs: the cart in one of five zones, and the pole beyond 6° (Xu et al. 2021).

    The zones are [−2.4, −2.2], [−1.3, −1.1], [−.1, .1], [1.1, 1.3] and [2.2, 2.4]. The first cost is 1 if the cart is
    in a zone after the step, the second if the pole is then beyond the angle. Each limit is on the number of such steps
    in an episode of `horizon` steps; the values of 50 in 500 steps are a choice of this library. `num_envs` is the
    number of environments that run in parallel.
    """
    from clearance.simulator.gymnasium_envs.gymnasium_problem import gymnasium

    def zones(obs: Any, action: Any, after: Any, info: Any) -> float:
        return float(np.any((after[0] >= ZONES[:, 0]) & (after[0] <= ZONES[:, 1])))

    def tilt(obs: Any, action: Any, after: Any, info: Any) -> float:
        return float(abs(after[2]) > TILT)

    f = {"zones": zones, "tilt": tilt}
    return gymnasium("CartPole-v1", constraints=f, limits=limits, horizon=horizon, num_envs=num_envs,
                     bounds=([0.0] * 3, [1.0] * 3), name="crpo-cartpole")  # fmt: skip


def crpo_acrobot(*, limits: tuple[float, float] = (50.0, 50.0), horizon: int = 500, num_envs: int = 8) -> Gym:
    """Return Acrobot with two costs (Xu et al. 2021).

    The first cost is 1 if a torque is applied while θ̇₁ < 0, the second if a torque is applied while θ̇₂ < 0. The
    limits are on the sums of the costs in an episode of `horizon` steps. `num_envs` is the number of environments that
    run in parallel.
    """
    from clearance.simulator.gymnasium_envs.gymnasium_problem import gymnasium

    def torque(joint: int) -> Callable[[Any, Any, Any, Any], float]:
        return lambda obs, action, after, info: float(action != STILL and obs[4 + joint] < 0)

    f = {"first": torque(0), "second": torque(1)}
    return gymnasium("Acrobot-v1", constraints=f, limits=limits, horizon=horizon, num_envs=num_envs,
                     bounds=([-1.0, 0.0, 0.0], [0.0, 1.0, 1.0]), name="crpo-acrobot")  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress a MuJoCo 4 warning about models that belong to Gymnasium and cannot be corrected here."""
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ImportError:
        raise MissingExtraError("mujoco", "sim") from None
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _robot(robot: str) -> Robot:
    if robot not in ROBOTS:
        raise InputError(f"robot must be one of {', '.join(ROBOTS)}, got {robot!r}")
    return ROBOTS[robot]
