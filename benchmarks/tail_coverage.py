"""How often a test of a chance is wrong: P(C > 5) of a binomial C, at the limit and a hair beside it.

    python benchmarks/tail_coverage.py --trials 10000 --delta 0.05

Every trial is a whole sequential test by `gather`, on episodes whose signals are the increments of a limit on a chance
or a tail. A limit a hair below the true chance must not be CERTIFIED, and one a hair above it not be VIOLATED, each in
more than δ of the trials. A CVaR must not be CERTIFIED below its true value, and is never VIOLATED.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import clearance as cl
from clearance.certificates.sequential_test import gather
from clearance.core.random_streams import fold, key_of
from clearance.simulator.policies.network_policy import Normaliser
from clearance.simulator.samplers.simulator_episodes import NetworkEpisodes

H, P, LEVEL = 12, 0.3, 0.8
HAIR = 1e-6  # the relative distance of a limit from the truth


def coins(limit: Any, lanes: int) -> Any:
    """Each of H steps costs 1 with probability P."""

    def step(key: Any, state: Any, action: Any) -> Any:
        cost = (jax.random.uniform(key) < P).astype(float)
        return state, jnp.stack([jnp.zeros(()), cost]), jnp.zeros((), bool)

    return cl.environment(lambda key: jnp.zeros(()), step, lambda s: s[None], action=cl.Discrete(2), gamma=1.0,
                          limits={"cost": limit}, horizon=H, bounds=([0.0, 0.0], [1.0, 1.0]), lanes=lanes,
                          name="coins")  # fmt: skip


class Stored:
    """Episodes that were drawn in one go, handed out in order: a trial is a row of them."""

    def __init__(self, source: NetworkEpisodes, X: Any) -> None:
        self.bounds, self.bias, self.episode_steps = source.bounds, source.bias, source.episode_steps
        self.one_sided, self.X = source.one_sided, X

    def draw(self, key: Any, begin: int, n: int) -> Any:
        return self.X[begin : begin + n], np.zeros(n, np.int64), n * H


def run(limit: Any, trials: int, episodes: int, delta: float) -> dict[str, int]:
    env = coins(limit, 4096)
    policy = cl.categorical(hidden=()).fitted(env.obs_shape, env.action, 0, env.memory)
    source = NetworkEpisodes(env, cl.NetworkMixture.single(policy, policy.init(), Normaliser.identity(policy.inputs)))
    found = {"CERTIFIED": 0, "VIOLATED": 0, "UNDECIDED": 0}
    each = max(1, 1_000_000 // episodes)
    for first in range(0, trials, each):
        n = min(each, trials - first)
        X = source.draw(fold(key_of(0), first), 0, n * episodes)[0].reshape(n, episodes, -1)
        for x in X:
            seen = gather(Stored(source, x), env.statement.b, delta, np.uint64(0), episodes * H)
            found[seen.verdict] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--delta", type=float, default=0.05)
    args = parser.parse_args()
    mass, k = stats.binom.pmf(np.arange(H + 1), H, P), np.arange(H + 1)
    chance = float(stats.binom.sf(5, H, P))
    tails = [float(nu + mass @ np.maximum(k - nu, 0) / (1 - LEVEL)) for nu in k]
    nu = int(np.argmin(tails))
    cases = {
        f"chance {chance:.5f}, limit a hair below": cl.Chance(5, chance * (1 - HAIR)),
        f"chance {chance:.5f}, limit a hair above": cl.Chance(5, chance * (1 + HAIR)),
        f"CVaR {tails[nu]:.5f}, limit a hair below": cl.CVaR(LEVEL, tails[nu] * (1 - HAIR), at=nu),
        f"CVaR {tails[nu]:.5f}, limit a hair above, worse ν": cl.CVaR(LEVEL, tails[nu] * (1 + HAIR), at=nu - 2),
    }
    for name, limit in cases.items():
        start = time.process_time()
        found = run(limit, args.trials, args.episodes, args.delta)
        print(f"{name}: {found}, {time.process_time() - start:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main()
