"""Solve the tasks of a suite with defaults, and compare each certificate with fresh episodes.

    python benchmarks/tasks/run_suite.py development --seeds 5 --out rows.jsonl
    python benchmarks/tasks/run_suite.py development --only hazards lunar --method eta2=.5
    python benchmarks/tasks/run_suite.py table rows.jsonl

Every run is one line of JSON in `--out`; runs that are there already are not repeated. `table` prints one row per task.
The truth is the mean of 1,000 fresh episodes of the policy that was returned. LunarLander needs gymnasium[box2d].
"""

from __future__ import annotations

import argparse
import ast
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from suites import SUITES, Task

import clearance as cl
from clearance.core.random_streams import fold, key_of
from clearance.learning.methods.practical_cnpgpd import PracticalCNPGPD
from clearance.simulator.samplers.rule_episodes import network_episodes

EPISODES = 1000
TRUTH = 2**41 + 77  # a stream that no run uses


def solve_task(name: str, task: Task, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Solve one task, measure the policy again, and return a row."""
    problem, began = task.make(), time.process_time()
    method = replace(PracticalCNPGPD(), **settings)
    sol = cl.solve(problem, method, budget=task.budget, seed=seed)
    cpu, cert = time.process_time() - began, sol.certificate
    X, _, _ = network_episodes(problem, sol.policy).draw(fold(key_of(seed), TRUTH), 0, EPISODES)
    J, error = X.mean(0), X.std(0) / np.sqrt(len(X))
    paid = -sol.trace.J_hat[:, 1:]
    return {
        "task": name,
        "seed": seed,
        "settings": {k: str(v) for k, v in settings.items()},
        "verdict": cert.verdict,
        "return": float(J[0]),
        "first": float(sol.trace.J_hat[0, 0]),
        "costs": (-J[1:]).tolist(),
        "errors": error.tolist(),
        "limits": (-problem.statement.b).tolist(),
        "components": cert.components,
        "paid": paid.mean(0).tolist(),
        "env_steps": int(sol.env_steps),
        "cpu": round(cpu, 1),
        "message": cert.message,
    }


def false_certificate(row: dict[str, Any]) -> bool:
    """Whether fresh episodes contradict a certificate: a cost above its limit by three standard errors."""
    over = np.array(row["costs"]) - np.array(row["limits"]) > 3 * np.array(row["errors"][1:])
    return row["verdict"] == "CERTIFIED" and bool(over.any())


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print one row per task: verdicts, mean return, costs over limits, CPU seconds."""
    print("| task | certified | return | costs / limits | steps | CPU s |\n|---|---|---|---|---|---|")
    for name in dict.fromkeys(row["task"] for row in rows):
        own = [row for row in rows if row["task"] == name]
        sure = sum(row["verdict"] == "CERTIFIED" for row in own)
        J = ", ".join(f"{row['return']:.4g}" for row in own)
        share = np.array([row["costs"] for row in own]) / np.array(own[0]["limits"])
        costs = ", ".join(f"{x:.2f}" for x in share.max(1))
        steps, cpu = (np.mean([row[k] for row in own]) for k in ("env_steps", "cpu"))
        print(f"| {name} | {sure}/{len(own)} | {J} | {costs} | {steps:.3g} | {cpu:.0f} |")
    sure = [row for row in rows if row["verdict"] == "CERTIFIED"]
    false = sum(map(false_certificate, rows))
    print(f"\n{len(sure)} of {len(rows)} are CERTIFIED. Fresh episodes contradict {false} of these certificates.")


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=[*SUITES, "table"])
    parser.add_argument("rows", nargs="?", type=Path, help="for `table`: the rows to read")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--method", nargs="*", default=[], help="NAME=VALUE: settings of PracticalCNPGPD to try")
    parser.add_argument("--out", type=Path, default=Path("rows.jsonl"))
    args = parser.parse_args()
    if args.suite == "table":
        print_table(read_rows(args.rows))
        return
    settings = {k: ast.literal_eval(v) for k, v in (pair.split("=", 1) for pair in args.method)}
    tasks = {k: v for k, v in SUITES[args.suite].items() if args.only is None or k in args.only}
    done = {(row["task"], row["seed"]) for row in read_rows(args.out)}
    for seed in range(args.first, args.first + args.seeds):
        for name, task in tasks.items():
            if (name, seed) not in done:
                row = solve_task(name, task, seed, settings)
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row["task"], seed, row["verdict"], f"{row['return']:.4g}", row["costs"], row["cpu"], flush=True)
    print_table([row for row in read_rows(args.out) if row["task"] in tasks])


if __name__ == "__main__":
    main()
