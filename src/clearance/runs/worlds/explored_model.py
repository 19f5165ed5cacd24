"""A finite model that is used only as a simulator. Its sampled transitions are counted, and plans use the counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from clearance.certificates.episode_source import Episodes
from clearance.core.arrays import Array
from clearance.exact.estimated_model import SURE, EstimatedModel, estimate_model, estimate_over_time
from clearance.finite.cmdp import CMDP
from clearance.finite.evaluation import occupancy
from clearance.finite.mixture import Mixture
from clearance.finite.samplers.finite_episodes import MixtureEpisodes
from clearance.finite.samplers.payments import payments_of, silent, sum_range
from clearance.finite.samplers.td_critic import Critic
from clearance.finite.samplers.total_episodes import SumEpisodes
from clearance.finite.samplers.transition_counts import TransitionCounts
from clearance.finite.softmax_policy import TiedFeaturesError, class_model
from clearance.finite.two_layer_policy import Policy
from clearance.runs.worlds.planned_estimators import POWERS

MOST_PAIRS = 50_000  # state-action pairs, beyond which a plan takes longer than the samples


@dataclass(frozen=True, eq=False)
class FiniteExplored:
    """A finite model with counts of its sampled transitions. Its probabilities are only used to draw samples.

    horizon  H if the states of the model include the time t < H, so that the counts of all steps can be added up
    """

    cmdp: CMDP
    policy: Policy
    counts: TransitionCounts
    horizon: int | None = None

    @property
    def powers(self) -> tuple[float, ...]:
        return POWERS

    def model(self) -> EstimatedModel:
        counted, (low, _) = self.counts.transitions(self.cmdp), self._bounds
        if self.horizon is not None:
            return estimate_over_time(counted, self.counts.starts, self.cmdp, low, self.horizon)
        return estimate_model(counted, self.counts.starts, self.cmdp, low)

    @property
    def _bounds(self) -> tuple[Array, Array]:
        h = np.where(self.cmdp.available, self.cmdp.h, 0.0)
        return h.min(axis=(1, 2)), h.max(axis=(1, 2))

    @property
    def high(self) -> Array:
        return self._bounds[1]

    @property
    def available(self) -> NDArray[np.bool_]:
        return self.cmdp.available

    def lowest(self, pi: Array) -> Array | None:
        """Return, for each state, the smallest signals [S, 1+I] of the actions that the policy π [S, A] may take."""
        h = np.moveaxis(self.cmdp.h, 0, -1)
        return np.where((pi > 0)[..., None], h, np.inf).min(1)

    def walk(self, key: np.uint64, pi: Array, steps: float) -> int:
        return self.counts.walk(self.cmdp, key, pi, max(1, int(steps * (1 - self.cmdp.gamma))))

    def episodes(self, mixture: Mixture, base: Array | None, power: float) -> Episodes:
        return MixtureEpisodes(self.cmdp, mixture, base, power=power, counts=self.counts)


@dataclass(frozen=True, eq=False)
class ExploredSums(FiniteExplored):
    """`FiniteExplored` for a model `true` with criterion "total".

    Plans use `cmdp`, the same model with a discount factor close to 1. Tests add up whole episodes, so they use neither
    control variates nor episodes of random length (`total_episodes`).
    """

    true: CMDP = field(kw_only=True)

    @property
    def powers(self) -> tuple[float, ...]:
        return (0.0,)

    @cached_property
    def _silent(self) -> NDArray[np.bool_]:
        """Whether no signal other than 0 can follow from each state [S] on."""
        return silent(self.true, payments_of(self.true), self.true.available)

    @cached_property
    def _sums(self) -> tuple[Array, Array]:
        """The smallest and the largest sums [1+I] that an episode can have."""
        low, high, _ = sum_range(self.true, payments_of(self.true), self.true.available)
        return np.minimum(low, 0.0), np.maximum(high, 0.0)

    @property
    def high(self) -> Array:
        return self._sums[1]

    def model(self) -> EstimatedModel:
        over, end = np.repeat(self._silent, self.cmdp.A), int(np.argmax(self._silent))
        moving: Any = sparse.diags_array((~over).astype(float))
        at = np.flatnonzero(over), np.full(over.sum(), end)
        sure = sparse.csr_array((np.full(over.sum(), SURE), at), shape=(len(over), self.cmdp.S))
        counted = sparse.csr_array(moving @ self.counts.transitions(self.cmdp) + sure)
        counted.eliminate_zeros()
        return estimate_model(counted, self.counts.starts, self.cmdp, self._sums[0], end)

    def lowest(self, pi: Array) -> None:
        return None

    def walk(self, key: np.uint64, pi: Array, steps: float) -> int:
        return SumEpisodes(self.true, Mixture.single(pi), self.counts).walk(key, steps)[0]

    def episodes(self, mixture: Mixture, base: Array | None, power: float) -> Episodes:
        model = self.model().cmdp
        over = [silent(self.true, payments_of(self.true), pi > 0) for pi in mixture.pi]
        visits = [occupancy(model, pi)[~end].sum() for pi, end in zip(mixture.pi, over, strict=True)]
        length = float(mixture.weights @ visits) / (1 - model.gamma)
        return SumEpisodes(self.true, mixture, self.counts, max(1.0, 1.1 * length))


def can_plan(cmdp: CMDP, policy: Policy) -> bool:
    """Return whether the best policy of this class can be computed by a linear program.

    This needs a policy class that can be described by linear constraints, a discounted criterion, and a model that is
    small enough to solve the program repeatedly.
    """
    if cmdp.S * cmdp.A > MOST_PAIRS or cmdp.kind != "discounted":
        return False
    try:
        return policy.tabular or class_model(cmdp, policy) is not None
    except TiedFeaturesError:
        return False


def count_transitions(sampler: Any) -> Any:
    """Return the sampler with counting of transitions switched on; unchanged if it does not support counting."""
    return replace(sampler, counting=True) if isinstance(sampler, Critic) else sampler
