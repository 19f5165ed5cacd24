"""Compute advantages and estimates of J from steps, for all signals at once.

    δ_t = h_t + γ V(s_{t+1}) − V(s_t),     A_t = δ_t + γλ A_{t+1}                   (Schulman et al. 2016)

After a terminated episode V = 0; after a truncated one V of the true next observation is used. Neither passes
advantages on to the next episode of its lane. Arrays are time-major, [T, n, 1+I] for signals.
"""

from __future__ import annotations

from typing import Any

from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.simulator import Steps


def gae(steps: Steps, V: Any, V_after: Any, gamma: float, decay: float) -> Any:
    """Return the advantages A [T, n, 1+I] with λ = `decay`; 0 in rows that are no step."""
    alive, joined = ~steps.terminated, ~(steps.terminated | steps.truncated)
    delta = (steps.h + gamma * V_after * alive[..., None] - V) * steps.valid[..., None]

    def back(A: Any, row: Any) -> Any:
        delta_t, joined_t, valid_t = row
        A = (delta_t + gamma * decay * A * joined_t[:, None]) * valid_t[:, None]
        return A, A

    return jax.lax.scan(back, jnp.zeros_like(delta[0]), (delta, joined, steps.valid), reverse=True)[1]


def episode_times(steps: Steps) -> Any:
    """Return the time t within its episode of every row [T, n]."""
    done = (steps.terminated | steps.truncated) & steps.valid

    def count(t: Any, row: Any) -> Any:
        ended, valid = row
        return jnp.where(ended, 0, t + valid), t

    return jax.lax.scan(count, jnp.zeros(done.shape[1], jnp.int32), (done, steps.valid))[1]


def occupancy_weights(t: Any, steps: Steps, gamma: float) -> Any:
    """Return the weights [T, n] of the rows as draws from d_ρ^π, up to a factor: γ^t within an episode."""
    return gamma ** t.astype(steps.h.dtype) * steps.valid


def first_returns(steps: Steps, V_after: Any, gamma: float) -> Any:
    """Return X [n, 1+I] = Σ_t γ^t h_t over the first episode of every lane; if it is unfinished, V replaces the rest.

    Only first episodes count: those that also end within a batch are the short ones, so using all would be biased.
    """
    done = (steps.terminated | steps.truncated) & steps.valid
    before = jnp.cumsum(done, axis=0) - done  # episodes ended before this row
    first = (before == 0) & steps.valid
    t = (jnp.cumsum(first, axis=0) - 1).astype(steps.h.dtype)
    X = jnp.sum(jnp.where(first[..., None], gamma ** t[..., None] * steps.h, 0.0), axis=0)
    length = jnp.sum(first, axis=0)
    unfinished = ~jnp.any(done, axis=0)
    return X + jnp.where(unfinished, gamma**length, 0.0)[:, None] * V_after[-1]
