"""Advice for runs in which no policy was certified: the budget, or the limits, with which the test should pass.

If even the best candidate broke a limit, the advice instead says that no policy was found that meets the limits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clearance.certificates.sequential_test import Evidence, slack_needed
from clearance.certificates.verdict_words import as_written, join_some
from clearance.core.arrays import Array

MOST = 1e9  # if more episodes than this are needed, no budget is named
SOME, SHARE = 16, 0.1  # the number of episodes of a first test, and the least share of a budget that is left for them


def advise_untested(steps: float, each: float) -> str:
    """Return one sentence of advice for a run that left no episode for its test: a budget that leaves `SOME`.

    steps  environment steps of the whole run;  each: the mean length of an episode
    """
    least = max(2 * steps, ((np.sqrt(SOME) + 2) ** 2 - 4) * each / SHARE)
    return f"no episode was left for the test, so nothing is known of the policy: give about {least:.2g} steps or more"


def advise(seen: Evidence, b: Array, steps: float, test: float, names: Sequence[str], costs: Sequence[bool]) -> str:
    """Return one sentence of advice, from the test of the policy that came closest to a certificate.

    seen   the evidence of this test
    b      the limits [I]
    steps  environment steps of the whole run
    test   environment steps of the last test of the run
    names  the names of the constraints [I]
    costs  mask [I] of the constraints that are costs
    """
    slack, sd, n = seen.mean[1:] - b, seen.sd[1:], seen.episodes
    error = sd / np.sqrt(max(n, 1))
    value = [as_written(float(x), cost=c) for x, c in zip(seen.mean[1:], costs, strict=True)]
    limit = [as_written(float(x), cost=c) for x, c in zip(b, costs, strict=True)]
    if np.any(slack <= 0):
        word = ["smallest" if c else "largest" for c in costs]
        broken = [
            f"the {word[i]} {names[i]} reached was {value[i]:.4g} ± {error[i]:.2g}, its limit is {limit[i]:.6g}"
            for i in np.flatnonzero(slack <= 0).tolist()
        ]
        return f"no policy was found that meets the limits: {join_some(broken)}; whether one exists is not known"
    ends = [as_written(float(x), cost=c) for x, c in zip(seen.lower[1:], costs, strict=True)]
    pass_now = [
        f"{name} {'≤' if c else '≥'} {x:.4g}" for name, c, x in zip(names, costs, ends, strict=True) if np.isfinite(x)
    ]
    budget = _budget(seen, slack, sd, steps, test)
    more = "" if budget is None else f"a budget of about {budget:.2g} steps should certify it, and "
    passing = f"{more}the limits {join_some(pass_now)} pass now"
    return f"the policy met every limit in {n} episodes, but by too little: {passing}"


def _budget(seen: Evidence, slack: Array, sd: Array, steps: float, test: float) -> float | None:
    """Return the number of environment steps with which a run should certify a policy with the slack `slack` [I].

    Return None if that takes more than `MOST` episodes. `seen` is the evidence of a test in which one episode's
    estimate had the standard deviation sd [I]. The whole run took `steps` steps, and its last test took `test` of them;
    the result assumes that a larger run spends the same share on the test.
    """
    width = np.array([bets.width for bets in seen.tally.up[1:]])
    n = float(max(seen.episodes, 1))
    while np.any(slack_needed(sd, width, n, seen.delta) > slack):
        n *= 1.2
        if n > MOST:
            return None
    return steps * max(1.5 * n * seen.steps / max(seen.episodes, 1) / max(test, 1.0), 1.2)
