"""Learning alone, with other ways to make the step of θ from one batch, to see what holds a task back.

    python benchmarks/tasks/inner_steps.py natural hazards cruise          the step of PracticalCNPGPD
    python benchmarks/tasks/inner_steps.py clipped hazards                 PPO's clipped objective by Adam, ten epochs
    python benchmarks/tasks/inner_steps.py natural hazards --method reuse=4
    python benchmarks/tasks/inner_steps.py natural hazards --method eta2=.5 relax=0.

A row has the return and the costs as shares of their limits, each the mean of Ĵ over a quarter of the iterations.
"""

from __future__ import annotations

import argparse
import ast
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from suites import DEVELOPMENT, Task

from clearance.learning.loop import iterate
from clearance.learning.methods.natural_step import CLIP, normalise
from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
from clearance.runs.worlds import world
from clearance.runs.worlds.dispatch import world_of
from clearance.simulator.jax_backend import real

EPOCHS, ROWS, RATE = 10, 64, 3e-4
ADAM = optax.scale_by_adam(eps=1e-5)


def log_probs(policy: Any, z: Any, u: Any, theta: Any) -> Any:
    net = policy.net(theta)
    return jax.vmap(lambda x, v: policy.head.log_prob(policy.out(net, x), v))(z, u)


@partial(jax.jit, static_argnums=0)
def clipped_steps(policy: Any, theta: Any, z: Any, u: Any, A: Any, weight: Any, order: Any, rate: Any) -> Any:
    """θ after steps of Adam up PPO's clipped objective, on rows in that order."""
    old = jax.lax.stop_gradient(log_probs(policy, z, u, theta))

    def loss(th: Any, rows: Any) -> Any:
        ratio = jnp.exp(log_probs(policy, z[rows], u[rows], th) - old[rows])
        return -jnp.mean(weight[rows] * jnp.minimum(ratio * A[rows], jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * A[rows]))

    def one(carry: Any, rows: Any) -> Any:
        th, state = carry
        g = jax.grad(loss)(th, rows)
        step, state = ADAM.update(g * jnp.minimum(1.0, 0.5 / (jnp.linalg.norm(g) + 1e-9)), state)
        return (th - rate * step, state), None

    return jax.lax.scan(one, (theta, ADAM.init(theta)), order)[0][0]


class Clipped(PracticalCNPGPD):
    """The step by PPO's objective; shortened where its KL is above 4.5 times the bound."""

    def moved(self, draws: Any, A: Any, state: Any, quiet: float, kl: float | None = None) -> tuple[Any, float]:
        score, N, rng = draws.score, len(A), np.random.default_rng(state.k)
        bound, old = self.kl_at(state.k) if kl is None else kl, np.asarray(state.theta, float)
        order = np.concatenate([rng.permutation(N)[: N // ROWS * ROWS].reshape(-1, ROWS) for _ in range(EPOCHS)])
        rate, A = RATE * np.sqrt(self.kl_at(state.k) / self.kl[0]), real(normalise(A, draws.weight))
        rows = score.policy, real(old), score.z, score.latent, A, real(np.asarray(draws.weight) * N)
        step, seen = np.asarray(clipped_steps(*rows, order, real(rate)), float) - old, score.every(1)
        while seen.kl_to(old + step) > 4.5 * bound:
            step = 0.7 * step
        theta = score.bound_noise(old + step, min(self.std_least, self.std_last), self.std_last**quiet)
        return theta, float(np.linalg.norm(step))


KINDS = {"natural": PracticalCNPGPD, "clipped": Clipped}


def learn(name: str, task: Task, method: Any, seed: int) -> str:
    """Return the row of one run of the learning part of `solve`."""
    here = world_of(task.make())
    asked = world.Task(here, here.make_sampler(method, None, None, seed), method, "samples", task.budget, 0.01, seed)
    settled = here.settle(asked, None)
    run = iterate(settled.sampler, settled.method, settled.stream, settled.lam_max, budget=settled.budget)
    J, b = run.trace.J_hat, here.statement.b
    quarters = [part.mean(0) for part in np.array_split(J, 4)]
    cells = (f"{x[0]:.4g} at {', '.join(f'{c:.2f}' for c in x[1:] / b)}" for x in quarters)
    return f"| {name} | {seed} | {len(J)} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("tasks", nargs="+", choices=DEVELOPMENT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", nargs="*", default=[], help="NAME=VALUE: settings of PracticalCNPGPD")
    args = parser.parse_args()
    settings = {k: ast.literal_eval(v) for k, v in (pair.split("=", 1) for pair in args.method)}
    print("| task | seed | iterations | 1st quarter | 2nd | 3rd | 4th |\n|---|---|---|---|---|---|---|")
    for name in args.tasks:
        print(learn(name, DEVELOPMENT[name], KINDS[args.kind](**settings), args.seed), flush=True)


if __name__ == "__main__":
    main()
