"""JAX environments: truth for continuous actions, speed, and tasks with limits.

    python benchmarks/simulators.py lqr [--seeds 3]        learned against the exact optimum, certified exactly
    python benchmarks/simulators.py speed                  all-in steps per second on the pendulum, 64-64 networks
    python benchmarks/simulators.py fast                   and what is learned at that speed
    python benchmarks/simulators.py learn TASK… [--seeds]  pendulum, navigation, cartpole, acrobot, with certificate

Every result is one line of JSON; docs/research/simulator_log.md has the tables.
Gymnasium's tasks are in gymnasium_tasks.py.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import clearance as cl
from clearance.core.random_streams import fold, key_of
from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
from clearance.learning.natural_direction import Natural
from clearance.simulator.linear_quadratic import LQR
from clearance.simulator.policies.network_policy import Design
from clearance.simulator.samplers.actor_critic import Practical
from clearance.zoo import simulated

METHODS = {"cnpgpd": cl.PracticalCNPGPD, "crpo": cl.PracticalCRPO}
STD = 0.1  # the exploration noise of the linear policy


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def lqr(args: argparse.Namespace) -> None:
    """The double integrator with effort ≤ 2: learned linear-Gaussian policies against the optimum of the same noise."""
    problem, env = LQR.double_integrator(2.0), simulated.double_integrator(2.0)
    best = problem.optimum(STD**2 * np.eye(1))
    say(bench="lqr", optimum=best.J[0], deterministic=problem.optimum().J[0], noise=STD)
    for seed in range(args.seeds):
        policy = cl.gaussian(hidden=(), scale="fixed", std=STD)
        sol = cl.solve(env, policy=policy, budget=args.budget, seed=seed)
        c = sol.certificate
        say(
            bench="lqr",
            seed=seed,
            verdict=c.verdict,
            cost=-c.J_r,
            effort=-c.J_g[0],
            error=c.J_upper[1] - c.J_g[0],
            above=-c.J_r / best.J[0] - 1,
            steps=sol.learning_steps,
            seconds=round(sol.seconds, 1),
        )


CONFIGURATIONS: dict[str, tuple[Natural, dict[str, Any]]] = {
    "all rows in F, 10 products": (Natural(), {"epochs": 2, "batch_rows": 2048}),
    "all rows in F, 5 products": (Natural(iterations=5), {"epochs": 1, "batch_rows": 2048}),
    "10 % of the rows in F, 10 products": (Natural(share=0.1), {"epochs": 1, "batch_rows": 4096}),
    "all rows in F, 5 products, a quarter for the critics": (
        Natural(iterations=5),
        {"epochs": 0.25, "batch_rows": 2048},
    ),
    "10 % of the rows in F, a quarter for the critics": (Natural(share=0.1), {"epochs": 0.25, "batch_rows": 2048}),
    "10 % of the rows in F, 5 products, a quarter for the critics": (
        Natural(share=0.1, iterations=5),
        {"epochs": 0.25, "batch_rows": 2048},
    ),
    "5 % of the rows in F, a quarter for the critics": (Natural(share=0.05), {"epochs": 0.25, "batch_rows": 2048}),
}


def speed(args: argparse.Namespace) -> None:
    """Iterations of the whole method (walks, critics, direction, dual step) after two that compile; in rounds over all
    configurations, so that what else the machine does falls on all of them.
    """
    env = simulated.pendulum()
    policy = Design().fitted(env.obs_shape, env.action)
    samplers = {name: Practical(env, policy, **settings) for name, (_, settings) in CONFIGURATIONS.items()}
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(args.rounds):
        for name, sampler in samplers.items():
            direction = CONFIGURATIONS[name][0]
            for N in args.batch:
                method = PracticalCNPGPD(K=1000, N=N, kappa=1.0, direction=direction)
                found.setdefault((name, N), []).append(_rate(method, sampler, max(5, args.steps // N)))
    for (name, N), rounds in found.items():
        rates, cpu = np.array(rounds).T
        say(
            bench="speed",
            configuration=name,
            batch=N,
            steps_per_second=round(float(np.median(rates))),
            least=round(rates.min()),
            most=round(rates.max()),
            cpu_us_per_step=round(float(np.median(cpu)), 2),
            **CONFIGURATIONS[name][1],
        )


def fast(args: argparse.Namespace) -> None:
    """What the configurations learn: solve on the pendulum, by steps and by seconds."""
    env = simulated.pendulum()
    for name, (direction, settings) in CONFIGURATIONS.items():
        for N in args.batch:
            sampler = Practical(env, Design().fitted(env.obs_shape, env.action), **settings)
            method = PracticalCNPGPD(N=N, direction=direction)
            sol = cl.solve(env, method, sampler=sampler, budget=2 * args.steps, seed=0)
            c = sol.certificate
            say(
                bench="fast",
                configuration=name,
                batch=N,
                verdict=c.verdict,
                J_r=c.J_r,
                upper=-c.J_g_lower[0],
                limit=-c.b[0],
                learning=sol.learning_steps,
                steps=sol.env_steps,
                seconds=round(sol.seconds, 1),
            )


def _rate(method: PracticalCNPGPD, sampler: Practical, repeat: int) -> tuple[float, float]:
    """Steps per second over iterations in a row, and microseconds of all cores' work per step: that bears other work on
    the machine.
    """
    key, state, steps = key_of(0), method.init(sampler.policy.init(), 1, sampler.begin()), 0
    began = worked = 0.0
    for k in range(2 + repeat):
        if k == 2:  # the first two compile
            np.asarray(state.sampler_memory.values.theta)
            began, worked, steps = time.perf_counter(), time.process_time(), 0
        state, info = method.step(fold(key, k), sampler, state, np.inf)
        steps += info.steps
    np.asarray(state.sampler_memory.values.theta)  # the critic has learned too
    return steps / (time.perf_counter() - began), (time.process_time() - worked) / steps * 1e6


def learn(args: argparse.Namespace) -> None:
    """solve with its defaults."""
    for task in args.tasks:
        for seed in range(args.seeds):
            env = getattr(simulated, task)()
            sol = cl.solve(env, METHODS[args.method](), budget=args.budget, seed=seed)
            c = sol.certificate
            say(
                bench="learn",
                task=task,
                method=args.method,
                seed=seed,
                verdict=c.verdict,
                J_r=c.J_r,
                costs=[-x for x in c.J_g],
                upper=[-x for x in c.J_g_lower],
                limits=[-x for x in c.b],
                learning=sol.learning_steps,
                certificate=sol.env_steps - sol.learning_steps,
                episodes=c.episodes,
                seconds=round(sol.seconds, 1),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(required=True)
    p = commands.add_parser("lqr")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--budget", type=float, default=2e6)
    p.set_defaults(run=lqr)
    p = commands.add_parser("speed")
    p.add_argument("--batch", type=int, nargs="+", default=[51_200, 102_400])
    p.add_argument("--steps", type=int, default=1_000_000)
    p.add_argument("--rounds", type=int, default=5)
    p.set_defaults(run=speed)
    p = commands.add_parser("fast")
    p.add_argument("--batch", type=int, nargs="+", default=[102_400])
    p.add_argument("--steps", type=int, default=10_000_000)
    p.set_defaults(run=fast)
    p = commands.add_parser("learn")
    p.add_argument("tasks", nargs="+", choices=("pendulum", "navigation", "cartpole", "acrobot"))
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--budget", type=float, default=2e6)
    p.set_defaults(run=learn)
    p.add_argument("--method", choices=list(METHODS), default="cnpgpd")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
