"""The base class of methods on simulators: batch sizes, the margin κ, and natural steps of θ with bounded KL."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np

from clearance.core.arrays import Array
from clearance.core.errors import InputError
from clearance.core.validation import check_count, check_positive
from clearance.learning.draws import Draws
from clearance.learning.methods.method_base import DrawKind, check_kappa, first_state, kappa_value, setting
from clearance.learning.natural_direction import Natural, NaturalScore, bound_step
from clearance.learning.state import State

SHRUNK = 0.85  # κ shrinks during this first share of the iterations
QUIETER = (0.4, 0.9)  # the noise is reduced between these shares of the iterations, if all batches meet the limits
# The largest number of iterations, unless K is given.
ITERATIONS = 500
# The smallest and the largest number of episodes of a batch, and its largest number of rows. `fitted` aims at
# SEEN / rare episodes.
EPISODES, SEEN = (8, 64, 2400), 0.2
ENOUGH = 125  # the number of iterations that a run should have; with long episodes, batches get smaller to reach it
STEPS, REUSE = 375, 3  # the number of steps of θ that a run should have, and the most natural steps from one batch
CLIP = 0.2  # rows whose probability ratio has moved further than this, in the wanted direction, are left out


class Sizes(Protocol):
    """A protocol for the statistics that the methods read from the memory of an actor-critic sampler.

    size    root mean square of the advantages [1+I]
    spread  standard deviation of one episode's sum [1+I]
    miss    root mean square distance of one episode's sum from its limit [I]
    """

    @property
    def size(self) -> Any: ...

    @property
    def spread(self) -> Any: ...

    @property
    def miss(self) -> Any: ...


@dataclass(frozen=True)
class NaturalSteps:
    """The base class of methods that take natural steps of θ and use a margin κ: its settings and functions."""

    K: int | None = setting(None, "iterations; as many as the budget allows, at most 500")
    N: int | None = setting(
        None, "steps per iteration: 8 episodes, fewer long ones, more short ones with rare costs, or 1/500 of all"
    )
    kl: tuple[float, float] = setting(
        (0.04, 0.015), "bound on the mean KL of one step, at the beginning and at the end"
    )
    reuse: int | None = setting(None, "natural steps from one batch; 1 to 3, more if there are few iterations")
    eta1: float = setting(1.0, "η₁, the longest step of θ, for advantages of size 1")
    kappa: float | tuple[float, ...] | Literal["auto"] = setting(
        "auto", "κ ≥ 0, the margin kept from the limits at the end"
    )
    kappa_first: float | None = setting(None, "κ at the beginning, from which it shrinks; by default it is constant")
    kappa_sd: float = setting(0.0, "κ in standard deviations of an episode's sum, at least; chosen with κ if auto")
    std_last: float = setting(0.05, "a learned σ at the end, as a share of what it was at first, at most")
    std_least: float = setting(0.02, "a learned σ at any time, as a share of what it was at first, at least")
    direction: Natural = field(default_factory=Natural, metadata={"help": "how ω is found from the draws"})

    draw_kind: ClassVar[DrawKind] = "actor-critic"

    def __post_init__(self) -> None:
        for name in ("K", "N", "reuse"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if not (isinstance(self.kl, tuple) and len(self.kl) == 2):
            raise InputError(f"kl must be two numbers, at the beginning and at the end, got {self.kl!r}")
        for name, value in (("kl", self.kl[0]), ("kl", self.kl[1]), ("eta1", self.eta1)):
            check_positive(name, value)
        if not 0 < self.std_last <= 1:
            raise InputError(f"std_last must be in (0, 1], got {self.std_last!r}")
        if not 0 < self.std_least <= 1:
            raise InputError(f"std_least must be in (0, 1], got {self.std_least!r}")
        check_kappa(self.kappa)
        if not 0 <= self.kappa_sd < np.inf:
            raise InputError(f"kappa_sd must be a number ≥ 0, got {self.kappa_sd!r}")

    def fitted(self, episode: int, budget: float, least: int, rare: float = 1.0) -> Self:
        """Return the same method with the number of iterations K, the batch size N (in steps) and `reuse` chosen.

        episode  the number of steps of an episode
        budget   the number of environment steps of the run, which limits K
        least    the smallest number of steps of a batch
        rare     the limit as a share of the largest possible cost of an episode; if it is small, batches have more
                 episodes

        If episodes are so long that batches of eight of them would leave fewer than ENOUGH iterations, a batch has
        fewer episodes: many inaccurate steps learn more than a few accurate ones.
        """
        few, many, rows = EPISODES
        few = float(np.clip(budget / (ENOUGH * episode), 1, few))
        episodes = np.clip(SEEN / max(rare, 1e-12), few, max(few, min(many, rows // episode)))
        N = max(int(max(episodes * episode, budget / ITERATIONS)) if self.N is None else self.N, least)
        most = max(1, int(budget / N))
        K = most if self.K is None else min(self.K, most)
        reuse = int(np.clip(round(STEPS / K), 1, REUSE)) if self.reuse is None else self.reuse
        return replace(self, N=N, K=K, reuse=reuse)

    def init(self, theta: Array, I: int, memory: Any = None) -> State:
        return first_state(theta, I, memory)

    @property
    def _K(self) -> int:
        return self.K or ITERATIONS

    def kl_at(self, k: int) -> float:
        """Return the bound on the KL divergence of the step in iteration k. It falls geometrically during the run."""
        return float(self.kl[0] * (self.kl[1] / self.kl[0]) ** (k / self._K))

    def kappa_at(self, k: int) -> Array:
        """Return the margin of iteration k, κ_k = κ + (κ_1 − κ)(1 − k/.85K)₊².

        The margin shrinks from κ_1 to κ, where κ_1 is the larger of κ and the setting `kappa_first` (default: κ).
        """
        kappa = np.atleast_1d(kappa_value(self.kappa))
        first = kappa if self.kappa_first is None else np.maximum(kappa, self.kappa_first)
        return kappa + max(1 - k / (SHRUNK * self._K), 0.0) ** 2 * (first - kappa)

    def margin(self, k: int, memory: Sizes) -> Array:
        """Return the margin [I] of iteration k: κ_k or `kappa_sd` standard deviations of an episode's sum, if larger.

        The second of the two counts as at most 3κ. `memory` holds the sampler's statistics.
        """
        spread = np.asarray(memory.spread, float)[1:]
        return np.maximum(self.kappa_at(k), np.minimum(self.kappa_sd * spread, 3 * np.asarray(kappa_value(self.kappa))))

    def quieter(self, quiet: float, kept: bool, k: int) -> float:
        """Return how far the exploration noise is reduced after iteration k, from 0 (not at all) to 1 (fully).

        `quiet` is the reduction before iteration k, and `kept` says whether the batch of iteration k met the limits.
        The reduction is 0 in the first part of the run (`QUIETER`). Then it grows, but only in iterations whose batch
        met the limits: with less noise, a step that is bounded in KL is shorter, so a policy that breaks its limits
        might never meet them.
        """
        begin, end = QUIETER
        return min(quiet + kept / ((end - begin) * self._K), 1.0) if k >= begin * self._K else 0.0

    def moved(self, draws: Draws, A: Array, state: State, quiet: float, kl: float | None = None) -> tuple[Array, float]:
        """Return (θ after natural steps up the advantages A [N], the norm ‖ω‖ of the last direction).

        The number of steps is `reuse`. Each of them is bounded in KL by `kl` (default: `kl_at`).

        If the policy has a learned standard deviation σ, two bounds apply, both as a share of its first value. σ is at
        most std_last^quiet, where `quiet` comes from `quieter`, so the noise is small at the end of the run. σ is at
        least `std_least`, since a cost of 0 or 1 per step has no gradient without noise.
        """
        score, kl = draws.score, self.kl_at(state.k) if kl is None else kl
        theta, A = np.asarray(state.theta, float), normalise(A, draws.weight)
        omega, step = self._step(score, A, kl)
        for _ in range((self.reuse or 1) - 1):
            theta = theta + step
            there, ratio = score.at(theta)
            omega, step = self._step(there, clipped(A, ratio), kl)
        theta = score.bound_noise(theta + step, min(self.std_least, self.std_last), self.std_last**quiet)
        return theta, float(np.linalg.norm(omega))

    def _step(self, score: NaturalScore, A: Array, kl: float) -> tuple[Array, Array]:
        """Return the natural direction ω [d] for the advantages A [N], and the step of θ along it, bounded by `kl`."""
        omega, quad, rows = self.direction(score, A)
        return omega, bound_step(rows, omega, quad, self.eta1, kl)


def clipped(A: Array, ratio: Array) -> Array:
    """Return the advantages A [N] times the probability ratios of the present policy to the one that drew the rows.

    Rows whose ratio has moved by more than CLIP in the direction that increases ratio·A get the weight 0. This is the
    gradient of PPO's objective min(ratio·A, clip(ratio, 1 − CLIP, 1 + CLIP)·A) (Schulman et al. 2017).
    """
    kept = np.where(A > 0, ratio <= 1 + CLIP, ratio >= 1 - CLIP)
    return A * ratio * kept


def normalise(A: Array, weight: Array) -> Array:
    """Return the advantages A [N], shifted and scaled to mean 0 and mean square 1 under the weights [N].

    If all advantages are equal, only the mean is removed.
    """
    A = A - weight @ A
    size = np.sqrt(weight @ A**2)
    return A / size if size > 0 else A
