"""CartPole and Acrobot with the constraints of CRPO (Xu et al. 2021); the dynamics are those of Gymnasium."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearance.core.spaces import Discrete
from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.jax_envs.jax_environment import LANES, Environment, environment

ZONES = ((-2.4, -2.2), (-1.3, -1.1), (-0.1, 0.1), (1.1, 1.3), (2.2, 2.4))


def cartpole(limits: tuple[float, float] = (50.0, 50.0), horizon: int = 500, lanes: int = LANES) -> Environment:
    """Return CartPole, reward 1 per step, with two costs: the cart in one of five zones, and the pole beyond 6°.

    The zones are [−2.4, −2.2], [−1.3, −1.1], [−.1, .1], [1.1, 1.3] and [2.2, 2.4]. The first cost is 1 if the cart is
    in a zone after the step, the second if the pole is then beyond the angle. Each of the `limits` is on the number of
    such steps per episode of up to `horizon` steps, undiscounted. The episode ends when |x| > 2.4 or the angle exceeds
    12°. `lanes` is the number of parallel episodes.
    """
    zones = np.array(ZONES, np.float32)

    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        state = _cart(state, jnp.where(action == 1, 10.0, -10.0))
        x, angle = state[0], state[2]
        zone = jnp.any((x >= zones[:, 0]) & (x <= zones[:, 1]))
        tilt = jnp.abs(angle) > np.float32(6 * np.pi / 180)
        terminated = (jnp.abs(x) > 2.4) | (jnp.abs(angle) > np.float32(12 * np.pi / 180))
        return state, jnp.stack([jnp.ones(()), zone.astype(x.dtype), tilt.astype(x.dtype)]), terminated

    return environment(
        reset,
        step,
        lambda state: state,
        action=Discrete(2),
        gamma=1.0,
        limits=limits,
        horizon=horizon,
        names=["zones", "tilt"],
        bounds=([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
        name="cartpole",
        lanes=lanes,
    )


def _cart(state: Any, force: Any) -> Any:
    """Return the state after one Euler step of .02 s under a force.

    The cart has 1 kg, the pole .1 kg and half length .5 m (Barto, Sutton, Anderson 1983).
    """
    _, v, angle, w = state
    sin, cos = jnp.sin(angle), jnp.cos(angle)
    push = (force + 0.05 * w**2 * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    accelerate = push - 0.05 * turn * cos / 1.1
    return state + 0.02 * jnp.stack([v, accelerate, w, turn])


def acrobot(limits: tuple[float, float] = (50.0, 50.0), horizon: int = 500, lanes: int = LANES) -> Environment:
    """Return Acrobot, reward −1 per step until the double pendulum is above the line, with two costs.

    The first cost is 1 if a torque is applied while θ̇₁ < 0, the second if a torque is applied while θ̇₂ < 0, where the
    speeds are those before the step. The `limits` are on the sums of the costs per episode of up to `horizon` steps,
    undiscounted. `lanes` is the number of parallel episodes.
    """

    def reset(key: Any) -> Any:
        return jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)

    def step(key: Any, state: Any, action: Any) -> tuple[Any, Any, Any]:
        pushed = action != 1
        costs = [(pushed & (state[2 + i] < 0)).astype(state.dtype) for i in range(2)]
        state = _links(state, action.astype(state.dtype) - 1.0)
        above = -jnp.cos(state[0]) - jnp.cos(state[0] + state[1]) > 1.0
        return state, jnp.stack([jnp.where(above, 0.0, -1.0), *costs]), above

    def observe(state: Any) -> Any:
        a, b, v, w = state
        return jnp.stack([jnp.cos(a), jnp.sin(a), jnp.cos(b), jnp.sin(b), v, w])

    return environment(
        reset,
        step,
        observe,
        action=Discrete(3),
        gamma=1.0,
        limits=limits,
        horizon=horizon,
        names=["first", "second"],
        bounds=([-1.0, 0.0, 0.0], [0.0, 1.0, 1.0]),
        name="acrobot",
        lanes=lanes,
    )


def _links(state: Any, torque: Any) -> Any:
    """Return the state after one Runge–Kutta step of .2 s under a torque.

    Angles are wrapped to [−π, π], and the two speeds are clipped at 4π and 9π.
    """
    k1 = _swing(state, torque)
    k2 = _swing(state + 0.1 * k1, torque)
    k3 = _swing(state + 0.1 * k2, torque)
    k4 = _swing(state + 0.2 * k3, torque)
    new = state + 0.2 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles = (new[:2] + jnp.pi) % (2 * jnp.pi) - jnp.pi
    most = jnp.array([4 * jnp.pi, 9 * jnp.pi])
    return jnp.concatenate([angles, jnp.clip(new[2:], -most, most)])


def _swing(state: Any, torque: Any) -> Any:
    """Return the time derivatives of the state (two angles, two speeds) of two links under a torque.

    Each link has 1 kg, 1 m, its centre at .5 m and inertia 1; g = 9.8. The equations are those of the book by Sutton
    and Barto.
    """
    a, b, v, w = state
    cos, sin = jnp.cos(b), jnp.sin(b)
    d1 = 0.25 + (1 + 0.25 + cos) + 2.0
    d2 = 0.25 + 0.5 * cos + 1.0
    phi2 = 0.5 * 9.8 * jnp.cos(a + b - jnp.pi / 2)
    phi1 = -0.5 * w**2 * sin - w * v * sin + 1.5 * 9.8 * jnp.cos(a - jnp.pi / 2) + phi2
    turn2 = (torque + d2 / d1 * phi1 - 0.5 * v**2 * sin - phi2) / (0.25 + 1.0 - d2**2 / d1)
    turn1 = -(d2 * turn2 + phi1) / d1
    return jnp.stack([v, w, turn1, turn2])
