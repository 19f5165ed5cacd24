"""Policies in an environment with NumPy alone: the same actions as in the library, start-up, and µs per action.

python benchmarks/deployment.py write FOLDER      with the library: policies of every class, and what they do
python benchmarks/deployment.py run FOLDER        in an environment with NumPy alone (pip install numpy, then
                                                  pip install --no-deps .): compares, and measures processor time
python benchmarks/deployment.py onnx FOLDER       in a process with onnxruntime: the exported files against `act`
python benchmarks/deployment.py sb3 FOLDER        in an environment with Stable-Baselines3 and moviepy
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

N, ACTIONS = 10_000, 100_000
FIRST = """import sys, time; began = time.process_time(); import clearance
policy = clearance.load_policy(sys.argv[1]); policy.reset(); policy.act(0); print(time.process_time() - began)"""


def write(folder: Path) -> None:
    """Policies of every class with random parameters, and what the library does with them."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
    from deployed import HEADS, network_mixture, table_mixture, timed_mixture

    import clearance as cl

    (folder / "cartpole").mkdir(exist_ok=True)
    for name in HEADS:
        for M in (1, 3):
            write_network(folder, f"{name.replace(' ', '-')}-{M}", network_mixture(name, M))
    write_memory(folder)
    write_rule(folder)
    for M in (1, 4):
        write_table(folder, f"table-{M}", table_mixture(M))
        write_table(folder, f"table-by-step-{M}", timed_mixture(M))
    for name, mixture in tables_of_classes().items():
        write_table(folder, name, mixture)
    write_network(folder, "linear-regulator", linear_regulator())
    cart = cl.categorical((8,)).fitted((4,), cl.Discrete(2))
    theta = np.random.default_rng(0).normal(0, 0.5, (2, cart.d))
    seen = cl.certify(cl.zoo.two_state(), cl.optimum(cl.zoo.two_state()))  # a certificate of something, to be carried
    from clearance.simulator.policies.network_policy import Normaliser

    mixture = cl.NetworkMixture(cart, np.full(2, 0.5), theta, Normaliser.identity(4))
    mixture.save(folder / "cartpole/policy.npz", seen)
    solution = cl.solve(cl.zoo.two_state(), cl.CNPGPD(K=200), out=folder / "two-state")
    print(f"written: {len(saved(folder))} policies, and {solution.certificate.verdict} two-state")


def tables_of_classes() -> dict[str, Any]:
    """Policies of the other classes on finite models; a file holds their tables."""
    import clearance as cl

    rng = np.random.default_rng(0)
    classes = {"features": cl.linear_softmax(rng.normal(size=(5, 3, 4))), "two-layer": cl.two_layer(5, 3)}
    pis = {name: own.pi(rng.normal(size=own.d)) for name, own in classes.items()}
    return {name: cl.Mixture(np.ones(1), pi[None]) for name, pi in pis.items()}


def linear_regulator() -> Any:
    """A policy as linear-quadratic problems have it: linear in the observation, without bounds, with noise."""
    import clearance as cl
    from clearance.simulator.policies.network_policy import Normaliser
    from clearance.zoo import simulated

    problem = simulated.double_integrator()
    policy = cl.gaussian((), normalise=False).fitted(problem.obs_shape, problem.action)
    theta = np.random.default_rng(0).normal(0, 0.7, (1, policy.d))
    return cl.NetworkMixture(policy, np.ones(1), theta, Normaliser.identity(policy.inputs))


def write_network(folder: Path, name: str, mixture: Any) -> None:
    """The file, its ONNX graph, and actions of `act`, of JAX and of float64 arithmetic for the same random numbers."""
    import clearance as cl
    from clearance.deploy.policy_file import running

    rng, policy = np.random.default_rng(4), mixture.policy
    mixture.save(folder / f"{name}.npz")
    obs = rng.normal(0, 2, (N, *policy.obs_shape)).astype(np.float32)
    component = mixture.components(rng, N)
    z = mixture.normaliser(policy.flat(obs))
    noise, wide = policy.head.plain_noise(np.random.default_rng(5), N), [x.astype(float) for x in mixture.normaliser]
    by_jax = np.stack([compute(policy, theta, z) for theta in mixture.theta])[component, np.arange(N)]
    plain = [policy.plain(theta, wide, float)(obs) for theta in mixture.theta]
    exact = np.stack(plain)[component, np.arange(N)]
    np.savez(
        folder / f"{name}-seen.npz",
        obs=obs,
        component=component,
        noise=noise,
        act=act_by_library(mixture, obs),
        action=policy.space.native_rows(np.asarray(policy.head.action(policy.head.latent(by_jax, noise)))),
        exact=policy.space.native_rows(policy.head.action(policy.head.latent(exact, noise.astype(float), np), np)),
    )
    cl.export_policy(running(mixture), folder / f"{name}.onnx")


def act_by_library(mixture: Any, obs: Any) -> Any:
    """One action for each observation, in episodes of 100 steps."""
    rng, found = np.random.default_rng(6), []
    for i in range(0, N, 100):
        actor = mixture.reset(rng)
        found += [actor.act(x) for x in obs[i : i + 100]]
    return np.array(found)


def write_table(folder: Path, name: str, mixture: Any) -> None:
    import clearance as cl
    from clearance.deploy.policy_file import running

    mixture.save(folder / f"{name}.npz")
    cl.export_policy(running(mixture), folder / f"{name}.onnx")
    rng, timed = np.random.default_rng(4), mixture.pi.ndim == 4
    obs, component = rng.integers(0, mixture.pi.shape[-2], N), rng.choice(mixture.M, N, p=mixture.weights)
    noise, t = np.random.default_rng(5).random(N), np.zeros(N, np.int64)
    p = mixture.pi[component, t, obs] if timed else mixture.pi[component, obs]
    cdf = np.cumsum(p, -1)
    action = np.sum(cdf / cdf[:, -1:] <= noise[:, None], -1)
    np.savez(folder / f"{name}-seen.npz", obs=obs, component=component, noise=noise, action=action, t=t, p=p)


def write_memory(folder: Path) -> None:
    """A policy that acts on the cost so far."""
    import clearance as cl
    from clearance.core.cost_memory import CostMemory
    from clearance.simulator.policies.network_policy import Design, Normaliser

    memory, rng = CostMemory((3,), ("energy",), (4.0,), 100), np.random.default_rng(0)
    policy = Design(hidden=(12,)).fitted((memory.inputs,), cl.Discrete(3), 0, memory)
    theta = rng.normal(0, 0.7, (2, policy.d))
    mixture = cl.NetworkMixture(policy, np.full(2, 0.5), theta, Normaliser.identity(policy.inputs))
    mixture.save(folder / "cost-so-far.npz")
    obs, draws, found = rng.normal(size=(N, 3)).astype(np.float32), np.random.default_rng(6), []
    for i in range(0, N, 100):
        actor = mixture.reset(draws)
        for x in obs[i : i + 100]:
            found.append(actor.act(x))
            actor.record(abs(float(x[0])))
    np.savez(folder / "cost-so-far-seen.npz", obs=obs, act=np.array(found))


def write_rule(folder: Path) -> None:
    """Networks beside a rule."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
    from deployed import network_mixture

    from clearance.simulator.policies.rule_mixture import RuleMixture

    RuleMixture(network_mixture("discrete", 3), 0.5, lean, "lean").save(folder / "with-a-rule.npz")
    np.savez(folder / "with-a-rule-seen.npz", obs=np.random.default_rng(4).normal(size=(N, 3)).astype(np.float32))


def lean(obs: Any) -> int:
    return int(obs[0] > 0)


def compute(policy: Any, theta: Any, z: Any) -> Any:
    """The head's parameters [n, size], as JAX computes them."""
    import jax

    net = policy.net(theta)
    return np.asarray(jax.vmap(lambda x: policy.out(net, x))(z))


def saved(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*.npz") if not p.stem.endswith("-seen"))


def run(folder: Path) -> None:
    import clearance as cl

    done = subprocess.run([sys.executable, "-c", FIRST, str(folder / "table-1.npz")], capture_output=True, check=True)
    print(f"import clearance and NumPy, load and first action: {float(done.stdout):.3f} s")
    heavy = {"jax", "gymnasium", "scipy", "numba", "rich", "onnx", "ray"} & set(sys.modules)
    print(f"other packages loaded: {sorted(heavy) or 'none'}\n")
    print("| policy | load and first action [ms] | against the library | µs per action | in batches of 10⁴ |")
    print("|---|---|---|---|---|")
    for path in saved(folder):
        seen, rule = np.load(folder / f"{path.stem}-seen.npz"), lean if path.stem == "with-a-rule" else None
        began = time.process_time()
        policy: Any = cl.load_policy(path, seed=0, rule=rule)
        policy.reset()
        obs = list(seen["obs"]) if policy.obs_shape else seen["obs"].tolist()
        policy.act(obs[0])
        started = (time.process_time() - began) * 1e3
        print(f"| {path.stem} | {started:.1f} | {compare(policy, seen)} | {speed(policy, obs)} |", flush=True)


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
    """How far actions are from those of the library, for the same random numbers; real ones as shares of their size."""
    said = []
    if "act" in seen:
        found = replayed(policy, seen["obs"])
        said.append(f"`act`: {count(found, seen['act'])}")
    if "action" in seen:
        policy.reset(N)
        policy.components = seen["component"]
        found = policy.act(seen["obs"], rng=Given(seen["noise"]))
        where = "its table" if "p" in seen else "JAX"
        said.append(f"{where}: {count(found, seen['action'])}")
        if "exact" in seen and found.dtype.kind == "f":
            said.append(f"float64: {count(found, seen['exact'])} (JAX: {count(seen['action'], seen['exact'])})")
    return "; ".join(said) or "by the tests"


def replayed(policy: Any, obs: Any) -> Any:
    """The same steps as `act_by_library` and `write_memory`."""
    rng, found = np.random.default_rng(6), []
    for i in range(0, N, 100):
        policy.reset(rng=rng)
        for x in obs[i : i + 100]:
            found.append(policy.act(x, rng=rng))
            policy.record(abs(float(x.flat[0])))
    return np.array(found)


def count(found: Any, other: Any) -> str:
    if found.dtype.kind == "i":
        return f"{np.sum(np.any(np.reshape(found != other, (N, -1)), 1))} of 10⁴ differ"
    size = np.maximum(np.abs(other).max(0), 1.0)  # each entry against the largest action that it takes
    apart = float((np.abs(found - other.astype(float)) / size).max())
    return "equal" if apart == 0 else f"{apart:.1e}"


def speed(policy: Any, obs: Any) -> str:
    """µs for one of 10⁵ actions in episodes of 100 steps (of 4 where there are no more), and in batches."""
    length, spent = min(getattr(policy, "H", 100), 100), 0.0
    for _ in range(ACTIONS // length):
        policy.reset()
        began = time.process_time()
        for x in obs[:length]:
            policy.act(x)
            policy.record(0.1)
        spent += time.process_time() - began
    many = []
    for _ in range(10):
        policy.reset(N)
        began = time.process_time()
        policy.act(np.asarray(obs))
        many.append(time.process_time() - began)
    return f"{spent / (ACTIONS // length * length) * 1e6:.1f} | {np.median(many) / N * 1e6:.2f}"


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
            said = f"actions to {count(action, seen['action'])} of their size"
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
    for how in ({"deterministic": False}, {}, {"deterministic": True}):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            mean, spread = evaluate_policy(policy, env, n_eval_episodes=20, **how)
        said = [str(w.message) for w in heard if issubclass(w.category, cl.NotCertifiedWarning)]
        print(f"evaluate_policy {how or 'by default'}: {mean:.1f} ± {spread:.1f}; said {said}")
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
