"""What the search by plans works with: an explored problem, and policies planned on its estimated model."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from clearance.certificates.episode_source import Episodes
from clearance.core.arrays import Array
from clearance.exact.estimated_model import EstimatedModel, PolicyEstimate
from clearance.finite.mixture import Mixture
from clearance.runs.worlds.planned_estimators import Estimator, make_estimator

ROUNDING = 1e-9  # relative to the reward: smaller differences are not mentioned


class Explored(Protocol):
    """A problem with finitely many states whose observed transitions are counted."""

    @property
    def policy(self) -> Any:
        """The class of policies in which to search."""
        ...

    def model(self) -> EstimatedModel:
        """Return the model estimated from the counts so far."""
        ...

    @property
    def high(self) -> Array:
        """The declared upper bounds of the signals [1+I]."""
        ...

    @property
    def powers(self) -> tuple[float, ...]:
        """The values of `power` from which a test may choose (see `episodes`)."""
        ...

    @property
    def available(self) -> NDArray[np.bool_]:
        """Whether each action exists in each state [S, A]."""
        ...

    def lowest(self, pi: Array) -> Array | None:
        """Return the smallest signals [S, 1+I] that the policy π can get in each state; None if they are unknown."""
        ...

    def walk(self, key: np.uint64, pi: Array, steps: float) -> int:
        """Draw episodes by the policy π [S, A] for about `steps` environment steps; return the steps taken.

        The transitions of these episodes are counted.
        """
        ...

    def episodes(self, mixture: Mixture, base: Array | None, power: float) -> Episodes:
        """Return a source of episodes of a mixture; the transitions of its episodes are counted.

        base   the control variate [S, 1+I] of the estimates of J, or None
        power  episodes continue with probability γ^power at each step
        """
        ...


class Planned(NamedTuple):
    """A policy to test, with the slack that its test needs.

    seen  the policy's estimated values and their standard errors on the estimated model
    how   the estimator of J that the test's episodes use
    need  the slack [I] that the policy needs to pass its test
    lam   the prices [I] of the limits in the plan
    """

    seen: PolicyEstimate
    how: Estimator
    need: Array
    lam: Array

    def source(self, explored: Explored) -> Episodes:
        return explored.episodes(Mixture.single(self.seen.pi), self.how.base, self.how.power)


class Ends(NamedTuple):
    """The two ends of a ladder of mixtures (`certificates.ladder`): a bold policy and a safe one, in this order.

    pi      the policies [2, S, A];  source: episodes of their mixture
    share   the share of the episodes that the bold one draws
    """

    pi: Array
    source: Episodes
    share: float

    def mixture(self, alpha: float) -> Mixture:
        """Return the mixture (a rung of the ladder) that draws the bold policy with probability α."""
        if alpha in (0.0, 1.0):
            return Mixture.single(self.pi[0 if alpha else 1])
        return Mixture([alpha, 1 - alpha], self.pi)


# Smallest and largest share of a ladder's episodes that its bold policy draws: the mixtures between the ends need
# episodes of both policies.
SHARES = 0.3, 0.6


def join_ends(explored: Explored, b: Array, bold: Planned, safe: Planned, like: Planned, need: Array) -> Ends | None:
    """Return two planned policies as the ends of a ladder; None if the safe one has no more slack than is needed.

    b     the limits [I];  need: the slack [I] with which a rung just passes
    like  a plan; its prices of the limits and its kind of estimator are used
    """
    much, little = (end.seen.J[1:] - b for end in (safe, bold))
    binding = (like.lam > 0) & (much > np.maximum(little, need))
    if not np.any(binding):
        return None
    share = float(np.clip(np.min(((much - need) / (much - little))[binding]), *SHARES))
    pi, tables = np.stack([bold.seen.pi, safe.seen.pi]), []
    for end in (bold, safe):
        lowest = explored.lowest(end.seen.pi)
        tables.append(make_estimator(end.seen, lowest, like.how.power, like.how.shorter).base)
    return Ends(pi, explored.episodes(Mixture([share, 1 - share], pi), np.stack(tables), like.how.power), share)


def loss_words(best: float, error: float, price: float, rest: float) -> str:
    """Return words on the best reward within the limits, as estimated, and on what a tested policy loses of it.

    best, error  the estimate and its standard error
    price, rest  what the slack costs that the test needs, and what better learning could gain; each is mentioned only
                 if it exceeds the error, and rounding

    >>> loss_words(38.5521, 0.023, 0.104, 0.00534)
    'estimated best reward within the limits: 38.55 ± 0.02; of that, 0.1 is given up so that the test passes'
    """
    least = max(error, ROUNDING * abs(best))
    why = ((price, "so that the test passes"), (rest, "because learning is not finished"))
    given_up = [f"{loss:.2g} is given up {reason}" for loss, reason in why if loss > least]
    lost = f"; of that, {' and '.join(given_up)}" if given_up else ""
    return f"estimated best reward within the limits: {_with_error(best, error)}{lost}"


def _with_error(x: float, error: float) -> str:
    """Return x ± error, to the first digit of the error; x alone if the error is at most rounding."""
    if not ROUNDING * abs(x) < error < math.inf:
        return f"{x:.6g}"
    digits = max(0, -math.floor(math.log10(error)))
    return f"{x:.{digits}f} ± {error:.{digits}f}"
