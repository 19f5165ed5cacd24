"""Set the certified policies of run_suite.py beside a peer that learned with the same environment steps.

    python benchmarks/peers/peer_table.py peer.jsonl rows.jsonl

`peer.jsonl` comes from ppo_lagrangian.py, `rows.jsonl` from benchmarks/tasks/run_suite.py. The first table has each
task: returns, costs and costs paid while learning over the limits, CPU seconds. Then returns are compared over the
tasks where the peer keeps the limits: its mean cost over the seeds exceeds none by more than two standard errors. A
return J counts as (J − J₀)/(J* − J₀), with the return J₀ of the policy before learning, and the best return J* of
either among the runs that keep the limits. A run of ours that is not CERTIFIED counts as 0. The bounds of the
differences come from 10,000 bootstrap samples of the seeds of each task.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

SAMPLES = 10_000


def keeps_limits(rows: list[dict[str, Any]]) -> bool:
    """Whether the mean costs of the runs are at most the limits, within two standard errors of the measurement."""
    cost, error = (np.mean([row[key] for row in rows], axis=0) for key in ("costs", "errors"))
    return bool(np.all(cost <= np.array(rows[0]["limits"]) + 2 * error[1:] / np.sqrt(len(rows))))


def scores(peer: list[dict[str, Any]], own: list[dict[str, Any]]) -> tuple[Any, Any]:
    """Normalised returns of the runs of one task, of the peer and of ours."""
    first = float(np.mean([row["first"] for row in own]))
    kept = [row["return"] for row in [*peer, *own] if keeps_limits([row])]
    scale = max(max(kept, default=first) - first, 1e-12)
    ours = [row["return"] if row["verdict"] == "CERTIFIED" else first for row in own]
    return (np.array([row["return"] for row in peer]) - first) / scale, (np.array(ours) - first) / scale


def interquartile_mean(x: Any) -> float:
    x = np.sort(np.asarray(x))
    return float(np.mean(x[len(x) // 4 : len(x) - len(x) // 4]))


def compare(pairs: list[tuple[Any, Any]]) -> str:
    """Differences ours − peer of interquartile mean and mean over all runs, with their 95 % bootstrap intervals."""
    rng = np.random.default_rng(0)

    def draw(x: Any) -> Any:
        return x[rng.integers(0, len(x), (SAMPLES, len(x)))]

    found = []
    peer, own = (np.concatenate([pair[j] for pair in pairs]) for j in (0, 1))
    samples = [np.concatenate([draw(pair[j]) for pair in pairs], axis=1) for j in (0, 1)]
    for name, mean in (("interquartile mean", interquartile_mean), ("mean", np.mean)):
        drawn = [mean(b) - mean(a) for a, b in zip(*samples, strict=True)]
        low, high = np.quantile(drawn, [0.025, 0.975])
        found.append(f"{name}: {mean(own):.3f} against {mean(peer):.3f}, difference {mean(own) - mean(peer):+.3f} "
                     f"[{low:+.3f}, {high:+.3f}]")  # fmt: skip
    return "\n".join(found)


def print_rows(name: str, word: str, rows: list[dict[str, Any]]) -> None:
    share = [np.max(np.array([r["costs"], r["paid"]]) / np.array(r["limits"]), axis=1) for r in rows]
    J = ", ".join(f"{r['return']:.4g}" for r in rows)
    cost, paid = (", ".join(f"{x[j]:.2f}" for x in share) for j in (0, 1))
    print(f"| {name} | {word} | {J} | {cost} | {paid} | {np.mean([r['cpu'] for r in rows]):.0f} |")


def main() -> None:
    peer, own = ([json.loads(line) for line in Path(file).read_text().splitlines()] for file in sys.argv[1:3])
    print("| task | | return | costs / limits | paid / limits | CPU s |\n|---|---|---|---|---|---|")
    pairs, left_out = [], []
    for name in dict.fromkeys(row["task"] for row in peer):
        theirs, ours = ([row for row in rows if row["task"] == name] for rows in (peer, own))
        for word, rows in (("PPO-Lagrangian", theirs), ("clearance", ours)):
            if rows:
                print_rows(name, word, rows)
        if ours and keeps_limits(theirs):
            pairs.append(scores(theirs, ours))
        elif ours:
            left_out.append(name)
    print(f"\n{len(pairs)} tasks where the peer keeps the limits (not: {', '.join(left_out) or 'none'}).")
    if pairs:
        print(compare(pairs))


if __name__ == "__main__":
    main()
