"""What every sampler gives to `direction`: weighted rows of (score, advantage)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearance.problem import Array


class Draws(NamedTuple):
    """Rows n with weight [N] (summing to 1), score ∇ log π(a_n|s_n) [N, d], advantages A [N, 1+I], pair s·A + a [N].

    An exact evaluation is a weighted sample: every (s, a) with weight d(s, a). So one `direction` serves all.
    `score` is a linear operator: `score @ w` and `score.T @ v` are all that is asked of it.
    """

    weight: Array
    score: Any
    A: Array
    pair: NDArray[np.int64]
