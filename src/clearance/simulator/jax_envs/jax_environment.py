"""Problems from environments written in JAX, given as three pure functions:

    reset(key) → state        step(key, state, action) → (state, h [1+I], terminated)        observe(state) → obs

The signals h are (r, g_1, …, g_I) if the user gives lower limits `b` of utilities g, or (r, cost_1, …, cost_I) if the
user gives upper limits `limits` of costs. Because the functions are pure, whole batches of episodes run inside one
compiled program, and an environment can be put back into a state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from clearance.core.criterion import check_sampled
from clearance.core.errors import InputError
from clearance.core.spaces import Space, restore_space
from clearance.core.statement import Statement, read_vector, values_in_order
from clearance.core.tail_limits import has_tails, plain_limits
from clearance.simulator.gymnasium_envs import env_lanes
from clearance.simulator.jax_backend import jax, jnp
from clearance.simulator.jax_envs.tail_environment import remember_costs
from clearance.simulator.simulator import ROUGHLY, Exact, Simulator
from clearance.simulator.tail_costs import TailCosts

LANES = 256


@dataclass(frozen=True, eq=False)
class Environment(Simulator):
    """A simulator in JAX, given as three pure functions `reset`, `step` and `observe`.

    n           number of episodes that run in parallel for a certificate; learning chooses its own number
    exact       function (policy, θ, normaliser) → exact J [1+I] with proven lower and upper bounds; None if unknown
    sign        −1 if the user's step returns costs, so that errors are reported with the user's sign
    plain       for limits on single episodes (`Chance`, `CVaR`): the problem without such limits; else None
    tail_costs  for limits on single episodes: the rules that turn costs into signals; else None
    """

    statement: Statement
    reset: Callable[[Any], Any]
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any]]
    observe: Callable[[Any], Any]
    action: Space
    n: int = LANES
    exact: Exact | None = None
    sign: float = 1.0
    plain: Environment | None = None
    tail_costs: TailCosts | None = None
    obs_shape: tuple[int, ...] = field(init=False)
    slip: ClassVar[float] = ROUGHLY

    def __post_init__(self) -> None:
        key = jax.random.key(0)
        state = jax.eval_shape(self.reset, key)
        kind = int if not hasattr(self.action, "low") else float
        action = jax.ShapeDtypeStruct(self.action.shape, jnp.zeros(0, kind).dtype)
        after, h, terminated = three(jax.eval_shape(self.step, key, state, action))
        if jax.tree.map(lambda x: (x.shape, x.dtype), after) != jax.tree.map(lambda x: (x.shape, x.dtype), state):
            raise InputError(f"{self.name}: step must give a state of the same shapes and types as reset does")
        if h.shape != (1 + self.statement.I,):
            raise InputError(
                f"{self.name}: step gives h of shape {h.shape}, it must be [1+I] = {(1 + self.statement.I,)}"
            )
        seen = jax.eval_shape(self.observe, state)
        if not hasattr(seen, "shape"):
            raise InputError(f"{self.name}: observe must give one array")
        object.__setattr__(self, "obs_shape", tuple(seen.shape))
        if terminated.shape != () or terminated.dtype != bool:
            raise InputError(
                f"{self.name}: terminated must be one bool, got {terminated.dtype}{list(terminated.shape)}"
            )

    @property
    def name(self) -> str:
        return self.statement.name

    def restate(self, told: Statement, costs: TailCosts) -> Environment:
        made = remember_costs(self, costs)
        return Environment(told, *made, self.action, self.n, sign=self.sign, plain=self, tail_costs=costs)


def environment(
    reset: Callable[[Any], Any],
    step: Callable[[Any, Any, Any], tuple[Any, Any, Any]],
    observe: Callable[[Any], Any],
    *,
    action: Space,
    gamma: float,
    b: Any = None,
    limits: Any = None,
    horizon: int | None = None,
    names: Sequence[str] = (),
    bounds: Any = None,
    name: str = "environment",
    lanes: int = LANES,
    cost_so_far: bool = True,
    criterion: str | None = None,
) -> Environment:
    """Return a problem made from three pure JAX functions.

    b, limits    lower limits of utilities g, or upper limits of costs, as a number, a vector or a dict by name. With
                 costs, `step` returns (r, cost_1, …), and `bounds` are those of the costs. A limit may be `cl.Chance`
                 or `cl.CVaR`, which limit the cost of single episodes; a list gives one cost several limits
    lanes        number of episodes that run in parallel for a certificate
    cost_so_far  with limits on single episodes: whether policies see the sums of the costs so far
    criterion    follows from gamma and horizon; "average" is refused, since samples cannot certify it
    """
    check_sampled(criterion)
    if has_tails(limits):
        rest = {"action": action, "gamma": gamma, "b": b, "limits": plain_limits(limits), "horizon": horizon}
        plain = environment(reset, step, observe, **rest, names=names, bounds=bounds, name=name, lanes=lanes)
        return plain.with_limits(limits, cost_so_far=cost_so_far)
    if (b is None) == (limits is None):
        raise InputError("give either b, lower limits of utilities, or limits, upper limits of costs")
    given, word, turn = (b, "b", 1.0) if limits is None else (limits, "limits", -1.0)
    if isinstance(given, Mapping):
        names = names or tuple(str(k) for k in given)
        given = values_in_order(word, given, names)
    limit = turn * read_vector(word, given)
    told = Statement(name, gamma, limit, tuple(names), horizon, bounds, (turn < 0,) * len(limit))
    sign = np.append(1.0, np.full(told.I, turn)).astype(np.float32)
    turned = None if told.bounds is None else tuple(np.sort(sign * np.asarray(told.bounds), axis=0))

    def utilities(key: Any, state: Any, a: Any) -> tuple[Any, Any, Any]:
        state, h, terminated = three(step(key, state, a))
        return state, _signals(name, h, len(sign)) * sign, terminated

    statement = replace(told, bounds=turned)  # `told` has checked the bounds as the user gave them
    return Environment(statement, reset, utilities, observe, _space(action), lanes, sign=turn)


def _signals(name: str, h: Any, n: int) -> Any:
    """Return the n signals h of one step (reward, then constraints) as an array [n].

    Raise InputError, which names the environment `name`, if h has another shape.
    """
    h = jnp.stack([jnp.asarray(x, jnp.zeros(0).dtype) for x in h]) if isinstance(h, tuple | list) else h
    if getattr(h, "shape", None) != (n,):
        what = f"of shape {h.shape}" if hasattr(h, "shape") else f"as a {type(h).__name__}"
        raise InputError(f"{name}: step gives h {what}, it must be [1+I] = ({n},): the reward, then each constraint")
    return h


def _space(action: Any) -> Space:
    """Return `action` as an action space of clearance; raise InputError unless it is one, or a Gymnasium space."""
    if isinstance(action, Space):
        return action
    try:
        return restore_space(env_lanes.action(action)[0])
    except (TypeError, AttributeError):
        raise InputError(f"action must be cl.Discrete, cl.MultiDiscrete or cl.Box, got {action!r}") from None


def three(given: Any) -> tuple[Any, Any, Any]:
    if not (isinstance(given, tuple) and len(given) == 3):
        what = f"{len(given)} values" if isinstance(given, tuple) else f"a {type(given).__name__}"
        raise InputError(f"step must give (state, signals, terminated), got {what}")
    return given
