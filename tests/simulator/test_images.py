"""Images: convolutions in JAX and NumPy, Fisher products against finite differences, stacked frames, other spaces."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import clearance as cl
from clearance.core.convolution import choose_layers, find_image
from clearance.core.spaces import Box, Discrete
from clearance.simulator.policies.network_policy import Normaliser, categorical, gaussian
from clearance.simulator.policies.network_score import NetworkRows, NetworkScore

IMAGE = (8, 9, 2)


@pytest.fixture(params=["categorical", "gaussian"])
def policy(request: pytest.FixtureRequest) -> Any:
    if request.param == "categorical":
        return categorical((5,), conv=((3, 3, 2),)).fitted(IMAGE, Discrete(3))
    return gaussian((5,), conv=((3, 3, 2), (2, 2, 1))).fitted(IMAGE, Box(-np.ones(2), np.ones(2)))


def random_rows(policy: Any, n: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, policy.inputs)).astype("f"), policy.init() + rng.normal(0, 0.3, policy.d)


def test_numpy_and_jax_agree(policy: Any) -> None:
    z, theta = random_rows(policy, 7)
    ours = policy.plain(theta, Normaliser.identity(policy.inputs))(z.reshape(7, *IMAGE))
    theirs = jax.vmap(lambda x: policy.out(policy.net(theta), x))(z)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_fisher_products_are_those_of_finite_differences(policy: Any) -> None:
    """F = Σ_n w_n J_nᵀ M_n J_n with J by central differences of the outputs, in float64."""
    with jax.enable_x64(True):
        z, theta = random_rows(policy, 6)
        z, weight = z.astype(float), np.arange(1.0, 7.0)
        out = policy.plain(theta, Normaliser.identity(policy.inputs), float)
        h, J = 1e-6, np.empty((6, policy.head.size, policy.d))
        for i in range(policy.d):
            step = h * np.eye(policy.d)[i]
            up, down = (policy.plain(theta + s, Normaliser.identity(policy.inputs), float) for s in (step, -step))
            J[:, :, i] = (np.asarray(up(z.reshape(6, *IMAGE))) - down(z.reshape(6, *IMAGE))) / (2 * h)
        v = np.random.default_rng(1).normal(size=policy.d)
        rows = NetworkRows(policy, jax.numpy.asarray(theta), z, weight)
        outs = np.asarray(out(z.reshape(6, *IMAGE)))
        M = [
            np.asarray(policy.head.fisher(jax.numpy.asarray(o), jax.numpy.asarray(j @ v)))
            for o, j in zip(outs, J, strict=True)
        ]
        F = sum(w * j.T @ m for w, j, m in zip(weight / weight.sum(), J, M, strict=True))
        np.testing.assert_allclose(rows.fisher(v), F, rtol=2e-4, atol=2e-6)


def test_scores_are_those_of_automatic_differentiation(policy: Any) -> None:
    with jax.enable_x64(True):
        z, theta = random_rows(policy, 5)
        head = policy.head
        u = head.latent(jax.vmap(lambda x: policy.out(policy.net(theta), x))(z), head.noise(jax.random.key(0), (5,)))
        score = NetworkScore(policy, theta, z, u, np.full(5, 0.2))
        A = np.arange(5.0)
        np.testing.assert_allclose(score.gradient(A), score.toarray().T @ (0.2 * A), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shape, pixels, layers", [
    ((64, 64, 3), (64, 64, 3), 2), ((4, 20, 20), (20, 20, 4), 2), ((4, 9, 10, 3), (9, 10, 12), 2),
    ((7, 7, 3), (7, 7, 3), 0),
])  # fmt: skip
def test_what_an_image_is(shape: Any, pixels: Any, layers: int) -> None:
    assert find_image(shape).pixels == pixels and len(choose_layers(shape)) == layers
    assert choose_layers((5,)) == choose_layers((4, 6)) == ()


class Spot(gymnasium.Env):
    """A bright spot in one of two halves of an image; naming the half earns 1, naming the right half costs 1.

    still  whether one image shows it; else the spot moves by one column to the left or right, and two images do
    """

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, still: bool = True) -> None:
        self.still, self.half = still, 0
        self.observation_space = gymnasium.spaces.Box(0, 255, (8, 8, 1), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.column = 4
        return self._draw(), {}

    def step(self, action: Any) -> Any:
        right = float(action == self.half)
        return self._draw(), right, False, False, {"cost": float(action == 1)}

    def _draw(self) -> Any:
        self.half, image = int(self.np_random.integers(2)), np.zeros((8, 8, 1), np.uint8)
        if self.still:
            self.column = int(self.np_random.integers(4)) + 4 * self.half
        else:
            self.column = (self.column + (1 if self.half else -1)) % 8
        image[int(self.np_random.integers(8)), :] = 0
        image[:, self.column] = 255
        return image


@pytest.mark.slow
@pytest.mark.parametrize("still", [True, False])
def test_a_task_on_images_is_learned_and_certified(still: bool) -> None:
    """Chance earns 5 of 10. Seen half by half, 10 is possible at cost 5; the limit of 4 leaves at most 9 on average.

    A moving spot cannot be read from one image: without stacked frames nothing beyond chance could be learned.
    """
    frames = None if still else 2
    how: dict[str, Any] = {"limits": 4.0, "horizon": 10, "bounds": (0.0, 1.0), "num_envs": 8, "frames": frames}
    with cl.gymnasium(lambda: Spot(still), **how) as problem:
        assert problem.obs_shape == ((8, 8, 1) if still else (2, 8, 8, 1))
        found = cl.solve(
            problem, cl.PracticalCNPGPD(K=80, N=480), policy=cl.categorical((16,)), budget=80_000, delta=0.05
        )
        assert found.policy.policy.front is not None and found.certificate.verdict == "CERTIFIED"
        assert found.certificate.J_r > 6.5
        fresh = cl.evaluate(problem, found, episodes=400, seed=5)
        assert fresh.mean[1] < 4.0 + 6 * 1.6 / 20


class Whole(gymnasium.Env):
    """Actions of an integer box, observations of a MultiBinary; remembers the action."""

    action_space = gymnasium.spaces.Box(-1, 2, (2,), np.int32)
    observation_space = gymnasium.spaces.MultiBinary(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(3, np.int8), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return np.ones(3, np.int8), float(action.sum()), False, False, {"cost": float(abs(action[0]))}


def test_integer_boxes_and_binary_observations() -> None:
    with cl.gymnasium(Whole, limits=9.0, horizon=5, num_envs=2, bounds=(0.0, 2.0)) as problem:
        assert problem.action.shape == (2,) and problem.obs_shape == (3,)
        found = cl.solve(problem, cl.PracticalCNPGPD(K=3, N=40), policy=cl.categorical((4,)), budget=4000)
        seen = {tuple(found.policy.reset(np.random.default_rng(i)).act(np.zeros(3)).tolist()) for i in range(40)}
        assert seen <= {(a, b) for a in range(-1, 3) for b in range(-1, 3)} and len(seen) > 3


@pytest.mark.parametrize("space", [
    gymnasium.spaces.Dict(a=gymnasium.spaces.Discrete(2)), gymnasium.spaces.Box(0, 2**20, (2,), np.int64),
])  # fmt: skip
def test_what_is_not_supported_is_one_line(space: Any) -> None:
    class Odd(Whole):
        action_space = space

    with pytest.raises(cl.InputError, match="action space") as e:
        cl.gymnasium(Odd, limits=1.0, horizon=5)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("call, said", [
    (lambda: categorical((4,), conv=((4, 9, 1),)).fitted(IMAGE, Discrete(2)).d, "does not fit images"),
    (lambda: categorical((4,), conv=((4, 3, 1),)).fitted((5,), Discrete(2)).d, "conv is for images"),
    (lambda: categorical((4,), conv=((4, 0, 1),)), "at least 1"), (lambda: categorical(conv="a"), "layers"),  # type: ignore[arg-type]
    (lambda: cl.gymnasium(Spot, limits=1.0, horizon=5, frames=1), "frames must be a whole number"),
])  # fmt: skip
def test_wrong_convolutions_and_frames(call: Any, said: str) -> None:
    with pytest.raises(cl.InputError, match=said):
        call()
