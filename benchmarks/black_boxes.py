"""Tables learned from Gymnasium environments as black boxes (`cl.tabular`), judged by the model that nobody told them.

    python benchmarks/black_boxes.py                 # FrozenLake 4×4 and 8×8, CliffWalking, Taxi
    python benchmarks/black_boxes.py --budget 3e5
    python benchmarks/black_boxes.py --budget 3e5 --practical     # the same environments by PracticalCNPGPD

The truth is the transition table `env.P` of each environment, read here alone: share of the exact optimum, whether the
limits are truly kept, environment steps.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402
from scipy import sparse  # noqa: E402

import clearance as cl  # noqa: E402


def fell(obs: Any, action: Any, after: Any, info: Any, holes: frozenset[int] = frozenset()) -> float:
    return float(int(after) in holes)


def holes_of(env: Any) -> frozenset[int]:
    return frozenset(np.flatnonzero(env.unwrapped.desc.ravel() == b"H").tolist())


def lake(size: str) -> dict[str, Any]:
    env = gymnasium.make("FrozenLake-v1", map_name=size, disable_env_checker=True)
    holes = holes_of(env)
    limit = {"4x4": 0.04, "8x8": 0.02}[size]
    cost = lambda obs, action, after, info: fell(obs, action, after, info, holes)  # noqa: E731
    once = ([0, 0], [1, 1])  # in one step, and in a whole episode: a hole or the goal ends it
    return {"env": env, "cost": cost, "limit": limit, "bounds": once, "totals": once, "gamma": 0.95}


def cliff() -> dict[str, Any]:
    """The cost is to walk along the edge of the cliff."""
    env = gymnasium.make("CliffWalking-v1", disable_env_checker=True)
    return {
        "env": env,
        "cost": lambda obs, action, after, info: float(24 < int(after) < 35),
        "limit": 3.0,
        "bounds": ([-100, 0], [-1, 1]),
        "gamma": 0.95,
    }


def taxi() -> dict[str, Any]:
    """The cost is to move north or south: fuel on the slope."""
    env = gymnasium.make("Taxi-v4", disable_env_checker=True)
    return {
        "env": env,
        "cost": lambda obs, action, after, info: float(int(action) < 2),
        "limit": 5.0,
        "bounds": ([-10, 0], [20, 1]),
        "totals": ([-np.inf, 0], [20, np.inf]),  # a passenger is delivered once
        "gamma": 0.95,
    }


TASKS = {
    "FrozenLake 4x4": lambda: lake("4x4"),
    "FrozenLake 8x8": lambda: lake("8x8"),
    "CliffWalking": cliff,
    "Taxi": taxi,
}


def truth(task: dict[str, Any]) -> cl.CMDP:
    """The model from `env.P`, with one more state after the end."""
    env = task["env"].unwrapped
    S, A = env.observation_space.n + 1, env.action_space.n
    P, r, c = np.zeros((S * A, S)), np.zeros((S, A)), np.zeros((1, S, A))
    P[(S - 1) * A :, S - 1] = 1.0
    for s in range(S - 1):
        for a in range(A):
            for p, after, reward, over in env.P[s][a]:
                P[s * A + a, S - 1 if over else after] += p
                r[s, a] += p * reward
                c[0, s, a] += p * task["cost"](s, a, after, {})
    rho = np.append(env.initial_state_distrib, 0.0)
    return cl.CMDP(sparse.csr_array(P), r, cost=c, limit=task["limit"], rho=rho, gamma=task["gamma"], order="state")


def practical(task: dict[str, Any], budget: float) -> tuple[Any, cl.Mixture]:
    """The solution by a network, with `PracticalCNPGPD`, and its policy as tables, for the exact evaluation.

    Episodes have 200 steps: what comes later counts less than .95^200/(1 − .95) < .001.
    """
    asked = {"constraints": task["cost"], "limits": task["limit"], "bounds": task["bounds"], "gamma": task["gamma"]}
    found = cl.solve(cl.gymnasium(task["env"], horizon=200, **asked), cl.PracticalCNPGPD(), budget=budget, seed=0)
    S = task["env"].unwrapped.observation_space.n
    logits = np.array([out(np.eye(S)) for out in found.policy.outs], float)
    pi = np.exp(logits - logits.max(-1, keepdims=True))
    end = np.full((len(pi), 1, pi.shape[-1]), 1.0)
    pi = np.concatenate([pi, end], axis=1)
    return found, cl.Mixture(found.policy.weights, pi / pi.sum(-1, keepdims=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=1e6)
    parser.add_argument("--only", default="")
    parser.add_argument("--practical", action="store_true")
    args = parser.parse_args()
    print("| environment | optimum | verdict | J_r | share | cost, limit | steps | s |\n" + "|---|" * 1 + "---|" * 7)
    for name, make in TASKS.items():
        if args.only in name:
            task = make()
            model = truth(task)
            best = cl.optimum(model)
            asked = {"constraints": task["cost"], "limits": task["limit"], "bounds": task["bounds"]}
            began = time.process_time()
            asked |= {"totals": task.get("totals"), "gamma": task["gamma"]}
            if args.practical:
                found, policy = practical(task, args.budget)
            else:
                found = cl.solve(cl.tabular(task["env"], **asked), budget=args.budget, seed=0)
                policy = found.policy
            J = policy.J(model)
            spent = f"{found.env_steps:.2g} | {time.process_time() - began:.0f}"
            share = f"{J[0] / best.J_r:.2%}" if best.J_r > 0 else f"loss {best.J_r - J[0]:.4f}"
            at = f"{J[0]:.4f} | {share} | {-J[1]:.4f} ≤ {task['limit']:g}"
            print(
                f"| {name} | {best.status} {best.J_r:.4f} (cost {-best.J[1]:.3f}, λ {best.lam[0]:.2f}) | "
                f"{found.certificate.verdict} | {at} | {spent} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
