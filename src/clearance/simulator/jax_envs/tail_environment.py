"""JAX environments with limits on single episodes (`Chance`, `CVaR`).

Their state also contains the costs so far of the episode. The signals of the limits are computed from these costs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.tail_costs import TailCosts


class Remembering(NamedTuple):
    """The state of an environment with limits on single episodes (`Chance`, `CVaR`).

    state  the state of the plain environment, which has no such limits;  t: the time in the episode
    sums   the costs so far, one for each constraint of the plain environment
    rest   the accumulated rounding errors of `sums`
    """

    state: Any
    sums: Any
    rest: Any
    t: Any


def remember_costs(plain: Any, tail_costs: TailCosts) -> tuple[Any, Any, Any]:
    """Return functions reset, step and observe that add limits on single episodes to the environment `plain`.

    `tail_costs` holds these limits (`Chance`, `CVaR`) and the rules that turn costs into signals.
    """
    I = tail_costs.plain.I

    def reset(key: Any) -> Remembering:
        zero = jnp.zeros(I)
        return Remembering(plain.reset(key), zero, zero, jnp.zeros((), jnp.int32))

    def step(key: Any, state: Remembering, action: Any) -> tuple[Remembering, Any, Any]:
        moved, h, terminated = plain.step(key, state.state, action)
        cost = -h[1:]
        sums, rest = _add(state.sums, state.rest, cost)
        found = tail_costs.signals(cost, state.sums + state.rest, sums + rest, jnp)
        found = jnp.where(tail_costs.wrong(cost, jnp).any(), jnp.nan, found)  # reported as an error later
        return Remembering(moved, sums, rest, state.t + 1), jnp.concatenate([h[:1], -found]), terminated

    def observe(state: Remembering) -> Any:
        obs, memory = plain.observe(state.state), tail_costs.memory
        if memory is None:
            return obs
        spent = (state.sums + state.rest)[jnp.array(tail_costs.remembered)]
        return memory.join(obs, spent, state.t, jnp)

    return reset, step, observe


def _add(sums: Any, rest: Any, cost: Any) -> tuple[Any, Any]:
    """Return new `sums` and a new `rest` after adding a cost, by Neumaier's summation (1974).

    `rest` collects the rounding errors of all additions. Without it, sums in float32 would lose small costs.
    """
    new = sums + cost
    lost = jnp.where(jnp.abs(sums) >= jnp.abs(cost), (sums - new) + cost, (cost - new) + sums)
    return new, rest + jax.lax.optimization_barrier(lost)
