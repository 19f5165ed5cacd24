"""Convert a time budget to a number of environment steps: short runs of the same kind are timed before the run.

The run itself then uses that number of steps, and the clock has no further influence. So its certificate has the usual
meaning, and a resumed run is bit-identical. If the machine gets busier later, the run takes longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from clearance.core.errors import InputError, SmallBudgetError

FIRST, FACTOR = 2e4, 4  # steps of the first short run; each further one has FACTOR times as many
SHARE = 0.05  # a short run that took more than this share of the remaining time measures the speed well enough
CAREFUL = 0.9  # share of the remaining time that is used: arrays of new shapes cause a compilation


def steps_within(
    seconds: float, attempt: Callable[[float], object], clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return how many environment steps a run may take, so that it ends within `seconds` from now.

    attempt  function that makes a whole run with a budget of steps; it raises `SmallBudgetError` if the budget is too
             small for any run
    clock    function that returns the time in seconds
    """
    began, steps, done = clock(), FIRST, 0.0
    while True:
        started = clock()
        try:
            attempt(steps)
            done = steps
        except SmallBudgetError as e:
            if steps > 1e12:  # more than any machine does in time
                raise InputError(f"budget of {seconds:g} s is too short: {e}") from None
        took, left = clock() - started, seconds - (clock() - began)
        if left <= 0:
            least = f"a run of {steps:.3g} steps alone takes {took:.3g} s here"
            raise InputError(f"budget of {seconds:g} s is too short: {least}; give more, or a number of steps")
        if done and took > SHARE * left:
            return max(float(int(CAREFUL * left * done / took)), 1.0)
        steps *= FACTOR
