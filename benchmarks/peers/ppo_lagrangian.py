"""PPO-Lagrangian with Stable-Baselines3 on the tasks of a suite: a peer of `solve`, with the same environment steps.

    python benchmarks/peers/ppo_lagrangian.py development --only hazards lunar --seeds 3 --out peer.jsonl
    python benchmarks/peers/peer_table.py peer.jsonl rows.jsonl

It needs an environment of its own: `pip install stable-baselines3 "gymnasium[box2d]"` and then `pip install .[all]`.
PPO has Stable-Baselines3's settings with eight environments, 2,048 steps per update and normalised observations. It is
given the reward (r/s − Σ λ_i c_i/d_i)/(1 + Σ λ_i): s is the standard deviation of the episodes' returns so far, d_i the
limit. After each update λ_i changes by `rate`·(C_i/d_i − 1), with the mean cost C_i of the episodes that ended. All
steps of the budget are learning steps; nothing is certified. The truth is the mean of 500 fresh episodes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from stable_baselines3 import PPO  # type: ignore[import-not-found]
from stable_baselines3.common.callbacks import BaseCallback  # type: ignore[import-not-found]
from stable_baselines3.common.vec_env import VecEnv, VecNormalize  # type: ignore[import-not-found]

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tasks"))
from suites import SUITES, Task  # type: ignore[import-not-found]

import clearance as cl
from clearance.simulator.jax_envs.jax_environment import Environment

LANES, STEPS, EPISODES, REST = 8, 256, 500, 1e-3


class JaxLanes:
    """n lanes of a JAX environment, each reset when its mask says so."""

    def __init__(self, env: Environment, n: int, seed: int) -> None:
        self.key, self.n = jax.random.key(seed), n

        def step(key: Any, states: Any, actions: Any) -> Any:
            after, h, over = jax.vmap(env.step)(jax.random.split(key, n), states, actions)
            return after, h, over, jax.vmap(env.observe)(after)

        def reset(key: Any, states: Any, which: Any) -> Any:
            new = jax.vmap(env.reset)(jax.random.split(key, n))
            states = jax.tree.map(lambda a, b: jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, states)
            return states, jax.vmap(env.observe)(states)

        self._step, self._reset = jax.jit(step), jax.jit(reset)
        self.states = jax.vmap(env.reset)(jax.random.split(self.key, n))

    def _next(self) -> Any:
        self.key, key = jax.random.split(self.key)
        return key

    def reset(self, which: Any) -> Any:
        self.states, obs = self._reset(self._next(), self.states, which)
        return np.asarray(obs)

    def step(self, actions: Any) -> tuple[Any, Any, Any]:
        """Return signals h [n, 1+I], whether episodes ended by themselves [n], and observations after the step."""
        self.states, h, over, obs = self._step(self._next(), self.states, actions)
        return np.asarray(h, float), np.asarray(over), np.asarray(obs)


class GymLanes:
    """The lanes of a Gymnasium problem, with the same two functions."""

    def __init__(self, problem: Any, seed: int) -> None:
        self.lanes, self.n, self.rng = problem.lanes, problem.n, np.random.default_rng(seed)

    def reset(self, which: Any) -> Any:
        return np.array(self.lanes.reset(self.rng.integers(0, 2**31, self.n), which))

    def step(self, actions: Any) -> tuple[Any, Any, Any]:
        row = self.lanes.step(actions, np.ones(self.n, bool))
        h = np.column_stack([row.reward, -row.cost])
        self.lanes.obs[:] = row.after
        return h, row.terminated.copy(), row.after.copy()


def lanes_of(problem: Any, n: int, seed: int) -> Any:
    return JaxLanes(problem, n, seed) if isinstance(problem, Environment) else GymLanes(problem, seed)


def length_of(problem: Any) -> int:
    """The steps of an episode: the horizon, or until discounting leaves next to nothing."""
    s = problem.statement
    rest = np.inf if s.gamma == 1 else np.log(REST) / np.log(s.gamma)
    return int(np.ceil(min(rest, np.inf if s.horizon is None else s.horizon)))


def space_of(action: Any) -> Any:
    if isinstance(action, cl.Box):
        return gymnasium.spaces.Box(np.asarray(action.low, np.float32), np.asarray(action.high, np.float32))
    nvec = action.nvec
    return (
        gymnasium.spaces.Discrete(nvec[0]) if isinstance(action, cl.Discrete) else gymnasium.spaces.MultiDiscrete(nvec)
    )


class Lagrangian(VecEnv):
    """Lanes whose reward is that of the Lagrangian; sums of the true signals of ended episodes are kept in `sums`."""

    def __init__(self, problem: Any, seed: int) -> None:
        self.lanes, self.s, self.length = lanes_of(problem, LANES, seed), problem.statement, length_of(problem)
        n, box = self.lanes.n, gymnasium.spaces.Box(-np.inf, np.inf, problem.obs_shape, np.float32)
        super().__init__(n, box, space_of(problem.action))
        self.lam, self.sums, self.returns = np.zeros(self.s.I), [], [1.0]
        self.t, self.total = np.zeros(n, int), np.zeros((n, 1 + self.s.I))

    def reset(self) -> Any:
        self.t[:], self.total[:] = 0, 0.0
        return self.lanes.reset(np.ones(self.num_envs, bool))

    def step_async(self, actions: Any) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        h, ended, after = self.lanes.step(self.actions)
        self.total += self.s.gamma ** self.t[:, None] * h
        self.t += 1
        late = (self.t >= self.length) & ~ended
        done, infos = ended | late, [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(done):
            infos[i] = {"terminal_observation": after[i].copy(), "TimeLimit.truncated": bool(late[i])}
            self.sums.append(self.total[i].copy())
        scale = float(np.std([x[0] for x in self.sums[-200:]])) if len(self.sums) > 5 else 1.0
        reward = h[:, 0] / max(scale, 1e-9) + h[:, 1:] @ (self.lam / np.abs(self.s.b))
        self.t[done], self.total[done] = 0, 0.0
        obs = self.lanes.reset(done) if done.any() else after
        return obs, (reward / (1 + self.lam.sum())).astype(np.float32), done, infos

    def close(self) -> None: ...
    def get_attr(self, name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, name: str, value: Any, indices: Any = None) -> None: ...
    def env_method(self, name: str, *args: Any, indices: Any = None, **more: Any) -> list[Any]:
        return [None] * self.num_envs

    def env_is_wrapped(self, kind: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class Ascend(BaseCallback):
    """One step of λ after each rollout, by the episodes that ended in it; keeps what was paid."""

    def __init__(self, lanes: Lagrangian, rate: float) -> None:
        super().__init__()
        self.lanes, self.rate, self.seen = lanes, rate, 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        new, self.seen = self.lanes.sums[self.seen :], len(self.lanes.sums)
        if new:
            cost, limit = -np.mean(new, axis=0)[1:], -self.lanes.s.b
            self.lanes.lam = np.maximum(self.lanes.lam + self.rate * (cost - limit) / np.abs(limit), 0.0)


def measure(problem: Any, model: Any, wrapped: Any, seed: int) -> Any:
    """Sums [n, 1+I] over fresh episodes of the policy, with sampled actions."""
    lanes, length, found = lanes_of(problem, 250, seed), length_of(problem), []
    while len(found) < EPISODES:
        obs, live, total = lanes.reset(np.ones(lanes.n, bool)), np.ones(lanes.n, bool), 0.0
        for t in range(length):
            actions, _ = model.predict(wrapped.normalize_obs(obs), deterministic=False)
            h, ended, obs = lanes.step(actions)
            total, live = total + problem.statement.gamma**t * h * live[:, None], live & ~ended
            if ended.any():
                obs = lanes.reset(ended)
            if not live.any():
                break
        found.extend(np.asarray(total))
    return np.array(found)


def learn(name: str, task: Task, seed: int, rate: float) -> dict[str, Any]:
    problem, began = task.make(), time.process_time()
    lanes = Lagrangian(problem, seed)
    wrapped, gamma = VecNormalize(lanes, norm_reward=False), problem.statement.gamma
    steps = STEPS * LANES // lanes.num_envs
    model = PPO("MlpPolicy", wrapped, n_steps=steps, gamma=0.99 if gamma == 1 else gamma, seed=seed, device="cpu")
    model.learn(int(task.budget), callback=Ascend(lanes, rate))
    cpu, paid = time.process_time() - began, -np.mean(lanes.sums, axis=0)[1:]
    wrapped.training = False
    X = measure(problem, model, wrapped, 2**20 + seed)
    J, error = X.mean(0), X.std(0) / np.sqrt(len(X))
    return {"task": name, "seed": seed, "rate": rate, "return": float(J[0]), "costs": (-J[1:]).tolist(),
            "errors": error.tolist(), "limits": (-problem.statement.b).tolist(), "paid": paid.tolist(),
            "lam": lanes.lam.tolist(), "env_steps": int(model.num_timesteps), "cpu": round(cpu, 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=[*SUITES])
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.1, help="step of λ")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for seed in range(args.first, args.first + args.seeds):
        for name, task in SUITES[args.suite].items():
            if not args.only or name in args.only:
                row = learn(name, task, seed, args.rate)
                print(json.dumps(row), flush=True)
                if args.out:
                    with args.out.open("a") as f:
                        f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
