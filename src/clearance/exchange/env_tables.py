"""Build models from environments that contain their transition table, such as Gymnasium's toy text environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearance.core.errors import InputError, MissingExtraError
from clearance.exchange.explicit_model import match_limits
from clearance.finite.cmdp import CMDP
from clearance.finite.gymnasium_tables import Signal, gymnasium_signal, gymnasium_table, gymnasium_varies


def from_toy_text(
    env: Any,
    *,
    gamma: float | None = None,
    criterion: str | None = None,
    horizon: int | None = None,
    costs: Mapping[str, Signal] | None = None,
    limits: Mapping[str, float] | None = None,
) -> CMDP:
    """Return the model of an environment with a table `env.unwrapped.P`: FrozenLake, Taxi, CliffWalking, or your own.

    env      the environment, or its id ("FrozenLake-v1")
    costs    functions f(s, a, s_next, reward, terminated) by name
    limits   an upper limit for each cost, by name
    gamma, criterion, horizon  the criterion, as in `CMDP`

    The end of an episode becomes an absorbing state without reward and costs; the start distribution is the
    environment's own.
    """
    env = _make(env) if isinstance(env, str) else env
    costs, limits = match_limits(costs, limits)
    P, r, rho = gymnasium_table(env)
    cost = [gymnasium_signal(env, f) for f in costs.values()]
    given = {"cost": cost, "limit": [limits[name] for name in costs], "names": list(costs)} if costs else {}
    found = CMDP(P, r, rho=rho, gamma=gamma, criterion=criterion, horizon=horizon, order="state", **given)
    signals = (lambda s, a, s_next, reward, over: reward, *costs.values())
    return found.with_averaged([gymnasium_varies(env, f) for f in signals])


def _make(name: str) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError("gymnasium", "sim") from None
    try:
        return gymnasium.make(name)
    except gymnasium.error.Error as e:
        raise InputError(f"env {name!r}: {' '.join(str(e).split())}") from None
