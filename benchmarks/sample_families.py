"""Four families of finite problems for evidence from samples, beside the 200 of `guarantee.py`.

    python benchmarks/sample_families.py --first 0 --count 10 --budget 1.3e6          # settings were chosen here
    python benchmarks/sample_families.py --first 10000 --count 50 --budget 1.3e7      # judged here, drawn afterwards
    python benchmarks/sample_families.py --families two-hundred --count 200 --budget 1.3e7

γ from .8 to .99, one to eight limits, 10 to 400 states; limits are placed so that the normalised Slater margin (1−γ)φ
is .02 to .12 of the signals' range, and at least one of them binds. Every policy is judged by exact evaluation: its
share of the optimum counted from the safest policy (the best reward among policies of maximal slack), the same from
the uniform policy where that is below the optimum, and the smaller of both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import guarantee  # noqa: E402
import numpy as np  # noqa: E402

import clearance as cl  # noqa: E402
from clearance.certificates.sequential_test import slack_needed  # noqa: E402
from clearance.exact.estimated_model import EstimatedModel  # noqa: E402
from clearance.exact.feasibility import slater_margin  # noqa: E402
from clearance.finite.samplers.finite_episodes import MixtureEpisodes  # noqa: E402
from clearance.runs.worlds.test_estimators import POWERS  # noqa: E402

NEAR = 1e-3  # share of the range of J below which a difference of rewards is no denominator
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # P, r, g, ρ


class Case(NamedTuple):
    """A problem with its truth: rewards of the optimum, of the safest and of the uniform policy, and λ* [I]."""

    family: str
    cmdp: cl.CMDP
    best: float
    safe: float
    uniform: float
    lam: np.ndarray


def dense(rng: np.random.Generator) -> Arrays:
    """Dense random moves, costs of range 2."""
    S, A, I = _sizes(rng)
    P = rng.uniform(size=(S, A, S)) ** rng.integers(1, 6)
    return P / P.sum(-1, keepdims=True), rng.uniform(size=(S, A)), rng.uniform(-1, 1, size=(I, S, A)), _start(rng, S)


def deterministic(rng: np.random.Generator) -> Arrays:
    """Moves that lead to one state, but for 2 % that lead anywhere among a few others."""
    S, A, I = _sizes(rng)
    P = np.zeros((S, A, S))
    for s, a in itertools.product(range(S), range(A)):
        P[s, a, rng.choice(S, 3, replace=False)] += 0.02 / 3
        P[s, a, rng.integers(S)] += 0.98
    r = rng.uniform(size=(S, A)) ** 3
    return P, r, -rng.uniform(size=(I, S, A)) * (rng.uniform(size=(I, S, A)) < 0.4), _start(rng, S)


def grid(rng: np.random.Generator) -> Arrays:
    """A square of 4×4 to 20×20: four moves that slip by 10 %, reward in one state, costs in a few."""
    k = int(np.round(np.exp(rng.uniform(np.log(4), np.log(20)))))
    S, I = k * k, int(rng.integers(1, 4))
    P, moves = np.zeros((S, 4, S)), [(0, 1), (1, 0), (0, -1), (-1, 0)]
    for x, y, a in itertools.product(range(k), range(k), range(4)):
        for b, p in ((a, 0.9), ((a + 1) % 4, 0.05), ((a - 1) % 4, 0.05)):
            u, v = np.clip((x + moves[b][0], y + moves[b][1]), 0, k - 1)
            P[x * k + y, a, u * k + v] += p
    r, g = np.zeros((S, 4)), np.zeros((I, S, 4))
    r[rng.integers(S)] = 1.0
    for i in range(I):
        g[i, rng.choice(S, max(2, S // 8), replace=False)] = -1.0
    return P, r, g, np.eye(S)[rng.integers(S)]


def queue(rng: np.random.Generator) -> Arrays:
    """Admission and service control in a random environment of one to four phases; limits on mean queue and power."""
    phases, levels = int(rng.integers(1, 5)), int(rng.integers(2, 5))
    L = int(np.clip(np.exp(rng.uniform(np.log(10), np.log(400))) / phases, 8, 100))
    S, A = phases * (L + 1), 2 * levels
    arrive, serve = rng.uniform(0.2, 0.7, phases), np.linspace(0.2, rng.uniform(0.6, 0.9), levels)
    turn = np.eye(phases) * 0.9 + 0.1 / phases
    P, r, g = np.zeros((S, A, S)), np.zeros((S, A)), np.zeros((2, S, A))
    for m, n, admit, level in itertools.product(range(phases), range(L + 1), range(2), range(levels)):
        s, a = m * (L + 1) + n, admit * levels + level
        enter, leave = arrive[m] * admit * (n < L), serve[level] * (n > 0)
        r[s, a] = enter
        g[0, s, a], g[1, s, a] = -n / L, -((serve[level] / serve[-1]) ** 2)
        for m2 in range(phases):
            for up, down in itertools.product(range(2), range(2)):
                p = (enter if up else 1 - enter) * (leave if down else 1 - leave)
                if p > 0:
                    P[s, a, m2 * (L + 1) + n + up - down] += turn[m, m2] * p
    return P, r, g, np.eye(S)[0]


def _sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    S = int(np.round(np.exp(rng.uniform(np.log(10), np.log(400)))))
    return S, int(rng.integers(2, 1 + int(np.clip(2000 / S, 3, 10)))), int(rng.choice([1, 2, 3, 4, 6, 8]))


def _start(rng: np.random.Generator, S: int) -> np.ndarray:
    return np.full(S, 1 / S) if rng.random() < 0.5 else rng.dirichlet(np.ones(S))


FAMILIES: dict[str, Callable[[np.random.Generator], Arrays]] = {
    "dense": dense,
    "deterministic": deterministic,
    "grid": grid,
    "queue": queue,
}


def drawn(family: str, seed: int) -> Case:
    """One problem of a family, with its truth."""
    if family == "two-hundred":
        case = guarantee.drawn(seed)
        return _judged(family, case.cmdp, cl.optimum(case.cmdp))
    rng = np.random.default_rng([20, list(FAMILIES).index(family), seed])
    while True:
        P, r, g, rho = FAMILIES[family](rng)
        gamma = float(rng.choice([0.8, 0.9, 0.95, 0.98, 0.99]))
        cmdp = cl.CMDP(P, r, g, np.zeros(len(g)), rho=rho, gamma=gamma)
        uniform = cl.evaluate(cmdp, np.full(r.shape, 1 / r.shape[1])).J
        size = np.ptp(g, axis=(1, 2))
        begin = cmdp.replace(b=uniform[1:] + rng.uniform(0, 0.05, len(g)) * size / (1 - gamma))
        slater = rng.uniform(0.02, 0.12) * float(size.min()) / (1 - gamma)
        cmdp = begin.replace(b=begin.b + slater_margin(begin)[0] - slater)
        best = cl.optimum(cmdp)
        if best.status == "optimal" and best.lam.max() > 1e-3:
            case = _judged(family, cmdp, best)
            if case.best - case.safe > NEAR * np.ptp(r) / (1 - gamma):
                return case


def _judged(family: str, cmdp: cl.CMDP, best: Any) -> Case:
    slater, safest = slater_margin(cmdp)
    safe = cl.optimum(cmdp.replace(b=cmdp.b + slater - 1e-6 * abs(slater)))
    J_safe = safe.J_r if safe.status == "optimal" else cl.evaluate(cmdp, safest).J[0]
    uniform = cl.evaluate(cmdp, cmdp.available / cmdp.available.sum(1, keepdims=True)).J[0]
    return Case(family, cmdp, best.J_r, float(J_safe), float(uniform), best.lam)


def needed_loss(case: Case, budget: float, delta: float) -> float:
    """What the exact optimum loses that keeps the slack which a test of it needs, by its spread and by its range: exact
    V as control variate, 60 % of the budget, the level of the first test. The range is not shortened.
    """
    cmdp, needs = case.cmdp, []
    exact = EstimatedModel(cmdp, np.full(cmdp.S * cmdp.A, 1e12), 1e12)
    seen = exact.evaluate(cl.optimum(cmdp).policy)
    for power in POWERS:
        source = MixtureEpisodes(cmdp, cl.Mixture.single(seen.pi), seen.V, power=power)
        reach, n = cmdp.b - source.bounds[0][1:], 0.6 * budget / source.episode_steps
        needs.append(slack_needed(seen.spread(power)[1:], reach, n, 0.48 * delta))
    tight = cl.optimum(cmdp.tightened(min(needs, key=lambda need: float(case.lam @ need))))
    return case.best - tight.J_r if tight.status == "optimal" else np.nan


def solved(job: tuple[str, int, float]) -> dict[str, Any]:
    """One problem by `solve`, judged by exact evaluation."""
    family, seed, budget = job
    warnings.simplefilter("ignore")
    case = drawn(family, seed)
    cmdp = case.cmdp
    row: dict[str, Any] = {"family": family, "seed": seed, "S": cmdp.S, "A": cmdp.A, "I": cmdp.I, "gamma": cmdp.gamma}
    began = time.process_time()
    try:
        solution = cl.solve(cmdp, evidence="samples", budget=budget, delta=0.01, seed=seed)
    except cl.InfeasibleError as e:
        return row | {"verdict": "INFEASIBLE" if e.proven else "NONE", "seconds": time.process_time() - began}
    J = solution.policy.J(cmdp)
    full = float(np.ptp(cmdp.r)) / (1 - cmdp.gamma)
    shares = {
        name: (J[0] - zero) / (case.best - zero)
        for name, zero in (("safe", case.safe), ("uniform", case.uniform))
        if case.best - zero > NEAR * full
    }
    row |= {"verdict": solution.certificate.verdict, "shares": shares, "share": min(shares.values(), default=np.nan)}
    row |= {
        "loss": case.best - J[0],
        "loss_of_range": (case.best - J[0]) / full,
        "needed": needed_loss(case, budget, 0.01),
    }
    row |= {"feasible": bool(np.min(J[1:] - cmdp.b) >= 0), "steps": solution.env_steps, "M": solution.policy.M}
    row |= {"tests": [a.evidence.verdict[:4] for a in solution.attempts], "seconds": time.process_time() - began}
    return row


def summary(rows: list[dict[str, Any]], family: str) -> str:
    own = [r for r in rows if r["family"] == family]
    sure = [r for r in own if r["verdict"] == "CERTIFIED"]
    share = np.array([r["share"] for r in sure])
    wrong = sum(not r["feasible"] for r in sure)
    ratio = np.array([r["loss"] / r["needed"] for r in sure if r["needed"] > 0])
    at = " | ".join(f"{np.nanquantile(share, q):.2%}" for q in (0.5, 0.1, 0.0)) if len(share) else "| |"
    far = " | ".join(f"{np.quantile(ratio, q):.2f}" for q in (0.5, 0.9, 1.0)) if len(ratio) else "| |"
    steps, seconds = np.mean([r["steps"] for r in sure]), np.mean([r["seconds"] for r in own])
    return f"| {family} | {len(own)} | {len(sure)} | {wrong} | {at} | {far} | {steps:.2g} | {seconds:.1f} |"


HEAD = (
    "| family | cases | CERTIFIED | false | median | lower decile | least "
    "| loss/needed: median | 9 of 10 below | largest | steps | s |"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--budget", type=float, default=1.3e6)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", help="append each row as JSON to this file")
    args = parser.parse_args()
    families = args.families.split(",")
    jobs = [(family, seed, args.budget) for seed in range(args.first, args.first + args.count) for family in families]
    rows = []
    with ProcessPoolExecutor(args.processes) as pool:
        for row in pool.map(solved, jobs):  # by seed, so that a study which is cut short has some of every family
            rows.append(row)
            if args.out:
                with open(args.out, "a") as file:
                    file.write(json.dumps(row, default=float) + "\n")
    print(HEAD, "|" + "---|" * 12, *(summary(rows, family) for family in families), sep="\n")


if __name__ == "__main__":
    main()
