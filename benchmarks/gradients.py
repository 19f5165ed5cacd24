"""How good are the gradients of the practical sampler? Signal, noise and bias at a policy that stands still.

    python benchmarks/gradients.py TASK POLICY.npz [--before 20] [--batches 32]

For every setting of critics and of GAE, on the same walks: critics learn from the first batches, then each batch gives
an estimate ĝ_j of the gradient of every signal. Of these, in one line of JSON:

    snr        ‖E ĝ_j‖²/tr Cov ĝ_j, of one batch
    cosine     of E ĝ_j with that of the last setting, whose bias is least: almost no discount, and no V but as baseline
               (Schulman et al. 2016); null where the batches do not show that E ĝ_j is not 0

E a·E b is estimated by the mean of a_m·b_n over batches m ≠ n, so that noise which settings share on the same walks
does not count as agreement. `error` is the jackknife's standard error of the cosine, leaving out one batch at a time.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import clearance as cl
from clearance.core.arrays import Array
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.samplers.actor_critic import Practical

SETTINGS: dict[str, dict[str, Any]] = {
    "4 epochs of 512 rows, decay .95": {"epochs": 4, "batch_rows": 512, "decay": 0.95},
    "4 epochs of 128 rows, decay .95": {"epochs": 4, "decay": 0.95},
    "10 epochs of 128 rows, decay .95": {"decay": 0.95},
    "10 epochs of 128 rows, decay .97": {},
    "10 epochs of 128 rows, decay .98": {"decay": 0.98},
    "decay 1, discount .999": {"decay": 1.0, "discount": 0.999},
}


@dataclass(frozen=True, eq=False)
class Replayed(Practical):
    """The sampler on walks that are there already."""

    walks: tuple[Any, ...] = ()

    def _walk(self, key: np.uint64, memory: Any, theta: Any, N: int) -> Any:
        return self.walks[int(key)]


def gradients(sampler: Replayed, memory: Any, theta: Any, N: int, before: int) -> Any:
    """ĝ [batches, 1+I, d] of all batches but the first ones."""
    found = []
    for k in range(len(sampler.walks)):
        draws, _, memory, _ = sampler.batch(np.uint64(k), memory, theta, N)
        if k >= before:
            A = draws.A - draws.weight @ draws.A
            found.append([draws.score.gradient(A[:, j]) for j in range(A.shape[1])])  # type: ignore[attr-defined]
    return np.array(found)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("task", choices=list(cl.zoo.SIMULATORS))
    p.add_argument("policy", type=Path)
    p.add_argument("--before", type=int, default=20)
    p.add_argument("--batches", type=int, default=32)
    args = p.parse_args()
    mixture = cl.NetworkMixture.load(args.policy)
    theta = mixture.theta[np.argmax(mixture.weights)]
    with cl.zoo.SIMULATORS[args.task]() as problem:
        sampler = Replayed(problem, mixture.policy, warm=0)
        normaliser = Normaliser(*(np.asarray(x, np.float32) for x in mixture.normaliser))
        world = sampler.begin()._replace(normaliser=normaliser, batches=np.int32(1))  # frozen: the warm-up is over
        N = 8 * sampler.steps_per_lane
        keys = (np.uint64(k) for k in range(args.before + args.batches))
        walks = tuple(Practical._walk(sampler, key, world, theta, N) for key in keys)
        found = {
            name: gradients(replace(sampler, walks=walks, **settings), world, theta, N, args.before)
            for name, settings in SETTINGS.items()
        }
    least_biased = list(found.values())[-1]
    for name, g in found.items():
        snr = inner(g, g) / g.var(0, ddof=1).sum(-1)
        facts = {
            "snr": rounded(snr),
            "cosine": rounded(cosine(g, least_biased)),
            "error": rounded(error(g, least_biased)),
        }
        print(json.dumps({"task": args.task, "setting": name, **facts}), flush=True)


def inner(a: Array, b: Array) -> Array:
    """E a·E b [1+I] without bias, from batches [n, 1+I, d]."""
    n = len(a)
    return ((a.sum(0) * b.sum(0)).sum(-1) - (a * b).sum((0, 2))) / (n * (n - 1))


def cosine(a: Array, b: Array) -> Array:
    with np.errstate(invalid="ignore"):  # the square root of less than nothing: no signal
        return inner(a, b) / np.sqrt(inner(a, a)) / np.sqrt(inner(b, b))


def error(a: Array, b: Array) -> Array:
    n = len(a)
    without = np.array([cosine(np.delete(a, k, 0), np.delete(b, k, 0)) for k in range(n)])
    return np.sqrt((n - 1) * without.var(0))


def rounded(x: Array) -> list[float | None]:
    return [round(float(v), 3) if np.isfinite(v) else None for v in x]


if __name__ == "__main__":
    main()
