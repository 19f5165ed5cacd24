"""Algorithm 2 on a simulator that cannot be put back into a chosen state: unbiased draws with a fair coin.

    run from ρ, stop with probability 1−γ before each further step: the last pair (s, a) is a draw of d_ρ^π
    toss a coin there, and draw T ~ Geo(1−γ) on {1, 2, …}.   Heads: continue from (s, a),   Â = +2 Σ_{t<T} h
                                   tails: take a fresh action at s instead of a,         Â = −2 Σ_{t<T} h

Here ρ is the start distribution, d_ρ^π the discounted occupancy, and h are the signals (reward and utilities). Â
estimates the advantage: E Â = Q(s, a) − V(s) = A(s, a). This also holds with h_t + γ V(s_{t+1}) − V(s_t) in place of
h_t, for any function V that does not depend on these episodes. Such a V is a control variate. Every episode begins with
`reset(seed)`; no other reset is needed.

The seeds of the environment and the random numbers of the sampler come from two separate streams. With a single stream,
an environment with the same generator would see the numbers that decide T, the coin and the actions, and the estimate
would be biased.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.simulator.gymnasium_envs.gymnasium_problem import Gym
from clearance.simulator.simulator import Steps

# sample(rng, obs [n, …]) → actions [n, …] ~ π(·|obs), or values that the function `action` turns into actions
Sample = Callable[[np.random.Generator, Any], Any]
Signals = Callable[[Steps], Array]


class CoinDraws(NamedTuple):
    """N draws of Algorithm 2: observations [N, …], actions [N, …], estimated advantages A [N, 1+I], and steps taken.

    alive [N]  False if the episode had ended before the draw; its advantage is then 0
    heads [N]  whether the coin showed heads; if not, −A/2 is the sum of the signals after a fresh action
    """

    obs: Any
    action: Any
    A: Array
    alive: NDArray[np.bool_]
    heads: NDArray[np.bool_]
    steps: int


class Returns(NamedTuple):
    """N estimates of J [N, 1+I], the first observations of their episodes [N, …], and the environment steps taken."""

    X: Array
    obs: Any
    steps: int


def plain(steps: Steps) -> Array:
    """Return the signals h [T, n, 1+I] of T steps in n lanes unchanged, i.e. without a control variate."""
    return steps.h


def coin_draws(
    sim: Gym, sample: Sample, seed: int, N: int, signals: Signals = plain, action: Callable[[Any], Any] = np.asarray
) -> CoinDraws:
    """Return at least N draws of a state s, an action a and an estimate Â of the advantage of a at s.

    No reset to a chosen state is needed. Each round makes one draw in every parallel environment.

    sample   function (rng, observations) → values that the policy draws;  action: function from these values to actions
    signals  function from steps to the signals that are summed; default: h, without a control variate
    """
    parts = [_round(sim, sample, seed, k, signals, action) for k in range(-(-N // sim.n))]
    obs, chosen, A, alive, heads = (np.concatenate([p[j] for p in parts]) for j in range(5))
    return CoinDraws(obs, chosen, A, alive, heads, sum(p.steps for p in parts))


def geometric_returns(
    sim: Gym, sample: Sample, seed: int, N: int, signals: Signals = plain, action: Callable[[Any], Any] = np.asarray
) -> Returns:
    """Return at least N unbiased estimates X = Σ_{t<T} h_t of J from the signals h, with T ~ Geo(1−γ) on {1, 2, …}.

    The arguments are those of `coin_draws`.
    """
    drawn = []
    for k in range(-(-N // sim.n)):
        seeds, rng = streams(seed, k, sim.n)
        T = _horizons(sim, rng)
        steps = sim.walk(lambda obs, t: action(sample(rng, obs)), seeds, T, once=True)  # noqa: B023
        X = _sums(steps, np.zeros(sim.n, np.int64), T, signals)
        drawn.append((X, steps.obs[0], int(steps.valid.sum())))
    X, obs, total = zip(*drawn, strict=True)
    return Returns(np.concatenate(X), np.concatenate(obs), sum(total))


def streams(seed: int, k: int, n: int) -> tuple[list[int], np.random.Generator]:
    """Return the seeds of n environments, and a random generator for the sampler, for round k.

    Seeds and generator come from two independent random streams.
    """
    theirs, ours = np.random.SeedSequence([seed, k]).spawn(2)
    return [int(s) for s in theirs.generate_state(n, np.uint32)], np.random.default_rng(ours)


def _round(sim: Gym, sample: Sample, seed: int, k: int, signals: Signals, action: Callable[[Any], Any]) -> CoinDraws:
    seeds, rng = streams(seed, k, sim.n)
    at, T = _horizons(sim, rng) - 1, _horizons(sim, rng)  # the step of the pair, and how many are summed from there
    heads, lane = rng.random(sim.n) < 0.5, np.arange(sim.n)
    chosen: list[Any] = []

    def act(obs: Any, t: int) -> Any:
        a, fresh = sample(rng, obs), sample(rng, obs)
        chosen.append(np.array(a))
        taken = np.where(heads | (at != t), False, True).reshape(-1, *[1] * (np.ndim(a) - 1))
        return action(np.where(taken, fresh, a))

    steps = sim.walk(act, seeds, at + T, once=True)
    last = np.minimum(at, len(steps.valid) - 1)
    alive = steps.valid[last, lane] & (at == last)
    A = np.where(heads, 2.0, -2.0)[:, None] * _sums(steps, at, T, signals)
    return CoinDraws(steps.obs[last, lane], np.stack(chosen)[last, lane], A, alive, heads, int(steps.valid.sum()))


def _horizons(sim: Gym, rng: np.random.Generator) -> NDArray[np.int64]:
    s = sim.statement
    if s.horizon is not None:
        raise InputError("the coin is for discounted problems without a horizon")
    return rng.geometric(1 - s.gamma, sim.n)


def _sums(steps: Steps, begin: NDArray[np.int64], T: NDArray[np.int64], signals: Signals) -> Array:
    """Return sums of the signals [n, 1+I], one for the first episode of each parallel environment.

    The sum is over the steps `begin` to `begin` + T − 1. `signals` is a function from steps to signals.
    """
    t = np.arange(len(steps.valid))[:, None]
    within = (t >= begin) & (t < begin + T) & steps.valid
    return np.einsum("tn,tnh->nh", within.astype(float), np.where(within[..., None], signals(steps), 0.0))
