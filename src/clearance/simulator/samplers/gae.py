"""Compute advantages and estimates of J from steps, for all signals at once.

    δ_t = h_t + γ V(s_{t+1}) − V(s_t),     A_t = δ_t + γλ A_{t+1}                   (Schulman et al. 2016)

After the last step of a terminated episode, V = 0. After a truncated episode, V of the true next observation is used.
In both cases the sum for A_t ends there. Arrays have the time as their first axis: [T, n, 1+I] for signals.
"""

from __future__ import annotations

from typing import Any

from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.simulator import Steps


def gae(steps: Steps, V: Any, V_after: Any, gamma: float, decay: float) -> Any:
    """Return the advantages A [T, n, 1+I] by GAE with λ = `decay`; they are 0 in rows that are not valid steps.

    V, V_after  the critic's values [T, n, 1+I] of the current and of the next observations
    """
    alive, joined = ~steps.terminated, ~(steps.terminated | steps.truncated)
    delta = (steps.h + gamma * V_after * alive[..., None] - V) * steps.valid[..., None]

    def back(A: Any, row: Any) -> Any:
        delta_t, joined_t, valid_t = row
        A = (delta_t + gamma * decay * A * joined_t[:, None]) * valid_t[:, None]
        return A, A

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, joined, steps.valid), reverse=True)[1]


def episode_times(steps: Steps) -> Any:
    """Return, for every recorded step, its time t within its episode, as an array [T, n] for T steps of n lanes."""
    done = (steps.terminated | steps.truncated) & steps.valid

    def count(t: Any, row: Any) -> Any:
        ended, valid = row
        return jnp.where(ended, 0, t + valid), t

    return jax.lax.scan(count, jnp.zeros(done.shape[1], jnp.int32), (done, steps.valid))[1]


def occupancy_weights(t: Any, steps: Steps, gamma: float) -> Any:
    """Return weights [T, n] with which the steps represent d_ρ^π, the discounted distribution of states and actions.

    `t` [T, n] is the time within the episode. The weight is γ^t, and 0 for rows that are not valid steps.
    """
    return gamma ** t.astype(steps.h.dtype) * steps.valid


def first_returns(steps: Steps, V_after: Any, gamma: float) -> Any:
    """Return the sums Σ_t γ^t h_t of the signals h over the first episode of each parallel environment [n, 1+I].

    If this episode is unfinished, V_after, the critic's value of the next observation, stands for the rest of the sum.
    Only first episodes count: further episodes that end within a batch tend to be short, so using them would be biased.
    """
    done = (steps.terminated | steps.truncated) & steps.valid
    before = jnp.cumsum(done, axis=0) - done  # episodes ended before this row
    first = (before == 0) & steps.valid
    t = (jnp.cumsum(first, axis=0) - 1).astype(steps.h.dtype)
    X = jnp.sum(jnp.where(first[..., None], gamma ** t[..., None] * steps.h, 0.0), axis=0)
    length = jnp.sum(first, axis=0)
    unfinished = ~jnp.any(done, axis=0)
    return X + jnp.where(unfinished, gamma**length, 0.0)[:, None] * V_after[-1]
