"""An inventory problem with a service level: only a small share of the demand may be lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clearance.finite.cmdp import CMDP
from clearance.finite.transition_rows import number_names, start_at, transitions

DEMAND = (0.3, 0.2, 0.2, 0.2, 0.05, 0.05)


def inventory(
    capacity: int = 5, *, fill_rate: float = 0.95, demand: Sequence[float] = DEMAND, gamma: float = 0.95
) -> CMDP:
    """Return a shop that reviews its stock every period and may lose only a small share of the demand.

    State: the stock x = 0..M before ordering (M = `capacity`, 5). Action: the number of units to order, a = 0..M. Units
    that do not fit are not ordered, so y = min(x + a, M) units are on the shelf when the demand D arrives. Sales are
    min(y, D); unmet demand is lost; the next stock is (y − D)⁺.
    The cost of a step is the expected number of lost sales, so a limit on single episodes, such as P(lost sales > 2),
    is about the sum of these means and not about the sales lost in an episode.

        r = 8 E min(y, D) − (4 + 2(y − x)) 1{y > x} − y          revenue − ordering − holding
        cost = E (D − y)⁺,   limit = (1 − fill_rate) · E D / (1−γ)

    Σ_t γ^t E D = E D / (1−γ) for every policy. So the limit says that at most the share 1 − `fill_rate` of all
    (discounted) demand is lost. Demand 0..5 has the probabilities (.3, .2, .2, .2, .05, .05). The stock is 0 at the
    start.

    Known: for a fixed price λ of a lost sale, this is an inventory problem with fixed ordering cost. Its best policy is
    of type (s, S): order up to S when the stock is below s. The constrained optimum mixes two such policies.

    Source: Puterman 1994, section 3.2, for costs, revenue and the form; Bura et al. 2022 (DOPE) for capacity 5 and this
    demand. The service level, γ = 0.95 and the empty start are choices of this library.
    """
    p, S = np.asarray(demand, float), capacity + 1
    x, a, D = np.ogrid[:S, :S, : len(p)]
    y = np.minimum(x + a, capacity)
    P = transitions(S, S, x, a, np.maximum(y - D, 0), p)
    ordered = (y - x)[:, :, 0]
    r = 8 * np.minimum(y, D) @ p - np.where(ordered > 0, 4.0 + 2 * ordered, 0.0) - y[:, :, 0]
    lost = np.maximum(D - y, 0) @ p
    limit = (1 - fill_rate) * (np.arange(len(p)) @ p) / (1 - gamma)
    labels: Any = {
        "states": number_names("stock", S),
        "actions": [f"order-{a}" for a in range(S)],
        "names": ["lost sales"],
    }
    return CMDP(P, r, rho=start_at(S, 0), gamma=gamma, cost=lost, limit=limit, **labels)
