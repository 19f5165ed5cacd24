"""Gymnasium tasks: how fast walks and learning are, and what is learned and certified.

    python benchmarks/gymnasium_tasks.py rates [--safety PYTHON]       steps per second of walks, of the bridge
    python benchmarks/gymnasium_tasks.py speed [--omnisafe PYTHON]     all-in steps per second, beside OmniSafe's
    python benchmarks/gymnasium_tasks.py learn TASK… [--seeds 3]       one million steps to learn, up to one to certify
    python benchmarks/gymnasium_tasks.py gaits                         the slow gaits that returns are compared with

Every result is one line of JSON; docs/research/gymnasium_log.md has the tables.
PYTHON is an interpreter with that package.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import clearance as cl
from clearance.zoo.robots import ROBOTS

PEER = Path(__file__).parent / "peers" / "omnisafe_speed.py"
RECORDED = 1167.0  # OmniSafe's NaturalPG on a two-core Xeon, all-in steps per second, where it cannot be measured
TASKS = ("velocity-half-cheetah", "velocity-hopper", "velocity-swimmer", "crpo-cartpole", "crpo-acrobot")
METHODS = {"cnpgpd": cl.PracticalCNPGPD, "crpo": cl.PracticalCRPO}
BATCH, EPOCHS, ROWS = 20_000, 10, 128  # OmniSafe's defaults: steps per update, epochs and rows of the critics


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


# ------------------------------------------------------------------------------------------------ rates


def rates(args: argparse.Namespace) -> None:
    """Bare steps against walks of 8 lanes with the same random actions, three times in turn; the best of each."""
    import gymnasium

    id, n, T = ROBOTS[args.robot].id, 8, args.steps // 8
    actions = np.random.default_rng(0).uniform(-1, 1, (T, n, 16))
    env, bare = gymnasium.make(id, disable_env_checker=True), 0.0
    vector = gymnasium.make_vec(id, num_envs=n, vectorization_mode="sync")
    problems = {
        "walk, objects": cl.zoo.velocity(args.robot, num_envs=n),
        "walk, SyncVectorEnv": cl.gymnasium(vector, limits=[], horizon=1000),
        "walk, one side process": cl.zoo.velocity(args.robot, num_envs=n, processes=1),
        "walk, two side processes": cl.zoo.velocity(args.robot, num_envs=n, processes=2),
    }
    if args.safety:
        robot = id.partition("-")[0]
        far = cl.SideProcess("safety_gymnasium:make", f"Safety{robot}Velocity-v1", python=args.safety)
        problems["walk, Safety-Gymnasium over the socket"] = cl.gymnasium(far, limits=25.0, horizon=1000, num_envs=n)
    m, best = problems["walk, objects"].action.shape[0], dict.fromkeys(problems, 0.0)
    for _ in range(3):
        bare = max(bare, _bare(env, actions[:, :, :m].astype(np.float32).reshape(-1, m)))
        for name, problem in problems.items():
            best[name] = max(best[name], _rate(problem, actions[:, :, :m]))
    say(robot=args.robot, lanes=n, bare=round(bare), **{k: round(v) for k, v in best.items()})


def _bare(env: Any, actions: Any) -> float:
    env.reset(seed=0)
    began = time.perf_counter()
    for a in actions:
        if any(env.step(a)[2:4]):
            env.reset()
    return len(actions) / (time.perf_counter() - began)


def _rate(problem: Any, actions: Any) -> float:
    began = time.perf_counter()
    steps = problem.walk(lambda obs, t: actions[t], range(problem.n), len(actions))
    return float(steps.valid.sum()) / (time.perf_counter() - began)


# ------------------------------------------------------------------------------------------------ all-in speed


def speed(args: argparse.Namespace) -> None:
    """Learning on HalfCheetah with OmniSafe's network, batch and critic epochs; the first update, which compiles, is
    left out on both sides.
    """
    ours = _own_speed(args.updates, args.processes, args.lanes)
    say(who="clearance", batch=BATCH, epochs=EPOCHS, rows=ROWS, lanes=args.lanes, processes=args.processes, **ours)
    peer = RECORDED
    if args.omnisafe:
        command = [args.omnisafe, str(PEER), "--updates", str(args.updates), "--threads", str(args.threads)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found = json.loads(told.strip().splitlines()[-1])
        say(who="OmniSafe NaturalPG", **found)
        peer = found["steps_per_second"]
    say(ratio=ours["steps_per_second"] / peer, against="measured" if args.omnisafe else "recorded")


def _own_speed(updates: int, processes: int, lanes: int) -> dict[str, Any]:
    from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
    from clearance.simulator.policies.network_policy import Design
    from clearance.simulator.samplers.actor_critic import Practical

    problem = cl.zoo.velocity("half-cheetah", num_envs=lanes, processes=processes)
    policy = Design().fitted(problem.obs_shape, problem.action, 0)
    sampler = Practical(problem, policy, epochs=EPOCHS, batch_rows=ROWS)
    method = PracticalCNPGPD(N=BATCH, K=100, kappa=5.0)
    state, seconds, steps, busy = method.init(policy.init(), 1, sampler.begin()), [], 0, 0.0
    for k in range(updates):
        began = time.perf_counter()
        state, info = method.step(np.uint64(1000 + k), sampler, state, np.inf)
        seconds.append(time.perf_counter() - began)
        if k == 0:
            busy = time.process_time()
        steps += info.steps if k else 0

    problem.close()
    per_cpu = steps / (time.process_time() - busy) if processes == 0 else None
    return {"seconds": seconds, "steps_per_second": steps / sum(seconds[1:]), "steps_per_cpu_second": per_cpu}


# ------------------------------------------------------------------------------------------------ learning


def learn(args: argparse.Namespace) -> None:
    for task in args.tasks or TASKS:
        for seed in range(args.first, args.first + args.seeds):
            with cl.zoo.SIMULATORS[task]() as problem:
                sol = cl.solve(problem, METHODS[args.method](), budget=args.budget, seed=seed)
            c = sol.certificate
            upper = [-x for x in c.J_lower[1:]]
            costs = {"cost": [-x for x in c.J_g], "cost_upper": upper, "limit": [-x for x in c.b]}
            spent = {"learning_steps": sol.learning_steps, "env_steps": sol.env_steps, "episodes": c.episodes}
            say(
                task=task,
                method=args.method,
                seed=seed,
                verdict=c.verdict,
                J_r=c.J_r,
                **costs,
                **spent,
                seconds=sol.seconds,
            )
            if args.out:
                sol.save(Path(args.out) / f"{task}-{args.method}-{seed}")


# ------------------------------------------------------------------------------------------------ slow gaits


def gaits(args: argparse.Namespace) -> None:
    """What a robot earns that moves steadily at a third of its threshold, at no control cost and without ever falling.

        HalfCheetah, Swimmer:  Σ_t v          Hopper, Walker2d:  Σ_t (1 + v)          v = threshold/3, 1000 steps

    Standing still earns 0, or 1000 where being upright pays. Beside it, for the robots that cannot fall, the best
    open-loop gait with every joint a sine of one frequency, whose mean speed is at most that, by random search.
    """
    for robot, alive in (("half-cheetah", 0.0), ("hopper", 1.0), ("swimmer", 0.0), ("walker2d", 1.0)):
        v = ROBOTS[robot].threshold / 3
        found = _sines(robot, v, args.tries) if not alive and args.tries else None
        say(robot=robot, speed=v, baseline=1000 * (alive + v), sines=found)


def _sines(robot: str, speed: float, tries: int) -> dict[str, float] | None:
    """The best of random sine gaits of at most that mean speed: return, cost and speed of one episode."""
    rng, best = np.random.default_rng(0), None
    with cl.zoo.velocity(robot, num_envs=8) as problem:
        m = problem.action.shape[0]
        for _ in range(tries // 8):
            size, phase = rng.uniform(0, 0.6, (8, m)), rng.uniform(0, 2 * np.pi, (8, m))
            pace = rng.uniform(0.05, 0.6, (8, 1))
            act: Callable[[Any, int], Any] = lambda obs, t: size * np.sin(pace * t + phase)  # noqa: B023, E731
            h = problem.walk(act, range(8), 1000, once=True).h.sum(0)
            for reward, cost in h:
                if reward <= 1000 * speed and (best is None or reward > best["J_r"]):
                    best = {"J_r": float(reward), "cost": float(-cost)}
    return best


def main() -> None:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(required=True)
    p = commands.add_parser("rates")
    p.set_defaults(run=rates)
    p.add_argument("--robot", choices=list(ROBOTS), default="half-cheetah")
    p.add_argument("--steps", type=int, default=16_000)
    p.add_argument("--safety", metavar="PYTHON", help="an interpreter with Safety-Gymnasium")
    p = commands.add_parser("speed")
    p.set_defaults(run=speed)
    p.add_argument("--updates", type=int, default=4)
    p.add_argument("--processes", type=int, default=0)
    p.add_argument("--lanes", type=int, default=20)
    p.add_argument("--omnisafe", metavar="PYTHON", help="an interpreter with OmniSafe")
    p.add_argument("--threads", type=int, default=2, help="of OmniSafe's torch")
    p = commands.add_parser("learn")
    p.set_defaults(run=learn)
    p.add_argument("--method", choices=list(METHODS), default="cnpgpd")
    p.add_argument("tasks", nargs="*", metavar="TASK")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--budget", type=float, default=2e6)
    p.add_argument("--out", help="folder for the runs")
    p = commands.add_parser("gaits")
    p.set_defaults(run=gaits)
    p.add_argument("--tries", type=int, default=400)
    args = top.parse_args()
    args.run(args)


if __name__ == "__main__":
    sys.exit(main())
