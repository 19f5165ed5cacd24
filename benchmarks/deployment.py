"""Policies in an environment with NumPy alone: the same actions as in the library, start-up, and µs per action.

python benchmarks/deployment.py write FOLDER      with the library: policies of every class, and what they do
python benchmarks/deployment.py run FOLDER        in an environment with NumPy alone (pip install numpy, then
                                                  pip install --no-deps .): compares and measures
python benchmarks/deployment.py onnx FOLDER       in a process with onnxruntime: the exported files against `act`
python benchmarks/deployment.py sb3 FOLDER        in an environment with Stable-Baselines3 and moviepy
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

N, ACTIONS = 10_000, 100_000


def write(folder: Path) -> None:
    """Policies with random parameters, observations, noise, and the head's parameters as JAX computes them."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
    from deployed import HEADS, SHAPES, network_mixture, table_mixture

    import clearance as cl
    from clearance.deploy.policy_file import running
    from clearance.simulator.policies.network_policy import Normaliser

    (folder / "cartpole").mkdir(exist_ok=True)
    for name in HEADS:
        for M in (1, 3):
            mixture, rng = network_mixture(name, M), np.random.default_rng(4)
            slug = f"{name.replace(' ', '-')}-{M}"
            mixture.save(folder / f"{slug}.npz")
            obs = rng.normal(0, 2, (N, *SHAPES[name])).astype(np.float32)
            component = mixture.components(rng, N)
            z = mixture.normaliser(mixture.policy.flat(obs))
            outs = [compute(mixture.policy, theta, z) for theta in mixture.theta]
            out = np.stack(outs)[component, np.arange(N)]
            noise = mixture.policy.head.plain_noise(np.random.default_rng(5), N)
            action = mixture.policy.space.native_rows(
                np.asarray(mixture.policy.head.action(mixture.policy.head.latent(out, noise)))
            )
            np.savez(folder / f"{slug}-seen.npz", obs=obs, component=component, out=out, noise=noise, action=action)
            cl.export_policy(running(mixture), folder / f"{slug}.onnx")
    for M in (1, 4):
        mixture, rng = table_mixture(M), np.random.default_rng(4)
        mixture.save(folder / f"table-{M}.npz")
        cl.export_policy(running(mixture), folder / f"table-{M}.onnx")
        obs, component, u = rng.integers(0, 5, N), rng.choice(M, N, p=mixture.weights), rng.random(N)
        cdf = np.cumsum(mixture.pi[component, obs], -1)
        action = np.sum(cdf / cdf[:, -1:] <= u[:, None], -1)
        np.savez(folder / f"table-{M}-seen.npz", obs=obs, component=component, noise=u, action=action,
                 out=mixture.pi[component, obs])  # fmt: skip
    cart = cl.categorical((8,)).fitted((4,), cl.Discrete(2))
    theta, identity = np.random.default_rng(0).normal(0, 0.5, (2, cart.d)), Normaliser.identity(4)
    seen = cl.certify(cl.zoo.two_state(), cl.optimum(cl.zoo.two_state()))  # a certificate of something, to be carried
    cl.NetworkMixture(cart, np.full(2, 0.5), theta, identity).save(folder / "cartpole/policy.npz", seen)
    solution = cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=200), out=folder / "two-state")
    print(f"written: {2 * len(HEADS) + 2} policies, and {solution.certificate.verdict} two-state")


def compute(policy: Any, theta: Any, z: Any) -> Any:
    """The head's parameters [n, size], as JAX computes them."""
    import jax

    net = policy.net(theta)
    return np.asarray(jax.vmap(lambda x: policy.out(net, x))(z))


def run(folder: Path) -> None:
    began = time.perf_counter()
    import clearance as cl

    first = cl.load_policy(folder / "two-state/policy.npz", seed=0)
    first.reset()
    first.act(0)
    print(f"import and first action: {time.perf_counter() - began:.3f} s")
    heavy = {"jax", "gymnasium", "scipy", "numba", "rich", "onnx", "ray"} & set(sys.modules)
    print(f"other packages loaded: {sorted(heavy) or 'none'}")
    for path in sorted(p for p in folder.glob("*.npz") if not p.stem.endswith("-seen")):
        print(f"{path.stem:28s}", compare(cl.load_policy(path, seed=0), np.load(folder / f"{path.stem}-seen.npz")))


class Given:
    """Random numbers that were drawn before."""

    def __init__(self, noise: Any) -> None:
        self.noise = noise

    def gumbel(self, size: Any) -> Any:
        return self.noise

    def standard_normal(self, size: Any, dtype: Any) -> Any:
        return self.noise

    def random(self, n: int) -> Any:
        return self.noise


def compare(policy: Any, seen: Any) -> str:
    policy.components = seen["component"]
    action = policy.act(seen["obs"], rng=Given(seen["noise"]))
    if hasattr(policy, "pi"):
        apart = np.abs(policy.pi[seen["component"], seen["obs"]] - seen["out"]).max()
    else:
        apart = np.abs(policy._outputs(seen["component"], seen["obs"]) - seen["out"]).max()
    other = np.sum(np.any(np.reshape(action != seen["action"], (N, -1)), 1)) if action.dtype.kind == "i" else 0
    far = np.abs(action - seen["action"]).max()
    policy.reset()
    obs = [seen["obs"][i] for i in range(100)]
    obs = [int(x) for x in obs] if hasattr(policy, "pi") else obs
    began = time.perf_counter()
    for i in range(ACTIONS):
        policy.act(obs[i % 100])
    one = (time.perf_counter() - began) / ACTIONS * 1e6
    policy.reset(N)
    began = time.perf_counter()
    for _ in range(10):
        policy.act(seen["obs"])
    many = (time.perf_counter() - began) / 10 / N * 1e6
    what = f"{other} of {N} choices differ" if action.dtype.kind == "i" else f"actions to {far:.1e}"
    return f"parameters to {apart:.1e}, {what}; {one:.1f} µs per action, {many:.2f} in batches of {N}"


def onnx(folder: Path) -> None:
    import onnxruntime

    for path in sorted(folder.glob("*.onnx")):
        seen = np.load(folder / f"{path.stem}-seen.npz")
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        given = {i.name: seen[i.name] for i in session.get_inputs()}
        action: Any = session.run(["action"], given)[0]
        if action.dtype.kind == "i":
            said = f"{np.sum(np.any(np.reshape(action != seen['action'], (N, -1)), 1))} of {N} choices differ"
        else:
            said = f"actions to {np.abs(action - seen['action']).max():.1e}"
        print(f"{path.stem:28s} {said}")
    assert "clearance" not in sys.modules


def sb3(folder: Path) -> None:
    """`evaluate_policy` takes a policy of ours, and RecordVideo records a rollout of it."""
    import gymnasium
    from stable_baselines3.common.evaluation import evaluate_policy  # type: ignore[import-not-found]
    from stable_baselines3.common.monitor import Monitor  # type: ignore[import-not-found]

    import clearance as cl

    policy: Any = cl.load_policy(folder / "cartpole/policy.npz", seed=0)
    env = Monitor(gymnasium.make("CartPole-v1"))
    for deterministic in (False, True):
        mean, spread = evaluate_policy(policy, env, n_eval_episodes=20, deterministic=deterministic)
        print(f"evaluate_policy, deterministic={deterministic}: {mean:.1f} ± {spread:.1f}")
    films = gymnasium.wrappers.RecordVideo(
        gymnasium.make("CartPole-v1", render_mode="rgb_array"), str(folder / "video"), episode_trigger=lambda i: True
    )
    policy.reset()
    obs, _ = films.reset(seed=0)
    over = False
    while not over:
        obs, _, terminated, truncated, _ = films.step(policy.act(obs))
        over = terminated or truncated
    films.close()
    print("video:", [(p.name, p.stat().st_size) for p in sorted((folder / "video").glob("*.mp4"))])


if __name__ == "__main__":
    place = Path(sys.argv[2])
    place.mkdir(parents=True, exist_ok=True)
    {"write": write, "run": run, "onnx": onnx, "sb3": sb3}[sys.argv[1]](place)
