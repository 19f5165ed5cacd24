"""Extra inputs of a policy under limits on whole episodes: the costs so far, and the time.

Whether an episode will exceed its budget depends on the cost that it has spent, and observations may not show this
cost. The inputs of such a policy are the observation as a vector, then each cost so far divided by its scale, then the
time:

    (obs, C_1/scale_1, …, C_k/scale_k, 2t/H − 1)             C_i: cost so far,  t: time,  H: horizon
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError


@dataclass(frozen=True)
class CostMemory:
    """The names and scales of the costs that a policy sees as inputs, for episodes of at most `horizon` steps.

    `obs_shape` is the shape of the environment's own observations.
    """

    obs_shape: tuple[int, ...]
    names: tuple[str, ...]
    scales: tuple[float, ...]
    horizon: int

    @property
    def inputs(self) -> int:
        """The length of the input vector: observation, costs so far, and time."""
        return math.prod(self.obs_shape) + len(self.names) + 1

    def join(self, obs: Any, C: Any, t: Any, xp: Any = np) -> Any:
        """Join observations [..., *obs_shape], costs so far C [..., k] and times t [...] to inputs [..., inputs].

        `xp` is the array library: NumPy or JAX.
        """
        lead = obs.shape[: obs.ndim - len(self.obs_shape)]
        flat = obs.reshape(*lead, math.prod(self.obs_shape))
        spent = (C / xp.asarray(self.scales)).astype(flat.dtype)
        clock = (2.0 * t / self.horizon - 1.0).astype(flat.dtype)
        return xp.concatenate([flat, spent, clock[..., None]], -1)

    def describe(self) -> dict[str, Any]:
        sizes = {"obs_shape": list(self.obs_shape), "horizon": self.horizon}
        return {"costs": list(self.names), "scales": list(self.scales), **sizes}

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> CostMemory:
        """Return a CostMemory from the JSON data that `describe` returned; raise ValueError if the data are invalid."""
        names, scales, shape, H = (data[key] for key in ("costs", "scales", "obs_shape", "horizon"))
        whole = all(type(n) is int and n >= 0 for n in shape) and type(H) is int and H >= 1
        positive = all(isinstance(x, int | float) and math.isfinite(x) and x > 0 for x in scales)
        if not (whole and positive and len(names) == len(scales) and all(isinstance(x, str) for x in names)):
            raise ValueError("memory must have costs with positive scales, obs_shape and horizon")
        return cls(tuple(shape), tuple(names), tuple(float(x) for x in scales), H)

    @property
    def needed(self) -> str:
        """A sentence for error messages: it says which calls give the policy the costs so far."""
        what = " and ".join(self.names)
        return f"this policy acts on the sum of {what} so far: call reset() at the start of an episode and record(cost)"


class CostTracker:
    """A counter of the costs so far in n parallel episodes. Call `join` before each step and `record` after it."""

    def __init__(self, memory: CostMemory, n: int | None) -> None:
        self.memory, self.waiting = memory, False
        self.C: Array = np.zeros((1 if n is None else n, len(memory.names)))
        self.t = np.zeros(len(self.C), np.int64)

    def record(self, costs: Any) -> None:
        """Add the costs of the last step to the costs so far.

        `costs` is a dict by name. If there is only one cost, it may also be a number or an array [n].
        """
        if not self.waiting:
            raise InputError("record(cost) belongs after act(obs), once for each step")
        self.C += read_costs(self.memory, costs, len(self.C))
        self.t += 1
        self.waiting = False

    def join(self, rows: Array) -> Array:
        """Return the policy's inputs for the next step, from the observations `rows` [n, …] and the costs so far."""
        if self.waiting:
            raise InputError(f"{self.memory.needed} after every step, or give act(obs, cost_so_far=…, t=…)")
        if len(rows) != len(self.C):
            raise InputError(f"the memory is of {len(self.C)} episodes, the observations of {len(rows)}: call reset(n)")
        self.waiting = True
        return self.memory.join(rows, self.C, self.t)


def read_costs(memory: CostMemory, costs: Any, n: int) -> Array:
    """Return costs [n, k] from a dict by name or, if there is only one cost, also from a number or an array [n]."""
    names = memory.names
    if isinstance(costs, Mapping):
        missing = [name for name in names if name not in costs]
        if missing:
            raise InputError(f"the cost {missing[0]!r} is missing; this policy needs {', '.join(names)}")
        parts = [costs[name] for name in names]
    elif len(names) == 1:
        parts = [costs]
    else:
        raise InputError(f"give the costs by name: {{{', '.join(f'{name!r}: …' for name in names)}}}")
    try:
        found = np.stack([np.broadcast_to(np.asarray(x, float), (n,)) for x in parts], -1)
    except (TypeError, ValueError):
        raise InputError(f"costs must be numbers, or arrays of {n} each, got {costs!r:.60}") from None
    if not np.isfinite(found).all():
        raise InputError(f"costs must be finite, got {costs!r:.60}")
    return found
